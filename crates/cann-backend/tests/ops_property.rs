//! Operators on random shapes, types, views, permutations and broadcasts, against plain f64 loops written from the
//! definitions: what a plan accepts, runs, and is right.
//!
//! The cases are drawn from a fixed seed; `CANN_NODE_PROPERTY_SEED` draws others, `CANN_NODE_PROPERTY_ROUNDS` more, and
//! `CANN_NODE_PROPERTY_ONLY` keeps families whose name starts so.

mod common;

use cann_backend::Error;
use cann_backend::graph::{Graph, NodeId, Param, Params, ResultSpec};
use common::{open, wait};
use gguf::GgmlType;
use half::{bf16, f16};

use GgmlType::{Bf16, F16, F32, I32};

type Ne = [i64; 4];

// ---------------------------------------------------------------- random graphs

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number from `low` to `high`, both included.
    fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.next().is_multiple_of(one_in)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.int(0, from.len() as i64 - 1) as usize]
    }

    fn ne(&mut self) -> Ne {
        [self.int(1, 9), self.int(1, 6), self.int(1, 4), self.int(1, 3)]
    }

    /// As [`Rng::ne`], now and then with nothing in it.
    fn ne_or_empty(&mut self) -> Ne {
        let mut ne = self.ne();
        if self.chance(12) {
            ne[self.int(0, 3) as usize] = 0;
        }
        ne
    }

    fn permutation(&mut self) -> [usize; 4] {
        let mut axes = [0, 1, 2, 3];
        (1..4).rev().for_each(|i| axes.swap(i, self.int(0, i as i64) as usize));
        axes
    }
}

/// The values of an operand in the order of its elements.
#[derive(Clone, Debug)]
struct Values {
    ne: Ne,
    v: Vec<f64>,
}

impl Values {
    fn at(&self, i: Ne) -> f64 {
        debug_assert!((0..4).all(|d| (0..self.ne[d]).contains(&i[d])));
        self.v[(((i[3] * self.ne[2] + i[2]) * self.ne[1] + i[1]) * self.ne[0] + i[0]) as usize]
    }
}

fn make(ne: Ne, mut f: impl FnMut(Ne) -> f64) -> Vec<f64> {
    let mut v = Vec::new();
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                v.extend((0..ne[0]).map(|i0| f([i0, i1, i2, i3])));
            }
        }
    }
    v
}

fn bytes_of(ty: GgmlType) -> i64 {
    match ty {
        F32 | I32 => 4,
        GgmlType::I64 => 8,
        _ => 2,
    }
}

fn encode(ty: GgmlType, v: &[f64]) -> Vec<u8> {
    match ty {
        F32 => v.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
        F16 => v.iter().flat_map(|x| f16::from_f64(*x).to_le_bytes()).collect(),
        Bf16 => v.iter().flat_map(|x| bf16::from_f64(*x).to_le_bytes()).collect(),
        I32 => v.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        other => panic!("no test has inputs of {}", other.name()),
    }
}

fn decode(ty: GgmlType, data: &[u8]) -> Vec<f64> {
    let pairs = || data.as_chunks::<2>().0.iter();
    let fours = || data.as_chunks::<4>().0.iter();
    match ty {
        F32 => fours().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
        F16 => pairs().map(|b| f16::from_le_bytes(*b).to_f64()).collect(),
        Bf16 => pairs().map(|b| bf16::from_le_bytes(*b).to_f64()).collect(),
        I32 => fours().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
        GgmlType::I64 => data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        other => panic!("no test has results of {}", other.name()),
    }
}

/// A graph that grows operand by operand, with the bytes of its inputs.
struct Case<'a> {
    rng: &'a mut Rng,
    graph: Graph,
    inputs: Vec<(String, Vec<u8>)>,
}

impl Case<'_> {
    /// An input, or some view of one, with these extents.
    fn operand(&mut self, ty: GgmlType, ne: Ne) -> (NodeId, Values) {
        let number = |rng: &mut Rng| {
            if ty == I32 { rng.int(-5, 5) as f64 } else { rng.int(-2000, 2000) as f64 / 1000.0 }
        };
        self.operand_of(ty, ne, number)
    }

    fn operand_of(&mut self, ty: GgmlType, ne: Ne, number: impl Fn(&mut Rng) -> f64) -> (NodeId, Values) {
        let axes = if self.rng.chance(2) { self.rng.permutation() } else { [0, 1, 2, 3] };
        let inner: Ne = std::array::from_fn(|d| ne[axes[d]]);
        let mut id;
        if self.rng.chance(2) {
            // A window into something larger, every second element of a dimension now and then.
            let steps: Ne = std::array::from_fn(|_| if self.rng.chance(8) { 2 } else { 1 });
            let first: Ne = std::array::from_fn(|_| self.rng.int(0, 2));
            let whole: Ne = std::array::from_fn(|d| first[d] + inner[d].max(1) * steps[d] + self.rng.int(0, 2));
            id = self.input(ty, whole, &number);
            let nb = self.graph.node(id).nb;
            let offset: u64 = (0..4).map(|d| first[d] as u64 * nb[d]).sum();
            let nb = (0..4).map(|d| nb[d] * steps[d] as u64).collect();
            let result = ResultSpec { ne: Some(inner.to_vec()), nb: Some(nb), ty: None };
            id = self.op("VIEW", &[id], Params::default().num("offset", offset as f64), result);
        } else {
            id = self.input(ty, inner, &number);
        }
        if axes != [0, 1, 2, 3] {
            let axes = axes.iter().map(|a| *a as f64).collect();
            id = self.op("PERMUTE", &[id], Params::default().set("axes", Param::Nums(axes)), ResultSpec::default());
        }
        let node = self.graph.node(id);
        assert_eq!(node.ne, ne);
        let root = self.graph.node(node.root).name.clone();
        let data = &self.inputs.iter().find(|(name, _)| *name == root).expect("its input").1;
        let all = decode(ty, data);
        let at = |i: Ne| (node.offset + (0..4).map(|d| i[d] as u64 * node.nb[d]).sum::<u64>()) as i64 / bytes_of(ty);
        (id, Values { ne, v: make(ne, |i| all[at(i) as usize]) })
    }

    fn input(&mut self, ty: GgmlType, ne: Ne, number: &impl Fn(&mut Rng) -> f64) -> NodeId {
        let name = format!("in{}", self.inputs.len());
        let count = ne.iter().product::<i64>();
        let v: Vec<f64> = (0..count).map(|_| number(self.rng)).collect();
        self.inputs.push((name.clone(), encode(ty, &v)));
        self.graph.input(&name, ty, &ne).expect("an input")
    }

    fn op(&mut self, name: &str, src: &[NodeId], params: Params, result: ResultSpec) -> NodeId {
        let src: Vec<Option<NodeId>> = src.iter().map(|s| Some(*s)).collect();
        self.graph.op(name, &src, params, result).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn plain(&mut self, name: &str, src: &[NodeId]) -> NodeId {
        self.op(name, src, Params::default(), ResultSpec::default())
    }

    fn float(&mut self) -> GgmlType {
        self.rng.pick(&[F32, F32, F16, Bf16])
    }
}

enum Expected {
    /// Values up to the rounding of the result's type.
    Near(Vec<f64>),
    /// The first `k` places of each row of the values in order.
    Order { x: Values, k: i64, descending: bool, sorted: bool },
}

use Expected::Near;

fn shape(ne: Ne) -> ResultSpec {
    ResultSpec { ne: Some(ne.to_vec()), ..Default::default() }
}

fn check(ty: GgmlType, got: &[f64], expected: &Expected) -> Result<(), String> {
    match expected {
        Near(v) => {
            if v.len() != got.len() {
                return Err(format!("{} elements, not {}", got.len(), v.len()));
            }
            let largest = v.iter().fold(0f64, |m, x| if x.is_finite() { m.max(x.abs()) } else { m });
            let bound = match ty {
                F32 => 2e-5,
                F16 => 1e-3,
                Bf16 => 8e-3,
                _ => 0.0,
            } * (1.0 + largest);
            let wrong =
                v.iter().zip(got).position(|(x, y)| !((x - y).abs() <= bound || x == y || x.is_nan() && y.is_nan()));
            wrong.map_or(Ok(()), |i| Err(format!("element {i} is {}, not {}", got[i], v[i])))
        }
        Expected::Order { x, k, descending, sorted } => {
            for row in 0..x.ne[1] * x.ne[2] * x.ne[3] {
                let own = &x.v[(row * x.ne[0]) as usize..((row + 1) * x.ne[0]) as usize];
                let places = &got[(row * k) as usize..((row + 1) * k) as usize];
                let mut wanted = own.to_vec();
                wanted.sort_by(f64::total_cmp);
                if *descending {
                    wanted.reverse();
                }
                wanted.truncate(*k as usize);
                let mut given: Vec<f64> = places.iter().map(|p| own[*p as usize]).collect();
                let mut distinct = places.to_vec();
                distinct.sort_by(f64::total_cmp);
                distinct.dedup();
                if !sorted {
                    wanted.sort_by(f64::total_cmp);
                    given.sort_by(f64::total_cmp);
                }
                if distinct.len() != *k as usize || given != wanted {
                    return Err(format!("row {row} of {own:?}: places {places:?}"));
                }
            }
            Ok(())
        }
    }
}

// ---------------------------------------------------------------- the families

type Family = fn(&mut Case) -> (NodeId, Expected);

static FAMILIES: &[(&str, Family)] = &[
    ("binary", binary),
    ("unary", unary),
    ("convert", convert),
    ("rows", rows),
    ("softmax", softmax),
    ("product", product),
    ("get_rows", get_rows),
    ("set_rows", set_rows),
    ("outer_product", outer_product),
    ("gated", gated),
    ("group_norm", group_norm),
    ("bounds", bounds),
    ("repeat", repeat),
    ("concat", concat),
    ("pad", pad),
    ("pad_reflect", pad_reflect),
    ("roll", roll),
    ("arange", arange),
    ("fill", fill),
    ("timestep", timestep),
    ("sums", sums),
    ("count_equal", count_equal),
    ("cross_entropy", cross_entropy),
    ("order", order),
    ("triangle", triangle),
    ("solve", solve),
    ("upscale", upscale),
    ("pool", pool),
    ("im2col", im2col),
    ("conv_transpose", conv_transpose),
    ("ssm_conv", ssm_conv),
    ("linear_attention", linear_attention),
];

fn binary(c: &mut Case) -> (NodeId, Expected) {
    let ty = c.rng.pick(&[F32, F16, Bf16, I32]);
    let bne: Ne = [c.rng.int(1, 4), c.rng.int(1, 3), c.rng.int(1, 3), c.rng.int(1, 2)];
    let ane = bne.map(|n| n * c.rng.int(1, 3));
    let other = if ty == I32 { I32 } else { c.float() };
    let (a, av) = c.operand(ty, ane);
    let (name, b, bv) = if ty != I32 && c.rng.chance(4) {
        let away = |rng: &mut Rng| rng.int(500, 2000) as f64 / if rng.chance(2) { 1000.0 } else { -1000.0 };
        let (b, bv) = c.operand_of(other, bne, away);
        ("DIV", b, bv)
    } else {
        let (b, bv) = c.operand(other, bne);
        (c.rng.pick(&["ADD", "SUB", "MUL"]), b, bv)
    };
    let id = c.plain(name, &[a, b]);
    let v = make(ane, |i| {
        let (x, y) = (av.at(i), bv.at(std::array::from_fn(|d| i[d] % bne[d])));
        match name {
            "ADD" => x + y,
            "SUB" => x - y,
            "MUL" => x * y,
            _ => x / y,
        }
    });
    (id, Near(v))
}

fn unary(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.float(), c.rng.ne_or_empty());
    let (x, v) = c.operand(ty, ne);
    let name = c.rng.pick(&["ABS", "NEG", "RELU", "SQR", "SIGMOID", "TANH", "EXP", "STEP", "SILU"]);
    let f = |x: f64| match name {
        "ABS" => x.abs(),
        "NEG" => -x,
        "RELU" => x.max(0.0),
        "SQR" => x * x,
        "SIGMOID" => 1.0 / (1.0 + (-x).exp()),
        "TANH" => x.tanh(),
        "EXP" => x.exp(),
        "STEP" => f64::from(u8::from(x > 0.0)),
        _ => x / (1.0 + (-x).exp()),
    };
    (c.plain(name, &[x]), Near(v.v.iter().map(|x| f(*x)).collect()))
}

fn convert(c: &mut Case) -> (NodeId, Expected) {
    let (from, to, ne) = (c.float(), c.float(), c.rng.ne_or_empty());
    let (x, v) = c.operand(from, ne);
    let name = c.rng.pick(&["DUP", "CONT", "CPY"]);
    (c.op(name, &[x], Params::default(), ResultSpec { ty: Some(to), ..Default::default() }), Near(v.v))
}

/// One number out of each row's neighbours: normalisations.
fn rows(c: &mut Case) -> (NodeId, Expected) {
    let ne = c.rng.ne();
    let (x, v) = c.operand(F32, ne);
    let name = c.rng.pick(&["RMS_NORM", "NORM"]);
    let id = c.op(name, &[x], Params::default().num("eps", 1e-3), ResultSpec::default());
    let n = ne[0] as f64;
    let v = v.v.chunks(ne[0] as usize).flat_map(|row| {
        let mean = if name == "NORM" { row.iter().sum::<f64>() / n } else { 0.0 };
        let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        row.iter().map(move |x| (x - mean) / (square + f64::from(1e-3f32)).sqrt()).collect::<Vec<_>>()
    });
    (id, Near(v.collect()))
}

fn softmax(c: &mut Case) -> (NodeId, Expected) {
    let ne = c.rng.ne();
    let (x, xv) = c.operand(F32, ne);
    let masked = c.rng.chance(2);
    let params = Params::default().num("scale", 0.5);
    let (id, mask) = if masked {
        let ty = c.rng.pick(&[F32, F16]);
        let mask_ne = [ne[0], ne[1] + c.rng.int(0, 2), 1, c.rng.pick(&[1, ne[3]])];
        let (mask, mv) = c.operand(ty, mask_ne);
        (c.op("SOFT_MAX", &[x, mask], params, ResultSpec::default()), Some(mv))
    } else {
        (c.op("SOFT_MAX", &[x], params, ResultSpec::default()), None)
    };
    let logit =
        |i: Ne| 0.5 * xv.at(i) + mask.as_ref().map_or(0.0, |m| m.at([i[0], i[1], i[2] % m.ne[2], i[3] % m.ne[3]]));
    let v = make(ne, |i| {
        let sum: f64 = (0..ne[0]).map(|k| logit([k, i[1], i[2], i[3]]).exp()).sum();
        logit(i).exp() / sum
    });
    (id, Near(v))
}

fn product(c: &mut Case) -> (NodeId, Expected) {
    let (k, m, n) = (c.rng.int(1, 20), c.rng.int(1, 9), c.rng.int(1, 9));
    let (s, t) = (c.rng.int(1, 3), c.rng.int(1, 2));
    let (r, q) = (c.rng.int(1, 2), c.rng.int(1, 2));
    let ty = c.float();
    let (a, av) = c.operand(ty, [k, m, s, t]);
    let (b, bv) = c.operand(F32, [k, n, s * r, t * q]);
    let id = c.plain("MUL_MAT", &[a, b]);
    let v = make([m, n, s * r, t * q], |i| {
        (0..k).map(|l| av.at([l, i[0], i[2] / r, i[3] / q]) * bv.at([l, i[1], i[2], i[3]])).sum()
    });
    (id, Near(v))
}

fn get_rows(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne, n) = (c.float(), c.rng.ne(), c.rng.int(1, 5));
    let (a, av) = c.operand(ty, ne);
    let (r, rv) = c.operand_of(I32, [n, ne[2], ne[3], 1], |rng| rng.int(0, ne[1] - 1) as f64);
    let id = c.plain("GET_ROWS", &[a, r]);
    let v = make([ne[0], n, ne[2], ne[3]], |i| av.at([i[0], rv.at([i[1], i[2], i[3], 0]) as i64, i[2], i[3]]));
    (id, Near(v))
}

/// Into a window of something larger, too: what the ids do not name stays.
fn set_rows(c: &mut Case) -> (NodeId, Expected) {
    let (ty, from, ne) = (c.float(), c.float(), c.rng.ne());
    let n = c.rng.int(1, ne[1]);
    let (rows, rv) = c.operand(from, [ne[0], n, ne[2], ne[3]]);
    let first = c.rng.int(0, ne[1] - n);
    let (ids, _) = c.operand_of(I32, [n, 1, 1, 1], |_| 0.0);
    // Ids must be distinct: they are written where the view reads.
    let ids_node = c.graph.node(ids).clone();
    let name = c.graph.node(ids_node.root).name.clone();
    let data = &mut c.inputs.iter_mut().find(|(own, _)| *own == name).expect("its input").1;
    for i in 0..n {
        let at = (ids_node.offset + i as u64 * ids_node.nb[0]) as usize;
        data[at..at + 4].copy_from_slice(&((first + n - 1 - i) as i32).to_le_bytes());
    }
    let (into, mut dv) = c.operand(ty, ne);
    let id = c.plain("SET_ROWS", &[rows, ids, into]);
    dv.v = make(ne, |i| {
        let row = first + n - 1 - i[1];
        if (0..n).contains(&row) { rv.at([i[0], row, i[2], i[3]]) } else { dv.at(i) }
    });
    (id, Near(dv.v))
}

fn outer_product(c: &mut Case) -> (NodeId, Expected) {
    let (k, m, n) = (c.rng.int(1, 9), c.rng.int(1, 9), c.rng.int(1, 9));
    let (s, t, r) = (c.rng.int(1, 3), c.rng.int(1, 2), c.rng.int(1, 2));
    let (a, av) = c.operand(F32, [m, k, s, t]);
    let (b, bv) = c.operand(F32, [n, k, s * r, t]);
    let v = make([m, n, s * r, t], |i| {
        (0..k).map(|l| av.at([i[0], l, i[2] / r, i[3]]) * bv.at([i[1], l, i[2], i[3]])).sum()
    });
    (c.plain("OUT_PROD", &[a, b]), Near(v))
}

fn gated(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne, name) = (c.float(), c.rng.ne_or_empty(), c.rng.pick(&["REGLU", "SWIGLU"]));
    let f = |x: f64| if name == "REGLU" { x.max(0.0) } else { x / (1.0 + (-x).exp()) };
    if c.rng.chance(2) {
        let ((x, xv), (gate, gv)) = (c.operand(ty, ne), c.operand(ty, ne));
        return (c.plain(name, &[x, gate]), Near(xv.v.iter().zip(&gv.v).map(|(x, g)| f(*x) * g).collect()));
    }
    let (x, v) = c.operand(ty, ne);
    let (half, swapped) = (ne[0] / 2, c.rng.chance(2));
    let id = c.op(name, &[x], Params::default().set("swapped", Param::Bool(swapped)), ResultSpec::default());
    let v = make([half, ne[1], ne[2], ne[3]], |i| {
        let (first, second) = (v.at(i), v.at([i[0] + half, i[1], i[2], i[3]]));
        if swapped { f(second) * first } else { f(first) * second }
    });
    (id, Near(v))
}

fn group_norm(c: &mut Case) -> (NodeId, Expected) {
    let (ne, groups) = (c.rng.ne(), c.rng.int(1, 4));
    let (x, v) = c.operand(F32, ne);
    let params = Params::default().num("n_groups", groups as f64).num("eps", 1e-3);
    let id = c.op("GROUP_NORM", &[x], params, ResultSpec::default());
    let each = (ne[2] + groups - 1) / groups;
    let v = make(ne, |i| {
        let first = i[2] / each * each;
        let group = [ne[0], ne[1], each.min(ne[2] - first), 1];
        let all = make(group, |j| v.at([j[0], j[1], first + j[2], i[3]]));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let square = all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / all.len() as f64;
        (v.at(i) - mean) / (square + f64::from(1e-3f32)).sqrt()
    });
    (id, Near(v))
}

fn bounds(c: &mut Case) -> (NodeId, Expected) {
    let ne = c.rng.ne_or_empty();
    let (x, v) = c.operand(F32, ne);
    if c.rng.chance(2) {
        let id = c.op("SCALE", &[x], Params::default().num("s", -0.5).num("b", 2.0), ResultSpec::default());
        return (id, Near(v.v.iter().map(|x| -0.5 * x + 2.0).collect()));
    }
    let id = c.op("CLAMP", &[x], Params::default().num("min", -1.0).num("max", 0.5), ResultSpec::default());
    (id, Near(v.v.iter().map(|x| x.clamp(-1.0, 0.5)).collect()))
}

fn repeat(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne());
    let to = ne.map(|n| n * c.rng.int(1, 3));
    let (x, v) = c.operand(ty, ne);
    let id = c.op("REPEAT", &[x], Params::default(), shape(to));
    (id, Near(make(to, |i| v.at(std::array::from_fn(|d| i[d] % ne[d])))))
}

fn concat(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ane) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne_or_empty());
    let dim = c.rng.int(0, 3) as usize;
    let mut bne = ane;
    bne[dim] = c.rng.int(0, 4);
    let ((a, av), (b, bv)) = (c.operand(ty, ane), c.operand(ty, bne));
    let id = c.op("CONCAT", &[a, b], Params::default().num("dim", dim as f64), ResultSpec::default());
    let mut to = ane;
    to[dim] += bne[dim];
    let v = make(to, |mut i| {
        if i[dim] < ane[dim] {
            return av.at(i);
        }
        i[dim] -= ane[dim];
        bv.at(i)
    });
    (id, Near(v))
}

fn pad(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne());
    let circular = c.rng.chance(2);
    let ne = if !circular && c.rng.chance(8) { [ne[0], 0, ne[2], ne[3]] } else { ne };
    let (x, v) = c.operand(ty, ne);
    let (mut params, mut to) = (Params::default().set("circular", Param::Bool(circular)), ne);
    let mut before = [0; 4];
    for d in 0..4 {
        before[d] = c.rng.int(0, 3);
        let behind = c.rng.int(0, 3);
        params = params.num(&format!("lp{d}"), before[d] as f64).num(&format!("rp{d}"), behind as f64);
        to[d] += before[d] + behind;
    }
    let id = c.op("PAD", &[x], params, ResultSpec::default());
    let v = make(to, |i| {
        let at: Ne = std::array::from_fn(|d| i[d] - before[d]);
        if circular {
            v.at(std::array::from_fn(|d| at[d].rem_euclid(ne[d])))
        } else if (0..4).all(|d| (0..ne[d]).contains(&at[d])) {
            v.at(at)
        } else {
            0.0
        }
    });
    (id, Near(v))
}

fn pad_reflect(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.float(), c.rng.ne());
    let (before, behind) = (c.rng.int(0, ne[0] - 1), c.rng.int(0, ne[0] - 1));
    let (x, v) = c.operand(ty, ne);
    let params = Params::default().num("p0", before as f64).num("p1", behind as f64);
    let id = c.op("PAD_REFLECT_1D", &[x], params, ResultSpec::default());
    let v = make([ne[0] + before + behind, ne[1], ne[2], ne[3]], |i| {
        let at = (i[0] - before).abs();
        v.at([if at < ne[0] { at } else { 2 * (ne[0] - 1) - at }, i[1], i[2], i[3]])
    });
    (id, Near(v))
}

fn roll(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne());
    let shifts: Ne = std::array::from_fn(|_| c.rng.int(-7, 7));
    let (x, v) = c.operand(ty, ne);
    let params = (0..4).fold(Params::default(), |p, d| p.num(&format!("shift{d}"), shifts[d] as f64));
    let id = c.op("ROLL", &[x], params, ResultSpec::default());
    (id, Near(make(ne, |i| v.at(std::array::from_fn(|d| (i[d] - shifts[d]).rem_euclid(ne[d]))))))
}

fn arange(c: &mut Case) -> (NodeId, Expected) {
    let (start, step) = (c.rng.int(-20, 20) as f64 / 4.0, c.rng.pick(&[0.25, 1.0, -0.5, 3.0]));
    let n = c.rng.int(1, 40);
    let params = Params::default().num("start", start).num("step", step).num("stop", start + (n as f64 - 0.3) * step);
    let id = c.op("ARANGE", &[], params, ResultSpec::default());
    (id, Near((0..n).map(|i| start + i as f64 * step).collect()))
}

fn fill(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne_or_empty());
    let (x, v) = c.operand(ty, ne);
    let id = c.op("FILL", &[x], Params::default().num("c", -3.0), ResultSpec::default());
    (id, Near(vec![-3.0; v.v.len()]))
}

fn timestep(c: &mut Case) -> (NodeId, Expected) {
    let (n, dim) = (c.rng.int(1, 5), c.rng.int(1, 20));
    let (x, v) = c.operand(F32, [n, 1, 1, 1]);
    let id = c.op("TIMESTEP_EMBEDDING", &[x], Params::default().num("dim", dim as f64), ResultSpec::default());
    let half = dim / 2;
    let v = make([dim, n, 1, 1], |i| {
        let angle = |j: i64| v.at([i[1], 0, 0, 0]) * (-(10000f64.ln()) * j as f64 / half as f64).exp();
        match i[0] {
            j if j < half => angle(j).cos(),
            j if j < 2 * half => angle(j - half).sin(),
            _ => 0.0,
        }
    });
    (id, Near(v))
}

fn sums(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.float(), c.rng.ne_or_empty());
    let name = c.rng.pick(&["SUM", "SUM_ROWS", "MEAN", "CUMSUM"]);
    let (x, v) = c.operand(ty, ne);
    let id = c.plain(name, &[x]);
    let row = |i: Ne, to: i64| (0..to).map(|k| v.at([k, i[1], i[2], i[3]])).sum::<f64>();
    let v = match name {
        "SUM" => vec![v.v.iter().sum()],
        "CUMSUM" => make(ne, |i| row(i, i[0] + 1)),
        "MEAN" => make([1, ne[1], ne[2], ne[3]], |i| row(i, ne[0]) / ne[0] as f64),
        _ => make([1, ne[1], ne[2], ne[3]], |i| row(i, ne[0])),
    };
    (id, Near(v))
}

fn count_equal(c: &mut Case) -> (NodeId, Expected) {
    let ne = c.rng.ne_or_empty();
    let ((a, av), (b, bv)) = (c.operand(I32, ne), c.operand(I32, ne));
    let equal = av.v.iter().zip(&bv.v).filter(|(a, b)| a == b).count();
    (c.plain("COUNT_EQUAL", &[a, b]), Near(vec![equal as f64]))
}

fn cross_entropy(c: &mut Case) -> (NodeId, Expected) {
    let ne = c.rng.ne();
    let (a, av) = c.operand(F32, ne);
    let (b, bv) = c.operand_of(F32, ne, |rng| rng.int(0, 1000) as f64 / 1000.0);
    let mut loss = 0.0;
    for (x, y) in av.v.chunks(ne[0] as usize).zip(bv.v.chunks(ne[0] as usize)) {
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        loss -= x.iter().zip(y).map(|(x, y)| y * (x - sum.ln())).sum::<f64>();
    }
    let rows = (ne[1] * ne[2] * ne[3]) as f64;
    (c.plain("CROSS_ENTROPY_LOSS", &[a, b]), Near(vec![loss / rows]))
}

fn order(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne());
    let (x, v) = c.operand(ty, ne);
    match c.rng.int(0, 2) {
        0 => {
            let k = c.rng.int(1, ne[0]);
            let id = c.op("TOP_K", &[x], Params::default().num("k", k as f64), ResultSpec::default());
            (id, Expected::Order { x: v, k, descending: true, sorted: false })
        }
        1 if ty != I32 => (c.plain("ARGMAX", &[x]), Expected::Order { x: v, k: 1, descending: true, sorted: false }),
        _ => {
            let order = c.rng.pick(&["asc", "desc"]);
            let params = Params::default().set("order", Param::Str(order.into()));
            let id = c.op("ARGSORT", &[x], params, ResultSpec::default());
            (id, Expected::Order { x: v, k: ne[0], descending: order == "desc", sorted: true })
        }
    }
}

fn triangle(c: &mut Case) -> (NodeId, Expected) {
    let (ty, mut ne) = (c.rng.pick(&[F32, F16, Bf16, I32]), c.rng.ne());
    if c.rng.chance(3) {
        ne[1] = 1;
        let (x, v) = c.operand(ty, ne);
        let v = make([ne[0], ne[0], ne[2], ne[3]], |i| if i[0] == i[1] { v.at([i[0], 0, i[2], i[3]]) } else { 0.0 });
        return (c.plain("DIAG", &[x]), Near(v));
    }
    let (x, v) = c.operand(ty, ne);
    let kind = c.rng.pick(&["lower", "lower_diag", "upper", "upper_diag"]);
    let id = c.op("TRI", &[x], Params::default().set("type", Param::Str(kind.into())), ResultSpec::default());
    let keep = |i: Ne| match kind {
        "lower" => i[0] < i[1],
        "lower_diag" => i[0] <= i[1],
        "upper" => i[0] > i[1],
        _ => i[0] >= i[1],
    };
    (id, Near(make(ne, |i| if keep(i) { v.at(i) } else { 0.0 })))
}

/// Only the lower triangle counts; what is above is noise. The diagonal is kept away from 0.
fn solve(c: &mut Case) -> (NodeId, Expected) {
    let (n, k, s, t) = (c.rng.int(1, 8), c.rng.int(1, 5), c.rng.int(1, 3), c.rng.int(1, 2));
    let (a, av) = c.operand_of(F32, [n, n, s, t], |rng| rng.int(500, 1500) as f64 / 1000.0);
    let (b, bv) = c.operand(F32, [k, n, s, t]);
    let mut x = Values { ne: bv.ne, v: vec![0.0; bv.v.len()] };
    let at = |i: Ne| (((i[3] * s + i[2]) * n + i[1]) * k + i[0]) as usize;
    for (l, j, col, row) in (0..t)
        .flat_map(|l| (0..s).flat_map(move |j| (0..k).flat_map(move |col| (0..n).map(move |row| (l, j, col, row)))))
    {
        let known: f64 = (0..row).map(|i| av.at([i, row, j, l]) * x.v[at([col, i, j, l])]).sum();
        x.v[at([col, row, j, l])] = (bv.at([col, row, j, l]) - known) / av.at([row, row, j, l]);
    }
    (c.plain("SOLVE_TRI", &[a, b]), Near(x.v))
}

fn upscale(c: &mut Case) -> (NodeId, Expected) {
    let mode = c.rng.pick(&["nearest", "bilinear", "bicubic", "antialias"]);
    let (ty, ne) = (c.float(), c.rng.ne());
    // Powers of two between extents keep the place of the nearest element clear of rounding.
    let to: Ne = if mode == "nearest" {
        ne.map(|n| n * c.rng.pick(&[1, 2, 3, 4]))
    } else {
        [c.rng.int(1, 16), c.rng.int(1, 12), ne[2] * c.rng.int(1, 2), ne[3]]
    };
    let align = mode != "antialias" && mode != "nearest" && c.rng.chance(2);
    let (x, v) = c.operand(ty, ne);
    let name = if mode == "antialias" { "bilinear" } else { mode };
    let params = Params::default()
        .set("mode", Param::Str(name.into()))
        .set("align_corners", Param::Bool(align))
        .set("antialias", Param::Bool(mode == "antialias"));
    let id = c.op("UPSCALE", &[x], params, shape(to));
    // Weights of the elements of a line for result i.
    let weights = |d: usize, i: i64| -> Vec<(i64, f64)> {
        let (own, len) = (ne[d], to[d]);
        let scale =
            if align && own > 1 && len > 1 { (len - 1) as f64 / (own - 1) as f64 } else { len as f64 / own as f64 };
        let shift = if align { 0.0 } else { 0.5 };
        let at = (i as f64 + shift) / scale - shift;
        let inside = |k: i64| k.clamp(0, own - 1);
        let low = at.floor();
        match mode {
            "nearest" => vec![(i * own / len, 1.0)],
            "bilinear" => {
                let part = at - low;
                vec![(inside(low as i64), 1.0 - part), (inside(low as i64 + 1), part)]
            }
            "bicubic" => (-1..3)
                .map(|k| {
                    let t = (at - low - k as f64).abs();
                    let w = if t <= 1.0 {
                        1.25 * t * t * t - 2.25 * t * t + 1.0
                    } else {
                        -0.75 * t * t * t + 3.75 * t * t - 6.0 * t + 3.0
                    };
                    (inside(low as i64 + k), w)
                })
                .collect(),
            _ => {
                let wide = (1.0 / scale).max(1.0);
                let all: Vec<(i64, f64)> =
                    (0..own).map(|k| (k, (1.0 - ((k as f64 - at) / wide).abs()).max(0.0))).collect();
                let sum: f64 = all.iter().map(|(_, w)| w).sum();
                all.into_iter().map(|(k, w)| (k, w / sum)).collect()
            }
        }
    };
    let v = make(to, |i| {
        let (i2, i3) = (i[2] * ne[2] / to[2], i[3] * ne[3] / to[3]);
        let across = weights(0, i[0]);
        let row = |k1: i64| across.iter().map(|(k0, w)| w * v.at([*k0, k1, i2, i3])).sum::<f64>();
        weights(1, i[1]).iter().map(|(k1, w)| w * row(*k1)).sum()
    });
    (id, Near(v))
}

fn pool(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.float(), c.rng.ne());
    let average = c.rng.chance(2);
    let axis = |c: &mut Case, n: i64| {
        let p = c.rng.int(0, 3);
        [c.rng.int(1, (n + 2 * p).min(4)), c.rng.int(1, 3), p]
    };
    let [[k0, s0, p0], [k1, s1, p1]] = [axis(c, ne[0]), axis(c, ne[1])];
    let (x, v) = c.operand(ty, ne);
    let numbers = [("k0", k0), ("k1", k1), ("s0", s0), ("s1", s1), ("p0", p0), ("p1", p1)];
    let op = Param::Str(if average { "avg" } else { "max" }.into());
    let params = numbers.iter().fold(Params::default().set("op", op), |p, (name, n)| p.num(name, *n as f64));
    let id = c.op("POOL_2D", &[x], params, ResultSpec::default());
    let to = [(ne[0] + 2 * p0 - k0) / s0 + 1, (ne[1] + 2 * p1 - k1) / s1 + 1, ne[2], ne[3]];
    let v = make(to, |i| {
        let mut seen = Vec::new();
        for y in 0..k1 {
            for x in 0..k0 {
                let (a, b) = (i[0] * s0 - p0 + x, i[1] * s1 - p1 + y);
                if (0..ne[0]).contains(&a) && (0..ne[1]).contains(&b) {
                    seen.push(v.at([a, b, i[2], i[3]]));
                }
            }
        }
        if average {
            seen.iter().sum::<f64>() / (k0 * k1) as f64
        } else {
            seen.into_iter().fold(f64::from(-f32::MAX), f64::max)
        }
    });
    (id, Near(v))
}

fn im2col(c: &mut Case) -> (NodeId, Expected) {
    let (ty, ne) = (c.float(), c.rng.ne());
    let plane = c.rng.chance(2);
    let to_ty = c.float();
    let axis = |c: &mut Case, n: i64| {
        let (p, d) = (c.rng.int(0, 2), c.rng.int(1, 2));
        let k = c.rng.int(1, ((n + 2 * p - 1) / d + 1).min(3));
        [k, c.rng.int(1, 3), p, d]
    };
    let [k0, s0, p0, d0] = axis(c, ne[0]);
    let [k1, s1, p1, d1] = if plane { axis(c, ne[1]) } else { [1, 0, 0, 0] };
    let ne = if plane { ne } else { [ne[0], ne[1], ne[2], 1] };
    let kernel = if plane { [k0, k1, ne[2], 2] } else { [k0, ne[1], 2, 1] };
    let (kernel, _) = c.operand(F32, kernel);
    let (x, v) = c.operand(ty, ne);
    let numbers = [("s0", s0), ("s1", s1), ("p0", p0), ("p1", p1), ("d0", d0), ("d1", d1)];
    let params = Params::default().set("is_2D", Param::Bool(plane));
    let params = numbers.iter().fold(params, |p, (name, n)| p.num(name, *n as f64));
    let id = c.op("IM2COL", &[kernel, x], params, ResultSpec { ty: Some(to_ty), ..Default::default() });
    let columns = (ne[0] + 2 * p0 - d0 * (k0 - 1) - 1) / s0 + 1;
    let zero_outside = |i: Ne| if (0..4).all(|d| (0..ne[d]).contains(&i[d])) { v.at(i) } else { 0.0 };
    let v = if plane {
        let lines = (ne[1] + 2 * p1 - d1 * (k1 - 1) - 1) / s1 + 1;
        make([k0 * k1 * ne[2], columns, lines, ne[3]], |i| {
            let (x, y, channel) = (i[0] % k0, i[0] / k0 % k1, i[0] / (k0 * k1));
            zero_outside([i[1] * s0 - p0 + x * d0, i[2] * s1 - p1 + y * d1, channel, i[3]])
        })
    } else {
        make([k0 * ne[1], columns, ne[2], 1], |i| zero_outside([i[1] * s0 - p0 + i[0] % k0 * d0, i[0] / k0, i[2], 0]))
    };
    (id, Near(v))
}

fn conv_transpose(c: &mut Case) -> (NodeId, Expected) {
    let (k, outs, ins, len) = (c.rng.int(1, 9), c.rng.int(1, 4), c.rng.int(1, 4), c.rng.int(1, 9));
    let k = if c.rng.chance(6) { k + 500 } else { k };
    let (s0, ty) = (c.rng.int(1, 4), c.float());
    let (kernel, kv) = c.operand(ty, [k, outs, ins, 1]);
    let (x, xv) = c.operand(F32, [len, ins, 1, 1]);
    let id = c.op("CONV_TRANSPOSE_1D", &[kernel, x], Params::default().num("s0", s0 as f64), ResultSpec::default());
    let v = make([(len - 1) * s0 + k, outs, 1, 1], |i| {
        let reach = (0..len).filter(|l| (0..k).contains(&(i[0] - l * s0)));
        reach.map(|l| (0..ins).map(|n| kv.at([i[0] - l * s0, i[1], n, 0]) * xv.at([l, n, 0, 0])).sum::<f64>()).sum()
    });
    (id, Near(v))
}

fn ssm_conv(c: &mut Case) -> (NodeId, Expected) {
    let (taps, tokens, inner, seqs) = (c.rng.int(1, 5), c.rng.int(1, 6), c.rng.int(1, 9), c.rng.int(1, 3));
    let (x, xv) = c.operand(F32, [taps - 1 + tokens, inner, seqs, 1]);
    let (w, wv) = c.operand(F32, [taps, inner, 1, 1]);
    let id = c.plain("SSM_CONV", &[x, w]);
    let v = make([inner, tokens, seqs, 1], |i| {
        (0..taps).map(|k| xv.at([i[1] + k, i[0], i[2], 0]) * wv.at([k, i[0], 0, 0])).sum()
    });
    (id, Near(v))
}

fn linear_attention(c: &mut Case) -> (NodeId, Expected) {
    let (size, heads, each, seqs) = (c.rng.int(1, 6), c.rng.int(1, 3), c.rng.int(1, 4), c.rng.int(1, 3));
    let ne = [size, heads, each * seqs, 1];
    let [(k, kv), (v, vv), (q, qv), (g, gv)] = [(); 4].map(|()| c.operand(F32, ne));
    let (state, sv) = c.operand(F32, [size * size * heads, seqs, 1, 1]);
    let id =
        c.op("GATED_LINEAR_ATTN", &[k, v, q, g, state], Params::default().num("scale", 0.5), ResultSpec::default());
    let mut s = sv.v;
    let mut outputs = vec![0.0; (size * heads * each * seqs) as usize];
    for n in 0..seqs {
        for t in n * each..(n + 1) * each {
            for h in 0..heads {
                for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
                    let cell = &mut s[(((n * heads + h) * size + i) * size + j) as usize];
                    *cell = *cell * gv.at([i, h, t, 0]) + kv.at([i, h, t, 0]) * vv.at([j, h, t, 0]);
                    outputs[((t * heads + h) * size + j) as usize] += 0.5 * *cell * qv.at([i, h, t, 0]);
                }
            }
        }
    }
    outputs.extend(s);
    (id, Near(outputs))
}

// ---------------------------------------------------------------- the test

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn what_a_plan_accepts_runs_and_is_right() {
    let backend = open(0);
    let (seed, rounds) = (number("CANN_NODE_PROPERTY_SEED", 1), number("CANN_NODE_PROPERTY_ROUNDS", 40));
    let mut failures = Vec::new();
    let mut refused = 0;
    let only = std::env::var("CANN_NODE_PROPERTY_ONLY").unwrap_or_default();
    for (family, build) in FAMILIES.iter().filter(|(family, _)| family.starts_with(&only)) {
        for round in 0..rounds {
            let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(round));
            let mut case = Case { rng: &mut rng, graph: Graph::new(), inputs: Vec::new() };
            let (id, expected) = build(&mut case);
            let Case { mut graph, inputs, .. } = case;
            graph.output("out", id).expect("an output");
            let ty = graph.node(id).ty;
            let about = graph.nodes().iter().map(|n| format!("{} {} {:?} {:?}", n.op.name, n.ty.name(), n.ne, n.nb));
            let about = about.collect::<Vec<_>>().join(" | ");
            let result = (|| {
                let plan = match wait(|done| backend.prepare(graph, Default::default(), done)) {
                    Ok(plan) => plan,
                    Err(Error::UnsupportedOp { .. }) => return Ok(false),
                    Err(error) => return Err(format!("prepare: {error}")),
                };
                let mut run = plan.start().map_err(|e| e.to_string())?;
                for (name, bytes) in &inputs {
                    run.input(name, bytes).map_err(|e| e.to_string())?;
                }
                let result = wait(|done| run.submit(done)).map_err(|e| format!("run: {e}"))?;
                check(ty, &decode(ty, result.output("out").expect("the output")), &expected).map(|()| true)
            })();
            match result {
                Ok(true) => {}
                Ok(false) => refused += 1,
                Err(error) => failures.push(format!("{family} {round}: {error}\n    {about}")),
            }
        }
    }
    println!("{refused} cases refused");
    failures.iter().take(30).for_each(|f| println!("{f}"));
    assert!(failures.is_empty(), "{} cases failed", failures.len());
    // On the embedded device under its own name nothing here is beyond it.
    let host = std::env::var_os("CANN_NODE_HOST_SOC").is_none();
    assert!(refused == 0 || !host, "{refused} cases were refused");
}
