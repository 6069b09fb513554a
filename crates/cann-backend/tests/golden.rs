//! Golden cases through the backend: ggml's own results for small graphs (the format is `__test__/golden/README.md`'s).
//!
//! On the embedded device's own rules every case is right. Under a chip's name (`CANN_NODE_HOST_SOC`) a case is right, or refused
//! before any ACL call, with the chip in the reason. `CANN_NODE_GOLDEN` names another folder; `CANN_NODE_GOLDEN_ONLY` keeps cases whose name starts so.

mod cases;
#[path = "common/driver.rs"]
mod driver;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, mpsc};

use acl_sys::AclApi;
use cann_backend::caps::Soc;
use cann_backend::plan::PrepareOptions;
use cann_backend::{Backend, Done, DriverEntry, DriverKind, Error, OpenOptions, Registry};
use gguf::GgmlType;
use serde_json::Value;

/// The folder of cases: `CANN_NODE_GOLDEN`, else the repository's own.
fn folder() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../__test__/golden");
    std::env::var_os("CANN_NODE_GOLDEN").filter(|v| !v.is_empty()).map_or(own, PathBuf::from)
}

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T, Error> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| send.send(result).unwrap_or(())));
    receive.recv().expect("a done is always called")
}

fn bytes<'a>(data: &'a [u8], v: &Value) -> &'a [u8] {
    let (offset, n) = (v["offset"].as_u64().unwrap() as usize, v["nbytes"].as_u64().unwrap() as usize);
    &data[offset..offset + n]
}

fn values(ty: GgmlType, data: &[u8]) -> Vec<f64> {
    match ty {
        GgmlType::I32 => data.as_chunks::<4>().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
        GgmlType::I64 => data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        GgmlType::F64 => data.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        _ => {
            let n = data.len() / ty.block_bytes() * ty.block_len();
            let mut out = vec![0f32; n];
            gguf::dequantize(ty, data, &mut out).unwrap();
            out.into_iter().map(f64::from).collect()
        }
    }
}

fn compare(case: &Value, data: &[u8], got: &[u8]) -> Result<(), String> {
    let output = &case["output"];
    let ty = GgmlType::from_name(output["type"].as_str().unwrap()).unwrap();
    let reference = bytes(data, &output["data"]);
    if reference.len() != got.len() {
        return Err(format!("{} bytes, not {}", got.len(), reference.len()));
    }
    let tolerance = case["tolerance"].as_f64().unwrap();
    let metric = case["metric"].as_str().unwrap();
    let (mut a, mut b) = (values(ty, reference), values(ty, got));
    if metric == "index_set" {
        let rows = a.len() / (output["ne"][0].as_u64().unwrap().max(1) as usize);
        let k = a.len() / rows.max(1);
        if case["params"].as_str().unwrap().contains("ties=1") {
            let leaf = &case["leaves"][0];
            let input =
                values(GgmlType::from_name(leaf["type"].as_str().unwrap()).unwrap(), bytes(data, &leaf["data"]));
            let width = leaf["ne"][0].as_u64().unwrap() as usize;
            for r in 0..rows {
                let pick = |v: &[f64]| {
                    let mut x: Vec<f64> =
                        v[r * k..(r + 1) * k].iter().map(|i| input[r * width + *i as usize]).collect();
                    x.sort_by(f64::total_cmp);
                    x
                };
                let mut unique = b[r * k..(r + 1) * k].to_vec();
                unique.sort_by(f64::total_cmp);
                unique.dedup();
                if pick(&a) != pick(&b) || unique.len() != k {
                    return Err(format!("row {r}: other values selected"));
                }
            }
            return Ok(());
        }
        for r in 0..rows {
            a[r * k..(r + 1) * k].sort_by(f64::total_cmp);
            b[r * k..(r + 1) * k].sort_by(f64::total_cmp);
        }
        return if a == b { Ok(()) } else { Err("another set of indices".into()) };
    }
    if metric == "nmse_sorted" {
        a.sort_by(f64::total_cmp);
        b.sort_by(f64::total_cmp);
    }
    if tolerance == 0.0 {
        let at = (0..a.len()).find(|i| a[*i] != b[*i] && !(a[*i].is_nan() && b[*i].is_nan()));
        return at.map_or(Ok(()), |i| Err(format!("element {i}: {} instead of {}", b[i], a[i])));
    }
    let infinite = |x: f64| x.is_infinite() || x.abs() >= f64::from(f32::MAX);
    let (mut error, mut norm) = (0.0, 0.0);
    for (i, (x, y)) in a.iter().zip(&b).enumerate() {
        if infinite(*x) || infinite(*y) {
            if !(infinite(*x) && infinite(*y) && x.signum() == y.signum()) {
                return Err(format!("element {i}: {y} instead of {x}"));
            }
            continue;
        }
        if y.is_nan() {
            return Err(format!("element {i}: NaN instead of {x}"));
        }
        error += (x - y) * (x - y);
        norm += x * x;
    }
    let nmse = if norm == 0.0 { if error == 0.0 { 0.0 } else { f64::INFINITY } } else { error / norm };
    if nmse <= tolerance { Ok(()) } else { Err(format!("NMSE {nmse:.3e} over {tolerance:.0e}")) }
}

/// `Ok(false)` when the chip refuses the case, which it must do before any ACL call.
fn run(backend: &Backend, case: &Value, data: &[u8]) -> Result<bool, String> {
    let graph = cases::build(case).map_err(|e| format!("build: {e}"))?;
    wait(|done| backend.synchronize(done)).map_err(|e| e.to_string())?;
    let calls = acl_fault::calls();
    let plan = match wait(|done| backend.prepare(graph, Default::default(), done)) {
        Ok(plan) => plan,
        Err(Error::UnsupportedOp { reason, .. }) if backend.caps().soc != Soc::Host => {
            let made = acl_fault::calls() - calls;
            if !reason.contains(&backend.caps().soc_name) {
                return Err(format!("refused without a word of the chip: {reason}"));
            }
            return if made == 0 { Ok(false) } else { Err(format!("refused after {made} ACL calls")) };
        }
        Err(e) => return Err(format!("prepare: {e}")),
    };
    let mut first: Option<Vec<u8>> = None;
    for _ in 0..3 {
        let mut run = plan.start().map_err(|e| e.to_string())?;
        for leaf in case["leaves"].as_array().unwrap() {
            run.input(&format!("leaf_{}", leaf["id"]), bytes(data, &leaf["data"])).map_err(|e| e.to_string())?;
        }
        let result = wait(|done| run.submit(done)).map_err(|e| format!("run: {e}"))?;
        let got = result.output("out").unwrap().to_vec();
        match &first {
            None => {
                compare(case, data, &got)?;
                first = Some(got);
            }
            Some(first) if *first != got => return Err("another run gives other bits".into()),
            _ => {}
        }
    }
    plan.dispose();
    wait(|done| backend.synchronize(done)).map_err(|e| e.to_string())?;
    Ok(true)
}

fn open() -> Backend {
    // Nothing is made to fail: the wrapper counts calls. A process has one.
    static API: LazyLock<Arc<AclApi>> = LazyLock::new(|| Arc::new(acl_fault::install(driver::api(Default::default()))));
    let driver = DriverEntry { api: API.clone(), kind: DriverKind::Host, prefix: "HOST", description: None };
    let registry = Arc::new(Registry::new(vec![driver]));
    wait(|done| Backend::open(registry, OpenOptions::default(), done)).unwrap()
}

/// What three runs of the case give when they are replayed as a captured model, or not, and how many ACL calls they made.
fn output(backend: &Backend, case: &Value, data: &[u8], capture: bool) -> Result<(Vec<Vec<u8>>, u64), Error> {
    let options = PrepareOptions { capture: Some(capture), ..Default::default() };
    let plan = wait(|done| backend.prepare(cases::build(case).unwrap(), options, done))?;
    wait(|done| backend.synchronize(done))?;
    let before = acl_fault::calls();
    let outputs = (0..3).map(|_| {
        let mut run = plan.start()?;
        for leaf in case["leaves"].as_array().unwrap() {
            run.input(&format!("leaf_{}", leaf["id"]), bytes(data, &leaf["data"]))?;
        }
        Ok(wait(|done| run.submit(done))?.output("out").unwrap().to_vec())
    });
    let outputs = outputs.collect::<Result<_, Error>>()?;
    let calls = acl_fault::calls() - before;
    plan.dispose();
    Ok((outputs, calls))
}

/// A captured model replays the same launches: not a value off by a rounding, the same bits.
#[test]
fn a_captured_model_gives_the_bits_of_the_launches() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let folder = folder();
    let backend = open();
    let data = std::fs::read(folder.join("data.bin")).unwrap_or_default();
    let cases: Vec<Value> = cases::load(&folder).into_iter().filter(|case| case["group"] == "seed").collect();
    let (mut same, mut refused, mut calls) = (0, 0, [0; 2]);
    for case in &cases {
        match (output(&backend, case, &data, true), output(&backend, case, &data, false)) {
            (Ok(captured), Ok(launched)) => {
                assert!(captured.0 == launched.0, "{} [{}]", case["name"], case["params"]);
                calls = [calls[0] + captured.1, calls[1] + launched.1];
                same += 1;
            }
            (Err(Error::UnsupportedOp { .. }), Err(Error::UnsupportedOp { .. })) => refused += 1,
            (captured, launched) => panic!("{}: {:?} and {:?}", case["name"], captured.err(), launched.err()),
        }
    }
    let captures = backend.caps().capture;
    wait(|done| backend.close(done)).unwrap();
    let [replayed, launched] = calls;
    println!(
        "{same} of the group seed have the same bits captured and not, {refused} refused; {replayed} calls, {launched} without"
    );
    assert!(cases.is_empty() || same > 0);
    assert!(!captures || cases.is_empty() || replayed < launched, "nothing was captured: {replayed}, {launched}");
}

/// The count of calls is the process's.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn golden_cases() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let folder = folder();
    let list = cases::load(&folder);
    if list.is_empty() {
        return;
    }
    let data = std::fs::read(folder.join("data.bin")).unwrap();
    let only = std::env::var("CANN_NODE_GOLDEN_ONLY").unwrap_or_default();
    let backend = open();
    let mut table: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let (mut failures, mut refused) = (Vec::new(), 0);
    for case in list {
        let name = case["name"].as_str().unwrap();
        if !name.starts_with(&only) {
            continue;
        }
        let row =
            table.entry(format!("{} {}", case["group"].as_str().unwrap(), case["op"].as_str().unwrap())).or_default();
        match run(&backend, &case, &data) {
            Ok(true) => row.0 += 1,
            Ok(false) => refused += 1,
            Err(error) => {
                row.1 += 1;
                failures.push(format!("{name} [{}]: {error}", case["params"].as_str().unwrap()));
            }
        }
    }
    failures.iter().for_each(|f| println!("{f}"));
    table
        .iter()
        .filter(|(_, (_, failed))| *failed > 0)
        .for_each(|(op, (p, f))| println!("{op}: {p} passed, {f} failed"));
    wait(|done| backend.close(done)).unwrap();
    let passed: u32 = table.values().map(|r| r.0).sum();
    println!("{passed} right, {refused} refused by {}, {} wrong", backend.caps().soc_name, failures.len());
    assert!(failures.is_empty());
}
