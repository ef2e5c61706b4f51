//! Calls that a signal begins again (SA_RESTART). The kernel then looks up anew what their descriptor names, and so
//! does the layer above that is told [`Errno::RESTART`].
//!
//! A receive sleeps in a look by the kernel at the program's own socket, which knows whether a signal begins it again.
//! Begun again it would sleep by whatever the number names by then, in a ring perhaps, where nobody rings for it. So
//! whoever takes the number away under a sleep spoils the place that the look is to write to: that fails at once.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

use crosslane_sys::{Errno, cancel, errno, real};

use crate::{End, stay};

/// More than any buffer may have; the kernel says EINVAL.
const SPOILT: usize = usize::MAX;

/// Where all looks write a byte that nobody reads.
static SCRATCH: AtomicU8 = AtomicU8::new(0);

/// Where the sleeps on an end look to: laid out as an `iovec`, which the kernel reads whenever a call begins.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Place {
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// Sleeps that look there.
    pub sleeps: AtomicU32,
}

impl Place {
    fn is_spoilt(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) == SPOILT
    }

    /// For another sleep. False while there are some for whom the place must stay spoilt.
    fn prepare(&self) -> bool {
        if self.sleeps.fetch_add(1, Ordering::SeqCst) > 0 && self.is_spoilt() {
            self.leave();
            return false;
        }
        self.start.store(SCRATCH.as_ptr(), Ordering::Relaxed);
        self.bytes.store(1, Ordering::SeqCst);
        true
    }

    /// In the child of a fork by a handler they count from 0.
    fn leave(&self) {
        let less = |sleeps: u32| sleeps.checked_sub(1);
        let _ = self
            .sleeps
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// A number that sleeps have come by is about to name something else.
    pub fn spoil(&self) {
        self.bytes.store(SPOILT, Ordering::SeqCst);
    }
}

/// Before [`peek`]. Returns whether that may be: the descriptor still names the connection, and nobody sleeps for whom the
/// place must stay spoilt.
pub(crate) fn prepare(end: &End) -> bool {
    let place = &end.local.place;
    if !place.prepare() {
        return false;
    }
    // Who takes the name away from here on spoils the place.
    fence(Ordering::SeqCst);
    let is_named = stay::has_name(end);
    if !is_named {
        place.leave();
    }
    is_named
}

/// Sleep until there is something to read, and leave it: a doorbell is for all who sleep here, and signals and
/// SO_RCVTIMEO do what they do to the program's own receive. Follows [`prepare`].
///
/// # Errors
/// As recv(2), and [`Errno::RESTART`].
pub(crate) fn peek(end: &End) -> Result<usize, Errno> {
    // SAFETY: a header is integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = (&raw const end.local.place).cast_mut().cast();
    header.msg_iovlen = 1;
    let leave = || end.local.place.leave();
    // SAFETY: the place lives as long as the process, and names one byte of ours or is refused.
    let look = || unsafe { real::recvmsg(end.fd, &raw mut header, libc::MSG_PEEK) };
    let peeked = errno::check(cancel::undone(leave, look));
    leave();
    peeked.map_err(|errno| match errno {
        Errno::INVAL => Errno::RESTART,
        Errno::BADF | Errno(libc::ENOTSOCK) if !stay::has_name(end) => Errno::RESTART,
        errno => errno,
    })
}

/// What becomes of a call that has been ended in such a sleep ([`interrupted::sleep`]): one with a time limit is never begun again.
pub fn interrupted(errno: Errno, has_time_limit: bool) -> Errno {
    match errno {
        Errno::RESTART if has_time_limit => Errno::INTR,
        errno => errno,
    }
}
