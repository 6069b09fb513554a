//! What stands in a table for a function the library does not have: it says so, and does nothing else.

use std::ffi::{c_char, c_void};

use crate::types::*;

/// The answer of a function that is not there.
trait Absent {
    const ABSENT: Self;
}
impl Absent for i32 {
    const ABSENT: i32 = ACL_ERROR_API_NOT_SUPPORT;
}
impl<T> Absent for *const T {
    const ABSENT: *const T = std::ptr::null();
}
impl<T> Absent for *mut T {
    const ABSENT: *mut T = std::ptr::null_mut();
}

macro_rules! stubs {
    (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        $(pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $(let _ = $arg;)*
            <$ret as Absent>::ABSENT
        })*
        $(
            pub(crate) unsafe extern "C" fn $run(_: *mut c_void, _: u64, _: *mut aclOpExecutor, _: aclrtStream) -> aclnnStatus {
                <aclnnStatus as Absent>::ABSENT
            }
            pub(crate) unsafe extern "C" fn $size($($oarg: $oty,)* _: *mut u64, _: *mut *mut aclOpExecutor) -> aclnnStatus {
                $(let _ = $oarg;)*
                <aclnnStatus as Absent>::ABSENT
            }
        )*
    };
}
crate::acl_functions!(stubs);
