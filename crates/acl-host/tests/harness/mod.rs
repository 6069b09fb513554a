//! Tensors in device memory and operator calls, for tests: all through the function table, as a program would.

#![allow(non_snake_case, dead_code, clippy::too_many_arguments)]

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use acl_sys::*;
use half::{bf16, f16};

/// A device bound to the test's thread, and a stream on it.
pub struct Device {
    pub api: AclApi,
    pub stream: aclrtStream,
}

/// An allocation; freed with the last tensor on it.
struct Memory {
    api: AclApi,
    ptr: *mut c_void,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `Device::memory` and not freed since.
        assert_eq!(unsafe { (self.api.aclrtFree)(self.ptr) }, ACL_SUCCESS);
    }
}

/// A descriptor and the memory it describes.
pub struct Tensor {
    api: AclApi,
    memory: std::rc::Rc<Memory>,
    pub handle: *mut aclTensor,
    pub dtype: aclDataType,
    pub dims: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: made by `aclCreateTensor`, destroyed here only; lists take the handle and leave null.
        assert_eq!(unsafe { (self.api.aclDestroyTensor)(self.handle) }, ACL_SUCCESS);
    }
}

pub struct Scalar {
    api: AclApi,
    pub handle: *mut aclScalar,
}

impl Drop for Scalar {
    fn drop(&mut self) {
        // SAFETY: made by `aclCreateScalar`.
        assert_eq!(unsafe { (self.api.aclDestroyScalar)(self.handle) }, ACL_SUCCESS);
    }
}

pub struct Ints {
    api: AclApi,
    pub handle: *mut aclIntArray,
}

impl Drop for Ints {
    fn drop(&mut self) {
        // SAFETY: made by `aclCreateIntArray`.
        assert_eq!(unsafe { (self.api.aclDestroyIntArray)(self.handle) }, ACL_SUCCESS);
    }
}

pub struct List {
    api: AclApi,
    pub handle: *mut aclTensorList,
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `aclCreateTensorList`.
        assert_eq!(unsafe { (self.api.aclDestroyTensorList)(self.handle) }, ACL_SUCCESS);
    }
}

/// The device of this thread, made ready.
pub fn device() -> Device {
    static INIT: OnceLock<aclError> = OnceLock::new();
    let api = acl_host::api();
    // SAFETY: null is a legal configuration path.
    assert_eq!(*INIT.get_or_init(|| unsafe { (api.aclInit)(std::ptr::null()) }), ACL_SUCCESS);
    let mut stream = std::ptr::null_mut();
    // SAFETY: plain numbers and a place for the stream.
    unsafe {
        assert_eq!((api.aclrtSetDevice)(0), ACL_SUCCESS);
        assert_eq!((api.aclrtCreateStream)(&mut stream), ACL_SUCCESS);
    }
    Device { api, stream }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: made by `device`.
        unsafe { (self.api.aclrtDestroyStream)(self.stream) };
    }
}

pub fn element_bytes(dtype: aclDataType) -> usize {
    match dtype {
        ACL_INT8 | ACL_UINT8 | ACL_BOOL => 1,
        ACL_FLOAT16 | ACL_BF16 | ACL_INT16 | ACL_UINT16 => 2,
        ACL_FLOAT | ACL_INT32 | ACL_UINT32 => 4,
        ACL_DOUBLE | ACL_INT64 | ACL_UINT64 => 8,
        _ => panic!("no element bytes of type {dtype}"),
    }
}

/// The bytes of a value as one element.
pub fn encode(dtype: aclDataType, x: f64) -> Vec<u8> {
    match dtype {
        ACL_FLOAT => (x as f32).to_le_bytes().to_vec(),
        ACL_FLOAT16 => f16::from_f64(x).to_le_bytes().to_vec(),
        ACL_BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        ACL_DOUBLE => x.to_le_bytes().to_vec(),
        ACL_INT8 => (x as i8).to_le_bytes().to_vec(),
        ACL_INT16 => (x as i16).to_le_bytes().to_vec(),
        ACL_INT32 => (x as i32).to_le_bytes().to_vec(),
        ACL_INT64 => (x as i64).to_le_bytes().to_vec(),
        ACL_UINT8 => (x as u8).to_le_bytes().to_vec(),
        ACL_UINT16 => (x as u16).to_le_bytes().to_vec(),
        ACL_UINT32 => (x as u32).to_le_bytes().to_vec(),
        ACL_BOOL => vec![u8::from(x != 0.0)],
        _ => panic!("no encoding for type {dtype}"),
    }
}

pub fn decode(dtype: aclDataType, b: &[u8]) -> f64 {
    macro_rules! number {
        ($ty:ty) => {
            <$ty>::from_le_bytes(b.try_into().expect("one element's bytes")) as f64
        };
    }
    match dtype {
        ACL_FLOAT => number!(f32),
        ACL_FLOAT16 => f16::from_le_bytes(b.try_into().expect("two bytes")).to_f64(),
        ACL_BF16 => bf16::from_le_bytes(b.try_into().expect("two bytes")).to_f64(),
        ACL_DOUBLE => number!(f64),
        ACL_INT8 => number!(i8),
        ACL_INT16 => number!(i16),
        ACL_INT32 => number!(i32),
        ACL_INT64 => number!(i64),
        ACL_UINT8 | ACL_BOOL => number!(u8),
        ACL_UINT16 => number!(u16),
        ACL_UINT32 => number!(u32),
        _ => panic!("no decoding for type {dtype}"),
    }
}

fn packed(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i].max(1);
    }
    strides
}

impl Device {
    fn memory(&self, bytes: usize) -> std::rc::Rc<Memory> {
        let mut ptr = std::ptr::null_mut();
        // SAFETY: a place for the pointer.
        let code = unsafe { (self.api.aclrtMalloc)(&mut ptr, bytes.max(32), ACL_MEM_MALLOC_HUGE_FIRST) };
        assert_eq!(code, ACL_SUCCESS);
        std::rc::Rc::new(Memory { api: self.api.clone(), ptr })
    }

    fn describe(
        &self,
        memory: std::rc::Rc<Memory>,
        dtype: aclDataType,
        dims: &[i64],
        strides: &[i64],
        offset: i64,
        format: aclFormat,
    ) -> Tensor {
        let storage: i64 = 1 + offset + dims.iter().zip(strides).map(|(d, s)| (d - 1).max(0) * s).sum::<i64>();
        // SAFETY: the arrays are as long as said and copied by the call.
        let handle = unsafe {
            (self.api.aclCreateTensor)(
                dims.as_ptr(),
                dims.len() as u64,
                dtype,
                strides.as_ptr(),
                offset,
                format,
                &storage,
                1,
                memory.ptr,
            )
        };
        assert!(!handle.is_null());
        Tensor { api: self.api.clone(), memory, handle, dtype, dims: dims.to_vec(), strides: strides.to_vec(), offset }
    }

    /// A tensor with values.
    pub fn tensor(&self, dtype: aclDataType, dims: &[i64], values: &[f64]) -> Tensor {
        let tensor = self.empty(dtype, dims);
        assert_eq!(values.len() as i64, dims.iter().product::<i64>());
        let bytes: Vec<u8> = values.iter().flat_map(|x| encode(dtype, *x)).collect();
        tensor.upload(&bytes);
        tensor
    }

    /// A tensor whose contents are whatever the allocation has.
    pub fn empty(&self, dtype: aclDataType, dims: &[i64]) -> Tensor {
        self.empty_as(dtype, dims, ACL_FORMAT_ND)
    }

    pub fn empty_as(&self, dtype: aclDataType, dims: &[i64], format: aclFormat) -> Tensor {
        let bytes = dims.iter().product::<i64>() as usize * element_bytes(dtype);
        self.describe(self.memory(bytes), dtype, dims, &packed(dims), 0, format)
    }

    /// A tensor from raw bytes, of any type (packed ones too).
    pub fn bytes(&self, dtype: aclDataType, dims: &[i64], bytes: &[u8]) -> Tensor {
        let tensor = self.describe(self.memory(bytes.len()), dtype, dims, &packed(dims), 0, ACL_FORMAT_ND);
        tensor.upload(bytes);
        tensor
    }

    /// Another view of a tensor's memory.
    pub fn view(&self, of: &Tensor, dims: &[i64], strides: &[i64], offset: i64) -> Tensor {
        self.describe(of.memory.clone(), of.dtype, dims, strides, offset, ACL_FORMAT_ND)
    }

    /// A descriptor that does not keep the memory: for calls on memory that is gone. The caller destroys it.
    pub fn dangling(&self, of: &Tensor) -> *mut aclTensor {
        let mut own = self.view(of, &of.dims, &of.strides, of.offset);
        std::mem::replace(&mut own.handle, std::ptr::null_mut())
    }

    /// The same view in another format.
    pub fn formatted(&self, of: &Tensor, format: aclFormat) -> Tensor {
        self.describe(of.memory.clone(), of.dtype, &of.dims, &of.strides, of.offset, format)
    }

    /// The last two dims swapped.
    pub fn transposed(&self, of: &Tensor) -> Tensor {
        let (mut dims, mut strides) = (of.dims.clone(), of.strides.clone());
        let n = dims.len();
        dims.swap(n - 1, n - 2);
        strides.swap(n - 1, n - 2);
        self.view(of, &dims, &strides, of.offset)
    }

    pub fn scalar(&self, dtype: aclDataType, x: f64) -> Scalar {
        let mut bytes = encode(dtype, x);
        // SAFETY: one element of the type, copied by the call.
        let handle = unsafe { (self.api.aclCreateScalar)(bytes.as_mut_ptr().cast(), dtype) };
        assert!(!handle.is_null());
        Scalar { api: self.api.clone(), handle }
    }

    pub fn f32(&self, x: f64) -> Scalar {
        self.scalar(ACL_FLOAT, x)
    }

    pub fn int(&self, x: i64) -> Scalar {
        self.scalar(ACL_INT64, x as f64)
    }

    pub fn ints(&self, values: &[i64]) -> Ints {
        // SAFETY: as long as said, copied by the call.
        let handle = unsafe { (self.api.aclCreateIntArray)(values.as_ptr(), values.len() as u64) };
        assert!(!handle.is_null());
        Ints { api: self.api.clone(), handle }
    }

    /// A list that takes other descriptors of the tensors' memory, because it destroys its elements.
    pub fn list(&self, tensors: &[&Tensor]) -> List {
        let handles: Vec<*const aclTensor> = tensors
            .iter()
            .map(|t| {
                let mut own = self.view(t, &t.dims, &t.strides, t.offset);
                std::mem::replace(&mut own.handle, std::ptr::null_mut()).cast_const()
            })
            .collect();
        // SAFETY: as long as said, copied by the call.
        let handle = unsafe { (self.api.aclCreateTensorList)(handles.as_ptr(), handles.len() as u64) };
        assert!(!handle.is_null());
        List { api: self.api.clone(), handle }
    }

    pub fn sync(&self) -> Result<(), aclError> {
        // SAFETY: a live stream.
        code(unsafe { (self.api.aclrtSynchronizeStream)(self.stream) })
    }

    /// The thread's last message.
    pub fn message(&self) -> String {
        // SAFETY: null or a C string that lives until the next call of this thread.
        unsafe {
            let text = (self.api.aclGetRecentErrMsg)();
            if text.is_null() { String::new() } else { std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }

    fn launch(
        &self,
        size: impl FnOnce(*mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
        run: aclnnRun,
    ) -> Result<(), aclError> {
        let (mut bytes, mut executor) = (0, std::ptr::null_mut());
        code(size(&mut bytes, &mut executor))?;
        let workspace = (bytes > 0).then(|| self.memory(bytes as usize));
        let ptr = workspace.as_ref().map_or(std::ptr::null_mut(), |w| w.ptr);
        // SAFETY: an executor of phase one and a workspace that outlives the synchronisation below.
        code(unsafe { run(ptr, bytes, executor, self.stream) })?;
        self.sync()
    }
}

fn code(code: i32) -> Result<(), i32> {
    if code == ACL_SUCCESS { Ok(()) } else { Err(code) }
}

macro_rules! callers {
    (functions { $($functions:tt)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        /// Both phases of each operator and a synchronisation.
        impl Device {
            $(pub fn $run(&self, $($oarg: $oty),*) -> Result<(), aclError> {
                // SAFETY: tests pass live handles, or wrong ones that the call is to refuse.
                self.launch(|bytes, executor| unsafe { (self.api.$size)($($oarg,)* bytes, executor) }, self.api.$run)
            })*
        }
    };
}
acl_sys::acl_functions!(callers);

impl Tensor {
    fn upload(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // SAFETY: the allocation is at least as long.
        let code = unsafe {
            (self.api.aclrtMemcpy)(
                self.memory.ptr,
                bytes.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                ACL_MEMCPY_HOST_TO_DEVICE,
            )
        };
        assert_eq!(code, ACL_SUCCESS);
    }

    /// The tensor's elements in row-major order.
    pub fn read(&self) -> Vec<f64> {
        let size = element_bytes(self.dtype);
        let mut places = vec![self.offset];
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            places = places.iter().flat_map(|p| (0..dim).map(move |i| p + i * stride)).collect();
        }
        let Some(last) = places.iter().max() else { return Vec::new() };
        let mut bytes = vec![0u8; (*last as usize + 1) * size];
        // SAFETY: the view lies inside its allocation.
        let code = unsafe {
            (self.api.aclrtMemcpy)(
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                self.memory.ptr,
                bytes.len(),
                ACL_MEMCPY_DEVICE_TO_HOST,
            )
        };
        assert_eq!(code, ACL_SUCCESS);
        places.iter().map(|p| decode(self.dtype, &bytes[*p as usize * size..(*p as usize + 1) * size])).collect()
    }
}

/// Same numbers within a relative and absolute bound; NaN equals NaN.
#[track_caller]
pub fn near(got: &[f64], want: &[f64], bound: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let fits = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= bound * w.abs().max(1.0);
        assert!(fits, "element {i}: got {g}, wanted {w}\ngot  {got:?}\nwant {want:?}");
    }
}

/// Numbers between -2 and 2 that repeat late.
pub fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 4.0
        })
        .map(|x| f64::from(f16::from_f64(x)))
        .collect()
}

/// What a value is worth after it was stored as the type.
pub fn rounded(dtype: aclDataType, x: f64) -> f64 {
    decode(dtype, &encode(dtype, x))
}
