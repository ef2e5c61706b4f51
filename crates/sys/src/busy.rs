//! Where a thread holds what a handler of the program's could wait for, if that used a socket, or keep for ever, if it left by
//! longjmp(3): a signal that comes there waits until the thread lets go.
//!
//! Holding signals back would cost two system calls each time. So only a word of the thread's says that it is busy, and our
//! handler, which stands in for all of the program's ([`crate::fault`]), looks at it. A signal that finds the thread busy is
//! held back from then on and sent to it again, as it was; whoever lets go last lets it in.

use core::cell::Cell;
use core::ffi::c_int;
use core::marker::PhantomData;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use libc::{siginfo_t, ucontext_t};

use crate::held::{SignalsHeld, change_mask, hold_back_after};
use crate::{order, signals};

/// Of the word: a signal waits. The rest counts what the thread holds.
const DEFERRED: u32 = 1 << 31;

thread_local! {
    /// The signals that wait. All that is done to it is done where nothing can wait any more, or by handlers that find the
    /// thread busy.
    static WAITING: Cell<u64> = const { Cell::new(0) };
}

/// As long as it is there, handlers wait. It is begun before something is locked, and is of its thread.
#[derive(Debug)]
pub struct Busy(PhantomData<*const ()>);

impl Busy {
    /// From now on.
    #[inline(always)]
    pub fn begin() -> Self {
        word::add();
        Self(PhantomData)
    }
}

impl Drop for Busy {
    #[inline(always)]
    fn drop(&mut self) {
        if word::subtract() == DEFERRED {
            let_in();
        }
    }
}

/// No signal may come between the word and the mask: what it let in would be held back again where its handler returns.
#[cold]
#[inline(never)]
fn let_in() {
    let waiting = WAITING.get();
    drop(SignalsHeld::hold());
    order::forget(waiting);
}

/// What waits, for a caller who holds it back from now on.
pub(crate) fn take() -> u64 {
    word::undefer();
    WAITING.take()
}

/// A signal has come. Returns whether it has to come again. Handlers may have small stacks.
pub(crate) fn defer(signal: c_int, info: *const siginfo_t, context: *mut ucontext_t) -> bool {
    // Also where the last thing has been let go of, and what waits has not been let in.
    word::load() != 0 && defer_now(signal, info, context)
}

#[cold]
#[inline(never)]
fn defer_now(signal: c_int, info: *const siginfo_t, context: *mut ucontext_t) -> bool {
    let alone = signals::bit(signal);
    // Also of a handler under which its signal may come.
    change_mask(libc::SIG_BLOCK, alone);
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let told = unsafe { &*info };
    let is_kept = order::keep(signal, told);
    if signals::send_again(signal, told, is_kept).is_err() {
        order::give_up(signal, is_kept);
        return false;
    }
    // Others may have come on top of this one, and only have been held back here.
    let waiting = WAITING.get() | alone;
    // SAFETY: the kernel passes a valid structure.
    unsafe { hold_back_after(context, waiting) };
    WAITING.set(waiting);
    word::defer();
    true
}

/// A mutex whose owner is busy.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// The owner's; first it unlocks.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: std::sync::MutexGuard<'a, T>,
    _busy: Busy,
}

impl<T> Mutex<T> {
    /// Of this value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// As [`std::sync::Mutex::lock`].
    ///
    /// # Errors
    /// A thread has panicked with it.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let _busy = Busy::begin();
        match self.0.lock() {
            Ok(inner) => Ok(MutexGuard { inner, _busy }),
            Err(poisoned) => Err(PoisonError::new(MutexGuard {
                inner: poisoned.into_inner(),
                _busy,
            })),
        }
    }

    /// As [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// As [`Mutex::lock`], or somebody has it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let _busy = Busy::begin();
        match self.0.try_lock() {
            Ok(inner) => Ok(MutexGuard { inner, _busy }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                let inner = poisoned.into_inner();
                Err(PoisonError::new(MutexGuard { inner, _busy }).into())
            }
        }
    }
}

impl<T: ?Sized> core::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> core::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// The word, at a place that a preloaded library finds without a call: the compiler would have the loader's function called for each
/// thread-local of a shared object.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use core::arch::{asm, global_asm};

    use super::DEFERRED;

    global_asm!(
        ".pushsection .tbss.crosslane_busy, \"awT\", @nobits",
        ".globl crosslane_busy",
        ".hidden crosslane_busy",
        ".type crosslane_busy, @object",
        ".size crosslane_busy, 4",
        ".balign 4",
        "crosslane_busy:",
        ".zero 4",
        ".popsection",
    );

    /// One instruction changes the word, so that a signal comes before or behind.
    macro_rules! change {
        ($operation:literal, $operand:expr) => {
            // SAFETY: the word is this thread's, and four bytes.
            unsafe {
                asm!(
                    "mov {at}, qword ptr [rip + crosslane_busy@GOTTPOFF]",
                    concat!($operation, " dword ptr fs:[{at}], {operand}"),
                    at = out(reg) _,
                    operand = const $operand,
                    options(nostack),
                );
            }
        };
    }

    #[inline(always)]
    pub fn add() {
        change!("add", 1);
    }

    /// Returns what is left.
    #[inline(always)]
    pub fn subtract() -> u32 {
        change!("sub", 1);
        load()
    }

    #[inline(always)]
    pub fn load() -> u32 {
        let word;
        // SAFETY: as above.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + crosslane_busy@GOTTPOFF]",
                "mov {word:e}, dword ptr fs:[{at}]",
                at = out(reg) _,
                word = out(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
        word
    }

    pub fn defer() {
        change!("or", DEFERRED.cast_signed());
    }

    pub fn undefer() {
        change!("and", !DEFERRED);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod word {
    use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

    use super::DEFERRED;

    std::thread_local! {
        static WORD: AtomicU32 = const { AtomicU32::new(0) };
    }

    /// Nothing of what follows is done before.
    pub fn add() {
        WORD.with(|word| word.fetch_add(1, Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
    }

    /// Returns what is left.
    pub fn subtract() -> u32 {
        compiler_fence(Ordering::SeqCst);
        WORD.with(|word| word.fetch_sub(1, Ordering::Relaxed)) - 1
    }

    pub fn load() -> u32 {
        WORD.with(|word| word.load(Ordering::Relaxed))
    }

    pub fn defer() {
        WORD.with(|word| word.fetch_or(DEFERRED, Ordering::Relaxed));
    }

    pub fn undefer() {
        WORD.with(|word| word.fetch_and(!DEFERRED, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use super::*;
    use crate::fault;
    use crate::signals::tests::HANDLERS;

    static TIMES: AtomicU32 = AtomicU32::new(0);
    static VALUES: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn note(_: c_int, info: *mut siginfo_t, _: *mut ucontext_t) {
        // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
        let info = unsafe { &*info };
        // SAFETY: the signal has been sent with a value.
        let value = unsafe { info.si_value() }.sival_ptr.addr();
        VALUES.fetch_add(value, Ordering::SeqCst);
        TIMES.fetch_add(1, Ordering::SeqCst);
    }

    /// A signal of one test alone, which is handled from now on.
    fn handled(number: c_int, flags: c_int) -> c_int {
        let signal = libc::SIGRTMIN() + number;
        // SAFETY: sigaction is plain integers, for which zero is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        // SAFETY: the handler touches two atomics.
        let set = unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
        assert_eq!(set, 0);
        fault::stand_in(signal, &signals::action(signal).unwrap());
        signal
    }

    fn forget(signal: c_int) {
        // SAFETY: no handler is given.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }

    fn send(signal: c_int, value: usize) {
        let value = libc::sigval {
            sival_ptr: core::ptr::without_provenance_mut(value),
        };
        // SAFETY: takes nothing.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: numbers only; the calling thread lives.
        let sent = unsafe { pthread_sigqueue(this, signal, value) };
        assert_eq!(sent, 0);
    }

    unsafe extern "C" {
        fn pthread_sigqueue(thread: libc::pthread_t, signal: c_int, value: libc::sigval) -> c_int;
    }

    /// How often it has been handled, and the sum of what it was told.
    fn seen() -> (u32, usize) {
        (TIMES.load(Ordering::SeqCst), VALUES.load(Ordering::SeqCst))
    }

    fn is_held_back(signal: c_int) -> bool {
        change_mask(libc::SIG_BLOCK, 0) & signals::bit(signal) != 0
    }

    #[test]
    fn a_signal_waits_until_nothing_is_held() {
        let _alone = HANDLERS.lock();
        for flags in [0, libc::SA_NODEFER] {
            TIMES.store(0, Ordering::SeqCst);
            VALUES.store(0, Ordering::SeqCst);
            let signal = handled(7, flags);
            send(signal, 1);
            assert_eq!(seen(), (1, 1), "as always");

            let mutex = Mutex::new(());
            let (outer, inner) = (Busy::begin(), mutex.lock());
            send(signal, 2);
            send(signal, 3);
            assert_eq!(seen(), (1, 1));
            drop(inner);
            assert!(mutex.try_lock().is_ok() && is_held_back(signal));
            assert_eq!(seen(), (1, 1));
            drop(outer);
            assert_eq!(seen(), (3, 6), "as they were sent");
            assert!(!is_held_back(signal));

            let busy = Busy::begin();
            send(signal, 4);
            let held = SignalsHeld::hold();
            drop(busy);
            assert_eq!(seen(), (3, 6), "it is held back by a mask now");
            assert_eq!(held.pending(), signals::bit(signal));
            drop(held);
            assert_eq!(seen(), (4, 10));
            assert!(!is_held_back(signal));
            forget(signal);
        }
    }

    #[test]
    fn a_mutex_that_somebody_has_leaves_the_thread_idle() {
        let mutex = Mutex::new(7);
        let held = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
                assert_eq!(word::load(), 0);
            });
        });
        assert_eq!((*held, word::load()), (7, 1));
        drop(held);
        assert_eq!(word::load(), 0);
    }

    #[test]
    fn the_program_is_told_of_its_own_handler() {
        let _alone = HANDLERS.lock();
        let signal = handled(8, libc::SA_RESTART);
        let mut told: libc::sigaction = {
            // SAFETY: as above.
            unsafe { core::mem::zeroed() }
        };
        // SAFETY: the action outlives the call.
        unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut told) };
        assert_ne!(told.sa_sigaction, note as *const () as usize);
        fault::Program::handler(signal).unmask(&mut told);
        assert_eq!(told.sa_sigaction, note as *const () as usize);
        assert_ne!(told.sa_flags & libc::SA_SIGINFO, 0);
        forget(signal);
    }
}
