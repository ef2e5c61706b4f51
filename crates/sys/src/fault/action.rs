//! Signals of faults that the library handles, and that are the program's all the same.
//!
//! The program's action is kept here, and the kernel is asked to run ours as the program wants its own to be run: on its
//! stack, with its mask. Ours goes on where the library can, and else jumps to the program's, which finds the very frame
//! that the kernel has made. What ends a program without us ends it with us.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use libc::{siginfo_t, ucontext_t};

use crate::held::{hold_back_after, kernel_mask, libc_mask};
use crate::{Errno, order, real, signals};

/// Whether the signal is ours, in [`Kept::state`].
const THEIRS: u8 = 0;
const BECOMING_OURS: u8 = 1;
const OURS: u8 = 2;

/// An error in memory that no instruction of the thread has touched yet: told as a signal that is sent is.
const BUS_MCEERR_AO: c_int = 5;

/// What the program has asked for.
struct Kept {
    state: AtomicU8,
    /// Ours has to be run even where the program ignores the signal.
    is_needed: AtomicBool,
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl Kept {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(THEIRS),
            is_needed: AtomicBool::new(false),
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    #[inline]
    fn of(signal: c_int) -> Option<&'static Self> {
        static SEGV: Kept = Kept::new();
        static BUS: Kept = Kept::new();
        match signal {
            libc::SIGSEGV => Some(&SEGV),
            libc::SIGBUS => Some(&BUS),
            _ => None,
        }
    }

    #[inline]
    fn is_ours(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OURS
    }

    fn keep(&self, action: &libc::sigaction) {
        self.mask
            .store(kernel_mask(&action.sa_mask), Ordering::SeqCst);
        self.flags.store(action.sa_flags, Ordering::SeqCst);
        self.handler.store(action.sa_sigaction, Ordering::SeqCst);
    }

    fn kept(&self) -> libc::sigaction {
        let mut kept = none();
        kept.sa_sigaction = self.handler.load(Ordering::SeqCst);
        kept.sa_flags = self.flags.load(Ordering::SeqCst);
        kept.sa_mask = libc_mask(self.mask.load(Ordering::SeqCst));
        kept
    }

    /// The action that the kernel is given for the program's.
    fn ours(&self, action: &libc::sigaction) -> libc::sigaction {
        let is_needed = self.is_needed.load(Ordering::SeqCst);
        if action.sa_sigaction == libc::SIG_IGN && !is_needed {
            // Only the kernel can hand that on to the next program.
            return *action;
        }
        let mut ours = *action;
        ours.sa_sigaction = address();
        ours.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
        ours
    }

    /// Keep the program's action, and have ours run instead. Returns what the kernel had before.
    fn set(&self, signal: c_int, action: &libc::sigaction) -> Result<libc::sigaction, Errno> {
        self.keep(action);
        exchange(signal, Some(&self.ours(action)))
    }
}

/// SIG_DFL.
fn none() -> libc::sigaction {
    // SAFETY: sigaction is plain integers, for which zero is a value.
    unsafe { core::mem::zeroed() }
}

pub(super) fn address() -> usize {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
    handler as *const () as usize
}

/// Set the kernel's action, if there is a new one. Returns the one before.
fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, Errno> {
    let mut before = none();
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both structures outlive the call; our handler keeps to what may be done in one.
    match unsafe { real::sigaction(signal, new, &raw mut before) } {
        0 => Ok(before),
        _ => Err(Errno::last()),
    }
}

/// Whether a signal is handled here for what has been watched.
pub(super) fn is_needed(signal: c_int) -> bool {
    Kept::of(signal).is_some_and(|kept| kept.is_needed.load(Ordering::SeqCst))
}

/// Whether the signal is handled here, if anywhere.
#[inline]
pub fn is_ours(signal: c_int) -> bool {
    Kept::of(signal).is_some_and(Kept::is_ours)
}

/// Handle a signal from now on, unless the program ignores it.
///
/// # Errors
/// The kernel's.
pub fn take(signal: c_int) -> Result<(), Errno> {
    match Kept::of(signal) {
        Some(kept) if !kept.is_ours() => take_from_program(signal, kept),
        _ => Ok(()),
    }
}

/// As [`take`], also if the program ignores it.
pub(super) fn take_in_any_case(signal: c_int) -> Result<(), Errno> {
    take(signal)?;
    match Kept::of(signal) {
        Some(kept) if !kept.is_needed.swap(true, Ordering::SeqCst) => {
            kept.set(signal, &kept.kept()).map(|_| ())
        }
        _ => Ok(()),
    }
}

#[cold]
fn take_from_program(signal: c_int, kept: &'static Kept) -> Result<(), Errno> {
    let (state, relaxed) = (&kept.state, Ordering::Relaxed);
    let begin = state.compare_exchange(THEIRS, BECOMING_OURS, Ordering::SeqCst, relaxed);
    if begin.is_err() {
        return Ok(());
    }
    let found = exchange(signal, None).inspect(|action| kept.keep(action));
    let taken = found.and_then(|found| {
        state.store(OURS, Ordering::SeqCst);
        exchange(signal, Some(&kept.ours(&found)))
    });
    match taken {
        // What another thread has set meanwhile counts, by either way.
        Ok(before) => {
            let is_ours = before.sa_sigaction == address();
            let set = if is_ours { kept.kept() } else { before };
            kept.set(signal, &set).map(|_| ())
        }
        Err(errno) => {
            state.store(THEIRS, Ordering::SeqCst);
            Err(errno)
        }
    }
}

/// The program sets its action, or asks for it. `None` if the signal is not ours, and the call is the kernel's to do. Returns
/// the action before.
pub fn program_action(
    signal: c_int,
    new: Option<&libc::sigaction>,
) -> Option<Result<libc::sigaction, Errno>> {
    let kept = Kept::of(signal).filter(|kept| kept.is_ours())?;
    let before = kept.kept();
    // Ours was told to somebody by a call that does not come by us, and stands for what is kept.
    let found = match new.filter(|new| new.sa_sigaction != address()) {
        Some(new) => kept.set(signal, new),
        None => exchange(signal, None),
    };
    Some(found.map(|found| {
        if found.sa_sigaction == address() {
            before
        } else {
            found
        }
    }))
}

/// The program's action, for what the kernel says of ours: to a child of vfork, which has actions of its own. False if the signal is
/// none of these.
pub(super) fn unmask(signal: c_int, action: &mut libc::sigaction) -> bool {
    let kept = Kept::of(signal);
    if let Some(kept) = kept {
        *action = kept.kept();
    }
    kept.is_some()
}

/// What the kernel runs. The program's handler is jumped to, so that it is called as if by the kernel: with its frame, which it
/// may unwind, look at or leave.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {handle}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        // The number alone ([`crate::order::SEEN`]).
        "movzx edi, dil",
        "mov r11, rax",
        "xor eax, eax",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        handle = sym handle,
    )
}

/// What the kernel runs.
#[cfg(not(target_arch = "x86_64"))]
pub(super) extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Action = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let handler = handle(signal, info, context.cast());
    if handler != 0 {
        let handler = core::ptr::with_exposed_provenance::<()>(handler);
        // SAFETY: the program has named this function as a handler; one that takes the signal alone ignores the other registers.
        let handler = unsafe { core::mem::transmute::<*const (), Action>(handler) };
        handler(signal, info, context);
    }
}

/// Do what the library can. Returns the program's handler if that is to be called, and 0 if the thread goes on.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) -> usize {
    let (is_seen, signal) = (signal & order::SEEN != 0, signal & !order::SEEN);
    match Kept::of(signal) {
        Some(kept) => handle_fault(kept, signal, info, context),
        None => super::handlers::handle(signal, info, context, is_seen),
    }
}

/// Apart, as other signals may have small stacks.
#[inline(never)]
fn handle_fault(
    kept: &Kept,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
) -> usize {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let told = unsafe { &*info };
    let is_fault = told.si_code > 0 && told.si_code != BUS_MCEERR_AO;
    if is_fault {
        // SAFETY: a fault's information has an address.
        let address = unsafe { told.si_addr() }.addr();
        if go_on(context) || super::is_seen_to(signal, told.si_code, address) {
            return 0;
        }
    }
    match kept.handler.load(Ordering::SeqCst) {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN if is_fault => fault_again(signal, context),
        libc::SIG_DFL => send_again(signal, info),
        handler => {
            if kept.flags.load(Ordering::SeqCst) & libc::SA_RESETHAND != 0 {
                kept.handler.store(libc::SIG_DFL, Ordering::SeqCst);
            }
            return handler;
        }
    }
    0
}

/// Go on behind an instruction that may fault. False if it is another one.
fn go_on(context: *mut ucontext_t) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if !context.is_null() {
        let at = libc::REG_RIP.cast_unsigned() as usize;
        // SAFETY: the kernel passes a valid structure, which it takes the registers from when the handler returns.
        let register = unsafe { &mut (*context).uc_mcontext.gregs[at] };
        let place = usize::try_from(*register).ok();
        let next = place.and_then(crate::program::after_fault_at);
        if let Some(next) = next.and_then(|next| i64::try_from(next).ok()) {
            *register = next;
            return true;
        }
    }
    let _ = context;
    false
}

/// Have the thread fault again, with the signal held back, which ends the program as if it had no handler.
fn fault_again(signal: c_int, context: *mut ucontext_t) {
    // SAFETY: the kernel passes a valid structure.
    unsafe { hold_back_after(context, signals::bit(signal)) };
}

/// Send the thread the signal that it has been sent, with nobody to handle it: it comes when the handler returns.
fn send_again(signal: c_int, info: *const siginfo_t) {
    let _ = exchange(signal, Some(&none()));
    // SAFETY: the kernel passes a valid structure.
    if signals::send_again(signal, unsafe { &*info }, false).is_err() {
        // SAFETY: raise has no preconditions.
        unsafe { libc::raise(signal) };
    }
}
