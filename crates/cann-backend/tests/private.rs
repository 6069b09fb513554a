//! Weights in the chip's private format: chosen by use, invisible to users, given up for good when rows are needed.
//!
//! By default on a 910B; `CANN_NODE_HOST_SOC` names another chip, of which the 910A has no such format; the embedded device under its
//! own name has it when asked. Checked mode is on. ACL calls are counted in the whole process, so one test runs at a time.

mod samples;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};

use acl_fault::{Fault, Mode};
use acl_sys::AclFn;
use cann_backend::caps::Soc;
use cann_backend::graph::{Graph, NodeId, Params, ResultSpec};
use cann_backend::plan::{Plan, PrepareOptions};
use cann_backend::upload::LoadOptions;
use cann_backend::weights::Weights;
use cann_backend::{
    Backend, Done, DriverEntry, DriverKind, OpenOptions, PoolChoice, Registry, Result, Selector, Tensor, TensorSpec,
};
use gguf::{GgmlType, Writer};
use samples::{Random, blocks, values};

static DRIVER: LazyLock<DriverEntry> = LazyLock::new(|| {
    let soc = std::env::var("CANN_NODE_HOST_SOC").unwrap_or_else(|_| "910B".into());
    let config = acl_host::Config { devices: Some(2), check: Some(true), soc: Some(soc), ..Default::default() };
    acl_host::configure(config).expect("before first use");
    let api = Arc::new(acl_fault::install(acl_host::api()));
    DriverEntry { api, kind: DriverKind::Host, prefix: "HOST", description: None }
});

fn alone() -> MutexGuard<'static, ()> {
    static GATE: Mutex<()> = Mutex::new(());
    let alone = GATE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&DRIVER);
    acl_fault::reset();
    alone
}

fn wait<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T> {
    let (send, receive) = mpsc::channel();
    start(Box::new(move |result| drop(send.send(result))));
    receive.recv().expect("a done is always called")
}

fn open(device: usize) -> Backend {
    let registry = Arc::new(Registry::new(vec![DRIVER.clone()]));
    let device = Some(Selector::Index(device));
    let options = OpenOptions { device, pool: PoolChoice::Auto, async_mode: None };
    wait(|done| Backend::open(registry, options, done)).unwrap()
}

/// Tensors of the file: name, extents [k, m]. The last two can't have the format: half a block, and another type.
const TENSORS: [(&str, GgmlType, [u64; 2]); 5] = [
    ("up", GgmlType::F16, [64, 48]),
    ("down", GgmlType::F16, [48, 32]),
    ("table", GgmlType::F16, [64, 80]),
    ("odd", GgmlType::F16, [64, 40]),
    ("wide", GgmlType::F32, [64, 48]),
];

fn content(name: &str) -> Vec<u8> {
    let at = TENSORS.iter().position(|t| t.0 == name).unwrap();
    let (_, ty, [k, m]) = TENSORS[at];
    blocks(ty, (k * m) as usize, &mut Random(at as u64 + 7))
}

fn load(backend: &Backend) -> Weights {
    let writer = TENSORS.iter().fold(Writer::new(), |w, (name, ty, ne)| w.tensor(*name, *ty, *ne, content(name)));
    let file: PathBuf = std::env::temp_dir().join(format!("cann-node-private-{}.gguf", std::process::id()));
    std::fs::write(&file, writer.finish()).unwrap();
    let weights = wait(|done| backend.load_weights(file.clone(), LoadOptions::default(), done)).unwrap();
    std::fs::remove_file(&file).unwrap();
    weights
}

fn op(graph: &mut Graph, name: &str, src: &[NodeId]) -> NodeId {
    let src: Vec<_> = src.iter().copied().map(Some).collect();
    graph.op(name, &src, Params::default(), ResultSpec::default()).unwrap()
}

fn prepare(backend: &Backend, graph: Graph, wanted: Option<bool>) -> Plan {
    let options = PrepareOptions { private_weights: wanted, ..Default::default() };
    wait(|done| backend.prepare(graph, options, done)).unwrap()
}

/// y = the products of x [64, rows] with some weights, one after the other.
fn chain(weights: &[&Tensor], rows: i64) -> Graph {
    let mut graph = Graph::new();
    let mut x = graph.input("x", GgmlType::F32, &[64, rows]).unwrap();
    for weight in weights {
        let w = graph.tensor((*weight).clone()).unwrap();
        x = op(&mut graph, "MUL_MAT", &[w, x]);
    }
    graph.output("y", x).unwrap();
    graph
}

fn run(plan: &Plan, rows: i64) -> Vec<f32> {
    let mut run = plan.start().unwrap();
    run.input("x", &blocks(GgmlType::F32, 64 * rows as usize, &mut Random(99))).unwrap();
    let result = wait(|done| run.submit(done)).unwrap();
    values(GgmlType::F32, result.output("y").unwrap())
}

/// `w x` in f64, rounded; `w` has `m` rows.
fn product(w: &[u8], ty: GgmlType, x: &[f32], k: usize) -> Vec<f32> {
    let w = values(ty, w);
    let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
    x.chunks(k).flat_map(|x| w.chunks(k).map(|w| dot(x, w)).collect::<Vec<_>>()).collect()
}

fn input(rows: i64) -> Vec<f32> {
    values(GgmlType::F32, &blocks(GgmlType::F32, 64 * rows as usize, &mut Random(99)))
}

#[track_caller]
fn near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    let most = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() <= most * 2e-3), "{:?} {:?}", &got[..4], &want[..4]);
}

fn read(tensor: &Tensor, offset: u64, size: u64) -> Vec<u8> {
    wait(|done| tensor.read(offset, size, done)).unwrap()
}

fn whole(tensor: &Tensor) -> Vec<u8> {
    read(tensor, 0, tensor.nbytes())
}

fn transformed() -> u64 {
    acl_fault::calls_of(AclFn::aclnnTransMatmulWeight)
}

fn private_nodes(plan: &Plan) -> usize {
    let noted = |row: &&cann_backend::plan::ReportRow| row.note.as_deref().is_some_and(|n| n.contains("FRACTAL_NZ"));
    plan.report().iter().filter(noted).count()
}

/// Whether this chip has the format, and uses it unasked.
fn has_format(backend: &Backend) -> bool {
    !matches!(backend.caps().soc, Soc::A910 | Soc::Host)
}

#[test]
fn products_read_the_private_format_and_users_do_not_see_it() {
    let _alone = alone();
    let start = acl_host::live();
    let backend = open(0);
    let weights = load(&backend);
    let [up, down, odd, wide] = ["up", "down", "odd", "wide"].map(|name| weights.get(name).unwrap());
    for rows in [1, 3, 40] {
        let plan = prepare(&backend, chain(&[up, down], rows), None);
        let h = product(&content("up"), GgmlType::F16, &input(rows), 64);
        near(&run(&plan, rows), &product(&content("down"), GgmlType::F16, &h, 48));
        assert_eq!(private_nodes(&plan), if has_format(&backend) { 2 } else { 0 });
        for (other, name) in [(odd, "odd"), (wide, "wide")] {
            let plan = prepare(&backend, chain(&[other], rows), None);
            near(&run(&plan, rows), &product(&content(name), other.ty(), &input(rows), 64));
            assert_eq!(private_nodes(&plan), 0, "{name}");
        }
    }
    // The trial and each weight once, however many plans read them.
    assert_eq!(transformed(), if has_format(&backend) { 3 } else { 0 });
    for (name, ..) in TENSORS {
        let (tensor, bytes) = (weights.get(name).unwrap(), content(name));
        assert!(whole(tensor) == bytes, "{name}");
        for (at, size) in [(0, 1), (1, 3), (127, 130), (2049, 1000), (bytes.len() - 5, 5), (7, bytes.len() - 7), (9, 0)]
        {
            assert!(read(tensor, at as u64, size as u64) == bytes[at..at + size], "{name} {at} {size}");
        }
    }
    // The plan holds what it reads.
    let plan = prepare(&backend, chain(&[up, down], 3), None);
    let before = run(&plan, 3);
    weights.dispose();
    assert_eq!(run(&plan, 3), before);
    wait(|done| backend.close(done)).unwrap();
    drop((plan, weights, backend));
    assert_eq!(acl_host::live(), start);
}

#[test]
fn another_use_gets_rows_for_good() {
    let _alone = alone();
    let backend = open(0);
    let weights = load(&backend);
    let [up, table] = ["up", "table"].map(|name| weights.get(name).unwrap());
    let head = prepare(&backend, chain(&[table], 9), None);
    let want = product(&content("table"), GgmlType::F16, &input(9), 64);
    near(&run(&head, 9), &want);
    let after_head = transformed();
    // Rows of the table, by number, in a plan of its own; and a part of it as a product's weight.
    let mut graph = Graph::new();
    let ids = graph.input("x", GgmlType::I32, &[4]).unwrap();
    let t = graph.tensor(table.clone()).unwrap();
    let y = op(&mut graph, "GET_ROWS", &[t, ids]);
    graph.output("y", y).unwrap();
    let embed = prepare(&backend, graph, None);
    assert_eq!(private_nodes(&embed), 0);
    let rows = values(GgmlType::F16, &content("table"));
    for _ in 0..3 {
        let mut run_embed = embed.start().unwrap();
        run_embed.input("x", &[3i32, 0, 79, 17].map(i32::to_le_bytes).concat()).unwrap();
        let result = wait(|done| run_embed.submit(done)).unwrap();
        let got = values(GgmlType::F32, result.output("y").unwrap());
        let want_rows: Vec<f32> = [3, 0, 79, 17].iter().flat_map(|r| rows[r * 64..(r + 1) * 64].to_vec()).collect();
        assert_eq!(got, want_rows);
        near(&run(&head, 9), &want);
    }
    assert!(whole(table) == content("table"));
    // Plans that come later leave it alone, and so do those that were there.
    let again = prepare(&backend, chain(&[table], 9), None);
    near(&run(&again, 9), &want);
    assert_eq!((private_nodes(&again), transformed()), (0, after_head));
    // In one graph from the start: a view, an output, both sides of a product, a product that may not round.
    for kind in 0..4 {
        let mut graph = Graph::new();
        let x = graph.input("x", GgmlType::F32, &[64, 9]).unwrap();
        let w = graph.tensor(up.clone()).unwrap();
        let mut y = op(&mut graph, "MUL_MAT", &[w, x]);
        match kind {
            0 => {
                let spec = ResultSpec { ne: Some(vec![64, 16]), nb: Some(vec![2, 128]), ..ResultSpec::default() };
                let view = graph.op("VIEW", &[Some(w)], Params::default().num("offset", 2048.0), spec).unwrap();
                let part = op(&mut graph, "MUL_MAT", &[view, x]);
                graph.output("part", part).unwrap();
            }
            1 => graph.output("w", w).unwrap(),
            2 => {
                let square = op(&mut graph, "MUL_MAT", &[w, w]);
                graph.output("square", square).unwrap();
            }
            _ => {
                let exact = Params::default().set("prec", cann_backend::graph::Param::Str("f32".into()));
                y = graph.op("MUL_MAT", &[Some(w), Some(x)], exact, ResultSpec::default()).unwrap();
            }
        }
        graph.output("y", y).unwrap();
        let plan = prepare(&backend, graph, None);
        assert_eq!((private_nodes(&plan), transformed()), (0, after_head), "{kind}");
        near(&run(&plan, 9), &product(&content("up"), GgmlType::F16, &input(9), 64));
    }
    wait(|done| backend.close(done)).unwrap();
}

/// A plan that was there first reads rows, whatever later plans would like.
#[test]
fn rows_that_an_earlier_plan_reads_stay() {
    let _alone = alone();
    let backend = open(0);
    for kind in ["rows by number", "a product that may not round", "a plan that wants no private weights"] {
        let weights = load(&backend);
        let table = weights.get("table").unwrap();
        let want = product(&content("table"), GgmlType::F16, &input(9), 64);
        let mut graph = Graph::new();
        let first = match kind {
            "rows by number" => {
                let ids = graph.input("x", GgmlType::I32, &[4]).unwrap();
                let t = graph.tensor(table.clone()).unwrap();
                let y = op(&mut graph, "GET_ROWS", &[t, ids]);
                graph.output("y", y).unwrap();
                prepare(&backend, graph, None)
            }
            "a product that may not round" => {
                let x = graph.input("x", GgmlType::F32, &[64, 9]).unwrap();
                let w = graph.tensor(table.clone()).unwrap();
                let exact = Params::default().set("prec", cann_backend::graph::Param::Str("f32".into()));
                let y = graph.op("MUL_MAT", &[Some(w), Some(x)], exact, ResultSpec::default()).unwrap();
                graph.output("y", y).unwrap();
                prepare(&backend, graph, None)
            }
            _ => prepare(&backend, chain(&[table], 9), Some(false)),
        };
        let before = transformed();
        let head = prepare(&backend, chain(&[table], 9), None);
        assert_eq!((private_nodes(&head), transformed()), (0, before), "{kind}");
        near(&run(&head, 9), &want);
        if kind == "rows by number" {
            let mut run_first = first.start().unwrap();
            run_first.input("x", &[3i32, 0, 79, 17].map(i32::to_le_bytes).concat()).unwrap();
            let result = wait(|done| run_first.submit(done)).unwrap();
            let rows = values(GgmlType::F16, &content("table"));
            let want_rows: Vec<f32> = [3, 0, 79, 17].iter().flat_map(|r| rows[r * 64..(r + 1) * 64].to_vec()).collect();
            assert_eq!(values(GgmlType::F32, result.output("y").unwrap()), want_rows);
        } else {
            near(&run(&first, 9), &want);
        }
    }
    wait(|done| backend.close(done)).unwrap();
}

#[test]
fn writes_fills_and_copies_are_of_rows() {
    let _alone = alone();
    let (backend, far) = (open(0), open(1));
    let f16 = |value: f32| half::f16::from_f32(value).to_le_bytes();
    let halves = |backend: &Backend| {
        wait(|done| backend.create_tensor(TensorSpec::new(GgmlType::F16, &[64, 48]), done)).unwrap()
    };
    fn moved() -> Vec<u8> {
        let mut bytes = content("up");
        bytes.rotate_left(130);
        bytes
    }
    // What is done to the private weight, and what it holds then.
    type Act = fn(&Backend, &Backend, &Tensor, &Tensor);
    let acts: [(&str, Act); 7] = [
        ("write a part", |_, _, w, _| wait(|done| w.write(vec![0x3c; 130], 125, done)).unwrap()),
        ("write all", |_, _, w, _| wait(|done| w.write(moved(), 0, done)).unwrap()),
        ("fill", |_, _, w, _| wait(|done| w.fill(0x3c, done)).unwrap()),
        ("copy to it", |b, _, w, t| wait(|done| b.copy(t, w, done)).unwrap()),
        ("copy from it", |b, _, w, t| {
            wait(|done| b.copy(w, t, done)).unwrap();
            assert!(whole(t) == content("up"));
        }),
        ("copy it far", |_, far, w, _| {
            let spec = TensorSpec::new(GgmlType::F16, &[64, 48]);
            let there = wait(|done| far.create_tensor(spec, done)).unwrap();
            wait(|done| far.copy(w, &there, done)).unwrap();
            assert!(whole(&there) == content("up"));
        }),
        ("run from it and to it", |b, _, w, t| {
            let mut graph = Graph::new();
            let x = graph.input("x", GgmlType::F16, &[64, 48]).unwrap();
            let y = op(&mut graph, "ADD", &[x, x]);
            graph.output("y", y).unwrap();
            let plan = prepare(b, graph, None);
            let mut run = plan.start().unwrap();
            run.input_tensor("x", w).unwrap();
            run.output_to("y", t).unwrap();
            wait(|done| run.submit(done)).unwrap();
            let doubled = |bytes: &[u8]| values(GgmlType::F16, bytes).iter().map(|v| v * 2.0).collect::<Vec<_>>();
            assert_eq!(values(GgmlType::F16, &whole(t)), doubled(&content("up")));
            let mut run = plan.start().unwrap();
            run.input_tensor("x", t).unwrap();
            run.output_to("y", w).unwrap();
            wait(|done| run.submit(done)).unwrap();
            assert_eq!(values(GgmlType::F16, &whole(w)), doubled(&whole(t)));
        }),
    ];
    for (what, act) in acts {
        let weights = load(&backend);
        let (up, other) = (weights.get("up").unwrap(), halves(&backend));
        wait(|done| other.write([f16(0.5), f16(-2.0)].concat().repeat(64 * 24), 0, done)).unwrap();
        let plan = prepare(&backend, chain(&[up], 9), None);
        let captures = acl_host::live().models;
        near(&run(&plan, 9), &product(&content("up"), GgmlType::F16, &input(9), 64));
        act(&backend, &far, up, &other);
        let held = whole(up);
        match what {
            "write a part" => assert!(held[125..255] == [0x3c; 130] && held[255..] == content("up")[255..]),
            "write all" => assert!(held == moved()),
            "fill" => assert!(held.iter().all(|b| *b == 0x3c)),
            "copy to it" => assert!(held == whole(&other)),
            _ => {}
        }
        let before = transformed();
        for _ in 0..2 {
            near(&run(&plan, 9), &product(&held, GgmlType::F16, &input(9), 64));
        }
        assert_eq!(transformed(), before, "{what}");
        // Another program took the place of the one whose weight changed, and so did its model.
        wait(|done| backend.synchronize(done)).unwrap();
        assert!(acl_host::live().models <= captures.max(2), "{what}");
        weights.dispose();
    }
    wait(|done| far.close(done)).unwrap();
    wait(|done| backend.close(done)).unwrap();
}

#[test]
fn off_is_off_and_what_does_not_fit_stays() {
    let _alone = alone();
    let backend = open(0);
    let weights = load(&backend);
    let up = weights.get("up").unwrap();
    let want = product(&content("up"), GgmlType::F16, &input(9), 64);
    let plan = prepare(&backend, chain(&[up], 9), Some(false));
    near(&run(&plan, 9), &want);
    assert_eq!(transformed(), 0);
    // A tensor that is no weight of a file may share its memory: it stays as it is.
    let own = wait(|done| backend.create_tensor(TensorSpec::new(GgmlType::F16, &[64, 48]), done)).unwrap();
    wait(|done| own.write(content("up"), 0, done)).unwrap();
    near(&run(&prepare(&backend, chain(&[&own], 9), None), 9), &want);
    assert_eq!(transformed(), 0);
    // A transformation that fails leaves rows, and the plan works with them: the trial, or one of two weights after it.
    for (mode, nth, left) in [(Mode::From, 1, 0), (Mode::Once, 2, 1)] {
        for code in [107000, 207001] {
            let backend = open(0);
            let weights = load(&backend);
            let [up, down] = ["up", "down"].map(|name| weights.get(name).unwrap());
            acl_fault::reset();
            acl_fault::arm(Fault { function: Some(AclFn::aclnnTransMatmulWeight), mode, code, ..Fault::nth(nth) });
            let plan = prepare(&backend, chain(&[up, down], 9), None);
            acl_fault::disarm();
            assert_eq!(private_nodes(&plan), if has_format(&backend) { left } else { 0 }, "{mode:?} {code}");
            near(&run(&plan, 9), &product(&content("down"), GgmlType::F16, &want, 48));
            assert!(whole(up) == content("up") && whole(down) == content("down"));
            wait(|done| backend.close(done)).unwrap();
        }
    }
    // Asked for, it is done; a plan that does not want it gets rows.
    let weights = load(&backend);
    let up = weights.get("up").unwrap();
    let private = prepare(&backend, chain(&[up], 9), Some(true));
    near(&run(&private, 9), &want);
    assert_eq!(private_nodes(&private), usize::from(backend.caps().soc != Soc::A910));
    let plain = prepare(&backend, chain(&[up], 9), Some(false));
    near(&run(&plain, 9), &want);
    near(&run(&private, 9), &want);
    wait(|done| backend.close(done)).unwrap();
}
