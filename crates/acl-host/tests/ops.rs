//! The elementwise, moving, reducing, ordering and indexing operators, through the function table.

mod harness;

use acl_sys::*;
use harness::*;

const FLT: [aclDataType; 3] = [ACL_FLOAT, ACL_FLOAT16, ACL_BF16];
const NULLPTR: Result<(), i32> = Err(ACLNN_ERR_PARAM_NULLPTR);
const INVALID: Result<(), i32> = Err(ACLNN_ERR_PARAM_INVALID);

/// Relative error of a stored result.
fn bound(dtype: aclDataType) -> f64 {
    match dtype {
        ACL_FLOAT => 2e-6,
        ACL_FLOAT16 => 6e-4,
        ACL_BF16 => 4.5e-3,
        _ => 0.0,
    }
}

fn erf(x: f64) -> f64 {
    // Simpson's rule on the definition: slow, independent, good to 1e-9 here.
    let n = 400;
    let h = x / f64::from(n);
    let f = |t: f64| (-t * t).exp();
    let inner: f64 = (1..n).map(|i| f(h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (f(0.0) + inner + f(x)) * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

type F1 = fn(f64) -> f64;
type F2 = fn(f64, f64) -> f64;
type BinaryCall<'a> = Box<dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<(), i32> + 'a>;
type UnaryCall = fn(&Device, *const aclTensor, *mut aclTensor) -> Result<(), i32>;

#[test]
fn unary_formulas() {
    let d = device();
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh());
    let cases: Vec<(&str, UnaryCall, F1)> = vec![
        ("abs", Device::aclnnAbs, f64::abs),
        ("ceil", Device::aclnnCeil, f64::ceil),
        ("cos", Device::aclnnCos, f64::cos),
        ("erf", Device::aclnnErf, erf),
        ("exp", Device::aclnnExp, f64::exp),
        ("expm1", Device::aclnnExpm1, f64::exp_m1),
        ("fast gelu", Device::aclnnFastGelu, |x| x / (1.0 + (-1.702 * x).exp())),
        ("floor", Device::aclnnFloor, f64::floor),
        ("hardsigmoid", Device::aclnnHardsigmoid, |x| (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("hardswish", Device::aclnnHardswish, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        ("log", Device::aclnnLog, f64::ln),
        ("neg", Device::aclnnNeg, |x| -x),
        ("reciprocal", Device::aclnnReciprocal, |x| 1.0 / x),
        ("relu", Device::aclnnRelu, |x| x.max(0.0)),
        ("round", Device::aclnnRound, f64::round_ties_even),
        ("rsqrt", Device::aclnnRsqrt, |x| 1.0 / x.sqrt()),
        ("sigmoid", Device::aclnnSigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ("sign", Device::aclnnSign, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        ("silu", Device::aclnnSilu, |x| x / (1.0 + (-x).exp())),
        ("sin", Device::aclnnSin, f64::sin),
        ("sqrt", Device::aclnnSqrt, f64::sqrt),
        ("tanh", Device::aclnnTanh, f64::tanh),
        ("trunc", Device::aclnnTrunc, f64::trunc),
    ];
    let mut x = numbers(3000, 1);
    x[0] = 0.0;
    x[1] = 2.5;
    for (name, call, f) in cases {
        for dtype in FLT {
            let stored: Vec<f64> = x.iter().map(|x| rounded(dtype, *x)).collect();
            let want: Vec<f64> = stored.iter().map(|x| f(*x)).collect();
            let (a, out) = (d.tensor(dtype, &[30, 100], &x), d.empty(dtype, &[30, 100]));
            call(&d, a.handle, out.handle).unwrap_or_else(|e| panic!("{name}: {e}: {}", d.message()));
            println!("{name} {dtype}");
            near(&out.read(), &want, bound(dtype));
            // The output on the input.
            call(&d, a.handle, a.handle).unwrap();
            near(&a.read(), &want, bound(dtype));
            // Every other column, transposed.
            let wide = d.tensor(dtype, &[3000], &x);
            let columns = d.view(&wide, &[50, 30], &[2, 100], 1);
            let out = d.empty(dtype, &[50, 30]);
            call(&d, columns.handle, out.handle).unwrap();
            let want: Vec<f64> = columns.read().iter().map(|x| f(*x)).collect();
            near(&out.read(), &want, bound(dtype));
        }
    }
    for (approximate, f) in
        [(0, (|x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))) as fn(f64) -> f64), (1, gelu)]
    {
        let (a, out) = (d.tensor(ACL_FLOAT, &[3000], &x), d.empty(ACL_FLOAT, &[3000]));
        d.aclnnGeluV2(a.handle, approximate, out.handle).unwrap();
        near(&out.read(), &x.iter().map(|x| f(*x)).collect::<Vec<_>>(), 2e-6);
    }
    let (a, out) = (d.tensor(ACL_FLOAT, &[3000], &x), d.empty(ACL_FLOAT, &[3000]));
    d.aclnnGelu(a.handle, out.handle).unwrap();
    near(&out.read(), &x.iter().map(|x| gelu(*x)).collect::<Vec<_>>(), 2e-6);
    assert_eq!(d.aclnnGeluV2(a.handle, 2, out.handle), INVALID);
}

#[test]
fn unary_with_parameters_and_in_place() {
    let d = device();
    let x = [-3.0, -0.5, 0.0, 0.25, 4.0];
    let n = [5i64];
    let out = d.empty(ACL_FLOAT, &n);
    let a = d.tensor(ACL_FLOAT, &n, &x);
    d.aclnnElu(a.handle, d.f32(0.5).handle, d.f32(2.0).handle, d.f32(3.0).handle, out.handle).unwrap();
    near(&out.read(), &x.map(|x: f64| if x > 0.0 { 2.0 * x } else { (3.0 * x).exp() - 1.0 }), 1e-6);
    d.aclnnLeakyRelu(a.handle, d.f32(0.1).handle, out.handle).unwrap();
    near(&out.read(), &x.map(|x| if x > 0.0 { x } else { 0.1 * x }), 1e-6);
    d.aclnnSoftplus(a.handle, d.f32(2.0).handle, d.f32(6.0).handle, out.handle).unwrap();
    near(&out.read(), &x.map(|x: f64| if 2.0 * x > 6.0 { x } else { (1.0 + (2.0 * x).exp()).ln() / 2.0 }), 1e-6);
    d.aclnnInplaceThreshold(a.handle, d.f32(0.0).handle, d.f32(-7.0).handle).unwrap();
    near(&a.read(), &[-7.0, -7.0, -7.0, 0.25, 4.0], 0.0);
    for (call, f) in [
        (Device::aclnnInplaceSin as fn(&Device, *mut aclTensor) -> _, f64::sin as fn(f64) -> f64),
        (Device::aclnnInplaceCos, f64::cos),
        (Device::aclnnInplaceExp, f64::exp),
    ] {
        let a = d.tensor(ACL_FLOAT16, &n, &x);
        call(&d, a.handle).unwrap();
        near(&a.read(), &x.map(f), 6e-4);
    }
    // Integers stay integers where the function allows it and become floats where it does not.
    let ints = d.tensor(ACL_INT32, &n, &[-3.0, -1.0, 0.0, 2.0, 2_000_000_003.0]);
    let out = d.empty(ACL_INT32, &n);
    d.aclnnAbs(ints.handle, out.handle).unwrap();
    near(&out.read(), &[3.0, 1.0, 0.0, 2.0, 2_000_000_003.0], 0.0);
    d.aclnnNeg(ints.handle, out.handle).unwrap();
    near(&out.read(), &[3.0, 1.0, 0.0, -2.0, -2_000_000_003.0], 0.0);
    d.aclnnRelu(ints.handle, out.handle).unwrap();
    near(&out.read(), &[0.0, 0.0, 0.0, 2.0, 2_000_000_003.0], 0.0);
    let small = d.tensor(ACL_INT32, &[2], &[4.0, 9.0]);
    let floats = d.empty(ACL_FLOAT, &[2]);
    d.aclnnSqrt(small.handle, floats.handle).unwrap();
    near(&floats.read(), &[2.0, 3.0], 0.0);
}

#[test]
fn unary_refusals() {
    let d = device();
    let a = d.tensor(ACL_FLOAT, &[4], &[1.0; 4]);
    let null = std::ptr::null_mut();
    assert_eq!(d.aclnnSilu(null, a.handle), NULLPTR);
    assert!(d.message().contains("self"), "{}", d.message());
    assert_eq!(d.aclnnSilu(a.handle, null), NULLPTR);
    assert_eq!(d.aclnnSilu(a.handle, d.empty(ACL_FLOAT, &[5]).handle), INVALID);
    assert_eq!(d.aclnnSilu(a.handle, d.empty(ACL_FLOAT, &[2, 2]).handle), INVALID);
    assert_eq!(d.aclnnSilu(a.handle, d.empty(ACL_BOOL, &[4]).handle), INVALID);
    // A handle of another kind, and one that is gone.
    let scalar = d.f32(1.0);
    assert_eq!(d.aclnnSilu(scalar.handle.cast(), a.handle), NULLPTR);
    let empty = d.empty(ACL_FLOAT, &[0, 3]);
    assert_eq!(d.aclnnSilu(empty.handle, d.empty(ACL_FLOAT, &[0, 3]).handle), Ok(()));
}

#[test]
fn binary_formulas_broadcast_and_alias() {
    let d = device();
    let (a, b) = (numbers(24, 3), numbers(24, 4));
    let cases: Vec<(&str, BinaryCall, F2)> = vec![
        ("add", Box::new(|a, b, o| d.aclnnAdd(a.handle, b.handle, d.f32(1.0).handle, o.handle)), |a, b| a + b),
        ("add 2.5", Box::new(|a, b, o| d.aclnnAdd(a.handle, b.handle, d.f32(2.5).handle, o.handle)), |a, b| {
            a + 2.5 * b
        }),
        ("sub", Box::new(|a, b, o| d.aclnnSub(a.handle, b.handle, d.f32(1.0).handle, o.handle)), |a, b| a - b),
        ("sub 2", Box::new(|a, b, o| d.aclnnSub(a.handle, b.handle, d.f32(2.0).handle, o.handle)), |a, b| a - 2.0 * b),
        ("mul", Box::new(|a, b, o| d.aclnnMul(a.handle, b.handle, o.handle)), |a, b| a * b),
        ("div", Box::new(|a, b, o| d.aclnnDiv(a.handle, b.handle, o.handle)), |a, b| a / b),
        ("maximum", Box::new(|a, b, o| d.aclnnMaximum(a.handle, b.handle, o.handle)), f64::max),
    ];
    for (name, call, f) in &cases {
        for dtype in FLT {
            let stored = |x: &[f64]| x.iter().map(|x| rounded(dtype, *x)).collect::<Vec<_>>();
            let (sa, sb) = (stored(&a), stored(&b));
            let (ta, tb) = (d.tensor(dtype, &[2, 3, 4], &a), d.tensor(dtype, &[2, 3, 4], &b));
            let out = d.empty(dtype, &[2, 3, 4]);
            call(&ta, &tb, &out).unwrap();
            println!("{name} {dtype}");
            let want: Vec<f64> = sa.iter().zip(&sb).map(|(a, b)| f(*a, *b)).collect();
            near(&out.read(), &want, bound(dtype));
            // A row, a column, and both sides growing.
            let row = d.tensor(dtype, &[4], &b[..4]);
            call(&ta, &row, &out).unwrap();
            let want: Vec<f64> = (0..24).map(|i| f(sa[i], sb[i % 4])).collect();
            near(&out.read(), &want, bound(dtype));
            let column = d.tensor(dtype, &[3, 1], &b[..3]);
            call(&ta, &column, &out).unwrap();
            let want: Vec<f64> = (0..24).map(|i| f(sa[i], sb[i / 4 % 3])).collect();
            near(&out.read(), &want, bound(dtype));
            let left = d.tensor(dtype, &[2, 1, 4], &a[..8]);
            call(&left, &column, &out).unwrap();
            let want: Vec<f64> = (0..24).map(|i| f(sa[i / 12 * 4 + i % 4], sb[i / 4 % 3])).collect();
            near(&out.read(), &want, bound(dtype));
            // The output on the first input, on the second, on both.
            let want: Vec<f64> = sa.iter().zip(&sb).map(|(a, b)| f(*a, *b)).collect();
            call(&ta, &tb, &ta).unwrap();
            near(&ta.read(), &want, bound(dtype));
            let ta = d.tensor(dtype, &[2, 3, 4], &a);
            call(&ta, &tb, &tb).unwrap();
            near(&tb.read(), &want, bound(dtype));
            call(&ta, &ta, &ta).unwrap();
            near(&ta.read(), &sa.iter().map(|a| f(*a, *a)).collect::<Vec<_>>(), bound(dtype));
            assert_eq!(call(&ta, &d.empty(dtype, &[5]), &out), INVALID);
            assert_eq!(call(&row, &ta, &row), INVALID);
        }
    }
}

#[test]
fn binary_in_place_and_large() {
    let d = device();
    // Large enough to be shared by threads, of a length no vector divides.
    let n = 200_003usize;
    let (a, b) = (numbers(n, 5), numbers(n, 6));
    let dims = [n as i64];
    let tb = d.tensor(ACL_FLOAT, &dims, &b);
    for (call, f) in [
        (
            &(|t: &Tensor| d.aclnnInplaceAdd(t.handle, tb.handle, d.f32(1.0).handle)) as &dyn Fn(&Tensor) -> _,
            (|a, b| a + b) as fn(f64, f64) -> f64,
        ),
        (&|t| d.aclnnInplaceSub(t.handle, tb.handle, d.f32(1.0).handle), |a, b| a - b),
        (&|t| d.aclnnInplaceMul(t.handle, tb.handle), |a, b| a * b),
        (&|t| d.aclnnInplaceDiv(t.handle, tb.handle), |a, b| a / b),
    ] {
        let t = d.tensor(ACL_FLOAT, &dims, &a);
        call(&t).unwrap();
        let want: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(f(*a, *b) as f32)).collect();
        near(&t.read(), &want, 1e-6);
    }
    let base = d.tensor(ACL_FLOAT, &[4], &[2.0, 3.0, 4.0, 0.5]);
    let power = d.tensor(ACL_FLOAT, &[4], &[3.0, -1.0, 0.5, 2.0]);
    d.aclnnInplacePowTensorTensor(base.handle, power.handle).unwrap();
    near(&base.read(), &[8.0, 1.0 / 3.0, 2.0, 0.25], 1e-6);
}

#[test]
fn binary_promotion() {
    let d = device();
    let half = d.tensor(ACL_FLOAT16, &[2], &[1.5, 2.0]);
    let single = d.tensor(ACL_FLOAT, &[2], &[0.1, 1000.5]);
    let out = d.empty(ACL_FLOAT, &[2]);
    d.aclnnMul(half.handle, single.handle, out.handle).unwrap();
    near(&out.read(), &[0.15, 2001.0], 1e-7);
    let brain = d.tensor(ACL_BF16, &[2], &[1.0, 256.0]);
    d.aclnnAdd(half.handle, brain.handle, d.f32(1.0).handle, out.handle).unwrap();
    near(&out.read(), &[2.5, 258.0], 0.0);
    let ints = d.tensor(ACL_INT64, &[2], &[7.0, -2.0]);
    d.aclnnDiv(ints.handle, d.tensor(ACL_INT32, &[2], &[2.0, 0.0]).handle, out.handle).unwrap();
    near(&out.read(), &[3.5, f64::NEG_INFINITY], 0.0);
    let wide = d.empty(ACL_INT64, &[2]);
    let big = d.tensor(ACL_INT64, &[2], &[9e15, -9e15]);
    d.aclnnAdd(big.handle, ints.handle, d.int(1).handle, wide.handle).unwrap();
    near(&wide.read(), &[9e15 + 7.0, -9e15 - 2.0], 0.0);
    // An integer product that wraps.
    let i32s = d.tensor(ACL_INT32, &[2], &[65536.0, -3.0]);
    d.aclnnInplaceMul(i32s.handle, i32s.handle).unwrap();
    near(&i32s.read(), &[0.0, 9.0], 0.0);
    // Nothing but truth becomes truth; a float factor does not go with integers.
    assert_eq!(d.aclnnMul(half.handle, half.handle, d.empty(ACL_BOOL, &[2]).handle), INVALID);
    assert_eq!(d.aclnnAdd(ints.handle, ints.handle, d.f32(1.0).handle, wide.handle), INVALID);
    let null = std::ptr::null_mut();
    assert_eq!(d.aclnnAdd(ints.handle, ints.handle, null, wide.handle), NULLPTR);
    assert!(d.message().contains("alpha"), "{}", d.message());
    let nan = d.tensor(ACL_FLOAT, &[2], &[f64::NAN, 1.0]);
    let one = d.tensor(ACL_FLOAT, &[2], &[1.0, f64::NAN]);
    d.aclnnMaximum(nan.handle, one.handle, out.handle).unwrap();
    assert!(out.read().iter().all(|x| x.is_nan()));
}

#[test]
fn scalar_formulas() {
    let d = device();
    let x = numbers(1500, 8);
    for dtype in FLT {
        let stored: Vec<f64> = x.iter().map(|x| rounded(dtype, *x)).collect();
        let fresh = || d.tensor(dtype, &[1500], &x);
        let out = d.empty(dtype, &[1500]);
        let check = |got: Vec<f64>, f: &dyn Fn(f64) -> f64| {
            near(&got, &stored.iter().map(|x| f(*x)).collect::<Vec<_>>(), bound(dtype));
        };
        let a = fresh();
        d.aclnnAdds(a.handle, d.f32(3.0).handle, d.f32(0.5).handle, out.handle).unwrap();
        check(out.read(), &|x| x + 1.5);
        d.aclnnSubs(a.handle, d.f32(3.0).handle, d.f32(0.5).handle, out.handle).unwrap();
        check(out.read(), &|x| x - 1.5);
        d.aclnnMuls(a.handle, d.f32(-2.5).handle, out.handle).unwrap();
        check(out.read(), &|x| x * -2.5);
        d.aclnnDivs(a.handle, d.f32(3.0).handle, out.handle).unwrap();
        check(out.read(), &|x| x / 3.0);
        d.aclnnClamp(a.handle, d.f32(-0.5).handle, d.f32(0.25).handle, out.handle).unwrap();
        check(out.read(), &|x| x.clamp(-0.5, 0.25));
        // The lower bound wins over the upper one.
        d.aclnnClamp(a.handle, d.f32(1.0).handle, d.f32(-1.0).handle, out.handle).unwrap();
        check(out.read(), &|_| 1.0);
        d.aclnnClamp(a.handle, std::ptr::null(), d.f32(0.25).handle, out.handle).unwrap();
        check(out.read(), &|x| x.min(0.25));
        d.aclnnClampMin(a.handle, d.f32(0.25).handle, out.handle).unwrap();
        check(out.read(), &|x| x.max(0.25));
        d.aclnnPowTensorScalar(a.handle, d.f32(2.0).handle, out.handle).unwrap();
        check(out.read(), &|x| x * x);
        d.aclnnPowTensorScalar(a.handle, d.f32(3.0).handle, out.handle).unwrap();
        check(out.read(), &|x| x * x * x);
        d.aclnnPowScalarTensor(d.f32(2.0).handle, a.handle, out.handle).unwrap();
        check(out.read(), &f64::exp2);
        d.aclnnInplaceAdds(a.handle, d.f32(f64::NEG_INFINITY).handle, d.f32(1.0).handle).unwrap();
        check(a.read(), &|_| f64::NEG_INFINITY);
        let a = fresh();
        d.aclnnInplaceSubs(a.handle, d.f32(1.0).handle, d.f32(1.0).handle).unwrap();
        check(a.read(), &|x| x - 1.0);
        let a = fresh();
        d.aclnnInplaceMuls(a.handle, d.f32(0.125).handle).unwrap();
        check(a.read(), &|x| x * 0.125);
        let a = fresh();
        d.aclnnInplaceDivs(a.handle, d.f32(8.0).handle).unwrap();
        check(a.read(), &|x| x / 8.0);
        let a = fresh();
        d.aclnnInplaceClampMax(a.handle, d.f32(0.5).handle).unwrap();
        check(a.read(), &|x| x.min(0.5));
        assert_eq!(d.aclnnClamp(a.handle, std::ptr::null(), std::ptr::null(), out.handle), NULLPTR);
    }
    // A float scalar takes integers to f32; an integer one leaves them.
    let ints = d.tensor(ACL_INT32, &[3], &[1.0, -5.0, 10.0]);
    let floats = d.empty(ACL_FLOAT, &[3]);
    d.aclnnMuls(ints.handle, d.f32(0.5).handle, floats.handle).unwrap();
    near(&floats.read(), &[0.5, -2.5, 5.0], 0.0);
    d.aclnnInplaceAdds(ints.handle, d.int(3).handle, d.int(2).handle).unwrap();
    near(&ints.read(), &[7.0, 1.0, 16.0], 0.0);
    assert_eq!(d.aclnnInplaceAdds(ints.handle, d.int(3).handle, d.f32(2.0).handle), INVALID);
}

#[test]
fn comparison_and_selection() {
    let d = device();
    let a = d.tensor(ACL_FLOAT, &[2, 2], &[1.0, f64::NAN, 3.0, 0.0]);
    let b = d.tensor(ACL_FLOAT16, &[2], &[1.0, 0.0]);
    for dtype in [ACL_BOOL, ACL_FLOAT, ACL_INT32, ACL_FLOAT16] {
        let out = d.empty(dtype, &[2, 2]);
        d.aclnnEqTensor(a.handle, b.handle, out.handle).unwrap();
        near(&out.read(), &[1.0, 0.0, 0.0, 1.0], 0.0);
        d.aclnnGtScalar(a.handle, d.f32(0.5).handle, out.handle).unwrap();
        near(&out.read(), &[1.0, 0.0, 1.0, 0.0], 0.0);
    }
    d.aclnnInplaceEqTensor(a.handle, b.handle).unwrap();
    near(&a.read(), &[1.0, 0.0, 0.0, 1.0], 0.0);
    let which = d.tensor(ACL_BOOL, &[2, 1], &[1.0, 0.0]);
    let (x, y) = (d.tensor(ACL_FLOAT, &[2], &[5.0, 6.0]), d.tensor(ACL_FLOAT, &[1], &[-1.0]));
    let out = d.empty(ACL_FLOAT, &[2, 2]);
    d.aclnnSWhere(which.handle, x.handle, y.handle, out.handle).unwrap();
    near(&out.read(), &[5.0, 6.0, -1.0, -1.0], 0.0);
    assert_eq!(d.aclnnSWhere(x.handle, x.handle, y.handle, out.handle), INVALID);
}

#[test]
fn gated_activations() {
    let d = device();
    let x = numbers(3 * 260, 9);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    for dtype in FLT {
        let s: Vec<f64> = x.iter().map(|x| rounded(dtype, *x)).collect();
        let a = d.tensor(dtype, &[3, 260], &x);
        let out = d.empty(dtype, &[3, 130]);
        d.aclnnSwiGlu(a.handle, -1, out.handle).unwrap();
        let at = |i: usize, half: usize| s[i / 130 * 260 + i % 130 + half * 130];
        near(&out.read(), &(0..390).map(|i| silu(at(i, 0)) * at(i, 1)).collect::<Vec<_>>(), bound(dtype));
        let gelu = |x: f64| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2));
        let gate = d.empty(dtype, &[3, 130]);
        d.aclnnGeGluV3(a.handle, 1, 0, true, out.handle, gate.handle).unwrap();
        near(&out.read(), &(0..390).map(|i| gelu(at(i, 0)) * at(i, 1)).collect::<Vec<_>>(), bound(dtype));
        near(&gate.read(), &(0..390).map(|i| gelu(at(i, 0))).collect::<Vec<_>>(), bound(dtype));
        d.aclnnGeGluV3(a.handle, 1, 0, false, out.handle, gate.handle).unwrap();
        near(&out.read(), &(0..390).map(|i| gelu(at(i, 1)) * at(i, 0)).collect::<Vec<_>>(), bound(dtype));
        assert_eq!(d.aclnnSwiGlu(a.handle, 0, out.handle), INVALID);
    }
}

#[test]
fn copies_convert_broadcast_and_transpose() {
    let d = device();
    let types =
        [ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT8, ACL_INT16, ACL_INT32, ACL_INT64, ACL_UINT8, ACL_BOOL];
    for from in types {
        for to in types {
            let x: Vec<f64> = (0..70 * 45).map(|i| f64::from(i % 100)).collect();
            let a = d.tensor(from, &[70, 45], &x);
            let out = d.empty(to, &[70, 45]);
            d.aclnnCast(a.handle, to, out.handle).unwrap();
            let want: Vec<f64> = x.iter().map(|x| rounded(to, rounded(from, *x))).collect();
            near(&out.read(), &want, 0.0);
            let turned = d.empty(to, &[45, 70]);
            d.aclnnInplaceCopy(turned.handle, d.transposed(&a).handle).unwrap();
            let want: Vec<f64> = (0..70 * 45).map(|i| out.read()[i % 70 * 45 + i / 70]).take(200).collect();
            near(&turned.read()[..200], &want, 0.0);
            // Into a strided view, from a broadcast row.
            let wide = d.tensor(to, &[4, 10], &[1.0; 40]);
            let inner = d.view(&wide, &[4, 3], &[10, 2], 1);
            d.aclnnInplaceCopy(inner.handle, d.tensor(from, &[3], &[5.0, 0.0, 7.0]).handle).unwrap();
            let [five, nil, seven] = [5.0, 0.0, 7.0].map(|x| rounded(to, rounded(from, x)));
            near(&inner.read(), &[five, nil, seven].repeat(4), 0.0);
            near(&wide.read()[..10], &[1.0, five, 1.0, nil, 1.0, seven, 1.0, 1.0, 1.0, 1.0], 0.0);
        }
    }
}

#[test]
fn conversions_at_the_edges() {
    let d = device();
    let x = [f64::NAN, 1e10, -1e10, 2.9, -2.9, 70000.0, 65519.0, 1.0 + 1.0 / 2048.0];
    let a = d.tensor(ACL_FLOAT, &[8], &x);
    let cast = |to| {
        let out = d.empty(to, &[8]);
        d.aclnnCast(a.handle, to, out.handle).unwrap();
        out.read()
    };
    near(&cast(ACL_INT32), &[0.0, 2147483647.0, -2147483648.0, 2.0, -2.0, 70000.0, 65519.0, 1.0], 0.0);
    near(&cast(ACL_INT8)[..5], &[0.0, 127.0, -128.0, 2.0, -2.0], 0.0);
    near(&cast(ACL_UINT8)[..5], &[0.0, 255.0, 0.0, 2.0, 0.0], 0.0);
    let inf = f64::INFINITY;
    near(
        &cast(ACL_FLOAT16),
        &[f64::NAN, inf, -inf, rounded(ACL_FLOAT16, 2.9), rounded(ACL_FLOAT16, -2.9), inf, 65504.0, 1.0],
        0.0,
    );
    assert_eq!(cast(ACL_BF16)[5], rounded(ACL_BF16, 70000.0));
    assert_eq!(d.aclnnCast(a.handle, ACL_INT32, d.empty(ACL_FLOAT, &[8]).handle), INVALID);
    assert_eq!(d.aclnnCast(a.handle, 999, d.empty(ACL_FLOAT, &[8]).handle), INVALID);
    assert_eq!(d.aclnnCast(a.handle, ACL_FLOAT, d.empty(ACL_FLOAT, &[4, 2]).handle), INVALID);
}

#[test]
fn large_copies_are_shared_by_threads() {
    let d = device();
    let (h, w) = (613usize, 701usize);
    let x: Vec<f64> = (0..h * w).map(|i| (i % 60000) as f64).collect();
    let a = d.tensor(ACL_FLOAT, &[h as i64, w as i64], &x);
    let turned = d.empty(ACL_FLOAT, &[w as i64, h as i64]);
    d.aclnnInplaceCopy(turned.handle, d.transposed(&a).handle).unwrap();
    let got = turned.read();
    assert!((0..h * w).all(|i| got[i] == x[i % h * w + i / h]));
    let ints = d.empty(ACL_INT32, &[w as i64, h as i64]);
    d.aclnnCast(d.transposed(&a).handle, ACL_INT32, ints.handle).unwrap();
    near(&ints.read(), &got, 0.0);
    let back = d.empty(ACL_FLOAT, &[h as i64, w as i64]);
    d.aclnnPermute(turned.handle, d.ints(&[1, 0]).handle, back.handle).unwrap();
    near(&back.read(), &x, 0.0);
    let flat = d.empty(ACL_FLOAT, &[1 << 18]);
    let source = d.tensor(ACL_FLOAT, &[1 << 18], &x[..1 << 18]);
    d.aclnnInplaceCopy(flat.handle, source.handle).unwrap();
    near(&flat.read(), &x[..1 << 18], 0.0);
    // A copy onto itself leaves everything as it was.
    d.aclnnInplaceCopy(flat.handle, flat.handle).unwrap();
    near(&flat.read(), &x[..1 << 18], 0.0);
}

#[test]
fn shapes() {
    let d = device();
    let x: Vec<f64> = (0..24).map(f64::from).collect();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_INT8, ACL_INT64] {
        let a = d.tensor(dtype, &[2, 3, 4], &x);
        let out = d.empty(dtype, &[4, 2, 3]);
        d.aclnnPermute(a.handle, d.ints(&[2, 0, -2]).handle, out.handle).unwrap();
        let want: Vec<f64> = (0..24).map(|i| x[i / 6 + i / 3 % 2 * 12 + i % 3 * 4]).collect();
        near(&out.read(), &want, 0.0);
        assert_eq!(d.aclnnPermute(a.handle, d.ints(&[2, 0, 0]).handle, out.handle), INVALID);

        let row = d.tensor(dtype, &[3, 1], &[7.0, 8.0, 9.0]);
        let out = d.empty(dtype, &[2, 3, 2]);
        d.aclnnExpand(row.handle, d.ints(&[2, -1, 2]).handle, out.handle).unwrap();
        near(&out.read(), &[7.0, 7.0, 8.0, 8.0, 9.0, 9.0].repeat(2), 0.0);

        let out = d.empty(dtype, &[2, 2, 4]);
        d.aclnnSlice(a.handle, 1, -3, 99, 2, out.handle).unwrap();
        let want: Vec<f64> = (0..16).map(|i| x[i / 8 * 12 + i / 4 % 2 * 8 + i % 4]).collect();
        near(&out.read(), &want, 0.0);
        assert_eq!(d.aclnnSlice(a.handle, 1, 0, 3, 0, out.handle), INVALID);

        let small = d.tensor(dtype, &[2, 3], &x[..6]);
        let out = d.empty(dtype, &[3, 4, 6]);
        d.aclnnRepeat(small.handle, d.ints(&[3, 2, 2]).handle, out.handle).unwrap();
        let want: Vec<f64> = (0..72).map(|i| x[i / 6 % 2 * 3 + i % 3]).collect();
        near(&out.read(), &want, 0.0);

        let out = d.empty(dtype, &[2, 9]);
        d.aclnnRepeatInterleaveIntWithDim(small.handle, 3, -1, 9, out.handle).unwrap();
        let want: Vec<f64> = (0..18).map(|i| x[i / 3]).collect();
        near(&out.read(), &want, 0.0);
        assert_eq!(d.aclnnRepeatInterleaveIntWithDim(small.handle, 3, -1, 8, out.handle), INVALID);

        let out = d.empty(dtype, &[2, 7]);
        let other = d.tensor(dtype, &[2, 4], &x[..8]);
        d.aclnnCat(d.list(&[&small, &other]).handle, -1, out.handle).unwrap();
        near(&out.read(), &[0., 1., 2., 0., 1., 2., 3., 3., 4., 5., 4., 5., 6., 7.], 0.0);
        assert_eq!(d.aclnnCat(d.list(&[&small, &other]).handle, 0, out.handle), INVALID);
        assert_eq!(d.aclnnCat(std::ptr::null(), 0, out.handle), NULLPTR);

        let out = d.empty(dtype, &[3, 5]);
        d.aclnnConstantPadNd(small.handle, d.ints(&[2, 0, 0, 1]).handle, d.f32(9.0).handle, out.handle).unwrap();
        near(&out.read(), &[9., 9., 0., 1., 2., 9., 9., 3., 4., 5., 9., 9., 9., 9., 9.], 0.0);
        let out = d.empty(dtype, &[2, 2]);
        d.aclnnConstantPadNd(small.handle, d.ints(&[-2, 1]).handle, d.f32(9.0).handle, out.handle).unwrap();
        near(&out.read(), &[2., 9., 5., 9.], 0.0);

        let out = d.empty(dtype, &[2, 6]);
        d.aclnnReflectionPad1d(small.handle, d.ints(&[2, 1]).handle, out.handle).unwrap();
        near(&out.read(), &[2., 1., 0., 1., 2., 1., 5., 4., 3., 4., 5., 4.], 0.0);
        assert_eq!(d.aclnnReflectionPad1d(small.handle, d.ints(&[3, 0]).handle, out.handle), INVALID);
    }
    // Cat promotes.
    let (half, single) = (d.tensor(ACL_FLOAT16, &[1], &[1.5]), d.tensor(ACL_FLOAT, &[2], &[0.1, 0.2]));
    let out = d.empty(ACL_FLOAT, &[3]);
    d.aclnnCat(d.list(&[&half, &single]).handle, 0, out.handle).unwrap();
    near(&out.read(), &[1.5, 0.1, 0.2], 1e-7);
}

#[test]
fn triangles_and_fills() {
    let d = device();
    let x: Vec<f64> = (1..=24).map(f64::from).collect();
    for diagonal in [-9, -1, 0, 1, 2, 9, i64::MAX, i64::MIN] {
        for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_INT32] {
            let a = d.tensor(dtype, &[2, 3, 4], &x);
            let out = d.empty(dtype, &[2, 3, 4]);
            let kept = |f: &dyn Fn(i64, i64) -> bool| -> Vec<f64> {
                (0..24).map(|i| if f(i as i64 / 4 % 3, i as i64 % 4) { x[i] } else { 0.0 }).collect()
            };
            d.aclnnTril(a.handle, diagonal, out.handle).unwrap();
            near(&out.read(), &kept(&|i, j| j <= i.saturating_add(diagonal)), 0.0);
            d.aclnnTriu(a.handle, diagonal, out.handle).unwrap();
            near(&out.read(), &kept(&|i, j| j >= i.saturating_add(diagonal)), 0.0);
            d.aclnnInplaceTriu(a.handle, diagonal).unwrap();
            near(&a.read(), &out.read(), 0.0);
        }
    }
    let (floats, ints) = (d.empty(ACL_FLOAT, &[1, 1, 1, 5]), d.empty(ACL_INT64, &[5]));
    d.aclnnArange(d.f32(1.0).handle, d.f32(2.5).handle, d.f32(0.3).handle, floats.handle).unwrap();
    near(&floats.read(), &[1.0, 1.3, 1.6, 1.9, 2.2], 1e-6);
    d.aclnnArange(d.int(10).handle, d.int(0).handle, d.int(-2).handle, ints.handle).unwrap();
    near(&ints.read(), &[10.0, 8.0, 6.0, 4.0, 2.0], 0.0);
    assert_eq!(d.aclnnArange(d.int(0).handle, d.int(4).handle, d.int(1).handle, ints.handle), INVALID);
    assert_eq!(d.aclnnArange(d.int(0).handle, d.int(4).handle, d.int(0).handle, ints.handle), INVALID);
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_UINT8, ACL_INT64, ACL_BOOL] {
        let wide = d.tensor(dtype, &[40_000], &vec![1.0; 40_000]);
        let inner = d.view(&wide, &[100, 100], &[2, 200], 1);
        d.aclnnInplaceFillScalar(inner.handle, d.f32(7.0).handle).unwrap();
        let seven = rounded(dtype, 7.0);
        assert!(inner.read().iter().all(|x| *x == seven));
        assert!(wide.read().iter().step_by(2).all(|x| *x == 1.0));
        d.aclnnInplaceZero(inner.handle).unwrap();
        assert!(inner.read().iter().all(|x| *x == 0.0));
        assert_eq!(wide.read().iter().sum::<f64>(), 30_000.0);
    }
}

#[test]
fn reductions() {
    let d = device();
    let x = numbers(6 * 50 * 40, 11);
    let at = |i: usize, j: usize, k: usize| x[(i * 50 + j) * 40 + k];
    for dtype in FLT {
        let stored: Vec<f64> = x.iter().map(|x| rounded(dtype, *x)).collect();
        let at = |i: usize, j: usize, k: usize| stored[(i * 50 + j) * 40 + k];
        let a = d.tensor(dtype, &[6, 50, 40], &x);
        for (dims, keep, shape) in [
            (vec![2], true, vec![6, 50, 1]),
            (vec![-1], false, vec![6, 50]),
            (vec![1], true, vec![6, 1, 40]),
            (vec![0], false, vec![50, 40]),
            (vec![0, 2], false, vec![50]),
            (vec![2, 1], true, vec![6, 1, 1]),
            (vec![], false, vec![]),
            (vec![0, 1, 2], true, vec![1, 1, 1]),
        ] {
            let gone: Vec<usize> = if dims.is_empty() {
                vec![0, 1, 2]
            } else {
                dims.iter().map(|d: &i64| d.rem_euclid(3) as usize).collect()
            };
            let kept: Vec<usize> = (0..3).filter(|d| !gone.contains(d)).collect();
            let sizes = [6, 50, 40];
            let count: usize = gone.iter().map(|d| sizes[*d]).product();
            let results: usize = kept.iter().map(|d| sizes[*d]).product();
            let mut lists = vec![Vec::new(); results];
            for i in 0..6 {
                for j in 0..50 {
                    for k in 0..40 {
                        let index = [i, j, k];
                        lists[kept.iter().fold(0, |s, d| s * sizes[*d] + index[*d])].push(at(i, j, k));
                    }
                }
            }
            let scale = |f: &dyn Fn(&[f64]) -> f64| lists.iter().map(|l| f(l)).collect::<Vec<_>>();
            let out = d.empty(dtype, &shape);
            let slack = bound(dtype) * 8.0;
            d.aclnnReduceSum(a.handle, d.ints(&dims).handle, keep, dtype, out.handle).unwrap();
            near(&out.read(), &scale(&|l| l.iter().sum()), slack);
            d.aclnnMean(a.handle, d.ints(&dims).handle, keep, dtype, out.handle).unwrap();
            near(&out.read(), &scale(&|l| l.iter().sum::<f64>() / count as f64), slack);
            for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
                if dtype == ACL_FLOAT16 && p == 3.0 {
                    continue;
                }
                d.aclnnNorm(a.handle, d.f32(p).handle, d.ints(&dims).handle, keep, out.handle).unwrap();
                let want = scale(&|l| match p {
                    0.0 => l.iter().filter(|x| **x != 0.0).count() as f64,
                    _ if p == f64::INFINITY => l.iter().fold(0.0, |m, x| x.abs().max(m)),
                    _ if p == f64::NEG_INFINITY => l.iter().fold(f64::INFINITY, |m, x| x.abs().min(m)),
                    _ => l.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p),
                });
                near(&out.read(), &want, slack);
            }
        }
    }
    let a = d.tensor(ACL_FLOAT, &[6, 50, 40], &x);
    let twice = d.ints(&[1, -2]);
    assert_eq!(
        d.aclnnReduceSum(a.handle, twice.handle, false, ACL_FLOAT, d.empty(ACL_FLOAT, &[6, 40]).handle),
        INVALID
    );
    let one = d.ints(&[1]);
    assert_eq!(
        d.aclnnReduceSum(a.handle, one.handle, false, ACL_FLOAT16, d.empty(ACL_FLOAT, &[6, 40]).handle),
        INVALID
    );
    assert_eq!(d.aclnnReduceSum(a.handle, one.handle, true, ACL_FLOAT, d.empty(ACL_FLOAT, &[6, 40]).handle), INVALID);
    // Integers, counted as one does for equal elements.
    let flags = d.tensor(ACL_BOOL, &[300], &(0..300).map(|i| f64::from(i % 3 == 0)).collect::<Vec<_>>());
    let total = d.empty(ACL_INT64, &[1]);
    d.aclnnReduceSum(flags.handle, d.ints(&[0]).handle, true, ACL_INT64, total.handle).unwrap();
    near(&total.read(), &[100.0], 0.0);
    // Nothing to add gives zero.
    let none = d.empty(ACL_FLOAT, &[3, 0]);
    let out = d.empty(ACL_FLOAT, &[3]);
    d.aclnnReduceSum(none.handle, d.ints(&[1]).handle, false, ACL_FLOAT, out.handle).unwrap();
    near(&out.read(), &[0.0; 3], 0.0);
    for (dim, len, stride) in [(0i64, 6usize, 2000usize), (1, 50, 40), (-1, 40, 1)] {
        let out = d.empty(ACL_FLOAT, &[6, 50, 40]);
        d.aclnnCumsum(a.handle, dim, ACL_FLOAT, out.handle).unwrap();
        let want: Vec<f64> =
            (0..12000).map(|i| (0..=i / stride % len).map(|back| x[i - back * stride]).sum()).collect();
        near(&out.read(), &want, 1e-5);
    }
    d.aclnnCumsum(a.handle, 2, ACL_FLOAT, a.handle).unwrap();
    assert!((a.read()[39] - (0..40).map(|k| at(0, 0, k)).sum::<f64>()).abs() < 1e-4);
}

#[test]
fn ordering() {
    let d = device();
    let mut x = numbers(7 * 300, 12);
    x[5] = x[4];
    x[10] = -0.0;
    x[11] = 0.0;
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64, ACL_DOUBLE, ACL_UINT8, ACL_INT8] {
        let scaled: Vec<f64> = x.iter().map(|x| if dtype == ACL_UINT8 { x.abs() * 60.0 } else { x * 60.0 }).collect();
        let stored: Vec<f64> = scaled.iter().map(|x| rounded(dtype, *x)).collect();
        let a = d.tensor(dtype, &[7, 300], &scaled);
        for descending in [false, true] {
            let out = d.empty(ACL_INT64, &[7, 300]);
            d.aclnnArgsort(a.handle, -1, descending, out.handle).unwrap();
            let sorted = |row: usize| {
                let mut order: Vec<usize> = (0..300).collect();
                order.sort_by(|&i, &j| {
                    let by = stored[row * 300 + i].partial_cmp(&stored[row * 300 + j]).unwrap();
                    if descending { by.reverse() } else { by }
                });
                order
            };
            let want: Vec<f64> = (0..7).flat_map(|r| sorted(r).into_iter().map(|i| i as f64)).collect();
            near(&out.read(), &want, 0.0);
            let (values, indices) = (d.empty(dtype, &[7, 12]), d.empty(ACL_INT64, &[7, 12]));
            d.aclnnTopk(a.handle, 12, 1, descending, true, values.handle, indices.handle).unwrap();
            let want: Vec<usize> = (0..7).flat_map(|r| sorted(r).into_iter().take(12)).collect();
            near(&indices.read(), &want.iter().map(|i| *i as f64).collect::<Vec<_>>(), 0.0);
            let want: Vec<f64> = want.iter().enumerate().map(|(n, i)| stored[n / 12 * 300 + i]).collect();
            near(&values.read(), &want, 0.0);
        }
        // Along the first dim, as columns.
        let out = d.empty(ACL_INT64, &[7, 300]);
        d.aclnnArgsort(a.handle, 0, false, out.handle).unwrap();
        let got = out.read();
        for c in 0..300 {
            let column: Vec<f64> = (0..7).map(|r| stored[got[r * 300 + c] as usize * 300 + c]).collect();
            assert!(column.is_sorted());
        }
        for (dim, keep, shape) in [(1, false, vec![7]), (1, true, vec![7, 1]), (0, false, vec![300])] {
            let out = d.empty(ACL_INT32, &shape);
            d.aclnnArgMax(a.handle, dim, keep, out.handle).unwrap();
            let (len, stride) = if dim == 1 { (300, 1) } else { (7, 300) };
            let want: Vec<f64> = (0..2100 / len)
                .map(|r| {
                    let base = if dim == 1 { r * 300 } else { r };
                    let best = (0..len)
                        .fold(0, |b, i| if stored[base + i * stride] > stored[base + b * stride] { i } else { b });
                    best as f64
                })
                .collect();
            near(&out.read(), &want, 0.0);
        }
    }
    let nan = d.tensor(ACL_FLOAT, &[4], &[1.0, f64::NAN, 9.0, f64::NEG_INFINITY]);
    let out = d.empty(ACL_INT64, &[4]);
    d.aclnnArgsort(nan.handle, 0, false, out.handle).unwrap();
    near(&out.read(), &[3.0, 0.0, 2.0, 1.0], 0.0);
    let first = d.empty(ACL_INT64, &[]);
    d.aclnnArgMax(nan.handle, 0, false, first.handle).unwrap();
    near(&first.read(), &[1.0], 0.0);
    assert_eq!(d.aclnnArgsort(nan.handle, 1, false, out.handle), INVALID);
    assert_eq!(d.aclnnArgsort(nan.handle, 0, false, d.empty(ACL_FLOAT, &[4]).handle), INVALID);
    assert_eq!(d.aclnnTopk(nan.handle, 5, 0, true, true, nan.handle, out.handle), INVALID);
}

#[test]
fn rows_are_gathered() {
    let d = device();
    let x: Vec<f64> = (0..60).map(f64::from).collect();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_INT8, ACL_INT64] {
        for index in [ACL_INT32, ACL_INT64] {
            let a = d.tensor(dtype, &[3, 4, 5], &x);
            let picks = d.tensor(index, &[2, 2], &[3.0, 0.0, 2.0, 2.0]);
            let out = d.empty(dtype, &[3, 2, 2, 5]);
            d.aclnnGatherV2(a.handle, 1, picks.handle, out.handle).unwrap();
            let rows = [3, 0, 2, 2];
            let want: Vec<f64> = (0..60).map(|i| x[i / 20 * 20 + rows[i / 5 % 4] * 5 + i % 5]).collect();
            near(&out.read(), &want, 0.0);
            let flat = d.tensor(index, &[2], &[4.0, 1.0]);
            let out = d.empty(dtype, &[3, 4, 2]);
            d.aclnnIndexSelect(a.handle, -1, flat.handle, out.handle).unwrap();
            let want: Vec<f64> = (0..24).map(|i| x[i / 2 * 5 + [4, 1][i % 2]]).collect();
            near(&out.read(), &want, 0.0);
            let table = d.tensor(dtype, &[12, 5], &x);
            let out = d.empty(dtype, &[2, 2, 5]);
            d.aclnnEmbedding(table.handle, picks.handle, out.handle).unwrap();
            let want: Vec<f64> = (0..20).map(|i| x[rows[i / 5] * 5 + i % 5]).collect();
            near(&out.read(), &want, 0.0);
            // A strided index and a table read by columns.
            let wide = d.tensor(index, &[6], &[1.0, 9.0, 0.0, 9.0, 4.0, 9.0]);
            let odd = d.view(&wide, &[3], &[2], 0);
            let out = d.empty(dtype, &[3, 12]);
            d.aclnnEmbedding(d.transposed(&table).handle, odd.handle, out.handle).unwrap();
            let want: Vec<f64> = (0..36).map(|i| x[i % 12 * 5 + [1, 0, 4][i / 12]]).collect();
            near(&out.read(), &want, 0.0);
        }
    }
    let a = d.tensor(ACL_FLOAT, &[12, 5], &x);
    let floats = d.tensor(ACL_FLOAT, &[1], &[0.0]);
    assert_eq!(d.aclnnEmbedding(a.handle, floats.handle, d.empty(ACL_FLOAT, &[1, 5]).handle), INVALID);
}

#[test]
fn rows_are_placed() {
    let d = device();
    let x: Vec<f64> = (0..40).map(f64::from).collect();
    for dtype in [ACL_FLOAT, ACL_FLOAT16, ACL_INT32] {
        for index in [ACL_INT32, ACL_INT64] {
            let to = d.tensor(dtype, &[2, 5, 4], &[-1.0; 40]);
            let from = d.tensor(dtype, &[2, 3, 4], &x[..24]);
            let rows = d.tensor(index, &[3], &[4.0, 0.0, 2.0]);
            d.aclnnInplaceIndexCopy(to.handle, 1, rows.handle, from.handle).unwrap();
            let source = [Some(1), None, Some(2), None, Some(0)];
            let want: Vec<f64> =
                (0..40).map(|i| source[i / 4 % 5].map_or(-1.0, |r| x[i / 20 * 12 + r * 4 + i % 4])).collect();
            near(&to.read(), &want, 0.0);
            // Along the last dim.
            let to = d.tensor(dtype, &[2, 5], &[-1.0; 10]);
            let from = d.tensor(dtype, &[2, 2], &x[..4]);
            d.aclnnInplaceIndexCopy(to.handle, -1, d.tensor(index, &[2], &[3.0, 1.0]).handle, from.handle).unwrap();
            near(&to.read(), &[-1., 1., -1., 0., -1., -1., 3., -1., 2., -1.], 0.0);
        }
    }
    let to = d.tensor(ACL_FLOAT, &[5, 4], &[0.0; 20]);
    let from = d.tensor(ACL_FLOAT16, &[1, 4], &[0.0; 4]);
    let row = d.tensor(ACL_INT32, &[1], &[0.0]);
    assert_eq!(d.aclnnInplaceIndexCopy(to.handle, 0, row.handle, from.handle), INVALID);
}

#[test]
fn executors_are_used_once_unless_repeatable() {
    let d = device();
    let a = d.tensor(ACL_FLOAT, &[8], &[1.0; 8]);
    let one = d.f32(1.0);
    let (mut bytes, mut executor) = (7, std::ptr::null_mut());
    // SAFETY: live handles; misuse is what is tested.
    unsafe {
        let api = &d.api;
        let size = api.aclnnInplaceAddsGetWorkspaceSize;
        assert_eq!(size(a.handle, one.handle, one.handle, &mut bytes, &mut executor), ACL_SUCCESS);
        assert_eq!(bytes, 0);
        assert_eq!((api.aclSetAclOpExecutorRepeatable)(executor), ACL_SUCCESS);
        for _ in 0..3 {
            assert_eq!((api.aclnnInplaceAdds)(std::ptr::null_mut(), 0, executor, d.stream), ACL_SUCCESS);
        }
        d.sync().unwrap();
        near(&a.read(), &[4.0; 8], 0.0);
        assert_eq!((api.aclDestroyAclOpExecutor)(executor), ACL_SUCCESS);
        assert_eq!(
            (api.aclnnInplaceAdds)(std::ptr::null_mut(), 0, std::ptr::null_mut(), d.stream),
            ACLNN_ERR_PARAM_NULLPTR
        );
        assert_eq!((api.aclSetAclOpExecutorRepeatable)(std::ptr::null_mut()), ACLNN_ERR_PARAM_NULLPTR);

        // Workspace that is needed and not given.
        let out = d.empty(ACL_INT64, &[8]);
        let size = api.aclnnArgsortGetWorkspaceSize;
        assert_eq!(size(a.handle, 0, false, out.handle, &mut bytes, &mut executor), ACL_SUCCESS);
        assert!(bytes > 0);
        assert_eq!((api.aclnnArgsort)(std::ptr::null_mut(), bytes, executor, d.stream), ACLNN_ERR_PARAM_NULLPTR);
        // Places for the answers are needed.
        assert_eq!(size(a.handle, 0, false, out.handle, std::ptr::null_mut(), &mut executor), ACLNN_ERR_PARAM_NULLPTR);
    }
}

#[test]
fn what_cannot_be_a_tensor_is_null() {
    let d = device();
    let make = |dims: &[i64], dtype: aclDataType, strides: Option<&[i64]>, offset: i64| {
        // SAFETY: arrays as long as said.
        let handle = unsafe {
            (d.api.aclCreateTensor)(
                dims.as_ptr(),
                dims.len() as u64,
                dtype,
                strides.map_or(std::ptr::null(), |s| s.as_ptr()),
                offset,
                ACL_FORMAT_ND,
                dims.as_ptr(),
                dims.len() as u64,
                std::ptr::null_mut(),
            )
        };
        // SAFETY: null or just made.
        unsafe { (d.api.aclDestroyTensor)(handle) };
        !handle.is_null()
    };
    assert!(make(&[2, 3], ACL_FLOAT, None, 0));
    assert!(make(&[], ACL_FLOAT, None, 0));
    assert!(make(&[2; 8], ACL_FLOAT, None, 0));
    assert!(!make(&[2; 9], ACL_FLOAT, None, 0));
    assert!(!make(&[-1], ACL_FLOAT, None, 0));
    assert!(!make(&[2], 77, None, 0));
    assert!(!make(&[i64::MAX, 8], ACL_FLOAT, None, 0));
    assert!(!make(&[i64::MAX / 4], ACL_DOUBLE, None, 0));
    assert!(!make(&[9, 9], ACL_FLOAT, Some(&[i64::MAX, 1]), 0));
    assert!(!make(&[9], ACL_FLOAT, None, -1));
    assert!(!make(&[9], ACL_FLOAT, None, i64::MAX));
    // SAFETY: null is legal to destroy and not to read; a tensor without memory is legal to describe.
    unsafe {
        let dims = [4i64];
        let bare = (d.api.aclCreateTensor)(
            dims.as_ptr(),
            1,
            ACL_FLOAT,
            std::ptr::null(),
            2,
            ACL_FORMAT_ND,
            dims.as_ptr(),
            1,
            std::ptr::null_mut(),
        );
        assert_eq!(d.aclnnInplaceZero(bare), NULLPTR);
        assert!(d.message().contains("memory of self_ref"), "{}", d.message());
        assert_eq!((d.api.aclDestroyTensor)(bare), ACL_SUCCESS);
        assert_eq!((d.api.aclDestroyTensor)(std::ptr::null()), ACL_SUCCESS);
        assert!((d.api.aclCreateScalar)(std::ptr::null_mut(), ACL_FLOAT).is_null());
        assert!((d.api.aclCreateIntArray)(std::ptr::null(), 2).is_null());
        assert!((d.api.aclCreateTensorList)(std::ptr::null(), 1).is_null());
    }
}

#[test]
fn empty_tensors_do_nothing() {
    let d = device();
    let (a, b) = (d.empty(ACL_FLOAT, &[2, 0, 3]), d.empty(ACL_FLOAT, &[2, 0, 3]));
    let s = d.f32(1.0);
    assert_eq!(d.aclnnAdd(a.handle, b.handle, s.handle, a.handle), Ok(()));
    assert_eq!(d.aclnnInplaceCopy(a.handle, b.handle), Ok(()));
    assert_eq!(d.aclnnMuls(a.handle, s.handle, b.handle), Ok(()));
    assert_eq!(d.aclnnCumsum(a.handle, 2, ACL_FLOAT, b.handle), Ok(()));
    assert_eq!(d.aclnnInplaceZero(a.handle), Ok(()));
    assert_eq!(d.aclnnCat(d.list(&[&a, &b]).handle, 0, d.empty(ACL_FLOAT, &[4, 0, 3]).handle), Ok(()));
    assert_eq!(d.aclnnArgsort(a.handle, 0, false, d.empty(ACL_INT64, &[2, 0, 3]).handle), Ok(()));
    let none = d.empty(ACL_INT32, &[0]);
    let table = d.tensor(ACL_FLOAT, &[2, 3], &[1.0; 6]);
    assert_eq!(d.aclnnEmbedding(table.handle, none.handle, d.empty(ACL_FLOAT, &[0, 3]).handle), Ok(()));
    assert_eq!(d.aclnnInplaceIndexCopy(table.handle, 0, none.handle, d.empty(ACL_FLOAT, &[0, 3]).handle), Ok(()));
}
