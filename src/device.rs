//! The drivers of this process, the list of their devices, and the report on why a driver is or is not there.
//!
//! This is the one place that knows which tables exist: the vendor's libraries if they can be opened, and the embedded
//! device, always. Looking for them may block, so it happens on a thread of its own, once.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use acl_sys::{AclApi, Attempt};
use cann_backend::device::{
    DeviceInfo as CoreDevice, DeviceType, DriverEntry, DriverKind, Registry, essentials_missing, versions,
};
use cann_backend::error::Error;
use napi::bindgen_prelude::Object;
use napi::{Env, Result};
use napi_derive::napi;

use crate::promise::promise_on_thread;
use crate::toolkit::{self, surroundings};

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
    /// Those of the missing without which no device can be used.
    pub essential_missing: Vec<&'static str>,
    /// The toolkit's folder.
    #[napi(ts_type = "string | null")]
    pub toolkit: Nullable,
    /// What the library says of its interface, and of the NPU's driver.
    #[napi(ts_type = "string | null")]
    pub interface_version: Nullable,
    #[napi(ts_type = "string | null")]
    pub driver_version: Nullable,
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
#[derive(Default)]
struct CannDriver {
    /// The table, where every essential function was found.
    api: Option<Arc<AclApi>>,
    attempts: Vec<Attempt>,
    missing: Vec<&'static str>,
    /// Functions among the missing without which no device can be used.
    essentials_missing: Vec<&'static str>,
    root: Option<PathBuf>,
    hint: Option<String>,
}

fn drivers() -> &'static Drivers {
    static DRIVERS: OnceLock<Drivers> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let mut entries = Vec::new();
        let cann = load_cann();
        if let Some(api) = cann.api.clone() {
            entries.push(DriverEntry { api, kind: DriverKind::Cann, prefix: "CANN", description: None });
        }
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

fn load_cann() -> CannDriver {
    let single = std::env::var_os("CANN_NODE_ACL_LIB").filter(|path| !path.is_empty()).map(PathBuf::from);
    let loaded = match single {
        Some(path) => AclApi::load_path(&path),
        None if cfg!(all(target_os = "linux", target_env = "gnu")) => AclApi::load(&surroundings().search()),
        None => {
            let hint = "CANN exists for Linux with glibc only: here graphs run on the embedded device, HOST0";
            return CannDriver { hint: Some(hint.to_owned()), ..CannDriver::default() };
        }
    };
    match loaded {
        Ok(loaded) => {
            let essentials_missing = essentials_missing(&loaded.api);
            let hint = essentials_missing.first().map(|name| {
                let file = loaded.runtime.display();
                format!("{file} has no {name}: install a toolkit of CANN 7 or later, whole and of one version")
            });
            CannDriver {
                missing: loaded.api.missing(),
                api: essentials_missing.is_empty().then(|| Arc::new(loaded.api)),
                essentials_missing,
                attempts: loaded.attempts,
                root: toolkit::root_of(&loaded.runtime),
                hint,
            }
        }
        Err(error) => {
            CannDriver { hint: Some(next_step(&error.attempts)), attempts: error.attempts, ..CannDriver::default() }
        }
    }
}

/// What to do about libraries that do not open.
fn next_step(attempts: &[Attempt]) -> String {
    let found = attempts.iter().find(|attempt| attempt.path.is_some() && attempt.error.is_some());
    let incomplete = attempts.iter().find(|attempt| attempt.error.as_ref().is_some_and(|e| e.contains("incomplete")));
    match (found, incomplete) {
        (Some(Attempt { path: Some(path), error: Some(error), .. }), _) => {
            let path = path.display();
            match error.split_once(": cannot open shared object file") {
                Some((needed, _)) if needed.starts_with("libascend_hal") => {
                    format!("{path} needs {needed}, which is the NPU driver's: install the driver, or in a container mount /usr/local/Ascend/driver")
                }
                Some((needed, _)) if !needed.contains('/') => format!(
                    "{path} needs {needed}, which is not there: source the toolkit's set_env.sh, or install the toolkit again if that does not help"
                ),
                _ if error.contains("invalid ELF") || error.contains("file too short") || error.contains("ELF class") => {
                    format!("{path} is no library for this machine: install the toolkit for {} again", std::env::consts::ARCH)
                }
                _ => format!("{path} does not open: see its error, then install the toolkit again"),
            }
        }
        (_, Some(attempt)) => {
            format!("the toolkit has no {}: install it again, with the operator package (ops or kernels) of your chip", attempt.name)
        }
        _ => "install the CANN toolkit, or set ASCEND_HOME_PATH to its folder; without an Ascend NPU there is nothing to do".to_owned(),
    }
}

fn report() -> Vec<DriverReport> {
    let drivers = drivers();
    let devices = drivers.registry.devices();
    let usable = |kind: DriverKind| devices.iter().any(|device| driver_name(device.driver) == driver_name(kind));
    let cann = &drivers.cann;
    let available = usable(DriverKind::Cann);
    let hint = match (available, &cann.api) {
        (true, _) => None,
        (false, None) => cann.hint.clone(),
        (false, Some(_)) => Some(
            "the libraries were opened but no device answered: see `npu-smi info`, access to /dev/davinci*, and CANN_NODE_LOG=warn".into(),
        ),
    };
    let ignored = Some(acl_host::misunderstood().join("; ")).filter(|text| !text.is_empty());
    let own = cann.api.as_ref().map(|api| versions(api)).unwrap_or_default();
    let version = cann.root.as_ref().and_then(|root| toolkit::version(root)).or(own.toolkit);
    vec![
        DriverReport {
            driver: driver_name(DriverKind::Cann),
            available,
            version: nullable(version),
            libraries: cann.attempts.iter().map(library).collect(),
            missing_symbols: cann.missing.clone(),
            essential_missing: cann.essentials_missing.clone(),
            toolkit: nullable(cann.root.as_ref().map(|root| root.display().to_string())),
            interface_version: nullable(own.interface),
            driver_version: nullable(own.driver),
            hint: nullable(hint),
        },
        DriverReport {
            driver: driver_name(DriverKind::Host),
            available: usable(DriverKind::Host),
            version: nullable(Some(env!("CARGO_PKG_VERSION").to_owned())),
            libraries: Vec::new(),
            missing_symbols: Vec::new(),
            essential_missing: Vec::new(),
            toolkit: nullable(None),
            interface_version: nullable(None),
            driver_version: nullable(None),
            hint: nullable(ignored),
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
    use std::path::Path;

    use super::*;

    #[test]
    fn each_cause_has_its_own_next_step() {
        let at = |name: &str, error: &str| Attempt {
            name: name.into(),
            path: Some(Path::new("/t/lib64").join(name)),
            error: Some(error.into()),
        };
        let missing = "cannot open shared object file: No such file or directory";
        let hal = next_step(&[at("libascendcl.so", &format!("libascend_hal.so: {missing}"))]);
        assert!(hal.contains("/t/lib64/libascendcl.so") && hal.contains("/usr/local/Ascend/driver"), "{hal}");
        let other = next_step(&[at("libopapi.so", &format!("libregister.so: {missing}"))]);
        assert!(other.contains("libregister.so") && other.contains("set_env.sh"), "{other}");
        let broken = next_step(&[at("libascendcl.so", "/t/lib64/libascendcl.so: invalid ELF header")]);
        assert!(broken.contains("is no library for this machine"), "{broken}");
        let lacking = Attempt { path: None, ..at("libopapi.so", "not beside x: the installation is incomplete") };
        assert!(next_step(&[lacking]).contains("operator package"));
        assert!(next_step(&[]).contains("ASCEND_HOME_PATH"));
    }
}
