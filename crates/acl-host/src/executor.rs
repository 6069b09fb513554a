//! What the first phase of an operator call makes and the second phase submits.
//!
//! An operator's function checks its arguments and returns an [`Op`]: how much workspace it needs and a closure that
//! computes. Phase one boxes it as an [`Executor`], phase two hands the closure to the stream. A repeatable executor stays,
//! and running it again costs one reference count.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use acl_sys::*;

use crate::kernels::team::Team;
use crate::runtime::checked::{self, Access, Origin, Region};
use crate::runtime::{DevicePtr, Launch, LaunchError, Work, config, context, live, submit};
use crate::tensor::{Elem, View};

/// Elements of cheap work below which a second thread does not pay.
const GRAIN: usize = 32 << 10;
/// Workspace pieces start at multiples of this many bytes.
const ALIGN: usize = 64;

/// What an operator's function answers.
pub(crate) type Checked = Result<Op, Refusal>;

/// Why an operator call is refused in phase one.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: aclnnStatus,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn null(argument: &str) -> Refusal {
        Refusal { status: ACLNN_ERR_PARAM_NULLPTR, message: format!("{argument} is null") }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal { status: ACLNN_ERR_PARAM_INVALID, message: message.into() }
    }
}

thread_local! {
    /// The operator whose phase one this thread is in.
    static CURRENT: Cell<&'static str> = const { Cell::new("") };
    /// Its tensors so far, in checked mode.
    static ARGUMENTS: RefCell<Vec<Argument>> = const { RefCell::new(Vec::new()) };
}

/// What checked mode remembers of a tensor until phase two.
struct Argument {
    name: &'static str,
    region: Region,
    written: bool,
}

/// A tensor becomes an argument of the operator whose phase one this thread is in.
pub(crate) fn note_argument(name: &'static str, view: &View, written: bool) {
    if checked::enabled() && !view.is_empty() {
        let argument = Argument { name, region: view.region(), written };
        ARGUMENTS.with_borrow_mut(|all| all.push(argument));
    }
}

/// Checked mode: what a call touches, all of which must be live device memory.
fn accesses(
    name: &'static str,
    arguments: &[Argument],
    workspace: usize,
    needed: usize,
) -> Result<Vec<Access>, aclnnStatus> {
    let by = Origin::of(name);
    let touch = |argument, region, written| Access { by, argument, region, written };
    let mut all: Vec<_> = arguments.iter().map(|a| touch(a.name, a.region, a.written)).collect();
    if needed > 0 {
        all.push(touch("workspace", Region::solid(workspace, needed), true));
    }
    checked::check_live(&all, ACLNN_ERR_RUNTIME_ERROR)?;
    Ok(all)
}

/// A checked operator call.
pub(crate) struct Op {
    workspace_bytes: usize,
    body: Option<Arc<dyn Launch>>,
}

impl Op {
    /// `run` computes, with `workspace_bytes` of workspace: a sum of [`bytes_of`]. It answers nothing or a `Result` whose error
    /// becomes the stream's.
    pub(crate) fn new<R: Outcome>(workspace_bytes: usize, run: impl Fn(&Run) -> R + Send + Sync + 'static) -> Op {
        let body = Body { name: CURRENT.get(), workspace_bytes, run: move |r: &Run| run(r).outcome() };
        Op { workspace_bytes, body: Some(Arc::new(body)) }
    }

    /// Nothing to do, as with empty tensors.
    pub(crate) fn nothing() -> Op {
        Op { workspace_bytes: 0, body: None }
    }
}

/// What a closure of an operator may answer.
pub(crate) trait Outcome {
    fn outcome(self) -> Result<(), LaunchError>;
}
impl Outcome for () {
    fn outcome(self) -> Result<(), LaunchError> {
        Ok(())
    }
}
impl Outcome for Result<(), LaunchError> {
    fn outcome(self) -> Result<(), LaunchError> {
        self
    }
}

/// What a computing operator has at hand.
pub(crate) struct Run {
    workspace: *mut u8,
    workspace_bytes: usize,
    taken: AtomicUsize,
    pub(crate) team: &'static Team,
}

// SAFETY: the one thing that is not `Sync` by itself is the workspace, of which `take` hands out each piece once.
unsafe impl Sync for Run {}

/// Workspace bytes for `len` elements of `T`, rounded so that the next piece is aligned.
pub(crate) const fn bytes_of<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGN)
}

impl Run {
    /// The next `len` elements of the workspace, their contents arbitrary. Panics when the operator takes more than it asked
    /// for in phase one.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn take<T: Elem>(&self, len: usize) -> &mut [T] {
        let bytes = bytes_of::<T>(len);
        let start = self.taken.fetch_add(bytes, Ordering::Relaxed);
        assert!(start + bytes <= self.workspace_bytes, "operator takes more workspace than it asked for");
        let ptr = self.workspace.wrapping_add(start).cast::<T>();
        assert!(len == 0 || ptr.is_aligned(), "workspace is not aligned");
        if len == 0 {
            return &mut [];
        }
        // SAFETY: inside the workspace, which the caller of ACL lends until the stream is past this launch; no two calls
        // return the same piece. All bit patterns are values of an `Elem`.
        unsafe { std::slice::from_raw_parts_mut(ptr, len) }
    }

    /// Splits `total` items among the team in ranges of at least `grain` items and calls `f` for each.
    pub(crate) fn split(&self, total: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
        split(self.team, total, grain, f);
    }

    /// Splits `total` elements of cheap work.
    pub(crate) fn split_elements(&self, total: usize, f: impl Fn(Range<usize>) + Sync) {
        split(self.team, total, GRAIN, f);
    }

    /// Splits `rows` rows of `row_len` elements, each element of cheap work.
    pub(crate) fn split_rows(&self, rows: usize, row_len: usize, f: impl Fn(Range<usize>) + Sync) {
        split(self.team, rows, (GRAIN / row_len.max(1)).max(1), f);
    }
}

fn split(team: &Team, total: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    if total == 0 {
        return;
    }
    let most = team.threads() * 4;
    let chunks = (total / grain.max(1)).clamp(1, if team.threads() == 1 { 1 } else { most });
    if chunks == 1 {
        return f(0..total);
    }
    let size = total.div_ceil(chunks);
    team.run(chunks, &|chunk| {
        let range = chunk * size..((chunk + 1) * size).min(total);
        if !range.is_empty() {
            f(range);
        }
    });
}

struct Body<F> {
    name: &'static str,
    workspace_bytes: usize,
    run: F,
}

impl<F: Fn(&Run) -> Result<(), LaunchError> + Send + Sync> Launch for Body<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn launch(&self, workspace: *mut u8) -> Result<(), LaunchError> {
        let run = Run { workspace, workspace_bytes: self.workspace_bytes, taken: AtomicUsize::new(0), team: team() };
        // A panic in an operator is a defect of ours: it costs the device, never the process.
        let ended = catch_unwind(AssertUnwindSafe(|| (self.run)(&run)));
        ended.unwrap_or(Err(LaunchError::Fault(ACL_ERROR_RT_INTERNAL_ERROR)))
    }
}

const MAGIC: u64 = 0x6163_6c45_7865_6375;
const GONE: u64 = 0x6163_6c45_7867_6f6e;

/// What `aclOpExecutor` points at.
#[repr(C)]
struct Executor {
    magic: u64,
    op: Op,
    repeatable: bool,
    /// Empty unless in checked mode.
    arguments: Vec<Argument>,
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.magic = GONE;
        // The word must reach memory: it is what a use after free is recognised by.
        std::hint::black_box(&self.magic);
        live::EXECUTORS.sub();
    }
}

/// The body of every first phase.
///
/// # Safety
/// The out pointers are null or writable.
pub(crate) unsafe fn phase_one(
    name: &'static str,
    workspace_bytes: *mut u64,
    executor: *mut *mut aclOpExecutor,
    check: impl FnOnce() -> Checked,
) -> aclnnStatus {
    if workspace_bytes.is_null() || executor.is_null() {
        return context::fail(
            ACLNN_ERR_PARAM_NULLPTR,
            format!("{name}GetWorkspaceSize: workspaceSize or executor is null"),
        );
    }
    if let Err(code) = context::current_device() {
        return code;
    }
    checked::count_call();
    let before = CURRENT.replace(name);
    let checked = catch_unwind(AssertUnwindSafe(check));
    CURRENT.set(before);
    let arguments = ARGUMENTS.take();
    match checked {
        Ok(Ok(op)) => {
            let bytes = op.workspace_bytes as u64;
            live::EXECUTORS.add();
            let boxed = Box::new(Executor { magic: MAGIC, op, repeatable: false, arguments });
            // SAFETY: not null, and the caller promises they are writable.
            unsafe {
                *workspace_bytes = bytes;
                *executor = Box::into_raw(boxed).cast();
            }
            ACL_SUCCESS
        }
        Ok(Err(refusal)) => context::fail(refusal.status, format!("{name}: {}", refusal.message)),
        Err(_) => context::fail(ACLNN_ERR_INNER, format!("{name}: internal error in phase one")),
    }
}

/// The body of every second phase.
///
/// # Safety
/// `executor` is null, foreign memory of at least eight readable bytes, or an executor in the hands of this call alone;
/// workspace and tensors stay valid until the stream is past the launch.
pub(crate) unsafe fn phase_two(
    name: &'static str,
    workspace: *mut c_void,
    workspace_bytes: u64,
    executor: *mut aclOpExecutor,
    stream: aclrtStream,
) -> aclnnStatus {
    checked::count_call();
    // SAFETY: the caller's promise.
    let Some(held) = (unsafe { executor_at(executor) }) else {
        return context::fail(ACLNN_ERR_PARAM_NULLPTR, format!("{name}: the executor is null or already used"));
    };
    // SAFETY: checked by its magic word; the caller holds it alone.
    let (needed, body, repeatable, checked) = unsafe {
        let held = &*held;
        let needed = held.op.workspace_bytes;
        let lacking = needed > 0 && (workspace.is_null() || workspace_bytes < needed as u64);
        let checked = if lacking {
            let got = format!("got {workspace_bytes} at {workspace:p}");
            Err(context::fail(ACLNN_ERR_PARAM_NULLPTR, format!("{name}: needs {needed} bytes of workspace, {got}")))
        } else if checked::enabled() && held.op.body.is_some() {
            accesses(name, &held.arguments, workspace.addr(), needed)
        } else {
            Ok(Vec::new())
        };
        (needed, held.op.body.clone(), held.repeatable, checked)
    };
    if !repeatable || (needed > 0 && workspace.is_null()) {
        // SAFETY: made by `Box::into_raw` in phase one; whoever passed it gives it up.
        drop(unsafe { Box::from_raw(held) });
    }
    let accesses = match checked {
        Ok(accesses) => accesses,
        Err(code) => return code,
    };
    let Some(op) = body else {
        return ACL_SUCCESS;
    };
    let work = Work::Launch { op, workspace: DevicePtr(workspace.cast()) };
    match catch_unwind(AssertUnwindSafe(|| submit(stream, work, accesses))) {
        Ok(Ok(())) => ACL_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => context::fail(ACLNN_ERR_INNER, format!("{name}: internal error in phase two")),
    }
}

/// # Safety
/// As [`phase_two`] about `executor`.
pub(crate) unsafe fn set_repeatable(executor: *mut aclOpExecutor) -> aclnnStatus {
    // SAFETY: the caller's promise.
    match unsafe { executor_at(executor) } {
        Some(held) => {
            // SAFETY: checked by its magic word.
            unsafe { (*held).repeatable = true };
            ACL_SUCCESS
        }
        None => context::fail(
            ACLNN_ERR_PARAM_NULLPTR,
            "aclSetAclOpExecutorRepeatable: the executor is null or already used",
        ),
    }
}

/// # Safety
/// As [`phase_two`] about `executor`.
pub(crate) unsafe fn destroy(executor: *mut aclOpExecutor) -> aclnnStatus {
    // SAFETY: the caller's promise.
    match unsafe { executor_at(executor) } {
        Some(held) => {
            // SAFETY: made by `Box::into_raw` in phase one.
            drop(unsafe { Box::from_raw(held) });
            ACL_SUCCESS
        }
        None => context::fail(ACLNN_ERR_PARAM_NULLPTR, "aclDestroyAclOpExecutor: the executor is null or already used"),
    }
}

/// # Safety
/// `executor` is null or has eight readable bytes.
unsafe fn executor_at(executor: *mut aclOpExecutor) -> Option<*mut Executor> {
    let held = executor.cast::<Executor>();
    if held.is_null() || !held.is_aligned() {
        return None;
    }
    // SAFETY: not null, aligned, readable by the caller's promise.
    (unsafe { held.cast::<u64>().read_volatile() } == MAGIC).then_some(held)
}

/// The one team every operator computes with.
pub(crate) fn team() -> &'static Team {
    static TEAM: OnceLock<Team> = OnceLock::new();
    TEAM.get_or_init(|| Team::new(config::settings().threads))
}
