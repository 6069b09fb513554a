//! The function table: a struct of pointers, whoever fills it.

use std::ffi::{c_char, c_void};

use crate::stub;
use crate::types::*;

/// Which of the vendor's libraries a function belongs to. One group may be several files, or the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The runtime: devices, memory, streams, events, captured graphs.
    Ascendcl,
    /// The aclnn meta interface: tensors, scalars, arrays, executors.
    Nnopbase,
    /// The operators.
    Opapi,
}

macro_rules! table {
    (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        /// Every function of the list, as a pointer that can be called. A function the library lacks is a stub that answers
        /// [`ACL_ERROR_API_NOT_SUPPORT`] (or null); [`AclApi::has`] tells which.
        #[derive(Clone)]
        pub struct AclApi {
            $(pub $name: unsafe extern "C" fn($($arg: $ty),*) -> $ret,)*
            $(
                pub $size: unsafe extern "C" fn($($oarg: $oty,)* *mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
                pub $run: aclnnRun,
            )*
            /// Indexed by [`AclFn`].
            pub present: Vec<bool>,
        }

        /// A function of the list, both phases of an operator included.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AclFn { $($name,)* $($size, $run,)* }

        /// A two-phase operator of the list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AclOp { $($run,)* }

        impl AclFn {
            pub const ALL: &'static [AclFn] = &[$(AclFn::$name,)* $(AclFn::$size, AclFn::$run,)*];

            /// The C name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(AclFn::$name => stringify!($name),)*
                    $(AclFn::$size => stringify!($size), AclFn::$run => stringify!($run),)*
                }
            }

            pub const fn group(self) -> Group {
                match self {
                    $(AclFn::$name => Group::$group,)*
                    $(AclFn::$size | AclFn::$run => Group::Opapi,)*
                }
            }
        }

        impl AclOp {
            pub const ALL: &'static [AclOp] = &[$(AclOp::$run,)*];

            /// The C name of the second phase, which is the operator's.
            pub const fn name(self) -> &'static str {
                match self { $(AclOp::$run => stringify!($run),)* }
            }

            pub const fn phase_one(self) -> AclFn {
                match self { $(AclOp::$run => AclFn::$size,)* }
            }

            pub const fn phase_two(self) -> AclFn {
                match self { $(AclOp::$run => AclFn::$run,)* }
            }
        }

        impl AclApi {
            /// A table of stubs, then each function `find` knows. `find` answers null for what it does not have.
            ///
            /// # Safety
            /// Each non-null pointer that `find` returns for a name is a function of that name's signature in the list, and
            /// stays callable for the life of the process.
            pub unsafe fn from_symbols(mut find: impl FnMut(AclFn) -> *const c_void) -> AclApi {
                let mut api = AclApi {
                    $($name: stub::$name,)*
                    $($size: stub::$size, $run: stub::$run,)*
                    present: vec![false; AclFn::ALL.len()],
                };
                $(
                    let found = find(AclFn::$name);
                    if !found.is_null() {
                        // SAFETY: the caller promises that the symbol of this name has this signature.
                        api.$name = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> $ret>(found) };
                        api.present[AclFn::$name as usize] = true;
                    }
                )*
                $(
                    let found = (find(AclFn::$size), find(AclFn::$run));
                    // One phase without the other is no operator.
                    if !found.0.is_null() && !found.1.is_null() {
                        // SAFETY: as above.
                        api.$size = unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($oty,)* *mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
                            >(found.0)
                        };
                        // SAFETY: as above.
                        api.$run = unsafe { std::mem::transmute::<*const c_void, aclnnRun>(found.1) };
                        api.present[AclFn::$size as usize] = true;
                        api.present[AclFn::$run as usize] = true;
                    }
                )*
                api
            }

            /// The second phase of an operator.
            pub fn run(&self, op: AclOp) -> aclnnRun {
                match op { $(AclOp::$run => self.$run,)* }
            }
        }
    };
}
crate::acl_functions!(table);

impl AclApi {
    /// Whether the library has this function; its stub can be called all the same.
    pub fn has(&self, function: AclFn) -> bool {
        self.present[function as usize]
    }

    /// Whether both phases of an operator are there.
    pub fn has_op(&self, op: AclOp) -> bool {
        self.has(op.phase_one()) && self.has(op.phase_two())
    }

    /// Names of the functions the library lacks.
    pub fn missing(&self) -> Vec<&'static str> {
        AclFn::ALL.iter().filter(|f| !self.has(**f)).map(|f| f.name()).collect()
    }
}

impl std::fmt::Debug for AclApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let present = self.present.iter().filter(|p| **p).count();
        write!(f, "AclApi({present} of {} functions)", self.present.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_symbols_is_all_stubs() {
        // SAFETY: no symbol is returned.
        let api = unsafe { AclApi::from_symbols(|_| std::ptr::null()) };
        assert_eq!(api.missing().len(), AclFn::ALL.len());
        // SAFETY: stubs touch no argument.
        unsafe {
            assert_eq!((api.aclrtSetDevice)(0), ACL_ERROR_API_NOT_SUPPORT);
            assert!((api.aclrtGetSocName)().is_null());
            let (mut bytes, mut executor) = (0, std::ptr::null_mut());
            let null = std::ptr::null();
            assert_eq!(
                (api.aclnnAbsGetWorkspaceSize)(null, std::ptr::null_mut(), &mut bytes, &mut executor),
                ACL_ERROR_API_NOT_SUPPORT
            );
        }
    }

    #[test]
    fn an_operator_needs_both_phases() {
        unsafe extern "C" fn something() {}
        // SAFETY: the pointers are never called.
        let api = unsafe {
            AclApi::from_symbols(|f| match f {
                AclFn::aclnnAdd | AclFn::aclnnAbs | AclFn::aclnnAbsGetWorkspaceSize => something as *const c_void,
                _ => std::ptr::null(),
            })
        };
        assert!(!api.has_op(AclOp::aclnnAdd) && !api.has(AclFn::aclnnAdd));
        assert!(api.has_op(AclOp::aclnnAbs));
    }

    #[test]
    fn names_and_groups() {
        assert_eq!(AclOp::aclnnAdd.phase_one().name(), "aclnnAddGetWorkspaceSize");
        assert_eq!(AclFn::aclCreateTensor.group(), Group::Nnopbase);
        assert_eq!(
            AclFn::ALL.iter().map(|f| *f as usize).collect::<Vec<_>>(),
            (0..AclFn::ALL.len()).collect::<Vec<_>>()
        );
    }
}
