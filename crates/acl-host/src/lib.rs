//! An ACL device made of threads and memory: the embedded implementation behind the same function table.
//!
//! [`api`] is the whole of it: the list of `acl-sys`, filled with this crate's functions. What is behind them behaves as the
//! vendor's library does, asynchrony, limits and error codes included, so that a program's mistakes show without an NPU.
//! [`configure`] chooses what kind of device it is. Absent: exported C names (a crate of its own has them), and anything a
//! program could ask here that it could not ask the vendor's library; [`live`] and [`findings`] are for tests.

// C names are spelled as in the headers.
#![allow(non_snake_case)]

mod executor;
mod ffi;
#[doc(hidden)]
pub mod kernels;
mod ops;
mod runtime;
mod tensor;

use acl_sys::{AclApi, AclFn};

pub use runtime::checked::findings;
pub use runtime::config::{Config, ConfigError, configure, misunderstood};
pub use runtime::live::{LiveObjects, live};

/// The embedded device's function table. Every function of the list is present; those that the chip it passes for lacks
/// answer as they do there.
pub fn api() -> AclApi {
    macro_rules! table {
        (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
         operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
            AclApi {
                $($name: room!($group $name),)*
                $($size: ffi::ops::$size, $run: ffi::ops::$run,)*
                present: vec![true; AclFn::ALL.len()],
            }
        };
    }
    macro_rules! room {
        (Ascendcl $name:ident) => {
            ffi::runtime::$name
        };
        (Nnopbase $name:ident) => {
            ffi::meta::$name
        };
        (Opapi $name:ident) => {
            ffi::ops::$name
        };
    }
    acl_sys::acl_functions!(table)
}
