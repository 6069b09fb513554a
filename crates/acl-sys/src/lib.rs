//! The ACL and aclnn C interface, declared once as one list.
//!
//! A driver is a function table: [`AclApi`] is the list filled with pointers, by dlopen ([`AclApi::load`]) or by an embedded
//! device's own functions. What holds an `AclApi` cannot tell which it has. No policy, no ownership, no global state and no
//! retries live here.

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]

mod export;
mod functions;
mod load;
mod stub;
mod table;
mod types;

pub use load::{Attempt, LoadError, Loaded, Search, Toolkit};
pub use table::{AclApi, AclFn, AclOp, Group};
pub use types::*;
