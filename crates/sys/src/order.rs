//! The order of signals of one number. One that has to come again ([`crate::busy`]) comes behind all others of its number that wait; so
//! what it told is kept, and each of them is told what the one before it was to be told. What comes again stands for the last.
//!
//! That matters for real-time signals (signal(7)). Others do not queue; of these, what a timer tells is kept, which the kernel
//! forgets where no more may wait (RLIMIT_SIGPENDING).

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use libc::{siginfo_t, ucontext_t};

use crate::signals;

/// What one signal of one thread told.
struct Place {
    /// 0: nobody's.
    thread: AtomicU32,
    signal: Cell<c_int>,
    told: Cell<MaybeUninit<siginfo_t>>,
}

// SAFETY: only the thread that it says touches a place, in handlers that no other one interrupts.
unsafe impl Sync for Place {}

/// Thread-local memory is short in libraries, and most threads need none.
static PLACES: [Place; 64] = [const {
    Place {
        thread: AtomicU32::new(0),
        signal: Cell::new(0),
        told: Cell::new(MaybeUninit::uninit()),
    }
}; 64];

thread_local! {
    /// Places of this thread.
    static KEPT: Cell<u32> = const { Cell::new(0) };
}

fn own_places() -> impl Iterator<Item = &'static Place> {
    let thread = signals::own_thread();
    let is_own = move |place: &&Place| place.thread.load(Ordering::Relaxed) == thread;
    PLACES.iter().filter(is_own)
}

fn place_of(signal: c_int) -> Option<&'static Place> {
    own_places().find(|place| place.signal.get() == signal)
}

fn free(place: &Place) {
    KEPT.set(KEPT.get().saturating_sub(1));
    place.signal.set(0);
    place.thread.store(0, Ordering::Release);
}

/// A signal is sent again. Returns whether what it told has been kept: not of one behind another of its number.
pub fn keep(signal: c_int, told: &siginfo_t) -> bool {
    if place_of(signal).is_some() {
        return false;
    }
    let thread = signals::own_thread();
    let take = |from| {
        let taken = |place: &&Place| {
            let found = place.thread.load(Ordering::Relaxed);
            let exchange = || {
                place
                    .thread
                    .compare_exchange(found, thread, Ordering::Acquire, Ordering::Relaxed)
            };
            is_free(found, from) && exchange().is_ok()
        };
        PLACES.iter().find(taken)
    };
    let Some(place) = take(Free::Nobodys).or_else(|| take(Free::Left)) else {
        return false;
    };
    place.signal.set(signal);
    place.told.set(MaybeUninit::new(*told));
    KEPT.set(KEPT.get() + 1);
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Free {
    Nobodys,
    /// By a thread that has ended, or that a fork has left behind.
    Left,
}

fn is_free(thread: u32, how: Free) -> bool {
    match how {
        Free::Nobodys => thread == 0,
        Free::Left => !signals::is_thread_of_ours(thread),
    }
}

/// It could not be sent.
pub fn give_up(signal: c_int, is_kept: bool) {
    if let Some(place) = place_of(signal).filter(|_| is_kept) {
        free(place);
    }
}

/// Those of these signals that have waited have come, or will not come any more.
pub fn forget(signals: u64) {
    if KEPT.get() > 0 {
        own_places()
            .filter(|place| signals::bit(place.signal.get()) & signals != 0)
            .for_each(free);
    }
}

/// A signal is about to be handled, on top of those whose handlers were about to run.
#[inline]
pub fn restore(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    if KEPT.get() > 0 {
        restore_all(signal, info, context);
    }
}

#[cold]
#[inline(never)]
fn restore_all(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    // SAFETY: the kernel passes valid structures, in the handler's own frame.
    restore_one(signal, unsafe { &mut *info });
    let mut above = context;
    // This handler may leave them for ever.
    // SAFETY: as above, and so are those of the frame below.
    while let Some((signal, info, context)) = unsafe { next_below(above) } {
        // SAFETY: as above.
        restore_one(signal, unsafe { &mut *info });
        above = context;
    }
}

/// That its frame has been seen to already, in the number that a handler is called with.
pub const SEEN: c_int = 1 << 8;

/// The frame on which one stands, if its handler has not begun and it has not been seen to, which it is from now on.
unsafe fn next_below(context: *mut ucontext_t) -> Option<(c_int, *mut siginfo_t, *mut ucontext_t)> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the caller's promise.
        let context = unsafe { &mut *context };
        if !crate::fault::is_ours_next(context) {
            return None;
        }
        let registers = &mut context.uc_mcontext.gregs;
        let at = |register: c_int| register.cast_unsigned() as usize;
        let pointer = |register| usize::try_from(registers[at(register)]).unwrap_or(0);
        let signal = c_int::try_from(registers[at(libc::REG_RDI)]).unwrap_or(SEEN);
        let info = core::ptr::with_exposed_provenance_mut(pointer(libc::REG_RSI));
        let below = core::ptr::with_exposed_provenance_mut(pointer(libc::REG_RDX));
        registers[at(libc::REG_RDI)] |= i64::from(SEEN);
        (signal & SEEN == 0).then_some((signal, info, below))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        None
    }
}

fn restore_one(signal: c_int, info: &mut siginfo_t) {
    let Some(place) = place_of(signal) else {
        return;
    };
    // SAFETY: it was set when the place was taken.
    let told = unsafe { place.told.get().assume_init() };
    let came = core::mem::replace(info, told);
    if !signals::is_real_time(signal) && !signals::has_lost_its_own(&came) {
        *info = came;
    }
    if signals::is_last_again(signal, &came) {
        return free(place);
    }
    place.told.set(MaybeUninit::new(came));
}
