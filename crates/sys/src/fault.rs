//! Memory that may go away under a mapping: a file is cut short, a device is removed. The kernel
//! then raises SIGBUS in whoever touches it. Where a mapping is watched, the thread goes on with
//! zeroes in its place instead, and a word says what has happened.
//!
//! The word is set before the zeroes can be read, so that whoever finds it unset *after* a read
//! has read the memory itself.
//!
//! And memory of the program that may never have been there ([`crate::program`]).
//!
//! The signals belong to the program all the same: what happens elsewhere goes to its own action, which
//! is kept here ([`program_action`]).

mod action;
mod handlers;

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

pub use action::{is_ours, program_action, take};
pub use handlers::Program;
pub(crate) use handlers::{is_ours_at, is_ours_next, stand_in};

use crate::Errno;
use crate::raw::syscall;

/// Mappings that can be watched at a time.
const PLACES: usize = 1024;

struct Place {
    /// First address, 0 while the place is free, 1 while it is being filled.
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicU32,
}

static WATCHED: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicU32::new(0),
    }
}; PLACES];

/// A mapping that is watched until this is dropped.
#[derive(Debug)]
pub struct Watch {
    place: usize,
}

impl Watch {
    /// Watch `bytes` from `start` on, which are mapped.
    ///
    /// # Errors
    /// ENOSPC when too many are watched; the kernel's, when it takes no handler.
    pub fn new(start: usize, bytes: usize) -> Result<Self, Errno> {
        action::take_in_any_case(libc::SIGBUS)?;
        let is_taken = |place: &&Place| {
            let start = &place.start;
            start
                .compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        let place = WATCHED.iter().position(|place| is_taken(&place));
        let place = place.ok_or(Errno(libc::ENOSPC))?;
        // What was had where nothing was watched may be had again.
        LAST_FAULTS
            .iter()
            .for_each(|last| last.store(0, Ordering::SeqCst));
        WATCHED[place].lost.store(0, Ordering::SeqCst);
        WATCHED[place].bytes.store(bytes, Ordering::SeqCst);
        WATCHED[place].start.store(start, Ordering::SeqCst);
        Ok(Self { place })
    }

    /// Not 0 once the memory has been found missing. Means nothing after the watch is over.
    pub fn word(&self) -> &'static AtomicU32 {
        &WATCHED[self.place].lost
    }

    /// Whether the memory has been found missing.
    pub fn is_lost(&self) -> bool {
        self.word().load(Ordering::SeqCst) != 0
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED[self.place].start.store(0, Ordering::SeqCst);
    }
}

/// A fault of an address that nothing is behind, in `si_code`.
const BUS_ADRERR: c_int = 2;

/// The last faults of threads where nothing is watched.
static LAST_FAULTS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Whether a fault has been seen to, so that its thread can go on.
fn is_seen_to(signal: c_int, code: c_int, address: usize) -> bool {
    // Of an error of the memory itself the kernel may tell once only.
    let is_needed = signal == libc::SIGBUS && action::is_needed(signal);
    is_needed && (put_zeroes(address) || code == BUS_ADRERR && is_new(address))
}

/// Of a fault where nothing is watched, whether the thread has had it for the first time. Another thread may have had the same
/// before it, put zeroes there, and ended the watch; then the thread, to whom the signal came late, does not have it again.
fn is_new(address: usize) -> bool {
    let (last, thread) = last_fault();
    let fault = address ^ thread;
    last.swap(fault, Ordering::SeqCst) != fault
}

/// Where the calling thread's last fault is kept, and a number of its own.
fn last_fault() -> (&'static AtomicUsize, usize) {
    // SAFETY: it has no preconditions, and gives each thread a place of its own.
    let thread = unsafe { libc::__errno_location() }.addr();
    let last = &LAST_FAULTS[(thread >> 12) % LAST_FAULTS.len()];
    (last, thread)
}

/// Replace the watched mapping around this address. False if there is none.
fn put_zeroes(address: usize) -> bool {
    let around = |place: &&Place| {
        let start = place.start.load(Ordering::SeqCst);
        start > 1 && address.wrapping_sub(start) < place.bytes.load(Ordering::SeqCst)
    };
    let Some(place) = WATCHED.iter().find(around) else {
        return false;
    };
    place.lost.store(1, Ordering::SeqCst);
    last_fault().0.store(0, Ordering::SeqCst);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let args = [
        place.start.load(Ordering::SeqCst),
        place.bytes.load(Ordering::SeqCst),
        protection as usize,
        flags as usize,
        usize::MAX,
        0,
    ];
    // SAFETY: who watches a range owns it, and has raw pointers into it only, which stay valid.
    unsafe { syscall(libc::SYS_mmap, args) }.is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::memory::Mapping;

    const BYTES: usize = 8192;

    fn mapped() -> (File, Mapping) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let mapping = Mapping::shared(file.as_fd(), BYTES).unwrap();
        (file, mapping)
    }

    fn byte(mapping: &Mapping, at: usize) -> u8 {
        let cell = mapping.start().as_ptr().wrapping_add(at);
        // SAFETY: inside the mapping.
        unsafe { cell.read_volatile() }
    }

    #[test]
    fn what_is_cut_off_reads_as_zeroes_and_is_said_to_be_lost() {
        let (file, mapping) = mapped();
        let watch = Watch::new(mapping.start().addr().get(), BYTES).unwrap();
        // SAFETY: inside the mapping.
        unsafe { mapping.start().as_ptr().write_volatile(7) };
        assert_eq!((byte(&mapping, 0), watch.is_lost()), (7, false));
        file.set_len(0).unwrap();
        assert_eq!((byte(&mapping, 0), watch.is_lost()), (0, true));
        // SAFETY: inside the mapping.
        unsafe { mapping.start().as_ptr().write_volatile(9) };
        assert_eq!(byte(&mapping, 0), 9, "what comes now stays in the process");
    }

    /// Of two threads that have the same fault one may be told of it when the other has seen to it, and has gone on.
    #[test]
    fn a_signal_that_comes_late_changes_nothing() {
        let (file, mapping) = mapped();
        let at = mapping.start().addr().get();
        drop(Watch::new(at, BYTES).unwrap());
        // SAFETY: a siginfo is plain integers.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        info.si_code = BUS_ADRERR;
        let field = (&raw mut info).wrapping_byte_add(16).cast::<usize>();
        // SAFETY: where a fault's address is.
        unsafe { field.write(at) };
        action::on_signal(libc::SIGBUS, &raw mut info, core::ptr::null_mut());
        let watch = Watch::new(at, BYTES).unwrap();
        file.set_len(0).unwrap();
        assert_eq!((byte(&mapping, 0), watch.is_lost()), (0, true));
    }

    /// What a child exits with.
    fn status_of(child: impl FnOnce() -> c_int) -> c_int {
        // SAFETY: the child makes system calls only.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let status = child();
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the status outlives the call.
        let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
        assert_eq!(waited, process);
        libc::WEXITSTATUS(status)
    }

    /// Whoever is told of ours, by a call that does not come by us, has the program's; whoever sets its own that way has it.
    #[test]
    fn actions_that_are_set_around_us_are_told() {
        const FIRST: usize = 1 << 20;
        const SECOND: usize = 1 << 21;
        take(libc::SIGSEGV).unwrap();
        let status = status_of(|| {
            // SAFETY: sigaction is plain integers.
            let [mut own, mut around]: [libc::sigaction; 2] = unsafe { core::mem::zeroed() };
            own.sa_sigaction = FIRST;
            let told = |new: Option<&libc::sigaction>| {
                let before = program_action(libc::SIGSEGV, new);
                before
                    .and_then(Result::ok)
                    .map(|action| action.sa_sigaction)
            };
            let _ = told(Some(&own));
            // SAFETY: the structure outlives the call.
            unsafe { libc::sigaction(libc::SIGSEGV, core::ptr::null(), &raw mut around) };
            let is_kept = told(Some(&around)) == Some(FIRST) && told(None) == Some(FIRST);
            let is_unmasked =
                Program::handler(libc::SIGSEGV).unmask_handler(around.sa_sigaction) == FIRST;
            around.sa_sigaction = SECOND;
            // SAFETY: as above; nothing faults.
            unsafe { libc::sigaction(libc::SIGSEGV, &raw const around, core::ptr::null_mut()) };
            let is_told = told(None) == Some(SECOND);
            c_int::from(is_kept) + 2 * c_int::from(is_unmasked) + 4 * c_int::from(is_told)
        });
        assert_eq!(status, 7);
    }

    #[test]
    fn what_is_watched_no_more_is_the_programs() {
        extern "C" fn leave(_: c_int) {
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(37) };
        }
        let (file, mapping) = mapped();
        drop(Watch::new(mapping.start().addr().get(), BYTES).unwrap());
        // SAFETY: sigaction is plain integers.
        let mut own: libc::sigaction = unsafe { core::mem::zeroed() };
        let handler: extern "C" fn(c_int) = leave;
        own.sa_sigaction = handler as *const () as usize;
        file.set_len(0).unwrap();
        let status = status_of(|| {
            let _ = program_action(libc::SIGBUS, Some(&own));
            byte(&mapping, 0).into()
        });
        assert_eq!(status, 37);
    }
}
