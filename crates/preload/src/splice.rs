//! splice between a connection in rings and a pipe.
//!
//! The kernel could do it on TCP only, and to go back there needs the peer's next call, which may
//! never come: the peer may be this very thread. So bytes are copied, into a lane by the kernel
//! where that is faster ([`crate::ways`]). A pipe is asked for room before bytes are taken from the
//! connection, and the connection before they are taken from a pipe, so that none are left in
//! between.

use core::ffi::{c_int, c_void};
use core::time::Duration;

use crosslane_ctl::slab::end_flags;
use crosslane_stream::family::Family;
use crosslane_stream::fill::{self, Filled};
use crosslane_stream::stay::Stay;
use crosslane_stream::{End, ending, ready, receive, send};
use crosslane_sys::{Errno, cancel, errno, interrupted, kernel, real};
use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, ssize_t};

use crate::progress::is_granted;
use crate::ways::{Measure, Way};
use crate::{file, input, output, poll};

/// What a pipe with any room at all takes (PIPE_BUF, and a page).
const PAGE: usize = 4096;
/// What a lane takes that says it is writable, and the most that is copied at a time.
const PIECE: usize = 16 * 1024;
const _: () = assert!(PIECE <= file::BUFFER_BYTES);

/// Between two looks for room that cannot be slept for.
const NAP: Duration = Duration::from_micros(100);

/// Splice by copying, if one of the two is a connection in rings and the other a pipe. None: it is
/// the kernel's.
///
/// Where pipe or connection is broken, `kernel` says so before it moves anything.
pub fn copied(
    from: c_int,
    to: c_int,
    bytes: usize,
    waits: bool,
    kernel: impl FnOnce() -> ssize_t,
) -> Option<ssize_t> {
    cancel::test();
    loop {
        let outcome = if is_in_ring(from) {
            into_pipe(from, to, bytes, waits)
        } else if is_in_ring(to) {
            from_pipe(from, to, bytes, waits)
        } else {
            return None;
        };
        if outcome != Some(Err(Errno::RESTART)) {
            return Some(outcome.map_or_else(kernel, crate::c::count));
        }
    }
}

/// All flags that splice(2) has.
const FLAGS: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// Whether a splice between a connection and a pipe waits for the pipe. None: it is between others, or the kernel refuses it
/// before it looks.
pub fn waits(from: c_int, to: c_int, flags: u32) -> Option<bool> {
    let (pipe, mode) = match End::of(from) {
        Some(_) => (to, libc::O_WRONLY),
        None => (from, libc::O_RDONLY),
    };
    let is_one = End::of(from).is_some() || End::of(to).is_some();
    if flags & !FLAGS != 0 || !is_one || !is_pipe(pipe) {
        return None;
    }
    let status = kernel::status_flags(pipe).ok()?;
    let has_mode = [mode, libc::O_RDWR].contains(&(status & libc::O_ACCMODE));
    let is_open = has_mode && status & libc::O_PATH == 0;
    is_open.then_some(flags & libc::SPLICE_F_NONBLOCK == 0 && status & libc::O_NONBLOCK == 0)
}

fn is_in_ring(fd: c_int) -> bool {
    End::of(fd).is_some_and(|end| is_granted(&end))
}

fn is_pipe(fd: c_int) -> bool {
    // SAFETY: a stat is plain integers, for which zero is a value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the stat is valid for writes.
    let result = unsafe { libc::fstat(fd, &raw mut stat) };
    result == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// None: the pipe is broken, or `from` is no socket any more.
fn into_pipe(from: c_int, to: c_int, bytes: usize, waits: bool) -> Option<Result<usize, Errno>> {
    let room = loop {
        match room_in(to) {
            None => return None,
            Some(0) if !waits => return Some(Err(Errno::AGAIN)),
            Some(0) => {
                if let Err(errno) = wait_for(to, POLLOUT) {
                    return Some(Err(errno));
                }
            }
            Some(room) => break room,
        }
    };
    let end = End::of(from);
    if let Some(end) = end.filter(receive::is_before_urgent_byte) {
        return Some(before_urgent_byte(&end));
    }
    // TCP asks its descriptor's flag alone whether to wait for bytes.
    let is_unix = end.is_some_and(|end| end.family() == Family::Unix);
    let flags = if is_unix && !waits {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let most = bytes.min(room).min(PIECE);
    let moved = file::with_buffer(|piece| {
        // SAFETY: the piece is valid for writes of so much.
        let got = errno::check(unsafe { input::recv(from, piece.cast(), most, flags) })?;
        // SAFETY: so much of the piece has been written.
        let got = unsafe { core::slice::from_raw_parts(piece, got) };
        cancel::never(|| write_all(to, got));
        Ok(got.len())
    });
    match moved {
        // A signal has begun the call again, by a number that names something else by then.
        Err(Errno::NOTSOCK) => None,
        moved => Some(moved),
    }
}

/// The kernel goes on behind an urgent byte when the program has received it, and tells the end, or an error, first.
fn before_urgent_byte(end: &End) -> Result<usize, Errno> {
    if let Some(error) = ending::take_for_receive(end) {
        return Err(error);
    }
    let has_ended = kernel::poll_now(end.fd(), POLLRDHUP) & POLLRDHUP != 0;
    match end.is_nonblocking() && !has_ended {
        true => Err(Errno::AGAIN),
        false => Ok(0),
    }
}

/// None: the connection is broken. It is the one that the call begins with, however its descriptor is closed meanwhile.
fn from_pipe(from: c_int, to: c_int, bytes: usize, waits: bool) -> Option<Result<usize, Errno>> {
    let Some((end, stay)) = End::of(to).and_then(|end| Some((end, Stay::begin(&end).ok()?))) else {
        return Some(Err(Errno::BADF));
    };
    cancel::guarded(&stay, || into_connection(from, &end, bytes, waits))
}

fn into_connection(
    from: c_int,
    end: &End,
    bytes: usize,
    waits: bool,
) -> Option<Result<usize, Errno>> {
    // As the kernel, which first finds out whether there is anything to send.
    let mut has_waited = false;
    loop {
        match is_dry(from) {
            Some(true) => return Some(Ok(0)),
            Some(false) if !waits => return Some(Err(Errno::AGAIN)),
            Some(false) => {
                if let Err(errno) = wait_for(from, POLLIN) {
                    return Some(Err(errno));
                }
            }
            None => match look_for_room(end)? {
                Ok(true) => break,
                Ok(false) if end.is_nonblocking() => {
                    note_missed(end);
                    return Some(Err(Errno::AGAIN));
                }
                Ok(false) => {
                    if has_waited {
                        // There is room that may not be used yet.
                        kernel::nap(NAP);
                    }
                    has_waited = true;
                    if let Err(errno) = send::await_room(end) {
                        return Some(Err(errno));
                    }
                }
                Err(errno) => return Some(Err(errno)),
            },
        }
    }
    let measure = Measure::begin(bytes.min(fill::MOST_BYTES));
    if measure.way == Way::Direct
        && let Some(sent) = directly(from, end, bytes)
    {
        measure.end(sent);
        note_short(end, from, sent < bytes);
        return Some(Ok(sent));
    }
    let most = bytes.min(PIECE);
    let sent = file::with_buffer(|piece| {
        // SAFETY: the piece is valid for writes of so much.
        let got = errno::check(unsafe { real::read(from, piece.cast(), most) })?;
        // SAFETY: so much of the piece has been written.
        let got = unsafe { core::slice::from_raw_parts(piece, got) };
        cancel::never(|| send_all(end, got))
    });
    if let (Ok(sent), Some(measure)) = (sent, measure.of(Way::Buffer)) {
        measure.end(sent);
    }
    note_short(end, from, sent.is_ok_and(|sent| sent < bytes));
    Some(sent)
}

/// Who has asked for more than has been moved, and leaves something in the pipe, may take that for want of room.
fn note_short(end: &End, pipe: c_int, is_short: bool) {
    if is_short && kernel::queued(pipe, libc::FIONREAD).is_ok_and(|left| left > 0) {
        note_missed(end);
    }
}

/// The kernel would tell of room from now on, as of any that a send has not found.
fn note_missed(end: &End) {
    end.note_blocked();
    output::note_short(end);
}

/// Whether the connection has room. None: it is broken.
fn look_for_room(end: &End) -> Option<Result<bool, Errno>> {
    let found = ready::look(end, POLLOUT, true);
    if found & (POLLERR | POLLHUP) != 0 {
        // What the kernel has told the library it does not tell again, but for EPIPE and its signal,
        // which is all that it tells senders of AF_UNIX.
        let may_tell = end.family() == Family::Tcp;
        let error = may_tell.then(|| ending::take_error(end)).flatten();
        return error.filter(|error| *error != Errno::PIPE).map(Err);
    }
    // What cannot be sent any more stays in the pipe.
    let is_shut = end.has_flags(end_flags::SHUT_WRITE);
    (!is_shut).then_some(Ok(found & POLLOUT != 0))
}

/// Whether an empty pipe has no writers any more. None: it is not empty.
fn is_dry(pipe: c_int) -> Option<bool> {
    let is_empty = || kernel::queued(pipe, libc::FIONREAD) == Ok(0);
    if !is_empty() {
        return None;
    }
    let found = look(pipe, POLLIN, 0).unwrap_or(0);
    // The last writer may have written meanwhile.
    is_empty().then_some(found & POLLHUP != 0)
}

/// Have the kernel read from the pipe into the lane. None: nothing has been moved.
fn directly(from: c_int, end: &End, bytes: usize) -> Option<usize> {
    let filled = fill::fill(end, bytes, |parts| file::read_into_lane(from, None, parts));
    match filled {
        Ok(Filled::Bytes(sent)) => Some(sent),
        Ok(Filled::Full | Filled::Elsewhere) | Err(_) => None,
    }
}

/// How much a pipe takes without waiting. None: nobody reads it.
fn room_in(pipe: c_int) -> Option<usize> {
    let events = look(pipe, POLLOUT, 0).unwrap_or(0);
    if events & POLLERR != 0 {
        return None;
    }
    if kernel::queued(pipe, libc::FIONREAD) == Ok(0) {
        // SAFETY: numbers only.
        let size = unsafe { libc::fcntl(pipe, libc::F_GETPIPE_SZ) };
        return Some(usize::try_from(size).unwrap_or(PAGE));
    }
    Some(if events & POLLOUT == 0 { 0 } else { PAGE })
}

/// What the pipe had room for; another writer may have been faster.
fn write_all(pipe: c_int, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let start = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the bytes are valid for reads.
        match errno::check(unsafe { real::write(pipe, start, bytes.len()) }) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::AGAIN | Errno::INTR) => wait_for_room(pipe),
            // Nobody reads any more.
            Err(_) => return,
        }
    }
}

/// What the connection had room for; another writer may have been faster.
fn send_all(end: &End, bytes: &[u8]) -> Result<usize, Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        // What a signal would begin again has taken its bytes already.
        let more = output::send_on(end, &bytes[sent..], 0).map_or(Err(Errno::INTR), errno::check);
        match more {
            Ok(more) => sent += more,
            Err(Errno::AGAIN | Errno::INTR) => drop(send::await_room(end)),
            Err(_) if sent > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sent)
}

/// Whoever waits looks again anyway.
fn wait_for_room(fd: c_int) {
    let _ = look(fd, POLLOUT, -1);
}

/// Sleep until a pipe is ready.
///
/// # Errors
/// [`Errno::RESTART`]: a signal begins the call again.
fn wait_for(pipe: c_int, events: i16) -> Result<(), Errno> {
    interrupted::sleep(None, || look(pipe, events, -1)).map(|_| ())
}

/// poll(2) of one descriptor, connections in rings among them.
fn look(fd: c_int, events: i16, timeout_ms: c_int) -> Result<i16, Errno> {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: there is one entry.
    let result = unsafe { poll::poll(&raw mut entry, 1, timeout_ms) };
    if result < 0 {
        return Err(Errno::last());
    }
    Ok(entry.revents)
}
