//! Threads that end in the middle of a call.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// What a thread is to do.
struct Order<R> {
    call: fn(RawFd) -> R,
    fd: RawFd,
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// Have a thread make a call that sleeps, end it there by pthread_cancel(3) after a while, and wait for it. Whether it
/// has ended so.
pub fn cancel_in<R>(call: fn(RawFd) -> R, fd: RawFd, after: Duration) -> bool {
    let order = Order { call, fd };
    let (mut thread, mut ended) = (0, ptr::null_mut());
    let argument = (&raw const order).cast_mut().cast();
    // SAFETY: the order outlives the thread, which is waited for.
    let made =
        unsafe { libc::pthread_create(&raw mut thread, ptr::null(), carry_out::<R>, argument) };
    assert_eq!(made, 0, "a thread can be made");
    std::thread::sleep(after);
    // SAFETY: nobody has waited for it yet, so that the name is still that of the thread; it may have ended.
    unsafe { pthread_cancel(thread) };
    // SAFETY: as before; it is waited for once.
    let joined = unsafe { libc::pthread_join(thread, &raw mut ended) };
    assert_eq!(joined, 0, "a thread can be waited for");
    // PTHREAD_CANCELED
    ended.addr() == usize::MAX
}

extern "C" fn carry_out<R>(order: *mut c_void) -> *mut c_void {
    // SAFETY: `cancel_in` waits for this thread.
    let order = unsafe { &*order.cast::<Order<R>>() };
    (order.call)(order.fd);
    ptr::null_mut()
}
