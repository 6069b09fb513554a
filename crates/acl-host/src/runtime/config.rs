//! Settings of the embedded device: how many devices, how much memory, which chip it passes for.
//!
//! A setting given to [`configure`] wins over its environment variable, which wins over the default. All are read once, at
//! first use; a wrong value in the environment keeps the default and is told by `aclInit`'s message.

use std::sync::{Mutex, OnceLock};

/// What a caller may choose; `None` leaves the choice to the environment and then to the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Number of virtual devices (`CANN_NODE_HOST_DEVICES`, default 1).
    pub devices: Option<usize>,
    /// Memory of each device (`CANN_NODE_HOST_MEMORY`, default the machine's or the control group's).
    pub memory_bytes: Option<usize>,
    /// The chip: a family (`310P`, `910B`, `910_93`, `A3`, `310B`, `910A`) or a full name (`CANN_NODE_HOST_SOC`, default `Host`).
    pub soc: Option<String>,
    /// Whether devices reach each other's memory (`CANN_NODE_HOST_PEER`, default on where the chip can).
    pub peer: Option<bool>,
    /// Threads that compute one kernel (`CANN_NODE_HOST_THREADS`, default the cores; never more than the cores).
    pub threads: Option<usize>,
    /// Checked mode (`CANN_NODE_HOST_CHECK`, default off; there `print` also writes each finding to stderr).
    pub check: Option<bool>,
}

/// Why [`configure`] refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("the device is in use with another value of {setting}")]
    InUse { setting: &'static str },
    #[error("{setting} cannot be {value}")]
    Invalid { setting: &'static str, value: String },
}

/// Fixes the settings before first use. Afterwards only the values already in force are accepted.
pub fn configure(config: Config) -> Result<(), ConfigError> {
    for (setting, value) in
        [("devices", config.devices), ("threads", config.threads), ("memory_bytes", config.memory_bytes)]
    {
        if value == Some(0) {
            return Err(ConfigError::Invalid { setting, value: "0".into() });
        }
    }
    if let Some(devices) = config.devices.filter(|n| *n > MAX_DEVICES) {
        return Err(ConfigError::Invalid { setting: "devices", value: devices.to_string() });
    }
    if let Some(soc) = config.soc.as_ref().filter(|name| !soc_name_is_valid(name)) {
        return Err(ConfigError::Invalid { setting: "soc", value: soc.clone() });
    }
    let mut chosen = CHOSEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match SETTINGS.get() {
        None => merge(&mut chosen, config),
        Some(settings) => settings.accepts(&config),
    }
}

/// The settings in force; the first call fixes them.
pub(crate) fn settings() -> &'static Settings {
    if let Some(settings) = SETTINGS.get() {
        return settings;
    }
    // The lock makes "no settings yet" and "the choice is merged" one step for configure().
    let chosen = CHOSEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    SETTINGS.get_or_init(|| Settings::resolve(&chosen, |name| std::env::var(name).ok(), &Machine::read()))
}

/// What the environment says that is not understood, and what holds instead. Fixes the settings.
pub fn misunderstood() -> &'static [String] {
    &settings().warnings
}

/// The settings once something has fixed them.
pub(crate) fn in_force() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Chip generations that differ in what they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Ascend910A,
    /// Also what the embedded device is when it goes by its own name.
    Ascend910B,
    Ascend910_93,
    Ascend310P,
    Ascend310B,
}

impl Family {
    fn of(soc_name: &str) -> Family {
        let is = |prefix| soc_name.starts_with(prefix);
        if is("Ascend910A") || is("Ascend910ProA") || is("Ascend910PremiumA") {
            Family::Ascend910A
        } else if is("Ascend910_93") {
            Family::Ascend910_93
        } else if is("Ascend310P") {
            Family::Ascend310P
        } else if is("Ascend310B") {
            Family::Ascend310B
        } else {
            Family::Ascend910B
        }
    }

    fn is_inference_card(self) -> bool {
        matches!(self, Family::Ascend310P | Family::Ascend310B)
    }

    /// Reserved address ranges with memory mapped into them.
    pub(crate) fn has_vmm(self) -> bool {
        // Windows charges an anonymous map to the page file when it is made, so a large reservation is not free there.
        cfg!(unix) && !self.is_inference_card()
    }

    pub(crate) fn has_capture(self) -> bool {
        !self.is_inference_card()
    }

    pub(crate) fn has_peer_access(self) -> bool {
        !self.is_inference_card()
    }

    /// Streams of one device, its default stream included.
    pub(crate) fn stream_limit(self) -> usize {
        match self {
            Family::Ascend910B | Family::Ascend910_93 => 1984,
            Family::Ascend310P => 1024,
            Family::Ascend310B => 512,
            Family::Ascend910A => 2048,
        }
    }

    /// Events of one device.
    pub(crate) fn event_limit(self) -> usize {
        match self {
            Family::Ascend310P | Family::Ascend310B => 1023,
            _ => 65536,
        }
    }
}

/// Settings after the choice, the environment and the defaults were put together.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) devices: usize,
    /// Of each device.
    pub(crate) memory_bytes: usize,
    /// The machine's, or what this process may have of it.
    pub(crate) host_memory_bytes: usize,
    pub(crate) soc_name: String,
    pub(crate) family: Family,
    pub(crate) peer: bool,
    pub(crate) threads: usize,
    pub(crate) check: bool,
    /// Checked mode writes what it finds to stderr.
    pub(crate) print_findings: bool,
    /// What was wrong in the environment.
    pub(crate) warnings: Vec<String>,
}

const MAX_DEVICES: usize = 64;
// Unit tests share a process and take a device each.
const DEFAULT_DEVICES: usize = if cfg!(test) { 16 } else { 1 };
const FALLBACK_MEMORY_BYTES: usize = 4 << 30;

static CHOSEN: Mutex<Config> =
    Mutex::new(Config { devices: None, memory_bytes: None, soc: None, peer: None, threads: None, check: None });
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// What the machine has.
struct Machine {
    cores: usize,
    memory_bytes: usize,
}

impl Machine {
    fn read() -> Machine {
        let memory_bytes =
            [physical_memory_bytes(), cgroup_limit_bytes()].into_iter().flatten().filter(|n| *n > 0).min();
        Machine {
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: memory_bytes.unwrap_or(FALLBACK_MEMORY_BYTES),
        }
    }
}

impl Settings {
    fn resolve(chosen: &Config, env: impl Fn(&str) -> Option<String>, machine: &Machine) -> Settings {
        let mut warnings = Vec::new();
        let mut read = |name: &str, default: &str, accept: &mut dyn FnMut(&str) -> bool| {
            if let Some(value) = env(name).filter(|value| !value.trim().is_empty())
                && !accept(value.trim())
            {
                warnings.push(format!("{name}={value} is not understood, {default} is used"));
            }
        };

        let mut devices = DEFAULT_DEVICES;
        read("CANN_NODE_HOST_DEVICES", "the default", &mut |text| match text.parse() {
            Ok(n @ 1..=MAX_DEVICES) => {
                devices = n;
                true
            }
            _ => false,
        });
        let mut memory_bytes = machine.memory_bytes;
        read("CANN_NODE_HOST_MEMORY", "the machine's memory", &mut |text| match parse_bytes(text) {
            Some(bytes) if bytes > 0 => {
                memory_bytes = bytes;
                true
            }
            _ => false,
        });
        let mut soc_name = "Host".to_owned();
        read("CANN_NODE_HOST_SOC", "Host", &mut |text| {
            let valid = soc_name_is_valid(text);
            if valid {
                soc_name = full_soc_name(text);
            }
            valid
        });
        let mut threads = machine.cores;
        read("CANN_NODE_HOST_THREADS", "one per core", &mut |text| match text.parse::<usize>() {
            Ok(n) if n > 0 => {
                threads = n;
                true
            }
            _ => false,
        });
        let (mut peer, mut check, mut print_findings) = (None, false, false);
        read("CANN_NODE_HOST_PEER", "the chip's answer", &mut |text| {
            peer = parse_switch(text);
            peer.is_some()
        });
        read("CANN_NODE_HOST_CHECK", "off", &mut |text| {
            print_findings = text.eq_ignore_ascii_case("print");
            let on = if print_findings { Some(true) } else { parse_switch(text) };
            check = on.unwrap_or(false);
            on.is_some()
        });

        if let Some(soc) = &chosen.soc {
            soc_name = full_soc_name(soc);
        }
        let family = Family::of(&soc_name);
        let peer = chosen.peer.or(peer).unwrap_or(true) && family.has_peer_access();
        Settings {
            devices: chosen.devices.unwrap_or(devices),
            memory_bytes: chosen.memory_bytes.unwrap_or(memory_bytes),
            host_memory_bytes: machine.memory_bytes,
            soc_name,
            family,
            peer,
            threads: chosen.threads.unwrap_or(threads).min(machine.cores),
            check: chosen.check.unwrap_or(check),
            print_findings,
            warnings,
        }
    }

    fn accepts(&self, config: &Config) -> Result<(), ConfigError> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let same = [
            ("devices", config.devices.is_none_or(|n| n == self.devices)),
            ("memory_bytes", config.memory_bytes.is_none_or(|n| n == self.memory_bytes)),
            ("soc", config.soc.as_ref().is_none_or(|name| full_soc_name(name) == self.soc_name)),
            ("peer", config.peer.is_none_or(|on| (on && self.family.has_peer_access()) == self.peer)),
            ("threads", config.threads.is_none_or(|n| n.min(cores) == self.threads)),
            ("check", config.check.is_none_or(|on| on == self.check)),
        ];
        match same.into_iter().find(|(_, same)| !same) {
            Some((setting, _)) => Err(ConfigError::InUse { setting }),
            None => Ok(()),
        }
    }
}

/// Before first use a later choice may add to an earlier one, not change it.
fn merge(chosen: &mut Config, config: Config) -> Result<(), ConfigError> {
    fn one<T: PartialEq>(old: &Option<T>, new: &Option<T>, setting: &'static str) -> Result<(), ConfigError> {
        match (old, new) {
            (Some(old), Some(new)) if old != new => Err(ConfigError::InUse { setting }),
            _ => Ok(()),
        }
    }
    one(&chosen.devices, &config.devices, "devices")?;
    one(&chosen.memory_bytes, &config.memory_bytes, "memory_bytes")?;
    one(&chosen.soc, &config.soc, "soc")?;
    one(&chosen.peer, &config.peer, "peer")?;
    one(&chosen.threads, &config.threads, "threads")?;
    one(&chosen.check, &config.check, "check")?;
    chosen.devices = config.devices.or(chosen.devices);
    chosen.memory_bytes = config.memory_bytes.or(chosen.memory_bytes);
    chosen.soc = config.soc.or(chosen.soc.take());
    chosen.peer = config.peer.or(chosen.peer);
    chosen.threads = config.threads.or(chosen.threads);
    chosen.check = config.check.or(chosen.check);
    Ok(())
}

fn full_soc_name(name: &str) -> String {
    match name {
        "310P" => "Ascend310P3",
        "910B" => "Ascend910B3",
        "910_93" | "A3" => "Ascend910_9391",
        "310B" => "Ascend310B4",
        "910A" => "Ascend910A",
        full => full,
    }
    .to_owned()
}

fn soc_name_is_valid(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Some(true),
        "0" | "off" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// `512M`, `2G`: an integer, then nothing or one of K, M, G, T (powers of 1024, optional B).
fn parse_bytes(text: &str) -> Option<usize> {
    let upper = text.to_ascii_uppercase();
    let number = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let shift = match number.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { number } else { &number[..number.len() - 1] };
    digits.trim_end().parse::<usize>().ok()?.checked_mul(1usize.checked_shl(shift)?)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn physical_memory_bytes() -> Option<usize> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

#[cfg(target_vendor = "apple")]
fn physical_memory_bytes() -> Option<usize> {
    use std::ffi::{c_char, c_int, c_void};
    unsafe extern "C" {
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_bytes: *mut usize,
            new: *const c_void,
            new_bytes: usize,
        ) -> c_int;
    }
    let (mut memory, mut bytes) = (0u64, size_of::<u64>());
    // SAFETY: the name ends in a zero, the value is a u64 and its size is told, nothing is set.
    let failed =
        unsafe { sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut memory).cast(), &mut bytes, std::ptr::null(), 0) };
    (failed == 0).then_some(usize::try_from(memory).ok()).flatten()
}

#[cfg(windows)]
fn physical_memory_bytes() -> Option<usize> {
    /// `MEMORYSTATUSEX` of the Windows headers.
    #[repr(C)]
    #[derive(Default)]
    struct MemoryStatus {
        length: u32,
        load: u32,
        total_physical: u64,
        others: [u64; 6],
    }
    const _: () = assert!(size_of::<MemoryStatus>() == 64);
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GlobalMemoryStatusEx(status: *mut MemoryStatus) -> i32;
    }
    let mut status = MemoryStatus { length: size_of::<MemoryStatus>() as u32, ..MemoryStatus::default() };
    // SAFETY: the structure is a local and tells its own length, as the function wants it.
    let worked = unsafe { GlobalMemoryStatusEx(&mut status) };
    (worked != 0).then_some(usize::try_from(status.total_physical).ok()).flatten()
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
fn physical_memory_bytes() -> Option<usize> {
    None
}

/// The smallest limit of this process's control group and those above it, version 2 or 1.
fn cgroup_limit_bytes() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = cgroup_limit_files(&groups);
    // "max" is no number, and no limit.
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok()).min()
}

fn cgroup_limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut add = |root: &str, group: &str, file: &str| {
        let mut group = group.trim_end_matches('/');
        loop {
            files.push(format!("{root}{group}/{file}"));
            match group.rfind('/') {
                Some(at) => group = &group[..at],
                None => break,
            }
        }
    };
    // Inside a container the path is the host's, but the root of the mount is the container's own group.
    add("/sys/fs/cgroup", "", "memory.max");
    add("/sys/fs/cgroup/memory", "", "memory.limit_in_bytes");
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next(), fields.next()) {
            (Some(""), Some(group)) => add("/sys/fs/cgroup", group, "memory.max"),
            (Some(controllers), Some(group)) if controllers.split(',').any(|name| name == "memory") => {
                add("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
            }
            _ => {}
        }
    }
    files.sort();
    files.dedup();
    files
}

#[cfg(any(target_os = "linux", target_os = "android", test))]
fn parse_meminfo(text: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { cores: 8, memory_bytes: 1 << 30 };

    fn resolve(chosen: &Config, env: &[(&str, &str)]) -> Settings {
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Settings::resolve(chosen, env, &MACHINE)
    }

    #[test]
    fn bytes_are_read_with_units() {
        for (text, bytes) in [
            ("512M", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("2GiB", Some(2 << 30)),
            ("3kb", Some(3072)),
            ("4096", Some(4096)),
            ("1.5G", None),
            ("", None),
            ("G", None),
            ("99999999999T", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
        assert_eq!(parse_meminfo("MemTotal:  2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
    }

    #[test]
    fn limits_are_looked_for_in_the_own_group_and_above() {
        let files = cgroup_limit_files("0::/a.slice/b\n4:memory,x:/c\n5:cpu:/d\n");
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/a.slice/b/memory.max",
                "/sys/fs/cgroup/a.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/memory/c/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert!(Machine::read().memory_bytes > 0);
    }

    #[test]
    fn defaults_come_from_the_machine() {
        let settings = resolve(&Config::default(), &[]);
        assert_eq!((settings.memory_bytes, settings.threads), (1 << 30, 8));
        assert_eq!((settings.soc_name.as_str(), settings.family), ("Host", Family::Ascend910B));
        assert!(settings.peer && !settings.check && settings.warnings.is_empty());
    }

    #[test]
    fn the_environment_is_read_and_wrong_values_are_told() {
        let env = [
            ("CANN_NODE_HOST_DEVICES", "3"),
            ("CANN_NODE_HOST_MEMORY", "64M"),
            ("CANN_NODE_HOST_SOC", "310P"),
            ("CANN_NODE_HOST_THREADS", "99"),
            ("CANN_NODE_HOST_CHECK", "on"),
        ];
        let settings = resolve(&Config::default(), &env);
        assert_eq!((settings.devices, settings.memory_bytes, settings.threads), (3, 64 << 20, 8));
        assert_eq!((settings.soc_name.as_str(), settings.family), ("Ascend310P3", Family::Ascend310P));
        assert!(!settings.peer && settings.check);
        assert!(!settings.family.has_vmm() && !settings.family.has_capture());

        let env = [
            ("CANN_NODE_HOST_DEVICES", "-1"),
            ("CANN_NODE_HOST_MEMORY", "lots"),
            ("CANN_NODE_HOST_SOC", "a b"),
            ("CANN_NODE_HOST_PEER", "maybe"),
            ("CANN_NODE_HOST_THREADS", "0"),
            ("CANN_NODE_HOST_CHECK", "2"),
        ];
        let settings = resolve(&Config::default(), &env);
        assert_eq!(settings.warnings.len(), 6);
        assert_eq!((settings.devices, settings.memory_bytes), (DEFAULT_DEVICES, 1 << 30));
    }

    #[test]
    fn a_choice_wins_over_the_environment() {
        let chosen = Config { devices: Some(2), soc: Some("A3".into()), peer: Some(false), ..Config::default() };
        let settings = resolve(&chosen, &[("CANN_NODE_HOST_DEVICES", "5"), ("CANN_NODE_HOST_PEER", "1")]);
        assert_eq!((settings.devices, settings.peer), (2, false));
        assert_eq!((settings.soc_name.as_str(), settings.family), ("Ascend910_9391", Family::Ascend910_93));
    }

    #[test]
    fn families_follow_the_name() {
        for (name, family) in [
            ("910A", Family::Ascend910A),
            ("Ascend910ProA", Family::Ascend910A),
            ("910B", Family::Ascend910B),
            ("910_93", Family::Ascend910_93),
            ("310B", Family::Ascend310B),
            ("Ascend950", Family::Ascend910B),
        ] {
            assert_eq!(Family::of(&full_soc_name(name)), family, "{name}");
        }
    }

    #[test]
    fn later_choices_add_but_do_not_change() {
        let mut chosen = Config { threads: Some(2), ..Config::default() };
        assert_eq!(merge(&mut chosen, Config { devices: Some(4), threads: Some(2), ..Config::default() }), Ok(()));
        assert_eq!(chosen.devices, Some(4));
        assert_eq!(
            merge(&mut chosen, Config { threads: Some(3), ..Config::default() }),
            Err(ConfigError::InUse { setting: "threads" })
        );
        assert_eq!(chosen.threads, Some(2));

        let settings = resolve(&chosen, &[]);
        assert_eq!(settings.accepts(&Config::default()), Ok(()));
        assert_eq!(
            settings.accepts(&Config { soc: Some("310P".into()), ..Config::default() }),
            Err(ConfigError::InUse { setting: "soc" })
        );
    }
}
