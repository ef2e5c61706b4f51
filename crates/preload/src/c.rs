//! C's conventions: results, errno, buffers.

use core::ffi::c_int;

use crosslane_ring::{Part, Parts};
use crosslane_sys::{Errno, program, signals as system};
use libc::{iovec, size_t, ssize_t};

use crate::signals;

/// Most buffers in one call (IOV_MAX of Linux).
const MOST_PARTS: c_int = 1024;

/// A result as C returns it: a count, or -1 and errno.
#[inline]
pub fn count(result: Result<usize, Errno>) -> ssize_t {
    match result {
        // Lengths of buffers are at most isize::MAX.
        Ok(count) => count.cast_signed(),
        Err(errno) => fail(errno),
    }
}

/// What a compiler knows of a buffer is less than a call is to fill (_FORTIFY_SOURCE): libc says so and ends the program.
#[inline]
pub fn check_room(asked: size_t, room: size_t) {
    if asked > room {
        // SAFETY: takes nothing, and does not return.
        unsafe { crosslane_sys::real::__chk_fail() };
    }
}

/// Set errno and return -1.
#[cold]
pub fn fail<T: From<i8>>(errno: Errno) -> T {
    errno.set();
    T::from(-1)
}

/// Most that one call moves (MAX_RW_COUNT of Linux).
pub const MOST_BYTES: usize = 0x7fff_f000;

/// A buffer of the program, of which a call takes so much at most.
#[inline]
pub fn part(start: *const core::ffi::c_void, bytes: size_t) -> Part {
    Part {
        start: start.cast_mut().cast(),
        bytes: bytes.min(MOST_BYTES),
    }
}

/// A buffer of the program that is not empty and has no more than `most` bytes, if it may be the program's.
#[inline]
pub fn short_part(start: *const core::ffi::c_void, bytes: size_t, most: usize) -> Option<Part> {
    let room = HIGHEST_ADDRESS - LOWEST_ADDRESS;
    assert!(most <= room);
    let is_short =
        bytes.wrapping_sub(1) < most && start.addr().wrapping_sub(LOWEST_ADDRESS) <= room - bytes;
    is_short.then_some(Part {
        start: start.cast_mut().cast(),
        bytes,
    })
}

/// Whether a buffer goes on beyond all that a program can have, which read and write find out before they take less.
#[inline]
pub fn is_beyond(start: *const core::ffi::c_void, bytes: size_t) -> bool {
    let start = start.cast_mut().cast();
    bytes > MOST_BYTES && !is_plausible(&Part { start, bytes })
}

/// The buffers of readv, writev and messages.
///
/// # Safety
/// `parts` must be valid for `count` elements, as the manual of the calling function demands.
pub unsafe fn parts<'a>(parts: *const iovec, count: usize) -> Result<&'a [Part], Errno> {
    if c_int::try_from(count).map_or(true, |count| count > MOST_PARTS) {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if !may_be(parts, count) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise; `Part` is laid out as `iovec`.
    Ok(unsafe { core::slice::from_raw_parts(parts.cast::<Part>(), count) })
}

/// What the kernel finds out of buffers before it moves anything. One alone it cuts off before.
///
/// # Errors
/// EINVAL or EFAULT, of the first that is refused.
pub fn check(parts: &[Part]) -> Result<(), Errno> {
    let is_alone = parts.len() == 1;
    parts.iter().try_for_each(|part| {
        if part.bytes > isize::MAX.cast_unsigned() {
            return Err(Errno::INVAL);
        }
        let most = if is_alone { MOST_BYTES } else { part.bytes };
        match part.start.addr().saturating_add(part.bytes.min(most)) > HIGHEST_ADDRESS {
            true => Err(Errno::FAULT),
            false => Ok(()),
        }
    })
}

/// Addresses below this are never mapped (vm.mmap_min_addr), those from the other on are not the
/// program's. A copy by the kernel would fail with EFAULT there.
const LOWEST_ADDRESS: usize = 1 << 16;
#[cfg(target_arch = "x86_64")]
const HIGHEST_ADDRESS: usize = 1 << 47;
#[cfg(not(target_arch = "x86_64"))]
const HIGHEST_ADDRESS: usize = 1 << 48;

/// Whether a buffer may be the program's.
#[inline]
pub fn is_plausible(part: &Part) -> bool {
    let room = HIGHEST_ADDRESS - LOWEST_ADDRESS;
    let above = part.start.addr().wrapping_sub(LOWEST_ADDRESS);
    part.bytes == 0 || part.bytes <= room && above <= room - part.bytes
}

/// Whether so many values of the program's can be read; null is none. What cannot is the kernel's to refuse.
#[inline]
pub fn may_be<T>(start: *const T, count: usize) -> bool {
    let part = Part {
        start: start.cast_mut().cast(),
        bytes: count.saturating_mul(size_of::<T>()),
    };
    is_plausible(&part) && (!signals::take() || program::is_readable(part.start, part.bytes))
}

/// Put a number where the program wants it.
///
/// # Errors
/// EFAULT if that is nowhere.
///
/// # Safety
/// As the manual of the calling function demands.
#[inline]
pub unsafe fn tell<T: Copy>(to: *mut T, value: T) -> Result<(), Errno> {
    if !is_plausible(&part(to.cast(), size_of::<T>())) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise.
    unsafe { program::write(to, value) }.map_err(Errno::from)
}

/// How many bytes of the program's can be written, from `start` on.
#[inline]
pub fn room<T>(start: *mut T, bytes: usize) -> usize {
    let start = start.cast::<u8>();
    match signals::take() {
        true => program::writable(start, bytes),
        false => bytes,
    }
}

/// Flags of a message by which only the kernel may say that its caller has 32 bits (`MSG_CMSG_COMPAT`); it refuses them.
pub const OF_32_BITS: c_int = c_int::MIN;

/// A cursor over a program's buffers.
///
/// # Safety
/// The buffers must be valid as the manual of the calling function demands.
#[inline]
pub unsafe fn cursor(parts: &[Part]) -> Result<Parts<'_>, Errno> {
    let is_bad = |part: &Part| !is_plausible(&self::part(part.start.cast(), part.bytes));
    let parts = match parts.iter().position(is_bad) {
        None => parts,
        Some(bad) if parts[..bad].iter().all(|part| part.bytes == 0) => return Err(Errno::FAULT),
        // Whoever copies finds it.
        Some(_) if signals::take() => parts,
        Some(bad) => &parts[..bad],
    };
    // SAFETY: the caller's promise.
    let mut cursor = unsafe { Parts::new(parts) }.ok_or(Errno::INVAL)?;
    cursor.truncate(MOST_BYTES);
    Ok(cursor)
}

/// What the kernel does with a writer whose peer has gone: SIGPIPE to the calling thread.
#[cold]
pub fn raise_sigpipe() {
    if system::send_to_caller(libc::SIGPIPE).is_err() {
        // SAFETY: raise sends a signal to the calling thread and has no other precondition.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
}
