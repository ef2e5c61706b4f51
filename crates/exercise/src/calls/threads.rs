//! Threads that end in the middle of a call.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// What a thread is to do.
struct Order<'a, R> {
    call: &'a dyn Fn(RawFd) -> R,
    fd: RawFd,
    /// It cancels itself before.
    is_cancelled: bool,
    answer: Option<R>,
}

impl<'a, R> Order<'a, R> {
    fn new(call: &'a dyn Fn(RawFd) -> R, fd: RawFd) -> Self {
        Self {
            call,
            fd,
            is_cancelled: false,
            answer: None,
        }
    }

    /// Have a thread begin with it, a usual one where there are no attributes.
    fn begin(&mut self, attributes: Option<&libc::pthread_attr_t>) -> libc::pthread_t {
        let (mut thread, argument) = (0, ptr::from_mut(self).cast());
        let attributes = attributes.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the order outlives the thread, which whoever calls waits for.
        let made =
            unsafe { libc::pthread_create(&raw mut thread, attributes, carry_out::<R>, argument) };
        assert_eq!(made, 0, "a thread can be made");
        thread
    }
}

/// Wait for a thread. Whether it has been ended by pthread_cancel(3).
fn join(thread: libc::pthread_t) -> bool {
    let mut ended = ptr::null_mut();
    // SAFETY: nobody has waited for it yet.
    let joined = unsafe { libc::pthread_join(thread, &raw mut ended) };
    assert_eq!(joined, 0, "a thread can be waited for");
    // PTHREAD_CANCELED
    ended.addr() == usize::MAX
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// Have a thread make a call that sleeps, end it there by pthread_cancel(3) after a while, and wait for it. Whether it
/// has ended so.
pub fn cancel_in<R>(call: fn(RawFd) -> R, fd: RawFd, after: Duration) -> bool {
    let mut order = Order::new(&call, fd);
    let thread = order.begin(None);
    std::thread::sleep(after);
    // SAFETY: nobody has waited for it yet, so that the name is still that of the thread; it may have ended.
    unsafe { pthread_cancel(thread) };
    join(thread)
}

/// Have a thread make a call that has been cancelled before: its answer, unless it is one that ends the thread then.
pub fn call_cancelled<R>(call: impl Fn(RawFd) -> R, fd: RawFd) -> Option<R> {
    let mut order = Order::new(&call, fd);
    order.is_cancelled = true;
    join(order.begin(None));
    order.answer
}

/// Have a thread make a call that has the smallest stack there is.
pub fn call_on_small_stack<R>(call: fn(RawFd) -> R, fd: RawFd) -> R {
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: the attributes are writable.
    let made = unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    assert_eq!(made, 0, "attributes can be made");
    // SAFETY: made just now.
    let mut attributes = unsafe { attributes.assume_init() };
    // SAFETY: as above.
    let set =
        unsafe { libc::pthread_attr_setstacksize(&raw mut attributes, libc::PTHREAD_STACK_MIN) };
    assert_eq!(set, 0, "a stack may be so small");
    let mut order = Order::new(&call, fd);
    join(order.begin(Some(&attributes)));
    order.answer.expect("it was not cancelled")
}

extern "C" fn carry_out<R>(order: *mut c_void) -> *mut c_void {
    // SAFETY: whoever has begun this thread waits for it, and does not look meanwhile.
    let order = unsafe { &mut *order.cast::<Order<'_, R>>() };
    if order.is_cancelled {
        // SAFETY: takes nothing.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: this thread lives.
        unsafe { pthread_cancel(this) };
    }
    order.answer = Some((order.call)(order.fd));
    ptr::null_mut()
}
