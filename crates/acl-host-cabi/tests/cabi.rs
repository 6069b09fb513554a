//! The device as a shared library, found and loaded as the vendor's would be.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, mpsc};

use acl_sys::{AclApi, AclFn, Search};
use cann_backend::graph::{Graph, Params, ResultSpec};
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, OpenOptions, PoolChoice, Registry, Result, Selector, TensorSpec,
};
use gguf::GgmlType;

/// Cargo builds the library of a package before its tests, and puts it beside or above them.
fn library() -> PathBuf {
    let name = format!("{}ascendcl_host{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let test = std::env::current_exe().expect("a test is a file");
    let places = test.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    places.clone().find(|path| path.exists()).unwrap_or_else(|| panic!("none of {:?}", places.collect::<Vec<_>>()))
}

/// A folder as a toolkit's: the library under the name of each of the vendor's.
struct Toolkit(PathBuf);

impl Toolkit {
    fn new() -> Toolkit {
        let folder = std::env::temp_dir().join(format!("cann-node-cabi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libascendcl.so", "libnnopbase.so", "libopapi.so"] {
            link(&library(), &folder.join(name));
        }
        Toolkit(folder)
    }
}

impl Drop for Toolkit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(unix)]
fn link(file: &Path, name: &Path) {
    std::os::unix::fs::symlink(file, name).expect("a link");
}

#[cfg(not(unix))]
fn link(file: &Path, name: &Path) {
    std::fs::hard_link(file, name).expect("a link");
}

/// Loaded once: a process has one set of vendor libraries.
static API: LazyLock<Arc<AclApi>> = LazyLock::new(|| {
    // SAFETY: no other thread reads the environment before this is done: every test begins here.
    unsafe { std::env::set_var("CANN_NODE_HOST_DEVICES", "2") };
    let toolkit = Toolkit::new();
    let loaded = AclApi::load(&Search::folder(&toolkit.0)).expect("a toolkit");
    assert_eq!(loaded.attempts.len(), 3);
    assert!(loaded.attempts.iter().all(|a| a.error.is_none()), "{:?}", loaded.attempts);
    Arc::new(loaded.api)
});

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    receive.recv().expect("a done is always called")
}

fn registry() -> Arc<Registry> {
    let entry = DriverEntry { api: API.clone(), kind: DriverKind::Cann, prefix: "CANN", description: None };
    Arc::new(Registry::new(vec![entry]))
}

#[test]
fn every_function_of_the_list_is_there() {
    assert_eq!(API.missing(), [""; 0]);
    assert_eq!(AclFn::ALL.len(), API.present.len());
}

#[test]
fn every_name_that_ggml_binds_resolves() {
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(library()) }.expect("a library");
    let names: Vec<&str> = include_str!("symbols.txt").lines().collect();
    assert!(names.len() > 200);
    let missing: Vec<&&str> = names
        .iter()
        // SAFETY: the symbol is looked up, not called.
        .filter(|name| unsafe { library.get::<*const std::ffi::c_void>(name.as_bytes()) }.is_err())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    println!("{} names", names.len());
}

#[test]
fn a_backend_works_through_it() {
    let registry = registry();
    let devices = registry.devices();
    assert_eq!(devices.iter().map(|d| &*d.name).collect::<Vec<_>>(), ["CANN0", "CANN1"]);
    for pool in [PoolChoice::Vmm, PoolChoice::Priority] {
        let options = OpenOptions { device: Some(Selector::Index(1)), pool, async_mode: None };
        let backend = wait(|done| Backend::open(registry.clone(), options, done)).expect("a backend");
        let (rows, columns) = (8, 64);
        let spec = TensorSpec::new(GgmlType::Q8_0, &[columns, rows]);
        let weight = wait(|done| backend.create_tensor(spec, done)).expect("a tensor");
        // One in the first place of each block, at scale 1: a row's product is the sum of every 32nd value.
        let mut block = [0u8; 34];
        block[..3].copy_from_slice(&[0x00, 0x3c, 1]);
        let blocks = block.repeat((columns * rows / 32) as usize);
        wait(|done| weight.write(blocks.clone(), 0, done)).expect("written");
        assert_eq!(wait(|done| weight.read(0, weight.nbytes(), done)).expect("read"), blocks);

        let mut graph = Graph::new();
        let x = graph.input("x", GgmlType::F32, &[columns, 1]).unwrap();
        let w = graph.tensor(weight.clone()).unwrap();
        let y = graph.op("MUL_MAT", &[Some(w), Some(x)], Params::default(), ResultSpec::default()).unwrap();
        graph.output("y", y).unwrap();
        let plan = wait(|done| backend.prepare(graph, Default::default(), done)).expect("a plan");
        let mut run = plan.start().unwrap();
        let x: Vec<u8> = (0..columns).flat_map(|i| (i as f32).to_le_bytes()).collect();
        run.input("x", &x).unwrap();
        let result = wait(|done| run.submit(done)).expect("a result");
        let y: Vec<f32> =
            result.output("y").unwrap().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert!(y.len() == rows as usize && y.iter().all(|v| (v - 32.0).abs() < 0.5), "{y:?}");
        drop(result);
        plan.dispose();
        wait(|done| backend.close(done)).expect("closed");
    }
}
