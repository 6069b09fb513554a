//! The drivers of this process, the list of their devices, and the report on why a driver is or is not there.
//!
//! This is the one place that knows which tables exist: the vendor's libraries if they can be opened, and the embedded
//! device, always. Looking for them may block, so it happens on a thread of its own, once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use acl_sys::{AclApi, Attempt};
use cann_backend::device::{DeviceInfo as CoreDevice, DeviceType, DriverEntry, DriverKind, Registry};
use cann_backend::error::Error;
use napi::bindgen_prelude::Object;
use napi::{Env, Result};
use napi_derive::napi;

use crate::promise::promise_on_thread;

#[napi(object, object_from_js = false)]
pub struct DeviceMemory {
    pub free: f64,
    pub total: f64,
}

#[napi(object, object_from_js = false)]
pub struct DeviceVmm {
    pub supported: bool,
    pub granularity: f64,
}

#[napi(object, object_from_js = false)]
pub struct DeviceCaps {
    #[napi(js_name = "async")]
    pub asynchronous: bool,
    pub host_buffer: bool,
    pub buffer_from_host_ptr: bool,
    pub events: bool,
}

#[napi(object, object_from_js = false)]
pub struct DeviceInfo {
    pub index: u32,
    pub name: String,
    pub description: String,
    #[napi(ts_type = "'cann' | 'host'")]
    pub driver: &'static str,
    #[napi(js_name = "type", ts_type = "'cpu' | 'gpu' | 'accel'")]
    pub ty: &'static str,
    pub memory: DeviceMemory,
    pub vmm: DeviceVmm,
    pub caps: DeviceCaps,
}

#[napi(object, object_from_js = false)]
pub struct LibraryReport {
    pub name: String,
    #[napi(ts_type = "string | null")]
    pub path: Nullable,
    #[napi(ts_type = "string | null")]
    pub error: Nullable,
}

#[napi(object, object_from_js = false)]
pub struct DriverReport {
    #[napi(ts_type = "'cann' | 'host'")]
    pub driver: &'static str,
    pub available: bool,
    #[napi(ts_type = "string | null")]
    pub version: Nullable,
    pub libraries: Vec<LibraryReport>,
    pub missing_symbols: Vec<&'static str>,
    #[napi(ts_type = "string | null")]
    pub hint: Nullable,
}

/// A string or null (an absent `Option` of an object would be undefined).
pub(crate) type Nullable = napi::Either<String, napi::bindgen_prelude::Null>;

pub(crate) fn nullable(text: Option<String>) -> Nullable {
    text.map_or(napi::Either::B(napi::bindgen_prelude::Null), napi::Either::A)
}

/// Every usable device.
#[napi(catch_unwind, ts_return_type = "Promise<Array<DeviceInfo>>")]
pub fn list_devices(env: &Env) -> Result<Object<'_>> {
    promise_on_thread(
        env,
        "cann-probe",
        || Ok(registry().devices()),
        |_, devices| Ok(devices.iter().map(device_info).collect::<Vec<_>>()),
    )
}

/// Why an NPU is or is not used.
#[napi(catch_unwind, ts_return_type = "Promise<Array<DriverReport>>")]
pub fn driver_report(env: &Env) -> Result<Object<'_>> {
    promise_on_thread(env, "cann-probe", || Ok(report()), |_, report| Ok(report))
}

pub(crate) fn device_info(device: &CoreDevice) -> DeviceInfo {
    DeviceInfo {
        index: device.index as u32,
        name: device.name.clone(),
        description: device.description.clone(),
        driver: driver_name(device.driver),
        ty: match device.ty {
            DeviceType::Cpu => "cpu",
            DeviceType::Gpu => "gpu",
            DeviceType::Accel => "accel",
        },
        memory: DeviceMemory { free: device.memory_free as f64, total: device.memory_total as f64 },
        vmm: DeviceVmm { supported: device.vmm_supported, granularity: device.vmm_granularity as f64 },
        caps: DeviceCaps {
            asynchronous: device.caps_async,
            host_buffer: device.caps_host_buffer,
            buffer_from_host_ptr: device.caps_buffer_from_host_ptr,
            events: device.caps_events,
        },
    }
}

/// The drivers of this process. Blocks the first time: only for threads that may.
pub(crate) fn registry() -> Arc<Registry> {
    drivers().registry.clone()
}

struct Drivers {
    registry: Arc<Registry>,
    cann: CannDriver,
}

/// What became of the vendor's libraries.
struct CannDriver {
    loaded: bool,
    attempts: Vec<Attempt>,
    missing: Vec<&'static str>,
    version: Option<String>,
    hint: Option<String>,
}

fn drivers() -> &'static Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let mut entries = Vec::new();
        let cann = match load_cann() {
            Ok((api, driver)) => {
                let (api, kind) = (Arc::new(api), DriverKind::Cann);
                entries.push(DriverEntry { api, kind, prefix: "CANN", description: None });
                driver
            }
            Err(driver) => driver,
        };
        entries.push(DriverEntry {
            api: Arc::new(acl_host::api()),
            kind: DriverKind::Host,
            prefix: "HOST",
            description: Some(host_description()),
        });
        Drivers { registry: Arc::new(Registry::new(entries)), cann }
    })
}

/// Threads that `Backend.open({ threads })` asked of the embedded device.
static HOST_THREADS: OnceLock<usize> = OnceLock::new();

/// Fixes the threads of the embedded device, before its first use.
pub(crate) fn configure_threads(threads: usize) -> cann_backend::error::Result<()> {
    let config = acl_host::Config { threads: Some(threads), ..Default::default() };
    acl_host::configure(config).map_err(|error| {
        Error::invalid("options.threads", format!("the number of threads in use or one set before first use ({error})"))
    })?;
    // Equal to what is there when it is set already: configure() refuses another value.
    let _ = HOST_THREADS.set(threads);
    Ok(())
}

/// "Host: <processor>, <instruction set>, <n> threads".
fn host_description() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let asked =
        std::env::var("CANN_NODE_HOST_THREADS").ok().and_then(|text| text.trim().parse().ok()).filter(|n| *n > 0);
    let threads = HOST_THREADS.get().copied().or(asked).unwrap_or(cores).min(cores);
    let isa = acl_host::kernels::isa::Isa::current().name();
    let plural = if threads == 1 { "" } else { "s" };
    format!("Host: {}, {isa}, {threads} thread{plural}", processor())
}

fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let windows = || std::env::var("PROCESSOR_IDENTIFIER").ok();
    let model = model.map(|(_, name)| name.trim().to_owned()).or_else(windows);
    model.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn load_cann() -> std::result::Result<(AclApi, CannDriver), CannDriver> {
    let single = std::env::var_os("CANN_NODE_ACL_LIB").filter(|path| !path.is_empty()).map(PathBuf::from);
    let absent = |attempts, hint: String| CannDriver {
        loaded: false,
        attempts,
        missing: Vec::new(),
        version: None,
        hint: Some(hint),
    };
    let (loaded, folders) = match single {
        Some(path) => (AclApi::load_single(&path), Vec::new()),
        None if cfg!(all(target_os = "linux", target_env = "gnu")) => {
            let folders = toolkit_folders(|name| std::env::var_os(name).map(PathBuf::from));
            (AclApi::load(&folders), folders)
        }
        None => {
            let hint = "CANN exists for Linux with glibc only; this platform computes on the embedded device";
            return Err(absent(Vec::new(), hint.to_owned()));
        }
    };
    match loaded {
        Ok(loaded) => {
            let driver = CannDriver {
                loaded: true,
                missing: loaded.api.missing(),
                attempts: loaded.attempts,
                version: folders.iter().find_map(|folder| toolkit_version(folder)),
                hint: None,
            };
            Ok((loaded.api, driver))
        }
        Err(error) => {
            let found = error.attempts.iter().any(|attempt| attempt.path.is_some());
            let hint = if found {
                "a library was found but could not be opened: source the toolkit's set_env.sh, so that the libraries it needs are found"
            } else if Path::new("/dev/davinci_manager").exists() {
                "the NPU's driver is there but no CANN toolkit was found: install it, or set ASCEND_HOME_PATH to its folder"
            } else {
                "no Ascend NPU driver or CANN toolkit was found on this machine"
            };
            Err(absent(error.attempts, hint.to_owned()))
        }
    }
}

/// Folders that may hold the toolkit's libraries, best first.
fn toolkit_folders(var: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].iter().filter_map(|name| var(name)).collect();
    let installs = ["cann", "ascend-toolkit/latest", "latest"];
    roots.extend(installs.iter().map(|folder| Path::new("/usr/local/Ascend").join(folder)));
    if let Some(home) = var("HOME") {
        roots.extend(installs.iter().map(|folder| home.join("Ascend").join(folder)));
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for root in roots {
        for folder in [root.join("lib64"), root] {
            if folder.is_absolute() && !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// The version that the toolkit's own file states, if it is next to its libraries.
fn toolkit_version(folder: &Path) -> Option<String> {
    let root = if folder.ends_with("lib64") { folder.parent()? } else { folder };
    let text = std::fs::read_to_string(root.join("version.cfg")).ok()?;
    text.lines().find_map(|line| line.split_once("version=")).map(|(_, version)| version.trim().to_owned())
}

fn report() -> Vec<DriverReport> {
    let drivers = drivers();
    let devices = drivers.registry.devices();
    let usable = |kind: DriverKind| devices.iter().any(|device| driver_name(device.driver) == driver_name(kind));
    let cann = &drivers.cann;
    let available = usable(DriverKind::Cann);
    let hint = match (available, cann.loaded) {
        (true, _) => None,
        (false, false) => cann.hint.clone(),
        (false, true) => Some(
            "the libraries were opened but no device answered: see `npu-smi info`, access to /dev/davinci*, and CANN_NODE_LOG=warn".into(),
        ),
    };
    vec![
        DriverReport {
            driver: driver_name(DriverKind::Cann),
            available,
            version: nullable(cann.version.clone()),
            libraries: cann.attempts.iter().map(library).collect(),
            missing_symbols: cann.missing.clone(),
            hint: nullable(hint),
        },
        DriverReport {
            driver: driver_name(DriverKind::Host),
            available: usable(DriverKind::Host),
            version: nullable(Some(env!("CARGO_PKG_VERSION").to_owned())),
            libraries: Vec::new(),
            missing_symbols: Vec::new(),
            hint: nullable(None),
        },
    ]
}

fn library(attempt: &Attempt) -> LibraryReport {
    LibraryReport {
        name: attempt.name.clone(),
        path: nullable(attempt.path.as_ref().map(|path| path.display().to_string())),
        error: nullable(attempt.error.clone()),
    }
}

fn driver_name(kind: DriverKind) -> &'static str {
    match kind {
        DriverKind::Cann => "cann",
        DriverKind::Host => "host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_before_the_usual_places() {
        let folders = toolkit_folders(|name| match name {
            "ASCEND_TOOLKIT_HOME" => Some("/opt/cann".into()),
            "HOME" => Some("/home/me".into()),
            _ => None,
        });
        assert_eq!(folders[0], Path::new("/opt/cann/lib64"));
        assert_eq!(folders[1], Path::new("/opt/cann"));
        assert!(folders.contains(&"/usr/local/Ascend/ascend-toolkit/latest/lib64".into()));
        assert!(folders.contains(&"/home/me/Ascend/latest/lib64".into()));
    }
}
