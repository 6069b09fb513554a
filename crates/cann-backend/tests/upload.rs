//! Files onto the embedded device: every type, every way to fail, and what is left afterwards.

#[path = "common/driver.rs"]
mod driver;
mod samples;

use std::ffi::c_void;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use acl_sys::{AclApi, aclError, aclrtMemcpyKind, aclrtStream};
use cann_backend::repack::Layout;
use cann_backend::repack::convert::Convert;
use cann_backend::upload::{LoadOptions, Progress, read_gguf};
use cann_backend::weights::Weights;
use cann_backend::{Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, Registry, Result, Tensor};
use gguf::{GgmlType, GgufError, Writer};
use half::f16;
use samples::{Random, blocks, bounds, values};

const DEVICE_BYTES: usize = 1 << 30;

fn wait<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    call(Box::new(move |result| send.send(result).unwrap()));
    receive.recv_timeout(Duration::from_secs(60)).expect("an answer")
}

fn open() -> Backend {
    open_with(real().clone())
}

fn real() -> &'static AclApi {
    static REAL: OnceLock<AclApi> = OnceLock::new();
    REAL.get_or_init(|| {
        let soc = Some("Host".to_owned());
        driver::api(acl_host::Config { memory_bytes: Some(DEVICE_BYTES), soc, ..Default::default() })
    })
}

fn open_with(api: AclApi) -> Backend {
    let driver = DriverEntry { api: Arc::new(api), kind: DriverKind::Host, prefix: "HOST", description: None };
    let registry = Arc::new(Registry::new(vec![driver]));
    wait(|done| Backend::open(registry, OpenOptions::default(), done)).unwrap()
}

/// A file in the temporary folder that goes when the test ends.
struct Temp(PathBuf);

impl Temp {
    fn name(name: &str) -> Temp {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        Temp(std::env::temp_dir().join(format!("cann-node-upload-{}-{n}-{name}", std::process::id())))
    }

    fn new(name: &str, bytes: &[u8]) -> Temp {
        let temp = Temp::name(name);
        std::fs::write(&temp.0, bytes).unwrap();
        temp
    }

    fn gguf(writer: &Writer) -> Temp {
        Temp::new("model.gguf", &writer.finish())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load(backend: &Backend, path: &Path, options: LoadOptions) -> Result<Weights> {
    wait(|done| backend.load_weights(path.to_owned(), options, done))
}

fn read(tensor: &Tensor) -> Vec<u8> {
    wait(|done| tensor.read(0, tensor.nbytes(), done)).unwrap()
}

fn gguf_error(result: Result<Weights>) -> Arc<GgufError> {
    match result {
        Err(Error::Gguf { error, .. }) => error,
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("loaded"),
    }
}

/// Everything that a load took has gone back, and the next one works.
fn assert_unharmed(backend: &Backend) {
    wait(|done| backend.synchronize(done)).unwrap();
    assert_eq!(backend.stats().buffers.bytes, 0);
    let data = blocks(GgmlType::F32, 64, &mut Random(9));
    let file = Temp::gguf(&Writer::new().tensor("t", GgmlType::F32, [64], data.clone()));
    let weights = load(backend, &file.0, LoadOptions::default()).unwrap();
    assert_eq!(read(weights.get("t").unwrap()), data);
}

/// Several chunks of f32.
fn large() -> (Temp, Vec<u8>) {
    let data = Random(7).bytes(21 << 20);
    let file = Temp::gguf(&Writer::new().tensor("large", GgmlType::F32, [1 << 10, 21 << 8], data.clone()));
    (file, data)
}

#[test]
fn every_type_uploads_and_reads_back() {
    let backend = open();
    let random = &mut Random(1);
    let mut writer = Writer::new().kv("general.name", "all types");
    let mut sources = Vec::new();
    for &ty in GgmlType::ALL {
        let ne = [ty.block_len() as u64 * 3, 5, 2];
        let data = blocks(ty, ne.iter().product::<u64>() as usize, random);
        writer = writer.tensor(ty.name(), ty, ne, data.clone());
        sources.push((ty, data));
    }
    let file = Temp::gguf(&writer);
    for convert in [Convert::Auto, Convert::F16, Convert::Q8_0] {
        let weights = load(&backend, &file.0, LoadOptions { convert, ..Default::default() }).unwrap();
        assert_eq!(weights.names().count(), GgmlType::ALL.len());
        assert_eq!(weights.metadata().str("general.name").unwrap(), "all types");
        for (ty, data) in &sources {
            let tensor = weights.get(ty.name()).unwrap();
            assert_eq!((tensor.source_type(), tensor.layout()), (*ty, Layout::native(tensor.ty())));
            assert_eq!(tensor.ne(), [ty.block_len() as i64 * 3, 5, 2, 1]);
            let stored = read(tensor);
            if tensor.ty() == *ty && *ty != GgmlType::Q4_1 {
                assert!(stored == *data, "{ty} changed");
                continue;
            }
            // Reading an offset back as a minimum rounds it once more, by at most 2^-11 of itself.
            let again = if tensor.ty() == GgmlType::Q4_1 { 40.0 / 2048.0 } else { 0.0 };
            let (source, stored) = (values(*ty, data), values(tensor.ty(), &stored));
            for ((x, y), bound) in source.iter().zip(&stored).zip(bounds(*ty, tensor.ty(), data)) {
                assert!((x - y).abs() <= bound + again, "{ty} as {}: {x} became {y}", tensor.ty());
            }
        }
    }
    let error = load(&backend, &file.0, LoadOptions { convert: Convert::Never, ..Default::default() });
    let Err(Error::Unsupported { what, .. }) = error else { panic!() };
    assert!(what.contains("'q4_1'") && what.contains("type q4_1"), "{what}");
    assert_unharmed(&backend);
}

#[test]
fn many_chunks_arrive_in_place_and_progress_is_complete() {
    let backend = open();
    let random = &mut Random(2);
    let (wide, narrow) = (blocks(GgmlType::Q4_0, 9 << 20, random), blocks(GgmlType::Q8_0, 5 << 20, random));
    let plain = random.bytes(9_000_000);
    let writer = Writer::new()
        .tensor("wide", GgmlType::Q4_0, [1 << 10, 9 << 10], wide.clone())
        .tensor("plain", GgmlType::I8, [9_000_000], plain.clone())
        .tensor("narrow", GgmlType::Q8_0, [1 << 10, 5 << 10], narrow.clone());
    let file = Temp::gguf(&writer);
    let seen = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let progress = seen.clone();
    let options =
        LoadOptions { progress: Some(Box::new(move |p| progress.lock().unwrap().push(p))), ..Default::default() };
    let weights = load(&backend, &file.0, options).unwrap();
    for (name, data) in [("wide", &wide), ("plain", &plain), ("narrow", &narrow)] {
        assert!(read(weights.get(name).unwrap()) == *data, "{name}");
    }
    let total = (wide.len() + plain.len() + narrow.len()) as u64;
    assert_eq!(weights.bytes(), total);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|p| p.bytes_total == total));
    assert!(seen.windows(2).all(|w| w[0].bytes_done <= w[1].bytes_done));
    assert_eq!((seen[0].bytes_done, seen.last().unwrap().bytes_done), (0, total));
    assert_eq!(seen.iter().filter(|p| p.bytes_done == total).count(), 1);
}

#[test]
fn many_tensors_share_few_buffers() {
    let backend = open();
    let mut writer = Writer::new();
    for i in 0..2000u32 {
        writer = writer.tensor(format!("t{i}"), GgmlType::I32, [1], i.to_le_bytes());
    }
    let file = Temp::gguf(&writer);
    let weights = load(&backend, &file.0, LoadOptions::default()).unwrap();
    assert!(backend.stats().buffers.count <= 2);
    assert!(weights.names().enumerate().all(|(i, name)| name == format!("t{i}")));
    for i in [0u32, 1, 999, 1999] {
        assert_eq!(read(weights.get(&format!("t{i}")).unwrap()), i.to_le_bytes());
    }
    weights.dispose();
    assert!(weights.get("t0").unwrap().is_disposed());
    assert_unharmed(&backend);
}

#[test]
fn names_choose_tensors() {
    let backend = open();
    let tensor = |w: Writer, name: &str, x: f32| w.tensor(name, GgmlType::F32, [1], x.to_le_bytes());
    let writer = ["a", "b", "c"].iter().zip([1.0, 2.0, 3.0]).fold(Writer::new(), |w, (name, x)| tensor(w, name, x));
    let file = Temp::gguf(&writer);
    let names = |names: &[&str]| LoadOptions {
        names: Some(names.iter().map(|n| n.to_string()).collect()),
        ..Default::default()
    };
    let weights = load(&backend, &file.0, names(&["c", "a"])).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(read(weights.get("c").unwrap()), 3f32.to_le_bytes());
    assert!(matches!(weights.get("b"), Err(Error::NotFound { what: "tensor", name, .. }) if name == "b"));
    let error = load(&backend, &file.0, names(&["a", "z"])).err().unwrap();
    assert!(matches!(error, Error::NotFound { what: "tensor", name, .. } if name == "z"));
    assert_eq!(load(&backend, &file.0, names(&[])).unwrap().bytes(), 0);
}

#[test]
fn a_tensor_that_is_not_finite_becomes_f16() {
    let backend = open();
    let random = &mut Random(3);
    let elements = 10 << 20;
    let (good, mut bad) = (blocks(GgmlType::Q5_1, 256, random), blocks(GgmlType::Q4_1, elements, random));
    let last = bad.len() - 20;
    bad[last..last + 2].copy_from_slice(&f16::INFINITY.to_le_bytes());
    let writer = Writer::new().tensor("bad", GgmlType::Q4_1, [1 << 10, 10 << 10], bad.clone()).tensor(
        "good",
        GgmlType::Q5_1,
        [256],
        good,
    );
    let file = Temp::gguf(&writer);
    let seen = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let progress = seen.clone();
    let options =
        LoadOptions { progress: Some(Box::new(move |p| progress.lock().unwrap().push(p))), ..Default::default() };
    let weights = load(&backend, &file.0, options).unwrap();
    assert_eq!(weights.get("good").unwrap().ty(), GgmlType::Q8_0);
    let tensor = weights.get("bad").unwrap();
    assert_eq!((tensor.ty(), tensor.source_type()), (GgmlType::F16, GgmlType::Q4_1));
    let (source, stored) = (values(GgmlType::Q4_1, &bad), values(GgmlType::F16, &read(tensor)));
    assert!(source.iter().zip(&stored).all(|(x, y)| x == y || (x - y).abs() <= x.abs() / 2048.0 || x.is_nan()));
    let seen = seen.lock().unwrap();
    assert!(seen.windows(2).all(|w| w[0].bytes_done <= w[1].bytes_done));
    let last = seen.last().unwrap();
    assert_eq!(last.bytes_done, last.bytes_total);
}

#[test]
fn cancelling_gives_everything_back() {
    let backend = open();
    let (file, _) = large();
    let options = LoadOptions::default();
    options.cancel.cancel();
    assert!(matches!(load(&backend, &file.0, options), Err(Error::Cancelled)));

    let mut options = LoadOptions::default();
    let cancel = options.cancel.clone();
    // The first report comes when the memory is taken and nothing is read.
    options.progress = Some(Box::new(move |_| cancel.cancel()));
    assert!(matches!(load(&backend, &file.0, options), Err(Error::Cancelled)));
    assert_unharmed(&backend);
}

#[test]
fn files_that_are_none() {
    let backend = open();
    let missing = load(&backend, Path::new("no/such/file.gguf"), LoadOptions::default()).err().unwrap();
    assert!(matches!(missing, Error::Io { kind: std::io::ErrorKind::NotFound, os_code: Some(_), .. }), "{missing:?}");
    let folder = load(&backend, &std::env::temp_dir(), LoadOptions::default()).err().unwrap();
    assert!(matches!(folder, Error::Io { kind: std::io::ErrorKind::IsADirectory, .. }), "{folder:?}");
    let text = Temp::new("text.gguf", b"this is no model, it is a text that somebody renamed");
    let error = gguf_error(load(&backend, &text.0, LoadOptions::default()));
    assert!(matches!(*error, GgufError::BadMagic { found } if found == *b"this"), "{error}");
    let empty = Temp::new("empty.gguf", b"");
    let error = gguf_error(load(&backend, &empty.0, LoadOptions::default()));
    assert!(matches!(*error, GgufError::Truncated { .. }), "{error}");
    assert_unharmed(&backend);
}

#[test]
fn files_that_end_too_early() {
    let backend = open();
    let (file, data) = large();
    let length = std::fs::metadata(&file.0).unwrap().len();
    let shorten = |length| File::options().write(true).open(&file.0).unwrap().set_len(length).unwrap();

    // While it is read: after the table of contents was found right.
    let path = file.0.clone();
    let options = LoadOptions {
        progress: Some(Box::new(move |_| {
            File::options().write(true).open(&path).unwrap().set_len(length - data.len() as u64 / 2).unwrap();
        })),
        ..Default::default()
    };
    let error = gguf_error(load(&backend, &file.0, options));
    assert!(matches!(*error, GgufError::Truncated { offset, .. } if offset > 1 << 20), "{error}");

    shorten(length - 100);
    let error = gguf_error(load(&backend, &file.0, LoadOptions::default()));
    assert!(matches!(*error, GgufError::TensorPastEnd { .. }), "{error}");
    assert_unharmed(&backend);
}

/// A model of three files of 600 MiB each, holes but for their headers.
fn split(bytes_each: u64, prefix: &str) -> Vec<Temp> {
    let base = Temp::name(prefix).0.display().to_string();
    (0..3u16)
        .map(|no| {
            let writer = Writer::new().kv("split.no", no).kv("split.count", 3u16).kv("split.tensors.count", 3i32);
            let writer = writer.tensor(format!("part{no}"), GgmlType::F32, [bytes_each / 4], []);
            let header = writer.finish();
            let temp = Temp(PathBuf::from(format!("{base}-{:05}-of-00003.gguf", no + 1)));
            std::fs::write(&temp.0, &header).unwrap();
            let file = File::options().write(true).open(&temp.0).unwrap();
            file.set_len(header.len() as u64 + bytes_each).unwrap();
            temp
        })
        .collect()
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_read() {
    let backend = open();
    let files = split(600 << 20, "huge");
    let options = LoadOptions { progress: Some(Box::new(|_| panic!("nothing is read"))), ..Default::default() };
    let error = load(&backend, &files[0].0, options).err().unwrap();
    let Error::OutOfMemory { requested_bytes, free_bytes, tensor, .. } = error else { panic!("{error:?}") };
    assert!(requested_bytes >= (3 * 600) << 20, "{requested_bytes}");
    assert!(free_bytes.is_none_or(|free| free <= DEVICE_BYTES as u64), "{free_bytes:?}");
    assert_eq!(tensor.as_deref(), Some("part1"));
    assert_unharmed(&backend);
}

#[test]
fn split_files_are_one_model() {
    let backend = open();
    let files = split(40_000, "split");
    for (i, file) in files.iter().enumerate() {
        use std::io::{Seek, Write};
        let mut f = File::options().write(true).open(&file.0).unwrap();
        f.seek(std::io::SeekFrom::End(-4)).unwrap();
        f.write_all(&(i as f32).to_le_bytes()).unwrap();
    }
    let weights = load(&backend, &files[0].0, LoadOptions::default()).unwrap();
    for i in 0..3 {
        let data = read(weights.get(&format!("part{i}")).unwrap());
        assert_eq!(values(GgmlType::F32, &data).last(), Some(&(i as f32)));
    }
    let error = gguf_error(load(&backend, &files[1].0, LoadOptions::default()));
    assert!(matches!(*error, GgufError::SplitIndex { expected: 0, found: 1 }), "{error}");
    std::fs::remove_file(&files[2].0).unwrap();
    let error = load(&backend, &files[0].0, LoadOptions::default()).err().unwrap();
    assert!(
        matches!(error, Error::Io { kind: std::io::ErrorKind::NotFound, ref path, .. } if path.contains("00003-of"))
    );
}

#[test]
fn closing_and_panics_end_a_load() {
    let (file, _) = large();
    let backend = open();
    let options = LoadOptions { progress: Some(Box::new(|_| panic!("in the callback"))), ..Default::default() };
    let error = load(&backend, &file.0, options).err().unwrap();
    assert!(matches!(&error, Error::Internal(message) if message == "in the callback"), "{error:?}");
    assert_unharmed(&backend);

    let closing = backend.clone();
    let options =
        LoadOptions { progress: Some(Box::new(move |_| closing.close(Box::new(|_| ())))), ..Default::default() };
    assert!(matches!(load(&backend, &file.0, options), Err(Error::Disposed { .. })));
    assert!(matches!(load(&backend, &file.0, LoadOptions::default()), Err(Error::Disposed { .. })));
}

static COPIES_LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

unsafe extern "C" fn copy_that_fails_later(
    dst: *mut c_void,
    dst_bytes: usize,
    src: *const c_void,
    bytes: usize,
    kind: aclrtMemcpyKind,
    stream: aclrtStream,
) -> aclError {
    let left = COPIES_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(1))).unwrap();
    if left == 0 {
        return 207_006;
    }
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { (real().aclrtMemcpyAsync)(dst, dst_bytes, src, bytes, kind, stream) }
}

#[test]
fn a_copy_that_fails_ends_the_load() {
    let mut api = real().clone();
    api.aclrtMemcpyAsync = copy_that_fails_later;
    let backend = open_with(api);
    let data = blocks(GgmlType::Q4_1, 12 << 20, &mut Random(8));
    let file = Temp::gguf(&Writer::new().tensor("t", GgmlType::Q4_1, [1 << 10, 12 << 10], data));
    let mut failures = 0;
    for n in 0.. {
        COPIES_LEFT.store(n, Ordering::Relaxed);
        let result = load(&backend, &file.0, LoadOptions::default());
        COPIES_LEFT.store(u64::MAX, Ordering::Relaxed);
        match result {
            Ok(_) => break,
            Err(Error::Acl { call, code, .. }) => assert_eq!((call, code), ("aclrtMemcpyAsync", 207_006)),
            Err(e) => panic!("{e:?}"),
        }
        failures += 1;
        assert_unharmed(&backend);
    }
    // Quants, scales and offsets of at least two chunks.
    assert!(failures >= 6, "{failures}");
}

#[test]
fn two_loads_at_once() {
    let backend = open();
    let (file, data) = large();
    let results: Vec<_> = std::thread::scope(|scope| {
        let loads: Vec<_> =
            (0..2).map(|_| scope.spawn(|| load(&backend, &file.0, LoadOptions::default()).unwrap())).collect();
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    for weights in results {
        assert!(read(weights.get("large").unwrap()) == data);
    }
}

#[test]
fn a_table_of_contents_without_data() {
    let writer = Writer::new().kv("general.name", "x").tensor("q", GgmlType::Q6K, [256, 2], vec![0; 420]);
    let file = Temp::gguf(&writer);
    let info = wait(|done| read_gguf(file.0.clone(), done)).unwrap();
    assert_eq!((info.version, info.metadata.str("general.name").unwrap()), (3, "x"));
    let row = &info.tensors[0];
    assert_eq!((row.name.as_str(), row.ty, row.nbytes), ("q", Some(GgmlType::Q6K), 420));
    assert_eq!(row.ne, [256, 2]);
    assert!(wait(|done| read_gguf(PathBuf::from("missing"), done)).is_err());
}
