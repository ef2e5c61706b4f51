//! Sending and receiving slices wherever the stream is, for callers that own the socket: what the
//! preloaded library does for C's calling conventions, without them.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::EndPhase;
use crosslane_ring::short::SHORT_BYTES;
use crosslane_ring::{Part, Parts};
use crosslane_sys::{Errno, errno, real};

use crate::receive::{self, Options};
use crate::send::{self, Sent};
use crate::short::{self, Missed};
use crate::{End, raw, register, switch};

/// Move a connection towards its rings. Returns whether they have been granted; then it is for
/// the library, not for the kernel alone, to move its bytes.
#[inline]
pub fn is_granted(end: &End) -> bool {
    is_granted_to(end, register::progress)
}

/// As [`is_granted`], in a call that sends.
#[inline]
pub fn is_granted_to_send(end: &End) -> bool {
    is_granted_to(end, register::progress_to_send)
}

#[inline(always)]
fn is_granted_to(end: &End, progress: impl FnOnce(&End)) -> bool {
    if end.phase() != EndPhase::Granted {
        progress(end);
        if end.phase() != EndPhase::Granted {
            return false;
        }
    }
    if end.local.adopted.load(Ordering::Relaxed) == 0 {
        // No epoll set of ours has to be told first.
        end.local.adopted.store(1, Ordering::Release);
    }
    !(end.is_pinned() && switch::retire(end))
}

/// Send from `bytes`, as send(2) with MSG_NOSIGNAL does.
///
/// # Errors
/// As send(2).
#[inline]
pub fn send(end: &End, bytes: &[u8], dont_wait: bool) -> Result<usize, Errno> {
    let is_short = (1..=SHORT_BYTES).contains(&bytes.len());
    // SAFETY: a slice is valid for its length.
    if is_short && unsafe { short::send_in_any(end, Part::of(bytes)) }.is_ok() {
        return Ok(bytes.len());
    }
    send_slowly(end, bytes, dont_wait)
}

#[inline(never)]
fn send_slowly(end: &End, bytes: &[u8], dont_wait: bool) -> Result<usize, Errno> {
    let part = [Part::of(bytes)];
    loop {
        if is_granted_to_send(end) {
            // SAFETY: the slice is borrowed for longer than the cursor, and is only read.
            let mut parts = unsafe { Parts::new(&part) }.ok_or(Errno::INVAL)?;
            match send::send(end, &mut parts, dont_wait, None) {
                Ok(Sent::ByKernel) => {}
                Ok(Sent::Bytes(sent)) => return Ok(sent),
                Ok(Sent::Shut) => return Err(Errno::PIPE),
                // The connection is the caller's, whatever its descriptor names.
                Err(Errno::RESTART) => continue,
                Err(errno) => return Err(errno),
            }
        }
        let flags = libc::MSG_NOSIGNAL | if dont_wait { libc::MSG_DONTWAIT } else { 0 };
        let sent = raw::send(end, bytes.len(), || {
            // SAFETY: a slice is valid for its length.
            unsafe { real::send(end.fd(), bytes.as_ptr().cast(), bytes.len(), flags) }
        });
        if let Some(sent) = sent {
            return errno::check(sent);
        }
    }
}

/// Receive into `bytes`, as recv(2) does.
///
/// # Errors
/// As recv(2).
#[inline]
pub fn receive(end: &End, bytes: &mut [u8], dont_wait: bool) -> Result<usize, Errno> {
    if !bytes.is_empty() {
        let part = Part::of_mut(bytes);
        // SAFETY: a slice is valid for its length.
        if let Ok(received) = unsafe { short::receive_in_any(end, part) } {
            return Ok(received);
        }
        // SAFETY: as above.
        match unsafe { short::receive_soon(end, part, !dont_wait) } {
            Ok(received) => return Ok(received),
            Err(missed) => return receive_slowly(end, bytes, dont_wait, missed),
        }
    }
    receive_slowly(end, bytes, dont_wait, Missed::Unusual)
}

#[inline(never)]
fn receive_slowly(
    end: &End,
    bytes: &mut [u8],
    dont_wait: bool,
    missed: Missed,
) -> Result<usize, Errno> {
    let (start, length) = (bytes.as_mut_ptr(), bytes.len());
    let part = [Part::of_mut(bytes)];
    loop {
        if is_granted(end) {
            // SAFETY: the slice is borrowed for longer than the cursor.
            let mut parts = unsafe { Parts::new(&part) }.ok_or(Errno::INVAL)?;
            let options = Options {
                dont_wait,
                is_late: missed == Missed::Late,
                ..Options::default()
            };
            match receive::receive(end, &mut parts, options) {
                Err(Errno::RESTART) => continue,
                received => return received,
            }
        }
        let flags = if dont_wait { libc::MSG_DONTWAIT } else { 0 };
        let received = raw::receive(end, false, || {
            // SAFETY: a slice is valid for its length.
            unsafe { real::recv(end.fd(), start.cast(), length, flags) }
        });
        if let Some(received) = received {
            return errno::check(received);
        }
    }
}

/// Wait until there is something to receive, on an end that has rings. `false`: the stream has
/// ended.
///
/// # Errors
/// As recv(2).
pub fn await_bytes(end: &End, dont_wait: bool) -> Result<bool, Errno> {
    let mut byte = [0];
    let part = [Part::of_mut(&mut byte)];
    let options = Options {
        peek: true,
        dont_wait,
        wait_all: false,
        ..Options::default()
    };
    loop {
        // SAFETY: the part is the array above.
        let mut parts = unsafe { Parts::new(&part) }.ok_or(Errno::INVAL)?;
        match receive::receive(end, &mut parts, options) {
            Err(Errno::RESTART) => {}
            received => return received.map(|bytes| bytes > 0),
        }
    }
}
