//! Cancelled threads.
//!
//! pthread_cancel(3) ends a thread in a sleep by unwinding over our frames, in which no destructor runs, as the library
//! aborts at panics. What a call has to give back must stand where the C library looks for it then, as
//! pthread_cleanup_push(3) has it: the macro is these two functions.

use core::ffi::{c_int, c_void};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::process;

/// `struct _pthread_cleanup_buffer`, which the C library fills in.
#[repr(C)]
struct Buffer {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Buffer,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        buffer: *mut Buffer,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// PTHREAD_CANCEL_DISABLE.
const DISABLE: c_int = 1;

/// Run `act`, which may sleep, and `undo` if the thread is cancelled there.
pub fn undone<R, T, U: FnOnce() -> T>(undo: U, act: impl FnOnce() -> R) -> R {
    let mut undo = ManuallyDrop::new(undo);
    let mut buffer = MaybeUninit::<Buffer>::uninit();
    let argument = (&raw mut undo).cast();
    // SAFETY: both outlive what stands between the two calls, or the thread ends there and nobody uses them again.
    unsafe { _pthread_cleanup_push(buffer.as_mut_ptr(), run::<T, U>, argument) };
    let result = act();
    // SAFETY: pushed above, and whatever `act` has pushed it has popped.
    unsafe { _pthread_cleanup_pop(buffer.as_mut_ptr(), 0) };
    drop(ManuallyDrop::into_inner(undo));
    result
}

/// Run `act`, which may sleep, and drop `guard` if the thread is cancelled there.
pub fn guarded<R, G>(guard: &G, act: impl FnOnce() -> R) -> R {
    let guard = core::ptr::from_ref(guard).cast_mut();
    // SAFETY: a thread that is cancelled comes back to nobody who could use it again, or drop it.
    undone(|| unsafe { core::ptr::drop_in_place(guard) }, act)
}

/// Run `act` to its end, although it calls functions of the C library at which a thread can be cancelled: what it has in its hands, or
/// has locked, nobody would give back.
pub fn never<R>(act: impl FnOnce() -> R) -> R {
    let mut before = 0;
    // SAFETY: the number is valid for a write.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = act();
    // SAFETY: a null pointer asks for nothing.
    unsafe { pthread_setcancelstate(before, core::ptr::null_mut()) };
    result
}

/// Whether [`test`] looks.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// A thread of this process is about to be cancelled.
pub fn announce() {
    IS_USED.store(true, Ordering::Relaxed);
    process::note_cancelled();
}

/// End this thread if it has been cancelled, as the C library's calls do when they begin, although the kernel may not be called.
/// Nothing may be held. Costs a look as long as no thread has ever been cancelled.
#[inline]
pub fn test() {
    if is_used() {
        test_now();
    }
}

/// Whether a thread may have been cancelled.
#[inline]
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn test_now() {
    // SAFETY: what is to be undone has been pushed.
    unsafe { pthread_testcancel() };
}

unsafe extern "C" fn run<T, U: FnOnce() -> T>(undo: *mut c_void) {
    // SAFETY: what `undone` has pushed, and nobody else takes.
    let undo = unsafe { undo.cast::<ManuallyDrop<U>>().read() };
    ManuallyDrop::into_inner(undo)();
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn nothing_is_undone_without_a_cancellation() {
        let undone = Cell::new(0);
        let result = super::undone(|| undone.set(1), || 7);
        assert_eq!((result, undone.get()), (7, 0));
    }

    static UNDONE: AtomicU32 = AtomicU32::new(0);

    extern "C" fn sleeps(_: *mut c_void) -> *mut c_void {
        let note = |digit| {
            let add = |all| Some(all * 10 + digit);
            UNDONE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
        };
        let sleep = || loop {
            // SAFETY: no memory is passed.
            unsafe { libc::pause() };
        };
        undone(|| note(2), || undone(|| note(1), sleep))
    }

    #[test]
    fn a_cancelled_thread_undoes_the_innermost_first() {
        let (mut thread, nothing) = (0, core::ptr::null_mut());
        // SAFETY: the thread uses no memory of ours.
        let made =
            unsafe { libc::pthread_create(&raw mut thread, nothing, sleeps, nothing.cast()) };
        // SAFETY: nobody has waited for it yet.
        let cancelled = unsafe { pthread_cancel(thread) };
        // SAFETY: it is waited for once, and its result is not wanted.
        let joined = unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
        assert_eq!([made, cancelled, joined], [0; 3]);
        assert_eq!(UNDONE.load(Ordering::SeqCst), 12);
    }

    extern "C" fn notes(_: *mut c_void) -> *mut c_void {
        super::never(|| {
            // SAFETY: a number only.
            let this = unsafe { libc::pthread_self() };
            // SAFETY: the calling thread lives.
            unsafe { pthread_cancel(this) };
            // SAFETY: numbers only; a cancellation point.
            unsafe { libc::close(-1) };
            NOTED.store(1, Ordering::SeqCst);
        });
        // SAFETY: as above.
        unsafe { libc::close(-1) };
        NOTED.store(2, Ordering::SeqCst);
        core::ptr::null_mut()
    }

    static NOTED: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_cancellation_waits_for_what_it_may_not_end() {
        let (mut thread, nothing) = (0, core::ptr::null_mut());
        // SAFETY: the thread uses no memory of ours.
        let made = unsafe { libc::pthread_create(&raw mut thread, nothing, notes, nothing.cast()) };
        // SAFETY: it is waited for once, and its result is not wanted.
        let joined = unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
        assert_eq!([made, joined], [0; 2]);
        assert_eq!(NOTED.load(Ordering::SeqCst), 1);
    }

    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    }
}
