//! sendfile, splice and relatives.

use core::ffi::c_int;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::Mode;
use crosslane_stream::stay::Stay;
use crosslane_stream::young::Young;
use crosslane_stream::{End, close, raw, send};
use crosslane_sys::{Errno, cancel, real};
use libc::{iovec, loff_t, off_t, size_t, ssize_t};

use crate::progress::{is_granted, is_granted_to_send};
use crate::{c, file, output, splice};

/// How long a call that only the kernel can do waits for the connection to be back on TCP.
pub const PATIENCE: core::time::Duration = core::time::Duration::from_secs(5);

/// A call that moves a connection's bytes and is not handled here: the connection goes back to
/// TCP, then the kernel does it.
#[cold]
pub fn by_kernel_only<T: From<i8>>(end: &End, kernel: impl FnOnce() -> T) -> T {
    if close::make_plain(end, Reason::Call, PATIENCE) {
        raw::lose_place(end);
        return kernel();
    }
    c::fail(Errno::AGAIN)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: passed on.
    let kernel = || unsafe { real::sendfile(out, input, offset, bytes) };
    let is_from_else = End::known(input).is_none() && Young::of(input).is_none();
    if let Some(young) = Young::of(out).filter(|_| is_from_else)
        && let Some(sent) = young.send(kernel)
    {
        return sent;
    }
    // Of nothing the kernel sends nothing, even where the peer has closed.
    let is_refused = bytes > isize::MAX.cast_unsigned();
    if bytes == 0 || is_refused || End::of(out).or_else(|| End::of(input)).is_none() {
        return kernel();
    }
    // That of libc is no point of cancellation.
    // SAFETY: the program's promise.
    cancel::never(|| unsafe { send_file(out, input, offset, bytes, kernel) })
}

/// sendfile(2) of something, to or from a connection.
///
/// # Safety
/// As sendfile(2) demands.
unsafe fn send_file(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    bytes: size_t,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    if offset.is_null() && End::of(input).is_some() {
        // To a pipe it is a splice, and to anything else refused.
        let Some(waits) = splice::waits(input, out, 0) else {
            return kernel();
        };
        let moved = splice::copied(input, out, bytes, waits, &kernel);
        return moved.unwrap_or_else(|| with_plain([input], kernel));
    }
    let may_move = offset.is_null() || c::may_be(offset, 1);
    while let Some(end) = End::of(out).filter(|_| may_move) {
        if is_granted_to_send(&end) && end.tx_mode() == Mode::Ring {
            if !offset.is_null() && c::room(offset, size_of::<off_t>()) < size_of::<off_t>() {
                // The kernel finds that out when it has sent.
                return c::fail(Errno::FAULT);
            }
            // SAFETY: the program's promise; null means the file's own position.
            match copy_file(&end, input, unsafe { offset.as_mut() }, bytes) {
                Err(Errno::RESTART) => continue,
                copied => return c::count(copied),
            }
        }
        // The kernel may have told the library already what it would tell the program.
        match is_granted(&end).then(|| send::enter(&end, end.is_nonblocking())) {
            Some(Ok(true)) => continue,
            Some(Err(errno)) => match output::refuse_or_restart(&end, errno, 0) {
                Some(refused) => return refused,
                None => continue,
            },
            Some(Ok(false)) | None => {}
        }
        if let Some(sent) = output::by_tcp(&end, bytes, &kernel) {
            return sent;
        }
    }
    kernel()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    bytes: size_t,
) -> ssize_t {
    // SAFETY: passed on; off_t has 64 bits.
    unsafe { sendfile(out, input, offset, bytes) }
}

/// Copy from a file into the ring, of the connection that it begins with, however its descriptor is closed meanwhile. The file's
/// position, or `offset`, moves by what was sent.
///
/// # Errors
/// As sendfile(2); [`Errno::RESTART`]: a signal begins the call again, which looks its descriptor up.
fn copy_file(
    end: &End,
    input: c_int,
    offset: Option<&mut off_t>,
    bytes: size_t,
) -> Result<usize, Errno> {
    let own_position = offset.is_none();
    let start = match &offset {
        Some(offset) => **offset,
        None => seek(input, 0, libc::SEEK_CUR).map_err(not_spliceable)?,
    };
    let Ok(stay) = Stay::begin(end) else {
        return Err(Errno::RESTART);
    };
    let most = bytes.min(c::MOST_BYTES);
    let outcome = cancel::guarded(&stay, || file::copy(end, input, start, most));
    let outcome = outcome.map_err(|errno| match own_position {
        true => not_spliceable(errno),
        false => not_a_folder(errno),
    });
    if let Ok(sent) = outcome {
        let stop = start + i64::try_from(sent).unwrap_or(0);
        match offset {
            Some(offset) => *offset = stop,
            None if own_position => drop(seek(input, stop, libc::SEEK_SET)?),
            None => {}
        }
    }
    outcome
}

/// A pipe, a socket or an event cannot be the source. The kernel asks for a position only where it is given one.
fn not_spliceable(errno: Errno) -> Errno {
    match not_a_folder(errno) {
        Errno(libc::ESPIPE) => Errno::INVAL,
        errno => errno,
    }
}

/// The kernel does not read but splice, of which a folder knows nothing.
fn not_a_folder(errno: Errno) -> Errno {
    match errno {
        Errno(libc::EISDIR) => Errno::INVAL,
        errno => errno,
    }
}

fn seek(fd: c_int, offset: off_t, whence: c_int) -> Result<off_t, Errno> {
    // SAFETY: numbers only.
    let position = unsafe { libc::lseek(fd, offset, whence) };
    if position < 0 {
        Err(Errno::last())
    } else {
        Ok(position)
    }
}

/// Run `kernel` with whichever of these descriptors names a connection back on TCP.
pub fn with_plain<T: From<i8>>(
    fds: impl IntoIterator<Item = c_int>,
    kernel: impl FnOnce() -> T,
) -> T {
    for end in fds.into_iter().filter_map(End::of) {
        if !close::make_plain(&end, Reason::Call, PATIENCE) {
            return c::fail(Errno::AGAIN);
        }
        raw::lose_place(&end);
    }
    kernel()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    input: c_int,
    input_offset: *mut loff_t,
    out: c_int,
    out_offset: *mut loff_t,
    bytes: size_t,
    flags: u32,
) -> ssize_t {
    // SAFETY: passed on.
    let kernel = || unsafe { real::splice(input, input_offset, out, out_offset, bytes, flags) };
    let has_offset = !(input_offset.is_null() && out_offset.is_null());
    if bytes == 0 || has_offset {
        return kernel();
    }
    let Some(waits) = splice::waits(input, out, flags) else {
        return kernel();
    };
    match splice::copied(input, out, bytes, waits, kernel) {
        Some(moved) => moved,
        None => with_plain([input, out], kernel),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tee(input: c_int, out: c_int, bytes: size_t, flags: u32) -> ssize_t {
    // The kernel refuses sockets, as by the next two.
    // SAFETY: passed on.
    unsafe { real::tee(input, out, bytes, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(
    fd: c_int,
    parts: *const iovec,
    count: size_t,
    flags: u32,
) -> ssize_t {
    // SAFETY: passed on.
    unsafe { real::vmsplice(fd, parts, count, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    input: c_int,
    input_offset: *mut loff_t,
    out: c_int,
    out_offset: *mut loff_t,
    bytes: size_t,
    flags: u32,
) -> ssize_t {
    // SAFETY: passed on.
    unsafe { real::copy_file_range(input, input_offset, out, out_offset, bytes, flags) }
}
