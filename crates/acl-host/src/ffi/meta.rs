//! The meta interface: tensors, scalars, arrays and lists as handles, and the executor's switches.
//!
//! A handle is a box that begins with a magic word. A pointer whose word does not fit (null, foreign, already destroyed as far
//! as that can be seen) is refused; nothing beyond the word is read before it was found right.

use std::ffi::{CStr, c_char, c_void};

use acl_sys::*;

use crate::executor::{self, Refusal};
use crate::runtime::config::{self, Family};
use crate::runtime::{context, live};
use crate::tensor::{DType, Scalar, Tensor};

/// Elements of `aclCreateTensorList`; owned by the list.
pub(crate) struct TensorList {
    elements: Vec<*const aclTensor>,
}

impl TensorList {
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    /// The tensors; refused when one is null or gone.
    pub(crate) fn tensors(&self, name: &'static str) -> Result<Vec<Tensor>, Refusal> {
        // Lists are const in C whatever happens to their tensors; outputs are called y.
        let written = name == "y";
        self.elements
            .iter()
            .map(|&t| {
                // SAFETY: the list's creator promised that its elements stay valid as long as the list.
                let tensor = unsafe { look::<Tensor, _>(t) };
                let tensor = tensor.ok_or_else(|| Refusal::null(&format!("an element of {name}")))?;
                tensor.admit(name, written)?;
                Ok(tensor.clone())
            })
            .collect()
    }
}

/// A kind of handle.
trait Kind {
    const MAGIC: u64;
    const LIVE: &'static live::Counter;

    /// Checks beyond the magic word when it becomes argument `name` of an operator, which may write to it.
    fn admit(&self, _name: &'static str, _written: bool) -> Result<(), Refusal> {
        Ok(())
    }
}
impl Kind for Tensor {
    const MAGIC: u64 = 0x6163_6c54_656e_736f;
    const LIVE: &'static live::Counter = &live::TENSORS;

    fn admit(&self, name: &'static str, written: bool) -> Result<(), Refusal> {
        if self.lacks_memory() {
            return Err(Refusal::null(&format!("the memory of {name}")));
        }
        let family = || config::settings().family;
        if self.dtype() == DType::BF16 && !matches!(family(), Family::Ascend910B | Family::Ascend910_93) {
            return Err(Refusal::invalid(format!("{name} is BF16, which this chip does not have")));
        }
        // Only a product reads the private format; to all others its bytes are in no order.
        if self.format() == ACL_FORMAT_FRACTAL_NZ && name != "mat2" {
            return Err(Refusal::invalid(format!("{name} is FRACTAL_NZ, which this operator does not take")));
        }
        executor::note_argument(name, self, written);
        Ok(())
    }
}
impl Kind for Scalar {
    const MAGIC: u64 = 0x6163_6c53_6361_6c61;
    const LIVE: &'static live::Counter = &live::SCALARS;
}
impl Kind for Vec<i64> {
    const MAGIC: u64 = 0x6163_6c49_6e74_4172;
    const LIVE: &'static live::Counter = &live::ARRAYS;
}
impl Kind for TensorList {
    const MAGIC: u64 = 0x6163_6c54_4c69_7374;
    const LIVE: &'static live::Counter = &live::LISTS;
}

#[repr(C)]
struct Handle<T> {
    magic: u64,
    value: T,
}

fn make<T: Kind, C>(value: T) -> *mut C {
    T::LIVE.add();
    Box::into_raw(Box::new(Handle { magic: T::MAGIC, value })).cast()
}

/// # Safety
/// `handle` is null or has eight readable bytes, and lives as long as the reference is used.
unsafe fn look<'a, T: Kind, C>(handle: *const C) -> Option<&'a T> {
    let held = handle.cast::<Handle<T>>();
    if held.is_null() || !held.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, readable by the caller's promise.
    if unsafe { held.cast::<u64>().read_volatile() } != T::MAGIC {
        return None;
    }
    // SAFETY: the word says that this is a live handle of the type.
    Some(unsafe { &(*held).value })
}

/// # Safety
/// As [`look`]; the handle is not used any more.
unsafe fn unmake<T: Kind, C>(call: &str, handle: *const C) -> Result<Option<T>, aclnnStatus> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    if unsafe { look::<T, C>(handle) }.is_none() {
        return Err(context::fail(ACLNN_ERR_PARAM_INVALID, format!("{call}: not a live handle")));
    }
    // SAFETY: made by `make` as the word says, and given up by the caller.
    let mut held = unsafe { Box::from_raw(handle.cast::<Handle<T>>().cast_mut()) };
    held.magic = 0;
    // The word must reach memory: it is what a use after free is recognised by.
    std::hint::black_box(&held.magic);
    T::LIVE.sub();
    Ok(Some(held.value))
}

/// # Safety
/// `values` points to `len` readable elements, unless `len` is 0.
unsafe fn copied<T: Copy>(values: *const T, len: u64) -> Option<Vec<T>> {
    let len = usize::try_from(len).ok()?;
    if len == 0 {
        return Some(Vec::new());
    }
    if values.is_null() || !values.is_aligned() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(values, len) }.to_vec())
}

fn status(result: Result<(), aclnnStatus>) -> aclnnStatus {
    result.err().unwrap_or(ACL_SUCCESS)
}

pub(crate) unsafe extern "C" fn aclCreateTensor(
    view_dims: *const i64,
    view_dims_num: u64,
    data_type: aclDataType,
    stride: *const i64,
    offset: i64,
    format: aclFormat,
    storage_dims: *const i64,
    storage_dims_num: u64,
    tensor_data: *mut c_void,
) -> *mut aclTensor {
    let _ = (storage_dims, storage_dims_num);
    context::guard("aclCreateTensor", std::ptr::null_mut(), || {
        let made = (|| {
            if view_dims_num > crate::tensor::MAX_RANK as u64 {
                return None;
            }
            // SAFETY: ACL's contract for the arrays.
            let dims = unsafe { slice(view_dims, view_dims_num) }?;
            // SAFETY: as above; absent strides are packed ones.
            let strides = if stride.is_null() { None } else { Some(unsafe { slice(stride, view_dims_num) }?) };
            Tensor::new(dims, data_type, strides, offset, format, tensor_data)
        })();
        match made {
            Some(tensor) => make(tensor),
            None => {
                context::fail(ACLNN_ERR_PARAM_INVALID, "aclCreateTensor: dims, strides, offset or type cannot be");
                std::ptr::null_mut()
            }
        }
    })
}

/// # Safety
/// `values` points to `len` readable elements that outlive the slice, unless `len` is 0.
unsafe fn slice<'a>(values: *const i64, len: u64) -> Option<&'a [i64]> {
    match len {
        0 => Some(&[]),
        _ if values.is_null() || !values.is_aligned() => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { std::slice::from_raw_parts(values, len as usize) }),
    }
}

pub(crate) unsafe extern "C" fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus {
    // SAFETY: ACL's contract: null or a tensor that is not used any more.
    status(unsafe { unmake::<Tensor, _>("aclDestroyTensor", tensor) }.map(drop))
}

pub(crate) unsafe extern "C" fn aclCreateScalar(value: *mut c_void, data_type: aclDataType) -> *mut aclScalar {
    context::guard("aclCreateScalar", std::ptr::null_mut(), || {
        if value.is_null() {
            context::fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateScalar: value is null");
            return std::ptr::null_mut();
        }
        // SAFETY: ACL's contract: one readable element of the type.
        match unsafe { Scalar::read(value, data_type) } {
            Some(scalar) => make(scalar),
            None => {
                context::fail(ACLNN_ERR_PARAM_INVALID, format!("aclCreateScalar: no scalars of type {data_type}"));
                std::ptr::null_mut()
            }
        }
    })
}

pub(crate) unsafe extern "C" fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus {
    // SAFETY: as in `aclDestroyTensor`.
    status(unsafe { unmake::<Scalar, _>("aclDestroyScalar", scalar) }.map(drop))
}

pub(crate) unsafe extern "C" fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray {
    context::guard("aclCreateIntArray", std::ptr::null_mut(), || {
        // SAFETY: ACL's contract for the array.
        match unsafe { copied(value, size) } {
            Some(values) => make(values),
            None => {
                context::fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateIntArray: value is null");
                std::ptr::null_mut()
            }
        }
    })
}

pub(crate) unsafe extern "C" fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus {
    // SAFETY: as in `aclDestroyTensor`.
    status(unsafe { unmake::<Vec<i64>, _>("aclDestroyIntArray", array) }.map(drop))
}

pub(crate) unsafe extern "C" fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList {
    context::guard("aclCreateTensorList", std::ptr::null_mut(), || {
        // SAFETY: ACL's contract for the array.
        match unsafe { copied(value, size) } {
            Some(elements) => make(TensorList { elements }),
            None => {
                context::fail(ACLNN_ERR_PARAM_NULLPTR, "aclCreateTensorList: value is null");
                std::ptr::null_mut()
            }
        }
    })
}

pub(crate) unsafe extern "C" fn aclDestroyTensorList(list: *const aclTensorList) -> aclnnStatus {
    // SAFETY: as in `aclDestroyTensor`; the list owns its elements.
    let result = unsafe { unmake::<TensorList, _>("aclDestroyTensorList", list) };
    status(result.and_then(|list| {
        // One bad element does not keep the others alive.
        let mut bad = Ok(());
        for element in list.map(|l| l.elements).unwrap_or_default() {
            // SAFETY: as above.
            if let Err(code) = unsafe { unmake::<Tensor, _>("aclDestroyTensorList", element) } {
                bad = Err(code);
            }
        }
        bad
    }))
}

pub(crate) unsafe extern "C" fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus {
    // SAFETY: ACL's contract: null or an executor of phase one.
    unsafe { executor::set_repeatable(executor) }
}

pub(crate) unsafe extern "C" fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus {
    // SAFETY: as above, and it is not used any more.
    unsafe { executor::destroy(executor) }
}

/// Turns an argument of the C call into what an operator's function takes; the function's parameter type chooses.
pub(crate) trait FromC<C>: Sized {
    /// # Safety
    /// `c` is what the C interface promises for an argument of its type, for as long as the result is used.
    unsafe fn from_c(c: C, name: &'static str) -> Result<Self, Refusal>;
}

macro_rules! from_handle {
    ($($c:ty => $target:ty as $value:ty, written: $written:literal;)*) => {$(
        impl<'a> FromC<$c> for &'a $target {
            unsafe fn from_c(c: $c, name: &'static str) -> Result<Self, Refusal> {
                // SAFETY: the caller's promise.
                let found: Option<&'a $value> = unsafe { look::<$value, _>(c.cast_const()) };
                let found = found.ok_or_else(|| not_live(c.is_null(), name))?;
                found.admit(name, $written)?;
                Ok(found)
            }
        }

        impl<'a> FromC<$c> for Option<&'a $target> {
            unsafe fn from_c(c: $c, name: &'static str) -> Result<Self, Refusal> {
                if c.is_null() {
                    return Ok(None);
                }
                // SAFETY: the caller's promise.
                unsafe { <&'a $target>::from_c(c, name) }.map(Some)
            }
        }
    )*};
}

/// Lets the macro treat `*const` and `*mut` alike.
trait CastConst<T> {
    fn cast_const(self) -> *const T;
}
impl<T> CastConst<T> for *const T {
    fn cast_const(self) -> *const T {
        self
    }
}

from_handle! {
    *const aclTensor => Tensor as Tensor, written: false;
    *mut aclTensor => Tensor as Tensor, written: true;
    *const aclScalar => Scalar as Scalar, written: false;
    *const aclIntArray => [i64] as Vec<i64>, written: false;
    *const aclTensorList => TensorList as TensorList, written: false;
}

fn not_live(null: bool, name: &str) -> Refusal {
    if null {
        return Refusal::null(name);
    }
    Refusal { status: ACLNN_ERR_PARAM_NULLPTR, message: format!("{name} is not a live handle of its type") }
}

macro_rules! from_self {
    ($($ty:ty),*) => {$(
        impl FromC<$ty> for $ty {
            unsafe fn from_c(c: $ty, _: &'static str) -> Result<Self, Refusal> {
                Ok(c)
            }
        }
    )*};
}
from_self!(bool, i8, i32, i64, f64);

impl FromC<aclDataType> for DType {
    unsafe fn from_c(c: aclDataType, name: &'static str) -> Result<Self, Refusal> {
        DType::from_acl(c).ok_or_else(|| Refusal::invalid(format!("{name}: unknown type {c}")))
    }
}

impl<'a> FromC<*const c_char> for &'a str {
    unsafe fn from_c(c: *const c_char, name: &'static str) -> Result<Self, Refusal> {
        if c.is_null() {
            return Err(Refusal::null(name));
        }
        // SAFETY: a C string by the caller's promise.
        unsafe { CStr::from_ptr::<'a>(c) }.to_str().map_err(|_| Refusal::invalid(format!("{name} is not text")))
    }
}
