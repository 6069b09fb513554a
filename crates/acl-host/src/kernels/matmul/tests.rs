//! Products against a sum in `f64` over the operands' elements.

use super::super::testing::{Random, isas};
use super::*;
use half::{bf16, f16};

fn bytes<T: Copy>(v: &[T]) -> &[u8] {
    // SAFETY: used with numbers only, which are readable as bytes.
    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), size_of_val(v)) }
}

/// A matrix in memory of its own, row by row or column by column.
struct Matrix {
    data: Vec<u8>,
    ty: DenseType,
    extents: (usize, usize),
    strides: (usize, usize),
}

impl Matrix {
    fn new(random: &mut Random, ty: DenseType, extents: (usize, usize), strides: (usize, usize)) -> Matrix {
        let len = extents.0 * strides.0 + extents.1 * strides.1;
        let v = random.floats(len, 1.0);
        let data = match ty {
            DenseType::F32 => bytes(&v).to_vec(),
            DenseType::F16 => bytes(&v.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()).to_vec(),
            DenseType::Bf16 => bytes(&v.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>()).to_vec(),
        };
        Matrix { data, ty, extents, strides }
    }

    fn view(&self) -> DenseView<'_> {
        DenseView::new(&self.data, self.ty, self.extents, self.strides).unwrap()
    }
}

struct Quants {
    quants: Vec<u8>,
    scales: Vec<u16>,
    offsets: Vec<u16>,
}

impl Quants {
    fn new(random: &mut Random, n: usize, k: usize, groups: usize) -> Quants {
        let half = |v: f32| f16::from_f32(v).to_bits();
        Quants {
            quants: (0..n * k).map(|_| random.bits() as u8).collect(),
            scales: (0..n * groups).map(|_| half(random.float() * 0.05)).collect(),
            offsets: (0..n * groups).map(|_| half(random.float() * 9.0)).collect(),
        }
    }

    fn grouped(&self, bits: QuantBits, n: usize, k: usize, with_offsets: bool) -> Weights<'_> {
        let offsets = with_offsets.then_some(&self.offsets[..]);
        Weights::Quant(QuantWeights::grouped(&self.quants, bits, (n, k), &self.scales, offsets).unwrap())
    }
}

fn product(isa: Isa, team: &Team, x: DenseView<'_>, w: Weights<'_>) -> Vec<f32> {
    let (m, n, k) = (x.rows, w.n(), x.cols);
    let mut out = vec![f32::NAN; m * n];
    let mut scratch = vec![0xffu8; scratch_bytes(team.threads(), m, n, k)];
    let out_view = OutView::from_f32(&mut out, m, n).unwrap();
    matmul_with(isa, team, Problem { x, w, out: out_view }, &mut scratch);
    out
}

/// Compares with the definition. Each of `k` additions may round by 2^-24 of the partial sum and each product once; 16-bit
/// quantisation of `x` adds 2^-16 of a group's greatest element (here at most 1) per term. Both scale with the sum of
/// magnitudes, so `2e-5` of that covers them for these `k`.
fn check(x: DenseView<'_>, w: Weights<'_>, what: &str) {
    let (m, n, k) = (x.rows, w.n(), x.cols);
    let teams = [Team::new(1), Team::new(2)];
    for &isa in Isa::available() {
        let got = product(isa, &teams[0], x, w);
        for i in 0..m {
            for j in 0..n {
                let (mut sum, mut size) = (0f64, 0f64);
                for c in 0..k {
                    let (a, b) = (f64::from(x.at(i, c)), f64::from(w.at(j, c)));
                    sum += a * b;
                    size += b.abs();
                }
                let g = f64::from(got[i * n + j]);
                assert!((g - sum).abs() <= 2e-5 * size + 1e-9, "{what} {isa:?} {m}x{n}x{k} at {i},{j}: {g} for {sum}");
            }
        }
        let again = product(isa, &teams[1], x, w);
        assert!(got.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{what}: threads change the result");
    }
}

#[test]
fn dense_products() {
    isas();
    let mut random = Random::new(11);
    let types = [DenseType::F32, DenseType::F16, DenseType::Bf16];
    for (m, n, k) in [
        (1, 1, 1),
        (1, 9, 33),
        (2, 7, 16),
        (3, 64, 31),
        (4, 85, 24),
        (5, 17, 40),
        (6, 16, 8),
        (7, 33, 300),
        (13, 50, 9),
        (1, 130, 64),
        (2, 5, 0),
        (9, 5, 0),
        (270, 20, 12),
    ] {
        for (t, ty) in types.into_iter().enumerate() {
            let xt = types[(t + m) % 3];
            for (x_strides, w_strides) in
                [((k, 1), (k, 1)), ((k + 3, 1), (1, n)), ((1, m), (k + 5, 1)), ((2 * k, 2), (2, 2 * n + 1))]
            {
                let x = Matrix::new(&mut random, xt, (m, k), x_strides);
                let w = Matrix::new(&mut random, ty, (n, k), w_strides);
                check(x.view(), Weights::Dense(w.view()), &format!("{xt:?} {ty:?} {x_strides:?} {w_strides:?}"));
            }
        }
    }
}

#[test]
fn grouped_quants() {
    isas();
    let mut random = Random::new(12);
    for m in (1..=9).chain([20]) {
        for (n, k) in [(1, 32), (5, 64), (16, 96), (37, 288), (70, 544)] {
            let x = Matrix::new(&mut random, DenseType::F16, (m, k), (k, 1));
            let q = Quants::new(&mut random, n, k, k / 32);
            for bits in [QuantBits::I8, QuantBits::I4] {
                for offsets in [false, true] {
                    check(x.view(), q.grouped(bits, n, k, offsets), &format!("{bits:?} offsets {offsets}"));
                }
            }
        }
    }
}

#[test]
fn other_quant_layouts() {
    let mut random = Random::new(13);
    for (m, n, k, group) in [(1, 10, 64, 64), (3, 10, 50, 50), (7, 9, 128, 64), (5, 12, 96, 32)] {
        let groups = k / group;
        let x = Matrix::new(&mut random, DenseType::F32, (m, k), (k, 1));
        let q = Quants::new(&mut random, n, k, groups);
        let view = |data, strides| DenseView::new(bytes(data), DenseType::F16, (n, groups), strides).unwrap();
        for bits in [QuantBits::I8, QuantBits::I4] {
            for (strides, scale_strides) in [((k, 1), (groups, 1)), ((1, n), (1, n)), ((1, n), (0, 0))] {
                let w = QuantWeights::new(
                    &q.quants,
                    bits,
                    (n, k),
                    strides,
                    view(&q.scales, scale_strides),
                    Some(view(&q.offsets, scale_strides)),
                    group,
                );
                check(x.view(), Weights::Quant(w.unwrap()), &format!("{bits:?} group {group} {strides:?}"));
            }
        }
    }
}

#[test]
fn int4_halves_are_in_element_order() {
    let quants = [0x8fu8; 16];
    let one = [f16::ONE.to_bits()];
    let w = Weights::Quant(QuantWeights::grouped(&quants, QuantBits::I4, (1, 32), &one, None).unwrap());
    assert_eq!((w.at(0, 0), w.at(0, 1)), (-1.0, -8.0));
    let mut x = [0.0; 32];
    x[6] = 1.0;
    let team = Team::new(1);
    for &isa in Isa::available() {
        assert_eq!(product(isa, &team, DenseView::from_f32(&x, 1, 32).unwrap(), w), [-1.0]);
    }
}

/// Quants and 16-bit elements at their limits, alone and side by side: sums stay exact until they become floats.
#[test]
fn quants_at_their_limits() {
    let (n, k) = (17, 64);
    let (scales, offsets) = (vec![f16::ONE.to_bits(); n * k / 32], vec![f16::from_f32(-8.0).to_bits(); n * k / 32]);
    for (bits, bytes) in [(QuantBits::I8, [0x80, 0x7f, 0xff]), (QuantBits::I4, [0x88, 0x77, 0x87])] {
        for byte in bytes {
            let quants = vec![byte; n * k];
            for offsets in [None, Some(&offsets[..])] {
                let w = Weights::Quant(QuantWeights::grouped(&quants, bits, (n, k), &scales, offsets).unwrap());
                for m in [1, 4, 9] {
                    for period in [1, 2, 3, 64] {
                        // 1 becomes 32767, and -1 the opposite.
                        let x: Vec<f32> = (0..m * k).map(|i| if i / period % 2 == 0 { -1.0 } else { 1.0 }).collect();
                        check(DenseView::from_f32(&x, m, k).unwrap(), w, &format!("{bits:?} {byte:#x} {period}"));
                    }
                }
            }
        }
    }
}

#[test]
fn narrow_outputs_round_once() {
    let mut random = Random::new(14);
    let team = Team::new(2);
    for (m, n, k) in [(1, 40, 64), (9, 40, 600)] {
        let x = Matrix::new(&mut random, DenseType::F32, (m, k), (k, 1));
        let w = Matrix::new(&mut random, DenseType::F16, (n, k), (k, 1));
        for &isa in Isa::available() {
            let want = product(isa, &team, x.view(), Weights::Dense(w.view()));
            for (ty, widen) in [
                (DenseType::F16, (|b| f16::from_bits(b).to_f32()) as fn(u16) -> f32),
                (DenseType::Bf16, |b| bf16::from_bits(b).to_f32()),
            ] {
                let stride = n + 3;
                let mut out = vec![0x7777u16; m * stride];
                // SAFETY: `u16` has no invalid bits.
                let raw = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), out.len() * 2) };
                let view = OutView::new(raw, ty, (m, n), stride).unwrap();
                let mut scratch = vec![0; scratch_bytes(2, m, n, k)];
                matmul_with(isa, &team, Problem { x: x.view(), w: Weights::Dense(w.view()), out: view }, &mut scratch);
                for (i, row) in out.chunks(stride).enumerate() {
                    for j in 0..n {
                        let exact = want[i * n + j];
                        let rounded = if ty == DenseType::F16 {
                            f16::from_f32(exact).to_bits()
                        } else {
                            bf16::from_f32(exact).to_bits()
                        };
                        assert_eq!(row[j], rounded, "{} for {exact}", widen(row[j]));
                    }
                    assert!(row[n..].iter().all(|v| *v == 0x7777), "wrote between rows");
                }
            }
        }
    }
}

#[test]
fn values_that_are_not_finite_stay_so() {
    let k = 64;
    let mut random = Random::new(15);
    let q = Quants::new(&mut random, 20, k, 2);
    let d = Matrix::new(&mut random, DenseType::F16, (20, k), (k, 1));
    let team = Team::new(1);
    for &isa in Isa::available() {
        for m in [1, 7] {
            for bad in [f32::NAN, f32::INFINITY, 1e-44, 3e38] {
                let mut x = random.floats(m * k, 1.0);
                x[k - 1] = bad;
                let view = DenseView::from_f32(&x, m, k).unwrap();
                for w in [q.grouped(QuantBits::I4, 20, k, true), Weights::Dense(d.view())] {
                    let got = product(isa, &team, view, w);
                    let wild = !bad.is_finite();
                    assert!(got[..20].iter().all(|v| v.is_finite() != wild), "{bad} {isa:?}");
                    assert!(got[20..].iter().all(|v| v.is_finite()));
                }
            }
        }
    }
}

#[test]
fn quantisation_is_the_same_everywhere() {
    let mut random = Random::new(16);
    let mut x = random.floats(320, 5.0);
    x[40] = f32::NAN;
    x[70] = f32::NEG_INFINITY;
    x[96..128].fill(0.0);
    x[128..160].fill(1e-35);
    for split in [false, true] {
        let run = |isa| {
            let (mut q, mut scales, mut sums) = (vec![7i16; 320], vec![0.0; 10], vec![0.0; 10]);
            // SAFETY: the set is available, and lengths are ten groups.
            unsafe { (table(isa).quantise)(&x, &mut q, &mut scales, &mut sums, split) };
            (q, scales.iter().chain(&sums).map(|v| if v.is_nan() { 0 } else { v.to_bits() }).collect::<Vec<_>>())
        };
        for &isa in isas() {
            assert_eq!(run(isa), run(Isa::Scalar));
        }
    }
}

#[test]
fn a_batch_is_its_products() {
    let mut random = Random::new(17);
    let (heads, m, n, k) = (9, 3, 20, 64);
    let x = Matrix::new(&mut random, DenseType::F32, (heads * m, k), (k, 1));
    let w = Matrix::new(&mut random, DenseType::F16, (heads * n, k), (k, 1));
    let team = Team::new(2);
    let mut out = vec![0.0f32; heads * m * n];
    let base = out.as_mut_ptr() as usize;
    let bytes = scratch_bytes(1, m, n, k);
    let mut scratch = vec![0; batch_scratch_bytes(2, bytes)];
    let problem = |h: usize| Problem {
        x: x.view().row_range(h * m, m),
        w: Weights::Dense(w.view().row_range(h * n, n)),
        // SAFETY: heads have disjoint parts of `out`.
        out: unsafe { OutView::from_raw((base as *mut f32).add(h * m * n).cast(), DenseType::F32, (m, n), n) },
    };
    run_batch(&team, heads, &problem, bytes, &mut scratch);
    for (h, out) in out.chunks(m * n).enumerate() {
        let w = Weights::Dense(w.view().row_range(h * n, n));
        assert_eq!(out, product(Isa::current(), &team, x.view().row_range(h * m, m), w));
    }
}

#[test]
fn views_refuse_what_lies_outside() {
    let data = [0u8; 64];
    assert!(DenseView::new(&data, DenseType::F32, (4, 4), (4, 1)).is_some());
    assert!(DenseView::new(&data, DenseType::F32, (4, 4), (5, 1)).is_none());
    assert!(DenseView::new(&data, DenseType::F32, (usize::MAX, 4), (usize::MAX, 1)).is_none());
    assert!(QuantWeights::grouped(&data, QuantBits::I4, (4, 32), &[0; 4], None).is_some());
    assert!(QuantWeights::grouped(&data, QuantBits::I4, (5, 32), &[0; 5], None).is_none());
    assert!(QuantWeights::grouped(&data, QuantBits::I8, (2, 32), &[0; 1], None).is_none());
    let mut data = [0f32; 16];
    assert!(OutView::from_f32(&mut data, 4, 5).is_none());
}

/// Attention's rates; run like `rates`.
#[test]
#[ignore = "measures, asserts nothing"]
fn attention_rates() {
    use super::super::attention::{Attention, attend, scratch_bytes};
    let mut random = Random::new(19);
    let (size, stride) = (64, 192);
    for (queries, keys) in [(1, 256), (1, 1024), (64, 256), (64, 1024), (32, 256)] {
        let q = Matrix::new(&mut random, DenseType::F32, (queries, size), (size, 1));
        let kv = Matrix::new(&mut random, DenseType::F16, (keys, size), (stride, 1));
        let mask = Matrix::new(&mut random, DenseType::F16, (queries, keys), (keys, 1));
        let mut out = vec![0.0; queries * size];
        let mut scratch = vec![0; scratch_bytes(queries, size, size)];
        let mut best = f64::MAX;
        for _ in 0..2000 {
            let t = std::time::Instant::now();
            let out = OutView::from_f32(&mut out, queries, size).unwrap();
            let (q, k, v, mask) = (q.view(), kv.view(), kv.view(), Some(mask.view()));
            let a = Attention { q, k, v, mask, scale: 0.125, slope: 1.0, soft_cap: None, sink: None, out };
            attend(a, &mut scratch);
            best = best.min(t.elapsed().as_secs_f64());
        }
        let rate = (4 * queries * keys * size) as f64 / best * 1e-9;
        println!("attention {queries} x {keys}: {:.1} us, {rate:.1} GFLOP/s", best * 1e6);
    }
}

/// Rates on this machine; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "measures, asserts nothing"]
fn rates() {
    let mut random = Random::new(18);
    let best = |f: &mut dyn FnMut()| {
        let mut best = f64::MAX;
        let begin = std::time::Instant::now();
        while begin.elapsed().as_millis() < 300 {
            let t = std::time::Instant::now();
            f();
            best = best.min(t.elapsed().as_secs_f64());
        }
        best
    };
    // Part of a name, as `grep` would have it; all by default.
    let only = std::env::var("RATES").unwrap_or_default();
    for threads in [1, 2] {
        let team = Team::new(threads);
        let empty = best(&mut || (0..100).for_each(|_| team.run(2, &|_| ())));
        println!("{threads} threads: empty region {:.2} us", empty * 1e4);
        for (m, n, k) in [
            (1, 49152, 576),
            (1, 36864, 1536),
            (1, 1536, 576),
            (1, 576, 1536),
            (1, 192, 576),
            (4, 1536, 576),
            (5, 1536, 576),
            (8, 1536, 576),
            (12, 1536, 576),
            (256, 576, 576),
            (256, 1536, 576),
            (256, 576, 1536),
            (512, 1536, 576),
        ] {
            let x = Matrix::new(&mut random, DenseType::F32, (m, k), (k, 1));
            let q = Quants::new(&mut random, n, k, k / 32);
            let d = Matrix::new(&mut random, DenseType::F32, (n, k), (k, 1));
            let h = Matrix::new(&mut random, DenseType::F16, (n, k), (k, 1));
            let mut scratch = vec![0; scratch_bytes(threads, m, n, k)];
            let mut out = vec![0.0; m * n];
            for (name, w, bits) in [
                ("f32", Weights::Dense(d.view()), 32.0),
                ("f16", Weights::Dense(h.view()), 16.0),
                ("i8", q.grouped(QuantBits::I8, n, k, false), 8.5),
                ("i4", q.grouped(QuantBits::I4, n, k, false), 4.5),
                ("i4+", q.grouped(QuantBits::I4, n, k, true), 5.0),
            ] {
                if !format!("{threads} {m} {name} ").contains(&only) {
                    continue;
                }
                let t = best(&mut || {
                    let out = OutView::from_f32(&mut out, m, n).unwrap();
                    matmul(&team, Problem { x: x.view(), w, out }, &mut scratch);
                });
                let flop = 2.0 * (m * n * k) as f64;
                let bytes = (n * k) as f64 * bits / 8.0;
                println!(
                    "  {m:3} x {n:5} x {k:4} {name:4} {:8.1} us {:6.1} GFLOP/s {:5.1} GB/s",
                    t * 1e6,
                    flop / t * 1e-9,
                    bytes / t * 1e-9
                );
            }
        }
    }
}
