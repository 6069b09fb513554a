//! The interposer, loaded as a program would load it. Its settings are the process's: one test.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

use acl_sys::{ACL_MEM_MALLOC_HUGE_FIRST, AclApi};
use libloading::Library;

fn library() -> PathBuf {
    let name = format!("{}ascendcl_fault{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let test = std::env::current_exe().expect("a test is a file");
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(&name)).find(|path| path.exists());
    found.expect("cargo builds the library before its tests")
}

#[test]
fn the_environment_says_what_fails() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("CANN_NODE_FAULT", "name=aclrtMalloc,nth=2,code=207001,mode=once") };
    let api = AclApi::load_single(&library()).expect("a library with every name").api;
    assert_eq!(api.missing(), [""; 0]);
    // SAFETY: the loader keeps the library; signatures are those of its source.
    let (calls, failed, arm) = unsafe {
        let library = Library::new(library()).expect("loaded already");
        (
            *library.get::<extern "C" fn() -> u64>("cann_fault_calls").unwrap(),
            *library.get::<extern "C" fn() -> u64>("cann_fault_failed").unwrap(),
            *library.get::<unsafe extern "C" fn(*const c_char) -> c_int>("cann_fault_arm").unwrap(),
        )
    };
    let malloc = || {
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type; what is given is freed at once.
        unsafe {
            let code = (api.aclrtMalloc)(&mut address, 64, ACL_MEM_MALLOC_HUGE_FIRST);
            if code == 0 {
                assert_eq!((api.aclrtFree)(address), 0);
            }
            code
        }
    };
    // SAFETY: null asks for defaults; numbers.
    unsafe {
        assert_eq!((api.aclInit)(std::ptr::null()), 0);
        assert_eq!((api.aclrtSetDevice)(0), 0);
        let name = (api.aclrtGetSocName)();
        assert!(!name.is_null() && CStr::from_ptr(name) == c"Host");
    }
    assert_eq!([malloc(), malloc(), malloc()], [0, 207001, 0]);
    assert_eq!((calls(), failed()), (3 + 5, 1));
    // SAFETY: C strings and null.
    unsafe {
        assert_eq!(arm(c"code=507015,mode=from".as_ptr()), 0);
        assert_eq!([malloc(), malloc()], [507015, 507015]);
        assert_eq!(arm(c"mode=sometimes".as_ptr()), -1);
        assert_eq!(arm(std::ptr::null()), 0);
    }
    assert_eq!((malloc(), calls(), failed()), (0, 2, 0));
    // SAFETY: a number.
    assert_eq!(unsafe { (api.aclrtResetDevice)(0) }, 0);
}
