//! Operators of networks against their formulas in `f64`: products, norms, softmax, attention, convolution, pooling.

use acl_sys::*;
use harness::{Device, Tensor, device, numbers};
use std::ptr::{null, null_mut};

mod harness;

const FLT: [aclDataType; 3] = [ACL_FLOAT, ACL_FLOAT16, ACL_BF16];

fn random(d: &Device, dtype: aclDataType, dims: &[i64], seed: u64) -> Tensor {
    d.tensor(dtype, dims, &numbers(dims.iter().product::<i64>() as usize, seed))
}

/// Half a unit of the type's last place; f32 has room for the sums that lead to it.
fn epsilon(dtype: aclDataType) -> f64 {
    match dtype {
        ACL_FLOAT => 4e-6,
        ACL_FLOAT16 => 5.2e-4,
        ACL_BF16 => 4.1e-3,
        ACL_DOUBLE => 1e-12,
        _ => 0.0,
    }
}

/// Every element is within the type's epsilon, relative to the wanted one plus `scale`.
#[track_caller]
fn close(what: &str, got: &Tensor, want: &[f64], scale: f64) {
    let values = got.read();
    assert_eq!(values.len(), want.len(), "{what}: length");
    for (i, (g, w)) in values.iter().zip(want).enumerate() {
        let same = (g.is_nan() && w.is_nan()) || g == w;
        let bound = epsilon(got.dtype) * (w.abs() + scale);
        assert!(same || (g - w).abs() <= bound, "{what}: element {i} of {:?} is {g}, wanted {w}", got.dims);
    }
}

#[track_caller]
fn refused(d: &Device, result: Result<(), aclError>, code: aclError) {
    assert_eq!(result, Err(code), "{}", d.message());
    assert!(!d.message().is_empty());
}

/// Row-major numbers with a shape.
struct Ref {
    dims: Vec<usize>,
    v: Vec<f64>,
}

impl Ref {
    fn of(t: &Tensor) -> Ref {
        Ref { dims: t.dims.iter().map(|d| *d as usize).collect(), v: t.read() }
    }

    /// With leading dims and dims of 1 repeated.
    fn place(&self, at: &[usize]) -> usize {
        let at = &at[at.len() - self.dims.len()..];
        self.dims.iter().zip(at).fold(0, |p, (d, i)| p * d + if *d == 1 { 0 } else { *i })
    }

    fn at(&self, at: &[usize]) -> f64 {
        self.v[self.place(at)]
    }
}

/// All index tuples of a shape, in order.
fn indices(dims: &[i64]) -> Vec<Vec<usize>> {
    dims.iter().fold(vec![vec![]], |all, d| {
        all.iter().flat_map(|at| (0..*d as usize).map(move |i| [&at[..], &[i]].concat())).collect()
    })
}

/// The product's formula, for an output of two dims or more.
fn product(a: &Tensor, b: &Tensor, out: &[i64]) -> Vec<f64> {
    let (ra, rb) = (Ref::of(a), Ref::of(b));
    let ([.., m, k], [.., n]) = (&ra.dims[..], &rb.dims[..]) else { panic!("products of matrices") };
    let (m, k, n) = (*m, *k, *n);
    let mut want = Vec::new();
    for batch in indices(&out[..out.len() - 2]) {
        let first = [&batch[..], &[0, 0]].concat();
        let (a, b) = (&ra.v[ra.place(&first)..], &rb.v[rb.place(&first)..]);
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            want.push((0..k).map(|i| a[row * k + i] * b[i * n + col]).sum());
        }
    }
    want
}

#[test]
fn mm_in_all_types_and_orders() {
    let d = device();
    let mut seed = 1;
    for (m, k, n) in [(1, 64, 257), (1, 300, 40), (3, 64, 16), (4, 33, 7), (5, 1, 5), (17, 96, 65), (70, 301, 130)] {
        for a_type in FLT {
            for b_type in FLT {
                let out_type = FLT[seed as usize % 3];
                seed += 1;
                let b = random(&d, b_type, &[n, k], seed);
                let b = d.transposed(&b);
                let a = random(&d, a_type, &[m, k], seed + 7);
                let out = d.empty(out_type, &[m, n]);
                assert_eq!(d.aclnnMm(a.handle, b.handle, out.handle, (seed % 4) as i8), Ok(()), "{}", d.message());
                close("weights transposed", &out, &product(&a, &b, &[m, n]), (k as f64).sqrt());

                let b = random(&d, b_type, &[k, n], seed);
                let a = d.transposed(&random(&d, a_type, &[k, m], seed + 9));
                assert_eq!(d.aclnnMm(a.handle, b.handle, out.handle, 0), Ok(()));
                close("input transposed", &out, &product(&a, &b, &[m, n]), (k as f64).sqrt());
            }
        }
    }
}

#[test]
fn matmul_broadcasts_batches() {
    let d = device();
    for (a_dims, b_dims, out_dims) in [
        (vec![2, 3, 4, 5], vec![2, 3, 5, 6], vec![2, 3, 4, 6]),
        (vec![3, 4, 5], vec![5, 6], vec![3, 4, 6]),
        (vec![4, 5], vec![2, 5, 6], vec![2, 4, 6]),
        (vec![2, 1, 4, 5], vec![1, 3, 5, 6], vec![2, 3, 4, 6]),
        (vec![2, 1, 2, 1, 1, 33], vec![2, 1, 1, 3, 33, 20], vec![2, 1, 2, 3, 1, 20]),
        (vec![3, 3, 1, 64], vec![3, 1, 64, 50], vec![3, 3, 1, 50]),
        (vec![3, 3, 40, 64], vec![3, 1, 64, 50], vec![3, 3, 40, 50]),
    ] {
        for (a_type, b_type, out_type) in
            [(ACL_FLOAT, ACL_FLOAT16, ACL_FLOAT), (ACL_FLOAT, ACL_FLOAT, ACL_FLOAT16), (ACL_BF16, ACL_BF16, ACL_BF16)]
        {
            let (a, b) = (random(&d, a_type, &a_dims, 3), random(&d, b_type, &b_dims, 4));
            let out = d.empty(out_type, &out_dims);
            assert_eq!(d.aclnnMatmul(a.handle, b.handle, out.handle, 1), Ok(()), "{}", d.message());
            close("matmul", &out, &product(&a, &b, &out_dims), 8.0);
        }
    }
}

/// How attention uses products: heads inside rows of a cache, groups of queries over one head.
#[test]
fn matmul_reads_heads_where_they_lie() {
    let d = device();
    let (kv, group, size, keys) = (3, 3, 64, 200);
    for tokens in [1, 2, 30] {
        // Queries [tokens, heads, size] seen as [kv, group, tokens, size].
        let q = random(&d, ACL_FLOAT, &[tokens, kv * group, size], 1);
        let heads = kv * group * size;
        let q = d.view(&q, &[kv, group, tokens, size], &[group * size, size, heads, 1], 0);
        let k = random(&d, ACL_FLOAT16, &[keys, kv, size], 2);
        let k_t = d.view(&k, &[kv, group, size, keys], &[size, 0, 1, kv * size], 0);
        let scores = d.empty(ACL_FLOAT, &[kv, group, tokens, keys]);
        assert_eq!(d.aclnnMatmul(q.handle, k_t.handle, scores.handle, 0), Ok(()), "{}", d.message());
        close("q k", &scores, &product(&q, &k_t, &[kv, group, tokens, keys]), 8.0);

        let v = d.view(&k, &[kv, 1, keys, size], &[size, size, kv * size, 1], 0);
        // Back to [tokens, heads, size]: outputs may be strided, too.
        let whole = d.empty(ACL_FLOAT, &[tokens, kv * group, size]);
        let out = d.view(&whole, &[kv, group, tokens, size], &[group * size, size, heads, 1], 0);
        assert_eq!(d.aclnnMatmul(scores.handle, v.handle, out.handle, 0), Ok(()), "{}", d.message());
        close("p v", &out, &product(&scores, &v, &[kv, group, tokens, size]), 100.0);

        // Values stored the other way round.
        let turned = random(&d, ACL_FLOAT16, &[kv, size, keys], 5);
        let v = d.view(&turned, &[kv, 1, keys, size], &[size * keys, 0, 1, keys], 0);
        assert_eq!(d.aclnnMatmul(scores.handle, v.handle, out.handle, 0), Ok(()), "{}", d.message());
        close("p v turned", &out, &product(&scores, &v, &[kv, group, tokens, size]), 100.0);
    }
}

#[test]
fn vectors_empties_and_refusals_of_products() {
    let d = device();
    let (m, k, n) = (5, 40, 6);
    let (a, b) = (random(&d, ACL_FLOAT, &[m, k], 1), random(&d, ACL_FLOAT, &[2, k, n], 2));
    let x = random(&d, ACL_FLOAT16, &[k], 3);
    let column = d.view(&x, &[k, 1], &[1, 1], 0);
    let row = d.view(&x, &[1, k], &[1, 1], 0);

    let out = d.empty(ACL_FLOAT, &[m]);
    assert_eq!(d.aclnnMv(a.handle, x.handle, out.handle, 0), Ok(()));
    close("mv", &out, &product(&a, &column, &[m, 1]), 6.0);
    assert_eq!(d.aclnnMatmul(a.handle, x.handle, out.handle, 0), Ok(()));
    close("matrix vector", &out, &product(&a, &column, &[m, 1]), 6.0);
    let tall = random(&d, ACL_FLOAT16, &[300, k], 4);
    let many = d.empty(ACL_FLOAT16, &[300]);
    assert_eq!(d.aclnnMv(tall.handle, x.handle, many.handle, 0), Ok(()));
    close("tall mv", &many, &product(&tall, &column, &[300, 1]), 6.0);
    let out = d.empty(ACL_FLOAT, &[2, n]);
    assert_eq!(d.aclnnMatmul(x.handle, b.handle, out.handle, 0), Ok(()), "{}", d.message());
    close("vector matrices", &out, &product(&row, &b, &[2, 1, n]), 6.0);
    let out = d.empty(ACL_FLOAT, &[]);
    assert_eq!(d.aclnnMatmul(x.handle, x.handle, out.handle, 0), Ok(()), "{}", d.message());
    close("dot", &out, &product(&row, &column, &[1, 1]), 6.0);

    let (a3, out3) = (random(&d, ACL_FLOAT16, &[1, m, k], 9), d.empty(ACL_FLOAT, &[2, m, n]));
    assert_eq!(d.aclnnBatchMatMul(a3.handle, b.handle, out3.handle, 0), Ok(()));
    close("bmm", &out3, &product(&a3, &b, &[2, m, n]), 6.0);

    let (none, no_k) = (d.empty(ACL_FLOAT, &[m, 0]), d.empty(ACL_FLOAT, &[0, n]));
    let zeros = d.tensor(ACL_FLOAT, &[m, n], &vec![7.0; (m * n) as usize]);
    assert_eq!(d.aclnnMm(none.handle, no_k.handle, zeros.handle, 0), Ok(()), "{}", d.message());
    close("no depth", &zeros, &vec![0.0; (m * n) as usize], 0.0);
    let no_rows = d.empty(ACL_FLOAT, &[0, k]);
    let (b2, empty) = (random(&d, ACL_FLOAT, &[k, n], 2), d.empty(ACL_FLOAT, &[0, n]));
    assert_eq!(d.aclnnMm(no_rows.handle, b2.handle, empty.handle, 0), Ok(()));

    refused(&d, d.aclnnMm(a.handle, b.handle, zeros.handle, 0), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMm(a.handle, a.handle, zeros.handle, 0), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMm(a.handle, b2.handle, empty.handle, 0), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMm(a.handle, b2.handle, zeros.handle, 9), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMm(null(), b2.handle, zeros.handle, 0), ACLNN_ERR_PARAM_NULLPTR);
    let ints = random(&d, ACL_INT32, &[k, n], 2);
    refused(&d, d.aclnnMm(a.handle, ints.handle, zeros.handle, 0), ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn weights_have_a_private_format_that_products_read() {
    let d = device();
    // Where element (row, column) of a matrix goes: strips of 16 columns, one after the other.
    let place = |rows: usize, i: usize, j: usize| (j / 16 * rows + i) * 16 + j % 16;
    for (dtype, batch, rows, cols) in
        [(ACL_FLOAT16, 1, 32, 48), (ACL_BF16, 1, 16, 16), (ACL_FLOAT16, 3, 48, 16), (ACL_FLOAT16, 1, 272, 528)]
    {
        let w = random(&d, dtype, &[batch, rows, cols], 1);
        let before = w.read();
        assert_eq!(d.aclnnTransMatmulWeight(w.handle), Ok(()), "{}", d.message());
        let after = w.read();
        let (size, rows, cols) = ((rows * cols) as usize, rows as usize, cols as usize);
        for (at, value) in before.iter().enumerate() {
            let (matrix, i, j) = (at / size, at % size / cols, at % cols);
            assert_eq!(after[matrix * size + place(rows, i, j)], *value, "{dtype} {rows} x {cols}: {at}");
        }
    }
    let bytes = random(&d, ACL_INT8, &[16, 64], 1);
    let before = bytes.read();
    d.aclnnTransMatmulWeight(bytes.handle).unwrap();
    assert_eq!((bytes.read()[32], bytes.read()[16 * 32]), (before[64], before[32]));

    for (m, k, n, dtype) in [
        (1, 48, 32, ACL_FLOAT16),
        (3, 32, 48, ACL_BF16),
        (9, 272, 64, ACL_FLOAT16),
        (70, 560, 96, ACL_FLOAT16),
        (1, 1040, 160, ACL_FLOAT16),
    ] {
        for x_type in [ACL_FLOAT, ACL_FLOAT16] {
            let x = random(&d, x_type, &[m, k], 3);
            // Rows of k, turned round as weights are; and rows of n.
            let (rows, cols) = (random(&d, dtype, &[n, k], 4), random(&d, dtype, &[k, n], 4));
            let turned = d.transposed(&rows);
            let out = d.empty(ACL_FLOAT, &[m, n]);
            let want = [product(&x, &turned, &[m, n]), product(&x, &cols, &[m, n])];
            for (matrix, plain, want) in [(&rows, &turned, &want[0]), (&cols, &cols, &want[1])] {
                d.aclnnTransMatmulWeight(matrix.handle).unwrap();
                let weight = d.formatted(plain, ACL_FORMAT_FRACTAL_NZ);
                assert_eq!(d.aclnnMm(x.handle, weight.handle, out.handle, USE_FP16), Ok(()), "{}", d.message());
                close(&format!("{m} {k} {n}"), &out, want, 9.0);
                // Without the format's name it is another matrix.
                d.aclnnMm(x.handle, plain.handle, out.handle, USE_FP16).unwrap();
                assert!(out.read().iter().zip(want).any(|(a, b)| (a - b).abs() > 0.1));
            }
        }
    }

    // Nobody else takes it, and what is not whole blocks has to be padded first.
    let w = d.formatted(&random(&d, ACL_FLOAT16, &[32, 32], 1), ACL_FORMAT_FRACTAL_NZ);
    let (x, out) = (random(&d, ACL_FLOAT16, &[32, 32], 1), d.empty(ACL_FLOAT16, &[32, 32]));
    refused(&d, d.aclnnAdd(x.handle, w.handle, d.f32(1.0).handle, out.handle), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnInplaceCopy(out.handle, w.handle), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMm(w.handle, x.handle, out.handle, 0), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnMatmul(x.handle, w.handle, out.handle, 0), ACLNN_ERR_PARAM_INVALID);
    let odd = random(&d, ACL_FLOAT16, &[20, 40], 1);
    refused(&d, d.aclnnTransMatmulWeight(odd.handle), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnTransMatmulWeight(d.transposed(&x).handle), ACLNN_ERR_PARAM_INVALID);
    let single = random(&d, ACL_FLOAT, &[20, 40], 1);
    refused(&d, d.aclnnTransMatmulWeight(single.handle), ACLNN_ERR_PARAM_INVALID);
    let size = |dims: &[i64], dtype| {
        let (dims, mut size) = (d.ints(dims), 0);
        // SAFETY: a live array and a place for the size.
        let code = unsafe { (d.api.aclnnCalculateMatmulWeightSizeV2)(dims.handle, dtype, &mut size) };
        if code == ACL_SUCCESS { Ok(size) } else { Err(code) }
    };
    assert_eq!(size(&[17, 33], ACL_FLOAT16), Ok(32 * 48));
    assert_eq!(size(&[3, 17, 33], ACL_BF16), Ok(3 * 32 * 48));
    assert_eq!(size(&[33, 17], ACL_INT8), Ok(64 * 32));
    assert_eq!(size(&[], ACL_FLOAT16), Err(ACLNN_ERR_PARAM_INVALID));
    assert_eq!(size(&[5, 0], ACL_FLOAT16), Err(ACLNN_ERR_PARAM_INVALID));
    assert_eq!(size(&[5, 5], ACL_FLOAT), Err(ACLNN_ERR_PARAM_INVALID));
}

/// Small integers as packed bytes of the type, and as numbers.
fn quants(dtype: aclDataType, count: usize, seed: u64) -> (Vec<u8>, Vec<f64>) {
    let (most, least) = if dtype == ACL_INT4 { (7.0, -8.0) } else { (127.0, -128.0) };
    let values: Vec<f64> = numbers(count, seed).iter().map(|x| (x * 70.0).round().clamp(least, most)).collect();
    let bytes = match dtype {
        ACL_INT4 => {
            values.chunks(2).map(|p| (p[0] as i8 as u8 & 15) | (p.get(1).map_or(0, |v| *v as i8 as u8) << 4)).collect()
        }
        _ => values.iter().map(|v| *v as i8 as u8).collect(),
    };
    (bytes, values)
}

#[test]
fn quantised_products() {
    let d = device();
    for dtype in [ACL_INT8, ACL_INT4] {
        for (m, k, n) in [(1, 64, 40), (1, 576, 300), (3, 96, 17), (30, 256, 70)] {
            for (x_type, y_type) in [(ACL_FLOAT, ACL_FLOAT), (ACL_FLOAT16, ACL_FLOAT16), (ACL_BF16, ACL_FLOAT)] {
                // Rows of k quants, groups of 32: what the backend uploads; and the other way round.
                for (turned, with_offset, with_bias, group) in [
                    (true, false, false, 32),
                    (true, true, false, 32),
                    (false, true, true, 32),
                    (true, true, true, 0),
                    (false, false, false, 64),
                ] {
                    let (bytes, q) = quants(dtype, (n * k) as usize, 3);
                    let groups = if group == 0 { 1 } else { (k + group - 1) / group };
                    let scale = random(&d, ACL_FLOAT16, &[groups * n], 4);
                    let offset = random(&d, ACL_FLOAT16, &[groups * n], 5);
                    let x = random(&d, x_type, &[m, k], 6);
                    let bias = random(&d, ACL_FLOAT, &[n], 8);
                    let weight = d.bytes(dtype, &[if turned { n } else { k }, if turned { k } else { n }], &bytes);
                    let weight = if turned { d.transposed(&weight) } else { weight };
                    let strides = if turned { [1, groups] } else { [n, 1] };
                    let scale = d.view(&scale, &[groups, n], &strides, 0);
                    let offset = d.view(&offset, &[groups, n], &strides, 0);
                    let y = d.empty(y_type, &[m, n]);
                    let given = |yes: bool, t: &Tensor| if yes { t.handle.cast_const() } else { null() };
                    let result = d.aclnnWeightQuantBatchMatmulV2(
                        x.handle,
                        weight.handle,
                        scale.handle,
                        given(with_offset, &offset),
                        null(),
                        null(),
                        given(with_bias, &bias),
                        group as i32,
                        y.handle,
                    );
                    assert_eq!(result, Ok(()), "{}", d.message());
                    let (xs, ss, os, bs) = (Ref::of(&x), Ref::of(&scale), Ref::of(&offset), bias.read());
                    let mut scales = Vec::new();
                    let want: Vec<f64> = indices(&[m, n])
                        .iter()
                        .map(|at| {
                            let mut size = 0.0f64;
                            let terms = (0..k as usize).map(|i| {
                                let g = if group == 0 { 0 } else { i / group as usize };
                                let place = if turned { at[1] * k as usize + i } else { i * n as usize + at[1] };
                                let o = if with_offset { os.at(&[g, at[1]]) } else { 0.0 };
                                let term = xs.at(&[at[0], i]) * (q[place] + o) * ss.at(&[g, at[1]]);
                                size += term.abs();
                                term
                            });
                            let sum: f64 = terms.sum();
                            scales.push(size);
                            sum + if with_bias { bs[at[1]] } else { 0.0 }
                        })
                        .collect();
                    // The fast kernels keep 16 bits of x: 1/65534 of the greatest in a group, the more terms the less it
                    // shows.
                    let values = y.read();
                    for (i, (g, w)) in values.iter().zip(&want).enumerate() {
                        let bound = epsilon(y_type) * w.abs() + 3e-5 * scales[i] / (k as f64).sqrt() * 4.0;
                        assert!((g - w).abs() <= bound, "{dtype} {m}x{k}x{n} {turned} {group}: {i} is {g}, wanted {w}");
                    }
                }
            }
        }
    }
}

#[test]
fn quantised_products_with_one_scale_and_refusals() {
    let d = device();
    let (k, n) = (32, 10);
    let (bytes, q) = quants(ACL_INT8, 320, 3);
    let weight = d.transposed(&d.bytes(ACL_INT8, &[n, k], &bytes));
    let x = random(&d, ACL_FLOAT, &[2, k], 6);
    let y = d.empty(ACL_FLOAT, &[2, n]);
    let xs = Ref::of(&x);
    let call = |scale: &Tensor, offset: *const aclTensor, group, y: &Tensor| {
        d.aclnnWeightQuantBatchMatmulV2(
            x.handle,
            weight.handle,
            scale.handle,
            offset,
            null(),
            null(),
            null(),
            group,
            y.handle,
        )
    };
    for dims in [vec![1], vec![1, 1], vec![n], vec![1, n]] {
        let scale = random(&d, ACL_FLOAT16, &dims, 5);
        assert_eq!(call(&scale, null(), 0, &y), Ok(()), "{}", d.message());
        let ss = scale.read();
        let want: Vec<f64> = indices(&[2, n])
            .iter()
            .map(|at| {
                let scale = ss[at[1] % ss.len()];
                (0..32).map(|i| xs.at(&[at[0], i]) * q[at[1] * 32 + i] * scale).sum()
            })
            .collect();
        close("scale", &y, &want, 4e3);
    }
    let scale = random(&d, ACL_FLOAT16, &[n], 5);
    refused(&d, call(&scale, null(), 32, &y), ACLNN_ERR_PARAM_INVALID);
    refused(&d, call(&scale, null(), 33, &y), ACLNN_ERR_PARAM_INVALID);
    refused(&d, call(&scale, null(), -32, &y), ACLNN_ERR_PARAM_INVALID);
    let wrong = random(&d, ACL_FLOAT16, &[n + 1], 5);
    refused(&d, call(&wrong, null(), 0, &y), ACLNN_ERR_PARAM_INVALID);
    refused(&d, call(&scale, wrong.handle, 0, &y), ACLNN_ERR_PARAM_INVALID);
    let wrong = d.empty(ACL_FLOAT, &[2, n + 1]);
    refused(&d, call(&scale, null(), 0, &wrong), ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn grouped_products() {
    let d = device();
    let shapes = [(1, 64, 96), (4, 64, 96), (2, 30, 5), (1, 576, 1536)];
    for dtype in [ACL_FLOAT, ACL_FLOAT16] {
        let (mut xs, mut ws, mut ys) = (vec![], vec![], vec![]);
        for (i, (m, k, n)) in shapes.into_iter().enumerate() {
            xs.push(random(&d, dtype, &[m, k], i as u64));
            ws.push(d.transposed(&random(&d, dtype, &[n, k], 50 + i as u64)));
            ys.push(d.empty(dtype, &[m, n]));
        }
        let list = |tensors: &[Tensor]| d.list(&tensors.iter().collect::<Vec<_>>());
        let (x, w, y) = (list(&xs), list(&ws), list(&ys));
        let nothing = || null();
        let result = d.aclnnGroupedMatmulV2(
            x.handle,
            w.handle,
            nothing(),
            null(),
            null(),
            null(),
            null(),
            null(),
            0,
            -1,
            y.handle,
        );
        assert_eq!(result, Ok(()), "{}", d.message());
        for (i, (m, _, n)) in shapes.into_iter().enumerate() {
            close("grouped", &ys[i], &product(&xs[i], &ws[i], &[m, n]), 24.0);
        }
        let v3 = |split, group, y: &harness::List| {
            d.aclnnGroupedMatmulV3(
                x.handle,
                w.handle,
                null(),
                null(),
                null(),
                null(),
                null(),
                null(),
                split,
                group,
                y.handle,
            )
        };
        assert_eq!(v3(1, -1, &y), Ok(()));
        refused(&d, v3(2, -1, &y), ACLNN_ERR_PARAM_INVALID);
        refused(&d, v3(0, 0, &y), ACLNN_ERR_PARAM_INVALID);
        refused(&d, v3(0, -1, &list(&ys[..3])), ACLNN_ERR_PARAM_INVALID);
    }
}

fn rms(x: &[f64], eps: f64) -> f64 {
    1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + eps).sqrt()
}

#[test]
fn rms_norms() {
    let d = device();
    for (dtype, gamma_type) in [(ACL_FLOAT, ACL_FLOAT), (ACL_FLOAT16, ACL_FLOAT16), (ACL_BF16, ACL_FLOAT)] {
        for (dims, tail) in [(vec![2, 3, 5, 576], 1), (vec![4, 7, 6], 2), (vec![300, 64], 1), (vec![9], 1)] {
            let lead = dims.len() - tail;
            let len = dims[lead..].iter().product::<i64>() as usize;
            let x = random(&d, dtype, &dims, 1);
            let gamma = random(&d, gamma_type, &dims[lead..], 2);
            let y = d.empty(dtype, &dims);
            let mut shape = dims.clone();
            shape[lead..].fill(1);
            let rstd = d.empty(ACL_FLOAT, &shape);
            assert_eq!(d.aclnnRmsNorm(x.handle, gamma.handle, 1e-5, y.handle, rstd.handle), Ok(()), "{}", d.message());
            let (xs, gs) = (x.read(), gamma.read());
            let factors: Vec<f64> = xs.chunks(len).map(|row| rms(row, 1e-5)).collect();
            let want: Vec<f64> = xs.iter().enumerate().map(|(i, v)| v * factors[i / len] * gs[i % len]).collect();
            close("rms", &y, &want, 0.01);
            close("rstd", &rstd, &factors, 0.0);

            let other = random(&d, dtype, &dims, 5);
            let sum = d.empty(dtype, &dims);
            let result =
                d.aclnnAddRmsNorm(x.handle, other.handle, gamma.handle, 1e-5, y.handle, rstd.handle, sum.handle);
            assert_eq!(result, Ok(()), "{}", d.message());
            let added: Vec<f64> = xs.iter().zip(other.read()).map(|(a, b)| a + b).collect();
            close("sum", &sum, &added, 0.0);
            let added = sum.read();
            let want: Vec<f64> = added
                .iter()
                .enumerate()
                .map(|(i, v)| v * rms(&added[i / len * len..][..len], 1e-5) * gs[i % len])
                .collect();
            close("add rms", &y, &want, 0.01);

            // In place.
            assert_eq!(d.aclnnRmsNorm(x.handle, gamma.handle, 1e-5, x.handle, rstd.handle), Ok(()));
            let want: Vec<f64> = xs.iter().enumerate().map(|(i, v)| v * factors[i / len] * gs[i % len]).collect();
            close("in place", &x, &want, 0.01);
        }
    }
    // Strided rows, and what does not fit.
    let whole = random(&d, ACL_FLOAT, &[6, 40], 3);
    let x = d.view(&whole, &[3, 2, 8], &[80, 40, 2], 1);
    let gamma = random(&d, ACL_FLOAT, &[8], 2);
    let (y, rstd) = (d.empty(ACL_FLOAT, &[3, 2, 8]), d.empty(ACL_FLOAT, &[3, 2]));
    assert_eq!(d.aclnnRmsNorm(x.handle, gamma.handle, 0.0, y.handle, rstd.handle), Ok(()), "{}", d.message());
    let (xs, gs) = (x.read(), gamma.read());
    let want: Vec<f64> = xs.iter().enumerate().map(|(i, v)| v * rms(&xs[i / 8 * 8..][..8], 0.0) * gs[i % 8]).collect();
    close("strided", &y, &want, 0.01);
    let short = random(&d, ACL_FLOAT, &[7], 2);
    refused(&d, d.aclnnRmsNorm(x.handle, short.handle, 0.0, y.handle, rstd.handle), ACLNN_ERR_PARAM_INVALID);
    let half = random(&d, ACL_FLOAT16, &[8], 2);
    refused(&d, d.aclnnRmsNorm(x.handle, half.handle, 0.0, y.handle, rstd.handle), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnRmsNorm(x.handle, gamma.handle, 0.0, null_mut(), rstd.handle), ACLNN_ERR_PARAM_NULLPTR);
}

fn mean_and_factor(x: &[f64], eps: f64) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
    (mean, 1.0 / (variance + eps).sqrt())
}

#[test]
fn layer_and_group_norms() {
    let d = device();
    for dtype in FLT {
        let dims = [3, 6, 4, 5];
        let x = random(&d, dtype, &dims, 1);
        let (w, b) = (random(&d, dtype, &[4, 5], 2), random(&d, dtype, &[4, 5], 3));
        let y = d.empty(dtype, &dims);
        let (mean, rstd) = (d.empty(dtype, &[3, 6, 1, 1]), d.empty(dtype, &[3, 6, 1, 1]));
        let xs = x.read();
        let stats: Vec<_> = xs.chunks(20).map(|row| mean_and_factor(row, 1e-3)).collect();
        for affine in [true, false] {
            let given = |t: &Tensor| if affine { t.handle } else { null_mut() };
            let result = d.aclnnLayerNorm(
                x.handle,
                d.ints(&[4, 5]).handle,
                given(&w),
                given(&b),
                1e-3,
                y.handle,
                given(&mean),
                given(&rstd),
            );
            assert_eq!(result, Ok(()), "{}", d.message());
            let (ws, bs) = (w.read(), b.read());
            let want: Vec<f64> = xs
                .iter()
                .enumerate()
                .map(|(i, v)| {
                    let (m, r) = stats[i / 20];
                    let n = (v - m) * r;
                    if affine { n * ws[i % 20] + bs[i % 20] } else { n }
                })
                .collect();
            close("layer norm", &y, &want, 1.0);
        }
        close("mean", &mean, &stats.iter().map(|s| s.0).collect::<Vec<_>>(), 1.0);
        close("rstd", &rstd, &stats.iter().map(|s| s.1).collect::<Vec<_>>(), 0.1);

        let (gamma, beta) = (random(&d, dtype, &[6], 2), random(&d, dtype, &[6], 3));
        let (mean, rstd) = (d.empty(dtype, &[3, 2]), d.empty(dtype, &[3, 2]));
        let call = |n, c, plane, groups, eps| {
            d.aclnnGroupNorm(
                x.handle,
                gamma.handle,
                beta.handle,
                n,
                c,
                plane,
                groups,
                eps,
                y.handle,
                mean.handle,
                rstd.handle,
            )
        };
        assert_eq!(call(3, 6, 20, 2, 1e-3), Ok(()), "{}", d.message());
        let stats: Vec<_> = xs.chunks(60).map(|row| mean_and_factor(row, 1e-3)).collect();
        let (gs, bs) = (gamma.read(), beta.read());
        let want: Vec<f64> = xs
            .iter()
            .enumerate()
            .map(|(i, v)| (v - stats[i / 60].0) * stats[i / 60].1 * gs[i / 20 % 6] + bs[i / 20 % 6])
            .collect();
        close("group norm", &y, &want, 1.0);
        close("mean", &mean, &stats.iter().map(|s| s.0).collect::<Vec<_>>(), 1.0);
        refused(&d, call(3, 6, 20, 4, 1e-3), ACLNN_ERR_PARAM_INVALID);
        refused(&d, call(3, 6, 21, 2, 1e-3), ACLNN_ERR_PARAM_INVALID);
        refused(&d, call(3, 6, 20, 2, 0.0), ACLNN_ERR_PARAM_INVALID);
    }
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
    let e: Vec<f64> = x.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

#[test]
fn softmax_along_any_dim() {
    let d = device();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE] {
        for (dims, dim) in
            [(vec![2, 3, 50], -1), (vec![2, 3, 50], 0), (vec![4, 37, 3], 1), (vec![200, 300], 1), (vec![], 0)]
        {
            let x = random(&d, dtype, &dims, 1);
            let y = d.empty(dtype, &dims);
            assert_eq!(d.aclnnSoftmax(x.handle, dim, y.handle), Ok(()), "{}", d.message());
            let axis = if dim < 0 { dims.len() - 1 } else { dim as usize };
            let len = dims.get(axis).copied().unwrap_or(1) as usize;
            let inner = dims.iter().skip(axis + 1).product::<i64>() as usize;
            let xs = x.read();
            let mut want = vec![0.0; xs.len()];
            for line in 0..xs.len() / len {
                let start = line / inner * inner * len + line % inner;
                let values: Vec<f64> = (0..len).map(|i| xs[start + i * inner]).collect();
                softmax(&values).iter().enumerate().for_each(|(i, v)| want[start + i * inner] = *v);
            }
            close("softmax", &y, &want, 0.01);
            assert_eq!(d.aclnnSoftmax(x.handle, dim, x.handle), Ok(()));
            close("in place", &x, &want, 0.01);
        }
    }
    let x = d.tensor(
        ACL_FLOAT,
        &[2, 3],
        &[f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY],
    );
    let y = d.empty(ACL_FLOAT, &[2, 3]);
    assert_eq!(d.aclnnSoftmax(x.handle, 1, y.handle), Ok(()));
    close("hidden", &y, &[0.0, 1.0, 0.0, f64::NAN, f64::NAN, f64::NAN], 0.0);
    refused(&d, d.aclnnSoftmax(x.handle, 2, y.handle), ACLNN_ERR_PARAM_INVALID);
    let none = d.empty(ACL_FLOAT, &[0, 3]);
    assert_eq!(d.aclnnSoftmax(none.handle, 1, none.handle), Ok(()));
}

#[test]
fn rotary_embedding_in_all_modes() {
    let d = device();
    let (b, s, n, size) = (2, 5, 3, 16);
    for dtype in FLT {
        for mode in 0..4 {
            for cos_dims in [[1, s, 1, size], [b, s, 1, size], [b, s, n, size]] {
                // Heads inside a wider row.
                let whole = random(&d, dtype, &[b, s, n + 2, size], 1);
                let row = (n + 2) * size;
                let x = d.view(&whole, &[b, s, n, size], &[s * row, row, size, 1], size);
                let (cos, sin) = (random(&d, dtype, &cos_dims, 2), random(&d, dtype, &cos_dims, 3));
                let y = d.empty(dtype, &[b, s, n, size]);
                let result = d.aclnnRotaryPositionEmbedding(x.handle, cos.handle, sin.handle, mode, y.handle);
                assert_eq!(result, Ok(()), "{}", d.message());
                let (xs, cs, ss) = (x.read(), Ref::of(&cos), Ref::of(&sin));
                let size = size as usize;
                let want: Vec<f64> = indices(&[b, s, n, size as i64])
                    .iter()
                    .enumerate()
                    .map(|(i, at)| {
                        let (row, e) = (&xs[i / size * size..][..size], at[3]);
                        let half = size / 2;
                        let (own, other) = match mode {
                            0 => (row[e], if e < half { -row[e + half] } else { row[e - half] }),
                            1 => (row[e], if e % 2 == 0 { -row[e + 1] } else { row[e - 1] }),
                            2 => {
                                let q = half / 2;
                                (row[e], if e % half < q { -row[e + q] } else { row[e - q] })
                            }
                            _ => {
                                let place = |e: usize| if e < half { 2 * e } else { 2 * (e - half) + 1 };
                                (row[place(e)], if e < half { -row[place(e + half)] } else { row[place(e - half)] })
                            }
                        };
                        own * cs.at(at) + other * ss.at(at)
                    })
                    .collect();
                close("rope", &y, &want, 1.0);
            }
        }
    }
    let (x, y) = (random(&d, ACL_FLOAT, &[1, 2, 1, 7], 1), d.empty(ACL_FLOAT, &[1, 2, 1, 7]));
    let call =
        |x: &Tensor, mode, y: &Tensor| d.aclnnRotaryPositionEmbedding(x.handle, x.handle, x.handle, mode, y.handle);
    refused(&d, call(&x, 0, &y), ACLNN_ERR_PARAM_INVALID);
    let (x, y) = (random(&d, ACL_FLOAT, &[1, 2, 1, 8], 1), d.empty(ACL_FLOAT, &[1, 2, 1, 8]));
    refused(&d, call(&x, 4, &y), ACLNN_ERR_PARAM_INVALID);
    refused(&d, call(&x, 0, &d.view(&y, &[1, 2, 1, 8], &[1, 1, 1, 2], 0)), ACLNN_ERR_PARAM_INVALID);
}

struct Attend<'a> {
    layout: &'a std::ffi::CStr,
    pse: Option<&'a Tensor>,
    mask: Option<&'a Tensor>,
    kv_lens: Option<&'a [i64]>,
    heads: (i64, i64),
    scale: f64,
    sparse: i64,
    lse: Option<&'a Tensor>,
}

fn attend(d: &Device, q: &Tensor, k: &Tensor, v: &Tensor, out: &Tensor, a: &Attend<'_>) -> Result<(), aclError> {
    let handle = |t: Option<&Tensor>| t.map_or(null_mut(), |t| t.handle);
    let lens = a.kv_lens.map(|l| d.ints(l));
    let (k, v) = (d.list(&[k]), d.list(&[v]));
    d.aclnnFusedInferAttentionScoreV2(
        q.handle,
        k.handle,
        v.handle,
        handle(a.pse),
        handle(a.mask),
        null(),
        lens.as_ref().map_or(null_mut(), |l| l.handle),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        a.heads.0,
        a.scale,
        65535,
        65535,
        a.layout.as_ptr(),
        a.heads.1,
        a.sparse,
        2,
        0,
        0,
        a.lse.is_some(),
        0,
        0,
        out.handle,
        handle(a.lse),
    )
}

/// Views of one tensor as `[B, S, N, D]`, whatever its layout.
fn bsnd(d: &Device, t: &Tensor, layout: &str, heads: i64) -> Tensor {
    match (layout, &t.dims[..]) {
        ("BSH", &[b, s, h]) => d.view(t, &[b, s, heads, h / heads], &[s * h, h, h / heads, 1], 0),
        ("BNSD", &[b, n, s, size]) => d.view(t, &[b, s, n, size], &[n * s * size, size, s * size, 1], 0),
        _ => d.view(t, &t.dims, &[t.dims[1] * t.dims[2] * t.dims[3], t.dims[2] * t.dims[3], t.dims[3], 1], 0),
    }
}

#[test]
fn fused_attention() {
    let d = device();
    let (batch, heads, kv_heads, size, v_size) = (2, 6, 2, 24, 20);
    for (queries, keys) in [(1, 1), (1, 300), (7, 90), (80, 80)] {
        for (layout, c_layout, out_layout) in [
            ("BSND", c"BSND", "BSND"),
            ("BSH", c"BSH", "BSH"),
            ("BNSD", c"BNSD", "BNSD"),
            ("BNSD", c"BNSD_BSND", "BSND"),
        ] {
            if queries == 80 && layout != "BSND" {
                continue;
            }
            let dims = |layout: &str, s: i64, n: i64, size: i64| match layout {
                "BSH" => vec![batch, s, n * size],
                "BNSD" => vec![batch, n, s, size],
                _ => vec![batch, s, n, size],
            };
            for (q_type, kv_type, out_type) in
                [(ACL_FLOAT16, ACL_FLOAT16, ACL_FLOAT16), (ACL_FLOAT, ACL_FLOAT16, ACL_FLOAT)]
            {
                let q = random(&d, q_type, &dims(layout, queries, heads, size), 1);
                let k = random(&d, kv_type, &dims(layout, keys, kv_heads, size), 2);
                let v = random(&d, kv_type, &dims(layout, keys, kv_heads, v_size), 3);
                let out = d.empty(out_type, &dims(out_layout, queries, heads, v_size));
                let pse = random(&d, ACL_FLOAT16, &[1, heads, queries, keys], 4);
                let hidden: Vec<f64> =
                    numbers((batch * queries * keys) as usize, 5).iter().map(|x| f64::from(*x > 1.0)).collect();
                let mask = d.tensor(ACL_BOOL, &[batch, 1, queries, keys], &hidden);
                let lse = d.empty(ACL_FLOAT, &[batch, heads, queries, 1]);
                for (sparse, with_pse, with_mask, with_lse, kv_lens) in [
                    (0, false, false, false, None),
                    (0, true, false, false, None),
                    (0, true, false, true, Some([keys, (keys + 1) / 2])),
                    (0, false, true, true, None),
                    (1, true, true, false, None),
                    (2, false, false, true, None),
                    (3, true, false, false, None),
                ] {
                    let a = Attend {
                        layout: c_layout,
                        pse: with_pse.then_some(&pse),
                        mask: with_mask.then_some(&mask),
                        kv_lens: kv_lens.as_ref().map(|l| &l[..]),
                        heads: (heads, kv_heads),
                        scale: 0.2,
                        sparse,
                        lse: with_lse.then_some(&lse),
                    };
                    assert_eq!(attend(&d, &q, &k, &v, &out, &a), Ok(()), "{}", d.message());
                    let (qs, ks, vs) = (
                        Ref::of(&bsnd(&d, &q, layout, heads)),
                        Ref::of(&bsnd(&d, &k, layout, kv_heads)),
                        Ref::of(&bsnd(&d, &v, layout, kv_heads)),
                    );
                    let (ps, ms) = (Ref::of(&pse), Ref::of(&mask));
                    let mut want = Vec::new();
                    let mut want_lse = vec![0.0; (batch * heads * queries) as usize];
                    for at in indices(&[batch, queries, heads]) {
                        let (b, i, h) = (at[0], at[1], at[2]);
                        let kv = h / (heads / kv_heads) as usize;
                        let known = kv_lens.map_or(keys, |l| l[b]) as usize;
                        let last = match sparse {
                            2 => i as i64,
                            3 => i as i64 + keys - queries,
                            _ => i64::MAX,
                        };
                        let scores: Vec<f64> = (0..known)
                            .map(|j| {
                                let dot: f64 =
                                    (0..size as usize).map(|e| qs.at(&[b, i, h, e]) * ks.at(&[b, j, kv, e])).sum();
                                let shown = j as i64 <= last && !(with_mask && ms.at(&[b, h, i, j]) != 0.0);
                                let added = if with_pse { ps.at(&[b, h, i, j]) } else { 0.0 };
                                if shown { dot * 0.2 + added } else { f64::NEG_INFINITY }
                            })
                            .collect();
                        let total: f64 = scores.iter().map(|s| s.exp()).sum();
                        want_lse[(b * heads as usize + h) * queries as usize + i] =
                            if total == 0.0 { f64::INFINITY } else { total.ln() };
                        for e in 0..v_size as usize {
                            let sum: f64 =
                                scores.iter().enumerate().map(|(j, s)| s.exp() * vs.at(&[b, j, kv, e])).sum();
                            want.push(if total == 0.0 { 0.0 } else { sum / total });
                        }
                    }
                    let got = bsnd(&d, &out, out_layout, heads);
                    close(&format!("{layout} {queries} {keys} {sparse}"), &got, &want, 4.0);
                    if with_lse {
                        close("lse", &lse, &want_lse, 4.0);
                    }
                }
            }
        }
    }
}

#[test]
fn attention_over_a_cache_and_refusals() {
    let d = device();
    // A cache of 50 places with keys and values side by side; 33 are in use.
    let (heads, kv_heads, size, keys) = (9, 3, 64, 33);
    let cache = random(&d, ACL_FLOAT16, &[50, 2, kv_heads, size], 1);
    let place = 2 * kv_heads * size;
    let k = d.view(&cache, &[1, keys, kv_heads, size], &[50 * place, place, size, 1], 0);
    let v = d.view(&cache, &[1, keys, kv_heads, size], &[50 * place, place, size, 1], kv_heads * size);
    let q = random(&d, ACL_FLOAT, &[1, 1, heads, size], 2);
    let out = d.empty(ACL_FLOAT, &[1, 1, heads, size]);
    let a = Attend {
        layout: c"BSND",
        pse: None,
        mask: None,
        kv_lens: None,
        heads: (heads, kv_heads),
        scale: 0.125,
        sparse: 0,
        lse: None,
    };
    assert_eq!(attend(&d, &q, &k, &v, &out, &a), Ok(()), "{}", d.message());
    let (qs, ks, vs) = (Ref::of(&q), Ref::of(&k), Ref::of(&v));
    let mut want = Vec::new();
    for h in 0..heads as usize {
        let scores: Vec<f64> = (0..keys as usize)
            .map(|j| (0..64).map(|e| qs.at(&[0, 0, h, e]) * ks.at(&[0, j, h / 3, e])).sum::<f64>() * 0.125)
            .collect();
        let p = softmax(&scores);
        want.extend((0..64).map(|e| p.iter().enumerate().map(|(j, p)| p * vs.at(&[0, j, h / 3, e])).sum::<f64>()));
    }
    close("cache", &out, &want, 4.0);

    let none = d.view(&cache, &[1, 0, kv_heads, size], &[0, place, size, 1], 0);
    assert_eq!(attend(&d, &q, &none, &none, &out, &a), Ok(()), "{}", d.message());
    close("no keys", &out, &[0.0; 9 * 64], 0.0);

    refused(&d, attend(&d, &q, &k, &v, &out, &Attend { layout: c"SBH", ..a }), ACLNN_ERR_PARAM_INVALID);
    refused(&d, attend(&d, &q, &k, &v, &out, &Attend { heads: (9, 2), ..a }), ACLNN_ERR_PARAM_INVALID);
    refused(&d, attend(&d, &q, &k, &v, &out, &Attend { heads: (8, 4), ..a }), ACLNN_ERR_PARAM_INVALID);
    refused(&d, attend(&d, &q, &k, &v, &out, &Attend { sparse: 9, ..a }), ACLNN_ERR_PARAM_INVALID);
    refused(&d, attend(&d, &q, &k, &none, &out, &a), ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn convolutions() {
    let d = device();
    struct Case {
        input: Vec<i64>,
        weight: Vec<i64>,
        stride: Vec<i64>,
        padding: Vec<i64>,
        dilation: Vec<i64>,
        output_padding: Vec<i64>,
        groups: i64,
        transposed: bool,
    }
    let case = |input: &[i64],
                weight: &[i64],
                stride: &[i64],
                padding: &[i64],
                dilation: &[i64],
                output_padding: &[i64],
                groups,
                transposed| Case {
        input: input.to_vec(),
        weight: weight.to_vec(),
        stride: stride.to_vec(),
        padding: padding.to_vec(),
        dilation: dilation.to_vec(),
        output_padding: output_padding.to_vec(),
        groups,
        transposed,
    };
    for c in [
        case(&[2, 3, 20], &[5, 3, 4], &[2], &[1], &[1], &[0], 1, false),
        case(&[1, 4, 9, 11], &[6, 4, 3, 2], &[1, 1], &[1, 0], &[1, 2], &[0, 0], 1, false),
        case(&[2, 6, 12, 13], &[9, 2, 3, 3], &[2, 3], &[1, 2], &[2, 1], &[0, 0], 3, false),
        case(&[1, 4, 40, 40], &[4, 1, 3, 3], &[1, 1], &[1, 1], &[1, 1], &[0, 0], 4, false),
        case(&[1, 2, 5, 6, 7], &[3, 2, 2, 3, 3], &[1, 2, 1], &[0, 1, 1], &[1, 1, 2], &[0, 0, 0], 1, false),
        case(&[1, 3, 70], &[3, 4, 5], &[2], &[0], &[1], &[0], 1, true),
        case(&[2, 4, 6, 5], &[4, 3, 3, 3], &[2, 3], &[1, 0], &[1, 2], &[1, 0], 2, true),
    ] {
        for (in_type, w_type, with_bias) in
            [(ACL_FLOAT, ACL_FLOAT, true), (ACL_FLOAT16, ACL_FLOAT16, false), (ACL_FLOAT, ACL_FLOAT16, true)]
        {
            let axes = c.input.len() - 2;
            let format = [ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_NCDHW][axes - 1];
            let x = d.formatted(&random(&d, in_type, &c.input, 1), format);
            let w = d.formatted(&random(&d, w_type, &c.weight, 2), format);
            let channels = if c.transposed { c.weight[1] * c.groups } else { c.weight[0] };
            let mut dims = vec![c.input[0], channels];
            for i in 0..axes {
                let (n, k) = (c.input[2 + i], c.weight[2 + i]);
                let reach = c.dilation[i] * (k - 1) + 1;
                dims.push(if c.transposed {
                    (n - 1) * c.stride[i] - 2 * c.padding[i] + reach + c.output_padding[i]
                } else {
                    (n + 2 * c.padding[i] - reach) / c.stride[i] + 1
                });
            }
            let out = d.empty_as(in_type, &dims, format);
            let bias = random(&d, ACL_FLOAT, &[channels], 3);
            let result = d.aclnnConvolution(
                x.handle,
                w.handle,
                if with_bias { bias.handle } else { null_mut() },
                d.ints(&c.stride).handle,
                d.ints(&c.padding).handle,
                d.ints(&c.dilation).handle,
                c.transposed,
                d.ints(&c.output_padding).handle,
                c.groups,
                out.handle,
                0,
            );
            assert_eq!(result, Ok(()), "{}", d.message());
            let (xs, ws, bs) = (Ref::of(&x), Ref::of(&w), bias.read());
            let mut want = vec![0.0; dims.iter().product::<i64>() as usize];
            let place = |at: &[usize]| dims.iter().zip(at).fold(0, |p, (d, i)| p * *d as usize + i);
            let (ins, outs) = ((c.input[1] / c.groups) as usize, (channels / c.groups) as usize);
            for from in indices(&c.input) {
                for taps in indices(&c.weight[2..]) {
                    // Where input `from` meets these taps in the output, on each axis.
                    let to: Option<Vec<usize>> = (0..axes)
                        .map(|i| {
                            let (s, p, t) = (c.stride[i], c.padding[i], c.dilation[i] * taps[i] as i64);
                            let o = if c.transposed {
                                from[2 + i] as i64 * s - p + t
                            } else {
                                let at = from[2 + i] as i64 + p - t;
                                if at % s != 0 { -1 } else { at / s }
                            };
                            (0..dims[2 + i]).contains(&o).then_some(o as usize)
                        })
                        .collect();
                    let Some(to) = to else { continue };
                    let group = from[1] / ins;
                    for o in 0..outs {
                        let (channel, w_at) = (
                            group * outs + o,
                            if c.transposed { [from[1], o] } else { [group * outs + o, from[1] % ins] },
                        );
                        want[place(&[&[from[0], channel], &to[..]].concat())] +=
                            xs.at(&from) * ws.at(&[&w_at[..], &taps[..]].concat());
                    }
                }
            }
            if with_bias {
                let plane = dims[2..].iter().product::<i64>() as usize;
                want.iter_mut().enumerate().for_each(|(i, v)| *v += bs[i / plane % channels as usize]);
            }
            close("convolution", &out, &want, 6.0);
        }
    }
}

#[test]
fn unfolding() {
    let d = device();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_INT32] {
        for lead in [vec![], vec![2]] {
            let dims = [&lead[..], &[3, 7, 8]].concat();
            let x = random(&d, dtype, &dims, 1);
            let (kh, kw, out_h, out_w) = (3, 2, 3, 10);
            let out = d.empty(dtype, &[&lead[..], &[3 * kh * kw, out_h * out_w]].concat());
            let call = |kernel: &[i64], stride: &[i64]| {
                d.aclnnIm2col(
                    x.handle,
                    d.ints(kernel).handle,
                    d.ints(&[2, 2]).handle,
                    d.ints(&[1, 2]).handle,
                    d.ints(stride).handle,
                    out.handle,
                )
            };
            assert_eq!(call(&[kh, kw], &[2, 1]), Ok(()), "{}", d.message());
            let xs = Ref::of(&x);
            let batch = lead.first().copied().unwrap_or(1);
            let want: Vec<f64> = indices(&[batch, 3, kh, kw, out_h, out_w])
                .iter()
                .map(|at| {
                    let (y, x) = (at[4] * 2 + at[2] * 2, at[5] + at[3] * 2);
                    let inside = (1..8).contains(&y) && (2..10).contains(&x);
                    if !inside {
                        return 0.0;
                    }
                    let place = [at[0], at[1], y - 1, x - 2];
                    xs.at(&place[1 - lead.len()..])
                })
                .collect();
            close("im2col", &out, &want, 0.0);
            refused(&d, call(&[kh], &[2, 1]), ACLNN_ERR_PARAM_INVALID);
            refused(&d, call(&[kh, kw], &[0, 1]), ACLNN_ERR_PARAM_INVALID);
            refused(&d, call(&[30, kw], &[2, 1]), ACLNN_ERR_PARAM_INVALID);
        }
    }
}

#[test]
fn pooling() {
    let d = device();
    let (h, w) = (9, 10);
    for dtype in [ACL_FLOAT, ACL_FLOAT16] {
        let x = random(&d, dtype, &[2, 3, h, w], 1);
        let xs = Ref::of(&x);
        for (kernel, stride, pad, ceil, include, divisor) in [
            ([3, 2], [2, 2], [1, 0], false, true, 0),
            ([3, 3], [2, 2], [1, 1], false, false, 0),
            ([2, 2], [2, 3], [0, 0], true, true, 0),
            ([3, 2], [1, 1], [1, 1], false, true, 5),
        ] {
            let len = |i: usize, n: i64| {
                let room = n + 2 * pad[i] - kernel[i];
                let len = if ceil { (room + stride[i] - 1) / stride[i] } else { room / stride[i] } + 1;
                if ceil && (len - 1) * stride[i] >= n + pad[i] { len - 1 } else { len }
            };
            let dims = [2, 3, len(0, h), len(1, w)];
            let windows = |at: &[usize]| -> (Vec<f64>, f64) {
                let span = |i: usize, n: i64| {
                    let start = at[2 + i] as i64 * stride[i] - pad[i];
                    let stop = (start + kernel[i]).min(n + pad[i]);
                    (start.max(0)..stop.min(n), (stop - start) as f64)
                };
                let ((ys, cy), (xs_, cx)) = (span(0, h), span(1, w));
                let seen = ys.flat_map(|y| xs_.clone().map(move |x| (y, x)));
                (seen.map(|(y, x)| xs.at(&[at[0], at[1], y as usize, x as usize])).collect(), cy * cx)
            };
            let out = d.empty(dtype, &dims);
            let result = d.aclnnAvgPool2d(
                x.handle,
                d.ints(&kernel).handle,
                d.ints(&stride).handle,
                d.ints(&pad).handle,
                ceil,
                include,
                divisor,
                0,
                out.handle,
            );
            assert_eq!(result, Ok(()), "{}", d.message());
            let want: Vec<f64> = indices(&dims)
                .iter()
                .map(|at| {
                    let (seen, covered) = windows(at);
                    let count = match divisor {
                        0 if include => covered,
                        0 => seen.len() as f64,
                        given => given as f64,
                    };
                    seen.iter().sum::<f64>() / count
                })
                .collect();
            close("average", &out, &want, 1.0);

            let result = d.aclnnMaxPool(
                x.handle,
                d.ints(&kernel).handle,
                d.ints(&stride).handle,
                0,
                d.ints(&[pad[0], pad[1], pad[0], pad[1]]).handle,
                d.ints(&[1, 1]).handle,
                i64::from(ceil),
                out.handle,
            );
            assert_eq!(result, Ok(()), "{}", d.message());
            let want: Vec<f64> =
                indices(&dims).iter().map(|at| windows(at).0.into_iter().fold(f64::NEG_INFINITY, f64::max)).collect();
            close("greatest", &out, &want, 0.0);
        }
    }
    let (x, out) = (random(&d, ACL_FLOAT, &[1, 1, 4, 4], 1), d.empty(ACL_FLOAT, &[1, 1, 3, 3]));
    let wide = d.aclnnAvgPool2d(
        x.handle,
        d.ints(&[2, 2]).handle,
        d.ints(&[2, 2]).handle,
        d.ints(&[2, 2]).handle,
        false,
        true,
        0,
        0,
        out.handle,
    );
    refused(&d, wide, ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn resizing() {
    let d = device();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_UINT8] {
        let values: Vec<f64> =
            numbers(2 * 3 * 5 * 7, 1).iter().map(|x| if dtype == ACL_UINT8 { (x * 40.0).abs() } else { *x }).collect();
        let x = d.tensor(dtype, &[2, 3, 5, 7], &values);
        let xs = Ref::of(&x);
        for (h, w) in [(10, 14), (3, 4), (11, 5), (5, 7), (1, 1)] {
            let dims = [2, 3, h, w];
            let out = d.empty(dtype, &dims);
            assert_eq!(
                d.aclnnUpsampleNearest2d(x.handle, d.ints(&[h, w]).handle, out.handle),
                Ok(()),
                "{}",
                d.message()
            );
            let from = |o: usize, n: f32, len: i64| ((o as f32 * (n / len as f32)) as usize).min(n as usize - 1);
            let want: Vec<f64> = indices(&dims)
                .iter()
                .map(|at| xs.at(&[at[0], at[1], from(at[2], 5.0, h), from(at[3], 7.0, w)]))
                .collect();
            close("nearest", &out, &want, 0.0);
            if dtype == ACL_UINT8 {
                continue;
            }
            for corners in [false, true] {
                let call = d.aclnnUpsampleBilinear2d(x.handle, d.ints(&[h, w]).handle, corners, 0.0, 0.0, out.handle);
                assert_eq!(call, Ok(()), "{}", d.message());
                let place = |o: usize, n: i64, len: i64| {
                    let at = if corners {
                        if len == 1 { 0.0 } else { o as f64 * (n - 1) as f64 / (len - 1) as f64 }
                    } else {
                        ((o as f64 + 0.5) * n as f64 / len as f64 - 0.5).max(0.0)
                    };
                    let low = (at.floor() as usize).min(n as usize - 1);
                    (low, (low + 1).min(n as usize - 1), at - low as f64)
                };
                let want: Vec<f64> = indices(&dims)
                    .iter()
                    .map(|at| {
                        let ((y0, y1, fy), (x0, x1, fx)) = (place(at[2], 5, h), place(at[3], 7, w));
                        let v = |y, x| xs.at(&[at[0], at[1], y, x]);
                        let row = |y| v(y, x0) * (1.0 - fx) + v(y, x1) * fx;
                        row(y0) * (1.0 - fy) + row(y1) * fy
                    })
                    .collect();
                close("bilinear", &out, &want, 1.0);
            }
        }
    }
    let (x, out) = (random(&d, ACL_FLOAT, &[1, 1, 4, 4], 1), d.empty(ACL_FLOAT, &[1, 1, 3, 3]));
    refused(&d, d.aclnnUpsampleNearest2d(x.handle, d.ints(&[3, 4]).handle, out.handle), ACLNN_ERR_PARAM_INVALID);
    refused(&d, d.aclnnUpsampleNearest2d(x.handle, d.ints(&[3]).handle, out.handle), ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn cross_entropy() {
    let d = device();
    for dtype in FLT {
        for label_dims in [[5, 40], [1, 40]] {
            let x = random(&d, dtype, &[5, 40], 1);
            let labels = d.tensor(
                dtype,
                &label_dims,
                &numbers((label_dims[0] * 40) as usize, 2).iter().map(|x| x.abs()).collect::<Vec<_>>(),
            );
            let (loss, grad) = (d.empty(dtype, &[5]), d.empty(dtype, &[5, 40]));
            let call = d.aclnnSoftmaxCrossEntropyWithLogits(x.handle, labels.handle, loss.handle, grad.handle);
            assert_eq!(call, Ok(()), "{}", d.message());
            let (xs, ls) = (x.read(), Ref::of(&labels));
            let (mut losses, mut grads) = (vec![], vec![]);
            for (i, row) in xs.chunks(40).enumerate() {
                let p = softmax(row);
                losses.push(-p.iter().enumerate().map(|(j, p)| ls.at(&[i, j]) * p.ln()).sum::<f64>());
                grads.extend(p.iter().enumerate().map(|(j, p)| p - ls.at(&[i, j])));
            }
            close("loss", &loss, &losses, 1.0);
            close("gradient", &grad, &grads, 1.0);
        }
    }
}

#[test]
fn triangular_systems() {
    let d = device();
    for dtype in [ACL_FLOAT, ACL_DOUBLE] {
        for bits in 0..8 {
            let (upper, transpose, unit) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let (batch, n, columns) = (3, 6, 4);
            // Diagonals away from zero keep the solution tame.
            let values: Vec<f64> = numbers((batch * n * n) as usize, 1)
                .iter()
                .enumerate()
                .map(|(i, v)| if i as i64 % (n * n) % (n + 1) == 0 { 3.0 + v.abs() } else { *v })
                .collect();
            let a = d.tensor(dtype, &[batch, n, n], &values);
            let b = random(&d, dtype, &[1, n, columns], 2);
            let (x, m) = (d.empty(dtype, &[batch, n, columns]), d.empty(dtype, &[batch, n, n]));
            let call = d.aclnnTriangularSolve(b.handle, a.handle, upper, transpose, unit, x.handle, m.handle);
            assert_eq!(call, Ok(()), "{}", d.message());
            assert_eq!(m.read(), a.read());
            let (aa, xs, bs) = (Ref::of(&a), Ref::of(&x), Ref::of(&b));
            for at in indices(&[batch, n, columns]) {
                let factor = |i: usize, j: usize| {
                    let (r, c) = if transpose { (j, i) } else { (i, j) };
                    match r.cmp(&c) {
                        std::cmp::Ordering::Equal if unit => 1.0,
                        std::cmp::Ordering::Less if !upper => 0.0,
                        std::cmp::Ordering::Greater if upper => 0.0,
                        _ => aa.at(&[at[0], r, c]),
                    }
                };
                let terms: Vec<f64> = (0..n as usize).map(|j| factor(at[1], j) * xs.at(&[at[0], j, at[2]])).collect();
                let (sum, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
                let want = bs.at(&[0, at[1], at[2]]);
                assert!((sum - want).abs() <= epsilon(dtype) * (size + 1.0), "{bits}: {sum} for {want}");
            }
        }
    }
}
