//! The C names of the list, for libraries that stand in for the vendor's.

/// Exports every function of the list under its C name, each calling the entry of `TABLE`, a static of the calling crate that
/// derefs to [`crate::AclApi`]: `acl_functions!(export_c_names)`. The calling crate has the types of this one in scope.
///
/// Only for crates that are shared libraries of their own: whatever links the names exports them too.
#[macro_export]
macro_rules! export_c_names {
    (functions { $(fn $group:ident $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)* }
     operators { $(op $run:ident $size:ident($($oarg:ident: $oty:ty),*);)* }) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: the same function with the same duties.
                unsafe { (TABLE.$name)($($arg),*) }
            }
        )*
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $size(
                $($oarg: $oty,)*
                workspaceSize: *mut u64,
                executor: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                // SAFETY: as above.
                unsafe { (TABLE.$size)($($oarg,)* workspaceSize, executor) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $run(
                workspace: *mut c_void,
                workspaceSize: u64,
                executor: *mut aclOpExecutor,
                stream: aclrtStream,
            ) -> aclnnStatus {
                // SAFETY: as above.
                unsafe { (TABLE.$run)(workspace, workspaceSize, executor, stream) }
            }
        )*
    };
}
