//! The typed first phase of an operator call, for arguments that are data.
//!
//! A macro over `acl_sys`'s list writes one arm per operator: each argument is taken from a [`CArg`] by the type its place in
//! the C signature demands, so a lowering that disagrees with the list is an error with the argument's position, not a
//! miscall.

use std::ffi::c_char;

use acl_sys::*;

/// One argument as C passes it. Pointers are borrowed from the [`super::executor::Objects`] of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CArg {
    Tensor(*mut aclTensor),
    Tensors(*mut aclTensorList),
    Scalar(*mut aclScalar),
    Ints(*mut aclIntArray),
    Str(*const c_char),
    I64(i64),
    I32(i32),
    I8(i8),
    F64(f64),
    Bool(bool),
}

trait FromCArg: Sized {
    fn from_carg(arg: CArg) -> Option<Self>;
}

macro_rules! from_carg {
    ($($ty:ty: $pattern:pat => $value:expr),* $(,)?) => {$(
        impl FromCArg for $ty {
            fn from_carg(arg: CArg) -> Option<Self> {
                match arg {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        }
    )*};
}
from_carg! {
    *const aclTensor: CArg::Tensor(p) => p.cast_const(),
    *mut aclTensor: CArg::Tensor(p) => p,
    *const aclTensorList: CArg::Tensors(p) => p.cast_const(),
    *const aclScalar: CArg::Scalar(p) => p.cast_const(),
    *const aclIntArray: CArg::Ints(p) => p.cast_const(),
    *const c_char: CArg::Str(p) => p,
    i64: CArg::I64(v) => v,
    i32: CArg::I32(v) => v,
    i8: CArg::I8(v) => v,
    f64: CArg::F64(v) => v,
    bool: CArg::Bool(v) => v,
}

macro_rules! first_phase {
    (functions { $($skip:tt)* } operators { $(op $run:ident $size:ident($($arg:ident: $ty:ty),*);)* }) => {
        /// Runs the first phase of `op`. The error is the position of the first argument that is missing, surplus, or of
        /// another kind than the C signature has there.
        ///
        /// # Safety
        /// Pointers in `args` are null or live objects of the table's library, and tensors describe memory that outlives the
        /// executor's use; the calling thread has the device selected.
        pub(crate) unsafe fn first_phase(
            api: &AclApi,
            op: AclOp,
            args: &[CArg],
            workspace_bytes: &mut u64,
            executor: &mut *mut aclOpExecutor,
        ) -> Result<aclnnStatus, usize> {
            match op {
                $(AclOp::$run => {
                    let mut at = 0;
                    $(
                        let $arg = args.get(at).and_then(|a| <$ty as FromCArg>::from_carg(*a)).ok_or(at)?;
                        at += 1;
                    )*
                    if args.len() != at {
                        return Err(at);
                    }
                    // SAFETY: argument kinds match the list's signature; the rest is the caller's duty.
                    Ok(unsafe { (api.$size)($($arg,)* workspace_bytes, executor) })
                })*
            }
        }
    };
}
acl_functions!(first_phase);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_argument_is_named_by_position() {
        // SAFETY: no symbols; the stubs touch nothing.
        let api = unsafe { AclApi::from_symbols(|_| std::ptr::null()) };
        let (mut bytes, mut executor) = (0, std::ptr::null_mut());
        let tensor = CArg::Tensor(std::ptr::null_mut());
        let mut run = |op, args: &[CArg]| {
            // SAFETY: every function is a stub.
            unsafe { first_phase(&api, op, args, &mut bytes, &mut executor) }
        };
        assert_eq!(run(AclOp::aclnnAbs, &[tensor, tensor]), Ok(ACL_ERROR_API_NOT_SUPPORT));
        assert_eq!(run(AclOp::aclnnAbs, &[tensor]), Err(1));
        assert_eq!(run(AclOp::aclnnAbs, &[tensor, CArg::I64(1)]), Err(1));
        assert_eq!(run(AclOp::aclnnAbs, &[tensor, tensor, tensor]), Err(2));
    }
}
