//! libc's stream of descriptor 0, which reads around us. It is replaced by one of ours where something stands in a ring
//! that its peer does not send again by TCP: it has ended its stream, or makes no call.

use core::ffi::c_int;

use crosslane_ctl::slab::EndPhase;
use crosslane_stream::{End, rest, switch};
use libc::FILE;

use crate::stdio;

/// Where glibc keeps what a stream has read ahead, and how it behaves, on every 64-bit Linux since 1998.
const READ_PTR_OFFSET: usize = 8;
const READ_END_OFFSET: usize = 16;
/// `_IO_UNBUFFERED` among its flags.
const UNBUFFERED: c_int = 2;

unsafe extern "C" {
    static mut stdin: *mut FILE;
}

/// Descriptor 0 names a connection, or did when the program began.
pub fn look() {
    if let Some(end) = End::of(libc::STDIN_FILENO) {
        take_over(&end);
    }
}

/// Have what stands in the ring of descriptor 0 be read by `stdin`, if it has not come back to TCP.
pub fn take_over(end: &End) {
    if end.phase() != EndPhase::Granted || switch::is_plain(end) {
        return;
    }
    rest::read_here(end);
    // SAFETY: libc's variable, which programs may set, too; who reads it beside a dup2 onto 0 races with that anyway.
    let before = unsafe { stdin };
    // SAFETY: it is null, or a stream.
    if before.is_null() || unsafe { stdio::is_ours(before) } {
        return;
    }
    // SAFETY: a mode that libc knows.
    let stream = unsafe { stdio::fdopen(libc::STDIN_FILENO, c"r".as_ptr()) };
    if stream.is_null() {
        return;
    }
    // SAFETY: both are streams, and nobody else has the new one.
    unsafe { go_on(stream, before) };
    // SAFETY: as before.
    unsafe { stdin = stream };
}

/// A stream begins with what another has read ahead, and is buffered only if that is.
///
/// # Safety
/// Both are streams.
unsafe fn go_on(stream: *mut FILE, before: *mut FILE) {
    // SAFETY: inside glibc's structure, see the offsets.
    let (flags, next, end) = unsafe {
        (
            before.cast::<c_int>().read(),
            before.byte_add(READ_PTR_OFFSET).cast::<*const u8>().read(),
            before.byte_add(READ_END_OFFSET).cast::<*const u8>().read(),
        )
    };
    if flags & UNBUFFERED != 0 {
        // SAFETY: a new stream, of which nothing has been read.
        unsafe { libc::setvbuf(stream, core::ptr::null_mut(), libc::_IONBF, 0) };
    }
    let count = end.addr().saturating_sub(next.addr());
    for place in (0..count).rev() {
        // SAFETY: the bytes from `next` to `end` are there to be read.
        unsafe { libc::ungetc(c_int::from(next.add(place).read()), stream) };
    }
}
