//! Rows of docs/mission.md that no other test is about: what is logged, how devices are asked and described, sizes, and which
//! operators each chip takes. Numbers are the document's.
//!
//! Tables with one function replaced stand for chips and libraries that lack something or fail.

mod common;

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use acl_sys::*;
use cann_backend::caps::DeviceCaps;
use cann_backend::graph::{Graph, NodeId, Param, Params, ResultSpec};
use cann_backend::{Backend, DeviceType, DriverEntry, DriverKind, Error, OpenOptions, PoolChoice, Registry, ops, plan};
use common::*;
use gguf::GgmlType::{self, *};

fn real() -> &'static AclApi {
    static REAL: OnceLock<AclApi> = OnceLock::new();
    REAL.get_or_init(common::api)
}

/// A registry over the embedded device's table after `change`; devices are called `prefix` and a number.
fn changed(prefix: &'static str, change: impl FnOnce(&mut AclApi)) -> Arc<Registry> {
    let mut api = real().clone();
    change(&mut api);
    let entry = DriverEntry { api: Arc::new(api), kind: DriverKind::Cann, prefix, description: None };
    Arc::new(Registry::new(vec![entry]))
}

fn open_here(registry: &Arc<Registry>, pool: PoolChoice) -> Result<Backend, Error> {
    let options = OpenOptions { device: None, pool, async_mode: None };
    wait(|done| Backend::open(registry.clone(), options, done))
}

/// Every event of the process as a line: level, message, fields.
mod log {
    use std::fmt::Write;
    use std::sync::{Mutex, Once};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static INSTALL: Once = Once::new();

    struct Keep;

    #[derive(Default)]
    struct Line {
        message: String,
        fields: String,
    }

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            let _ = match field.name() {
                "message" => write!(self.message, "{value:?}"),
                name => write!(self.fields, " {name}={value:?}"),
            };
        }
    }

    impl Subscriber for Keep {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            let (level, name) = (event.metadata().level(), event.metadata().name());
            LINES.lock().unwrap().push(format!("{level} {name} {}{}", line.message, line.fields));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    pub fn start() {
        INSTALL.call_once(|| tracing::subscriber::set_global_default(Keep).unwrap());
    }

    /// Whether there is a line with all of these in it.
    pub fn has(parts: &[&str]) -> bool {
        LINES.lock().unwrap().iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

// ---------------------------------------------------------------- logs

/// M1: the library's own words, the call, the code and the device come along.
#[test]
fn a_failed_call_is_told_with_the_words_of_the_library() {
    unsafe extern "C" fn nothing(ptr: *mut *mut std::ffi::c_void, _: usize, policy: aclrtMemMallocPolicy) -> aclError {
        // SAFETY: passed on, with a size the library refuses.
        unsafe { (real().aclrtMalloc)(ptr, 0, policy) }
    }
    log::start();
    let backend = open_here(&changed("WORDS", |api| api.aclrtMalloc = nothing), PoolChoice::Auto).unwrap();
    match wait(|done| backend.alloc_buffer(100, done)) {
        Err(Error::Acl { call: "aclrtMalloc", code: ACL_ERROR_INVALID_PARAM, detail, .. }) => {
            assert!(detail.contains("aclrtMalloc"), "{detail}");
            assert!(log::has(&["WARN", "CANN error: ", &detail, "call=\"aclrtMalloc\"", "code=100000", "device=0"]));
        }
        other => panic!("{other:?}"),
    }
}

/// M7, M30, M39, M74.
#[test]
fn lines_of_the_log() {
    log::start();
    // SAFETY: no symbol is given, so every function is a stub.
    let stubs = unsafe { AclApi::from_symbols(|_| std::ptr::null()) };
    let entry = DriverEntry { api: Arc::new(stubs), kind: DriverKind::Cann, prefix: "NONE", description: None };
    assert!(Registry::new(vec![entry]).devices().is_empty());
    assert!(log::has(&["WARN", "failed to initialize NONE: aclInit failed with"]));

    let registry = changed("LINES", |_| ());
    for (pool, line) in [
        (PoolChoice::Vmm, "use vmm pool device"),
        (PoolChoice::Priority, "use buffer pool with priority queue device"),
        (PoolChoice::Buffer, "use buffer pool device"),
    ] {
        if pool == PoolChoice::Vmm && !registry.find(None).unwrap().vmm_supported {
            continue;
        }
        open_here(&registry, pool).unwrap();
        assert!(log::has(&["INFO", line, "LINES0"]), "{line}");
    }
    let options = OpenOptions { async_mode: Some(false), ..Default::default() };
    let backend = wait(|done| Backend::open(registry.clone(), options, done)).unwrap();
    assert!(!backend.async_mode() && log::has(&["INFO", "device 0 async operator submission is OFF"]));
    assert!(log::has(&["INFO", "device 0 async operator submission is ON"]));

    let asked = backend.device().memory_total * 2;
    assert!(matches!(wait(|done| backend.alloc_buffer(asked, done)), Err(Error::OutOfMemory { .. })));
    let mib = format!("allocating {:.2} MiB on device 0: aclrtMalloc failed: ", asked as f64 / (1 << 20) as f64);
    assert!(log::has(&["WARN", &mib, "LINES0"]));
    assert!(!log::has(&[&mib, "ACL gave no message"]), "the library said why");
}

/// M5: what a pool does can be watched.
#[test]
fn a_pool_can_be_watched() {
    log::start();
    let backend = open_here(&changed("WATCH", |_| ()), PoolChoice::Legacy).unwrap();
    let plan = adding(&backend, 1003);
    drop(plan);
    wait(|done| backend.synchronize(done)).unwrap();
    for (name, fields) in [
        ("pool.alloc", &["bytes=", "hit=false", "margin=", "pool_bytes="][..]),
        ("pool.return", &["bytes=", "pool_bytes="][..]),
    ] {
        let mut parts = vec!["TRACE", name];
        parts.extend(fields);
        assert!(log::has(&parts), "{name}");
    }
}

// ---------------------------------------------------------------- devices

/// M12, M18, M21.
#[test]
fn an_npu_is_described_as_ggml_describes_it() {
    let devices = changed("CANN", |_| ()).devices();
    assert_eq!(devices.len(), 4);
    for (i, device) in devices.iter().enumerate() {
        assert_eq!(
            (device.name.clone(), device.ty, device.driver),
            (format!("CANN{i}"), DeviceType::Gpu, DriverKind::Cann)
        );
        assert_eq!((device.description.as_str(), device.soc.as_str()), ("Host", "Host"));
        assert!(
            !device.caps_async && device.caps_host_buffer && !device.caps_buffer_from_host_ptr && device.caps_events
        );
    }
}

/// M9, R61: the granularity is asked with the seeds' words, and a device that has none is used without.
#[test]
fn a_device_without_virtual_memory_works() {
    static ASKED: Mutex<[i64; 7]> = Mutex::new([-1; 7]);
    unsafe extern "C" fn refuse(
        prop: *mut aclrtPhysicalMemProp,
        option: aclrtMemGranularityOptions,
        _: *mut usize,
    ) -> aclError {
        // SAFETY: the caller's struct, read once.
        let p = unsafe { prop.read() };
        let (place, kind) = (p.location.id as i64, p.location.r#type as i64);
        let memory = [p.handleType as i64, p.allocationType as i64, p.memAttr as i64];
        *ASKED.lock().unwrap() = [memory[0], memory[1], memory[2], place, kind, p.reserve as i64, option as i64];
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    }
    let registry = changed("PLAIN", |api| api.aclrtMemGetAllocationGranularity = refuse);
    let device = registry.find(None).unwrap();
    assert_eq!((device.vmm_supported, device.vmm_granularity), (false, 0));
    let expected = [
        ACL_MEM_HANDLE_TYPE_NONE as i64,
        ACL_MEM_ALLOCATION_TYPE_PINNED as i64,
        ACL_HBM_MEM_HUGE as i64,
        0,
        ACL_MEM_LOCATION_TYPE_DEVICE as i64,
        0,
        ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED as i64,
    ];
    assert_eq!(*ASKED.lock().unwrap(), expected);
    assert_eq!(open_here(&registry, PoolChoice::Auto).unwrap().stats().pool.kind, "buffer");
    assert!(matches!(open_here(&registry, PoolChoice::Vmm), Err(Error::Unsupported { .. })));
}

/// R48, R50.
#[test]
fn chips_without_a_name_or_without_hbm() {
    unsafe extern "C" fn nameless() -> *const c_char {
        std::ptr::null()
    }
    unsafe extern "C" fn only_ddr(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError {
        if attr == ACL_HBM_MEM {
            // SAFETY: the caller's places for the answers.
            unsafe { (*free, *total) = (0, 0) };
            return ACL_SUCCESS;
        }
        assert_eq!(attr, ACL_DDR_MEM);
        // SAFETY: passed on.
        unsafe { (real().aclrtGetMemInfo)(ACL_HBM_MEM, free, total) }
    }
    let change = |api: &mut AclApi| (api.aclrtGetSocName, api.aclrtGetMemInfo) = (nameless, only_ddr);
    let device = changed("BARE", change).find(None).unwrap();
    assert_eq!((device.soc.as_str(), device.description.as_str()), ("unknown", "unknown"));
    assert!(device.memory_total > 0 && device.memory_free > 0);
}

/// M26, R46, R47: asking leaves the asking thread as it was.
#[test]
fn a_list_binds_nobody() {
    let registry = registry();
    let asking = std::thread::spawn(move || {
        let (api, mut id) = (real(), -1);
        assert_eq!(registry.devices().len(), 4);
        // SAFETY: out-pointers are locals.
        unsafe {
            assert_eq!((api.aclrtGetDevice)(&mut id), ACL_ERROR_RT_CONTEXT_NULL);
            assert_eq!((api.aclrtSetDevice)(2), ACL_SUCCESS);
            assert_eq!(registry.devices().len(), 4);
            assert_eq!(((api.aclrtGetDevice)(&mut id), id), (ACL_SUCCESS, 2));
            assert_eq!((api.aclrtResetDevice)(2), ACL_SUCCESS);
            assert_eq!((api.aclrtGetDevice)(&mut id), ACL_ERROR_RT_CONTEXT_NULL);
        }
    });
    asking.join().unwrap();
}

/// M19.
#[test]
fn free_memory_is_what_the_device_says() {
    // No other test allocates there.
    let registry = registry();
    let backend = open_with(&registry, 3, PoolChoice::Auto);
    let free = || registry.devices()[3].memory_free;
    let before = free();
    let buffer = wait(|done| backend.alloc_buffer(8 << 20, done)).unwrap();
    assert!(before - free() >= 8 << 20);
    buffer.dispose();
    wait(|done| backend.synchronize(done)).unwrap();
    assert_eq!(free(), before);
}

/// R15, R16: a release that fails is counted and ends nothing; the library is never finalised.
#[test]
fn failed_releases_are_counted_and_nobody_finalises() {
    static FINALISED: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn free(ptr: *mut std::ffi::c_void) -> aclError {
        // SAFETY: passed on; the answer is made up.
        unsafe { (real().aclrtFree)(ptr) };
        ACL_ERROR_RT_PARAM_INVALID
    }
    unsafe extern "C" fn finalize() -> aclError {
        FINALISED.fetch_add(1, Ordering::SeqCst);
        ACL_SUCCESS
    }
    let registry = changed("LEAK", |api| (api.aclrtFree, api.aclFinalize) = (free, finalize));
    let backend = open_here(&registry, PoolChoice::Buffer).unwrap();
    let before = backend.stats().release_errors;
    drop(wait(|done| backend.alloc_buffer(100, done)).unwrap());
    wait(|done| backend.synchronize(done)).unwrap();
    assert!(backend.stats().release_errors > before);
    wait(|done| backend.close(done)).unwrap();
    drop((backend, registry));
    assert_eq!(FINALISED.load(Ordering::SeqCst), 0);
}

// ---------------------------------------------------------------- memory

/// M38, M75.
#[test]
fn buffers_are_rounded_up_to_128_bytes() {
    let backend = open(1);
    for (asked, taken) in [(0, 128), (1, 128), (128, 128), (129, 256)] {
        let buffer = wait(|done| backend.alloc_buffer(asked, done)).unwrap();
        assert_eq!((buffer.size(), buffer.device(), backend.stats().buffers.bytes), (asked, "HOST1", taken));
        buffer.dispose();
        wait(|done| backend.synchronize(done)).unwrap();
    }
}

/// M49, R51: nothing to pin is no error, and is told.
#[test]
fn memory_that_cannot_be_pinned_is_plain() {
    unsafe extern "C" fn none(_: *mut *mut std::ffi::c_void, _: usize) -> aclError {
        ACL_ERROR_RT_MEMORY_ALLOCATION
    }
    log::start();
    let backend = open_here(&changed("UNPINNED", |api| api.aclrtMallocHost = none), PoolChoice::Auto).unwrap();
    let buffer = wait(|done| backend.alloc_host_buffer(3 << 20, done)).unwrap();
    assert!(!buffer.pinned());
    buffer.write(&[5; 100], 7).unwrap();
    assert_eq!(buffer.read(7, 100).unwrap(), [5; 100]);
    assert!(log::has(&["WARN", "failed to allocate 3.00 MiB of pinned memory: ", "UNPINNED0"]));
    // What stages through such memory works as well.
    let t = tensor(&backend, Q8_0, &[64, 3]);
    let data = noise(t.nbytes() as usize, 4);
    wait(|done| t.write(data.clone(), 0, done)).unwrap();
    assert_eq!(wait(|done| t.read(0, t.nbytes(), done)).unwrap(), data);
    adding(&backend, 10);
}

fn adding(backend: &Backend, n: i64) -> plan::Plan {
    let mut graph = Graph::new();
    let (x, y) = (graph.input("x", F32, &[n]).unwrap(), graph.input("y", F32, &[n]).unwrap());
    let z = graph.op("ADD", &[Some(x), Some(y)], Params::default(), ResultSpec::default()).unwrap();
    graph.output("z", z).unwrap();
    let plan = wait(|done| backend.prepare(graph, Default::default(), done)).unwrap();
    let mut run = plan.start().unwrap();
    let ones = 1f32.to_le_bytes().repeat(n as usize);
    run.input("x", &ones).unwrap();
    run.input("y", &ones).unwrap();
    let result = wait(|done| run.submit(done)).unwrap();
    assert_eq!(result.output("z").unwrap(), 2f32.to_le_bytes().repeat(n as usize));
    drop(result);
    plan
}

/// M81: new buffers of the legacy pool are 5 % larger than asked, in units of 256 bytes.
#[test]
fn the_legacy_pool_leaves_room() {
    let registry = registry();
    let taken = [PoolChoice::Buffer, PoolChoice::Legacy].map(|pool| {
        let backend = open_with(&registry, 1, pool);
        let _plan = adding(&backend, 100_000);
        let stats = backend.stats().pool;
        assert_eq!((stats.allocations, stats.bytes_in_use), (1, stats.bytes_reserved), "{stats:?}");
        stats.bytes_reserved
    });
    assert_eq!(taken[1], (taken[0] + taken[0] / 20).next_multiple_of(256));
}

// ---------------------------------------------------------------- operators

const CHIPS: [&str; 5] = ["Host", "Ascend910B3", "Ascend910_9391", "Ascend310P3", "Ascend310B4"];
/// The ones that have products with quantised weights.
const LARGE: [&str; 3] = ["Host", "Ascend910B3", "Ascend910_9391"];

#[derive(Default)]
struct Built(Graph);

impl Built {
    fn leaf(&mut self, ty: GgmlType, ne: &[i64]) -> NodeId {
        let name = format!("leaf {}", self.0.nodes().len());
        self.0.input(&name, ty, ne).unwrap()
    }

    fn op(&mut self, op: &str, src: &[NodeId], params: Params, result: ResultSpec) -> NodeId {
        let src: Vec<_> = src.iter().copied().map(Some).collect();
        self.0.op(op, &src, params, result).unwrap_or_else(|e| panic!("{e}"))
    }

    fn permuted(&mut self, x: NodeId) -> NodeId {
        let axes = Params::default().set("axes", Param::Nums(vec![0.0, 2.0, 1.0, 3.0]));
        self.op("PERMUTE", &[x], axes, ResultSpec::default())
    }

    /// Whether a chip takes the latest node.
    fn taken(&self, soc: &str) -> Result<(), String> {
        let node = NodeId(self.0.nodes().len() as u32 - 1);
        plan::calls(&self.0, node, &DeviceCaps::new(Arc::new(real().clone()), soc)).map(|_| ())
    }

    fn taken_by(&self, chips: &[&str]) {
        for soc in CHIPS {
            let taken = self.taken(soc);
            let op = self.0.nodes().last().unwrap().op.name;
            assert_eq!(taken.is_ok(), chips.contains(&soc), "{op} on {soc}: {taken:?}");
            assert!(taken.is_ok() || taken.unwrap_err().contains(soc), "the reason names the chip");
        }
    }
}

/// M24.
#[test]
fn batches_of_32_are_worth_moving() {
    let backend = open(0);
    let mut b = Built::default();
    let (table, ids) = (b.leaf(F32, &[8, 100]), b.leaf(I32, &[64]));
    let rows = b.op("GET_ROWS", &[table, ids], Params::default(), ResultSpec::default());
    let (few, many) = (b.leaf(F32, &[8, 31]), b.leaf(F32, &[8, 32]));
    let [few, many] = [few, many].map(|x| b.op("SQR", &[x], Params::default(), ResultSpec::default()));
    let (experts, x, chosen) = (b.leaf(F32, &[8, 4, 40]), b.leaf(F32, &[8, 2, 32]), b.leaf(I32, &[2, 32]));
    let routed = b.op("MUL_MAT_ID", &[experts, x, chosen], Params::default(), ResultSpec::default());
    for (node, worth) in [(rows, false), (few, false), (many, true), (routed, true)] {
        assert_eq!(backend.offload_op(&b.0, node), worth, "{}", b.0.node(node).op.name);
    }
}

/// M87 to M143: what the seeds' dispatcher knows, and what it does not.
#[test]
fn every_operator_of_the_seeds_is_in_the_table() {
    let seeds = "REPEAT GET_ROWS DUP ADD ADD1 SUB ACC MUL DIV NORM GROUP_NORM CONCAT UPSCALE PAD ARANGE TIMESTEP_EMBEDDING \
                 LEAKY_RELU RMS_NORM MUL_MAT MUL_MAT_ID SCALE SQR SQRT CLAMP CPY CONT NONE RESHAPE VIEW PERMUTE TRANSPOSE \
                 DIAG_MASK_INF SOFT_MAX ROPE IM2COL POOL_2D SUM SUM_ROWS ARGSORT ARGMAX COS SIN CONV_TRANSPOSE_1D LOG MEAN \
                 PAD_REFLECT_1D COUNT_EQUAL GELU SILU GELU_QUICK TANH RELU HARDSIGMOID HARDSWISH ABS NEG SIGMOID EXP ELU SGN STEP";
    let here = "OUT_PROD SET_ROWS SWIGLU REGLU GEGLU FLASH_ATTN_EXT GELU_ERF";
    for name in seeds.split_whitespace().chain(here.split_whitespace()) {
        assert!(ops::find(name).is_some(), "{name}");
    }
    // M164.
    let mut graph = Graph::new();
    assert!(matches!(graph.op("XYZ", &[], Params::default(), ResultSpec::default()), Err(Error::InvalidArg { .. })));
}

/// M144 to M150: which products and rows a chip takes.
#[test]
fn products_and_rows_by_type_and_chip() {
    let none = ResultSpec::default;
    for ty in [F32, F16, Q8_0, Q4_0, Q6K] {
        let chips: &[&str] = if matches!(ty, Q8_0 | Q4_0) { &LARGE } else { &CHIPS };
        let mut b = Built::default();
        let (w, x) = (b.leaf(ty, &[256, 8]), b.leaf(F32, &[256, 3, 2]));
        b.op("MUL_MAT", &[w, x], Params::default(), none());
        b.taken_by(chips);
        // Gaps in the second operand are no reason.
        let x = b.permuted(x);
        b.op("MUL_MAT", &[w, x], Params::default(), none());
        b.taken_by(chips);
        let (experts, x, ids) = (b.leaf(ty, &[256, 8, 4]), b.leaf(F32, &[256, 1, 3]), b.leaf(I32, &[2, 3]));
        b.op("MUL_MAT_ID", &[experts, x, ids], Params::default(), none());
        b.taken_by(chips);
        let ids = b.leaf(I32, &[5]);
        b.op("GET_ROWS", &[w, ids], Params::default(), none());
        b.taken_by(&CHIPS);
    }
}

/// M151 to M163: where the seeds say no, and where they say yes without looking at types.
#[test]
fn what_the_seeds_refuse_is_composed() {
    let none = ResultSpec::default;
    let taken = |b: &Built| b.taken_by(&CHIPS);
    for (from, to) in [(F32, F16), (F16, F32), (F32, Q8_0), (F32, Q4_0), (Q8_0, F32), (I32, F32)] {
        let mut b = Built::default();
        let (x, into) = (b.leaf(from, &[64, 4]), b.leaf(to, &[64, 4]));
        b.op("CPY", &[x, into], Params::default(), none());
        taken(&b);
    }
    let mut b = Built::default();
    let (x, whole) = (b.leaf(F32, &[32, 4]), b.leaf(F32, &[32, 8]));
    let gaps = ResultSpec { ne: Some(vec![16, 8]), nb: Some(vec![4, 128]), ..none() };
    let into = b.op("VIEW", &[whole], Params::default(), gaps);
    b.op("CPY", &[x, into], Params::default(), none());
    taken(&b);
    let x = b.leaf(I32, &[8, 3, 2]);
    let x = b.permuted(x);
    b.op("CONT", &[x], Params::default(), none());
    taken(&b);

    for params in [
        Params::default().num("n_dims", 32.0),
        Params::default().num("ext_factor", 1.0).num("n_ctx_orig", 4096.0),
        Params::default().num("mode", 8.0).set("sections", Param::Nums(vec![8.0, 12.0, 12.0, 0.0])),
        Params::default().num("mode", 24.0).set("sections", Param::Nums(vec![16.0, 16.0, 0.0, 0.0])),
    ] {
        let mut b = Built::default();
        let streams = if params.f64("mode") >= 8.0 { 4 } else { 1 };
        let (x, positions) = (b.leaf(F32, &[64, 5, 4]), b.leaf(I32, &[5 * streams]));
        let x = b.permuted(x);
        b.op("ROPE", &[x, positions], params, none());
        taken(&b);
    }

    let mut b = Built::default();
    let x = b.leaf(F32, &[6, 5, 3, 2]);
    for mode in ["nearest", "bilinear"] {
        let result = ResultSpec { ne: Some(vec![12, 7, 6, 2]), ..none() };
        b.op("UPSCALE", &[x], Params::default().set("mode", Param::Str(mode.into())), result);
        taken(&b);
    }
    for op in ["max", "avg"] {
        let window = ["k0", "k1", "s0", "s1"].iter().fold(Params::default(), |p, name| p.num(name, 2.0));
        let wide = window.num("p0", 2.0).num("p1", 2.0).set("op", Param::Str(op.into()));
        b.op("POOL_2D", &[x], wide, none());
        taken(&b);
    }

    let mut b = Built::default();
    let ints = b.leaf(I64, &[4]);
    for op in ["SILU", "LEAKY_RELU", "ADD1", "SQRT"] {
        let refused = b.0.op(op, &vec![Some(ints); 1 + usize::from(op == "ADD1")], Params::default(), none());
        assert!(matches!(refused, Err(Error::Shape { .. })), "{op}");
    }
}

// ---------------------------------------------------------------- the document

/// Every row is there once, and the tests and files it names exist.
#[test]
fn the_document_names_what_exists() {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/mission.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("| ")?.split_whitespace().next()).collect();
    let expected = (1..=178).map(|n| format!("M{n}")).chain((1..=62).map(|n| format!("R{n}")));
    for name in expected {
        assert_eq!(rows.iter().filter(|row| **row == name).count(), 1, "rows of {name}");
    }
    for reference in text.split('`').skip(1).step_by(2) {
        let (file, part) = match reference.split_once("::") {
            Some((file, name)) => (file, name),
            None if reference.ends_with(".rs") || reference.ends_with(".js") => (reference, ""),
            None => continue,
        };
        let path = match file.split_once('/') {
            Some(("host", name)) => format!("crates/acl-host/tests/{name}.rs"),
            Some(("src", name)) if !part.is_empty() => format!("crates/cann-backend/src/{name}.rs"),
            Some(("js", name)) => format!("__test__/{name}.spec.mjs"),
            Some(("crates" | "src" | "lib", _)) => file.to_owned(),
            _ if file == "cabi" => "crates/acl-host-cabi/tests/cabi.rs".to_owned(),
            _ if part.is_empty() => format!("crates/cann-backend/src/{file}"),
            _ => format!("crates/cann-backend/tests/{file}.rs"),
        };
        let source = std::fs::read_to_string(root.join(&path)).unwrap_or_else(|e| panic!("{reference}: {path}: {e}"));
        let found =
            part.is_empty() || source.contains(&format!("fn {part}()")) || source.contains(&format!("test('{part}'"));
        assert!(found, "{path} has no test {part}");
    }
}
