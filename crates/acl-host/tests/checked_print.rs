//! `CANN_NODE_HOST_CHECK=print`: findings on stderr, each mistake once. The program with the mistake is this file, run again.

use std::process::Command;
use std::ptr::null_mut;

use acl_sys::*;

#[test]
#[ignore = "a program for the test below"]
fn program() {
    let api = acl_host::api();
    // SAFETY: out-pointers are locals; what is freed twice, the device must refuse.
    unsafe {
        assert_eq!((api.aclInit)(std::ptr::null()), ACL_SUCCESS);
        assert_eq!((api.aclrtSetDevice)(0), ACL_SUCCESS);
        for _ in 0..3 {
            let mut memory = null_mut();
            assert_eq!((api.aclrtMalloc)(&mut memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
            assert_eq!((api.aclrtFree)(memory), ACL_SUCCESS);
            assert_eq!((api.aclrtFree)(memory), ACL_ERROR_INVALID_PARAM);
        }
        assert_eq!((api.aclrtResetDevice)(0), ACL_SUCCESS);
    }
    let found = acl_host::findings().len();
    assert!(found == 3 || found == 0, "{found}");
}

fn lines(check: &str) -> Vec<String> {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "program", "--ignored", "--nocapture"]).env("CANN_NODE_HOST_CHECK", check);
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    errors.lines().filter(|line| line.starts_with("acl-host:")).map(str::to_owned).collect()
}

#[test]
fn a_mistake_is_printed_once_where_that_is_asked_for() {
    let printed = lines("print");
    assert_eq!(printed.len(), 1, "{printed:?}");
    assert!(printed[0].contains("aclrtFree") && printed[0].contains("freed by aclrtFree"), "{printed:?}");
    assert_eq!(lines("1"), [""; 0]);
    assert_eq!(lines("0"), [""; 0]);
}
