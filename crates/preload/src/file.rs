//! From a file into a lane, for sendfile.
//!
//! What stands in the page cache can be read into the lane itself: one copy. Or it is read into a
//! buffer that stays in this processor's cache, and copied from there: two copies, of which the
//! second goes around the cache if that is faster ([`crate::ways`]). What a disk has to be waited for is
//! always read into the buffer, because the lane is held while it is filled.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;

use crosslane_ctl::slab::Mode;
use crosslane_ring::Part;
use crosslane_stream::family::Family;
use crosslane_stream::fill::{self, Filled};
use crosslane_stream::interrupt::Portions;
use crosslane_stream::{End, send, switch};
use crosslane_sys::{Errno, cancel, errno, kernel};
use libc::{iovec, off_t};

use crate::ways::{self, Measure, Way};
use crate::{c, output};

/// The buffer, a part of the processor's second cache.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// Of which so much is used for short files, and at the end of long ones.
const LEAST_BYTES: usize = 32 * 1024;

/// Memory without any bytes in it yet.
type Buffer = Vec<MaybeUninit<u8>>;

thread_local! {
    /// Not on the stack, which a program may have made small.
    static BUFFER: Cell<Option<Buffer>> = const { Cell::new(None) };
}

/// A record, in which pieces are counted.
const RECORD_BYTES: usize = crosslane_stream::reserve::WHOLE_BYTES;

/// What is still to be sent of a file.
struct Rest {
    input: c_int,
    at: off_t,
    bytes: usize,
    /// What has been sent before, and is sent now.
    portions: Portions,
    /// Reads of this file can be told not to wait, as far as is known.
    tells: bool,
}

/// What one step has done.
enum Step {
    /// So many bytes were sent, and more may follow.
    On(usize),
    /// So many were sent, and that is all for now.
    Last(usize),
}

/// Copy `bytes` from `start` of the file on, or as many as there are and go without waiting where
/// the connection does not wait.
pub fn copy(end: &End, input: c_int, start: off_t, bytes: usize) -> Result<usize, Errno> {
    let mut rest = Rest {
        input,
        at: start,
        bytes,
        portions: Portions::default(),
        tells: true,
    };
    while rest.bytes > 0 {
        match step(end, &mut rest) {
            Ok(Step::On(sent)) => rest.pass(sent),
            Ok(Step::Last(sent)) => {
                rest.pass(sent);
                break;
            }
            Err(_) if rest.portions.have_some() => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes - rest.bytes)
}

impl Rest {
    fn pass(&mut self, sent: usize) {
        self.at += i64::try_from(sent).unwrap_or(0);
        self.bytes -= sent;
        self.portions.note(sent);
    }
}

fn step(end: &End, rest: &mut Rest) -> Result<Step, Errno> {
    let piece = piece_of(rest.bytes);
    let measure = Measure::begin(piece);
    if measure.way == Way::Direct && rest.tells {
        match fill::fill(end, piece, |parts| {
            read_into_lane(rest.input, Some(rest.at), parts)
        }) {
            Ok(Filled::Bytes(0)) => return Ok(Step::Last(0)),
            Ok(Filled::Bytes(sent)) => {
                measure.end(sent);
                return Ok(Step::On(sent));
            }
            Ok(Filled::Full) if rest.portions.have_some() => {
                return Ok(after_waiting(end, &mut rest.portions));
            }
            Err(Errno(libc::EOPNOTSUPP)) => rest.tells = false,
            // The usual way says what is wrong, if something is.
            Ok(Filled::Full | Filled::Elsewhere) | Err(_) => {}
        }
    }
    by_buffer(end, rest, measure)
}

/// What is read into the lane at a time, and appears there at once. A quarter of what is left, so
/// that the receiver has little to do after the last piece.
fn piece_of(left: usize) -> usize {
    if left < 2 * ways::LEAST_BYTES {
        return left.min(fill::MOST_BYTES);
    }
    let records = left / 4 / RECORD_BYTES;
    (records * RECORD_BYTES).clamp(ways::LEAST_BYTES, fill::MOST_BYTES)
}

/// Read what can be had at once into parts of a lane.
pub fn read_into_lane(input: c_int, at: Option<off_t>, parts: &[Part]) -> Result<usize, Errno> {
    let pieces = parts.as_ptr().cast::<iovec>();
    // SAFETY: a part is laid out as an iovec.
    let pieces = unsafe { core::slice::from_raw_parts(pieces, parts.len()) };
    // SAFETY: the parts lie in the lane, which is mapped for ever and no Rust object.
    unsafe { kernel::read_now(input, pieces, at) }
}

/// The lane is full, after some of the file has been sent. The kernel sends a file portion after portion, and has told the error
/// by which it stops, to nobody: the signal comes all the same.
fn after_waiting(end: &End, portions: &mut Portions) -> Step {
    match fill::wait_for_room(end, portions) {
        Ok(()) => return Step::On(0),
        Err(Errno::PIPE) if end.family() == Family::Tcp => c::raise_sigpipe(),
        Err(_) => {}
    }
    output::note_short(end);
    Step::Last(0)
}

/// Lend `act` the thread's buffer, which has [`BUFFER_BYTES`] and is given back if the thread is cancelled there.
///
/// # Errors
/// Those of `act`, and ENOMEM.
pub fn with_buffer<R>(act: impl FnOnce(*mut u8) -> Result<R, Errno>) -> Result<R, Errno> {
    // A handler of a signal that comes meanwhile makes its own.
    let kept = BUFFER.try_with(Cell::take).unwrap_or(None);
    let mut buffer = kept.unwrap_or_default();
    if buffer.try_reserve_exact(BUFFER_BYTES).is_err() {
        return Err(Errno(libc::ENOMEM));
    }
    let start = buffer.as_mut_ptr().cast();
    let outcome = cancel::guarded(&buffer, || act(start));
    // A thread that is ending keeps none.
    let _ = BUFFER.try_with(|kept| kept.set(Some(buffer)));
    outcome
}

fn by_buffer(end: &End, rest: &mut Rest, measure: Measure) -> Result<Step, Errno> {
    with_buffer(|start| through(start, end, rest, measure))
}

/// By a buffer of [`BUFFER_BYTES`].
fn through(start: *mut u8, end: &End, rest: &mut Rest, measure: Measure) -> Result<Step, Errno> {
    let piece = (rest.bytes / 4).clamp(LEAST_BYTES, BUFFER_BYTES);
    let wanted = rest.bytes.min(piece);
    // With room, the time is that of the copies only.
    let measure = measure.of(Way::Buffer).filter(|_| send::is_writable(end));
    // Whoever is cancelled there would leave signals held back.
    // SAFETY: the buffer is valid for writes of so much.
    let read = || unsafe { libc::pread(rest.input, start.cast(), wanted, rest.at) };
    let read = errno::check(cancel::never(read))?;
    if read == 0 {
        return Ok(Step::Last(0));
    }
    // SAFETY: the first `read` bytes have been written.
    let bytes = unsafe { core::slice::from_raw_parts(start.cast_const(), read) };
    let portions = &mut rest.portions;
    let sent = loop {
        if portions.have_some()
            && let Some(step) = by_kernel(end, bytes, portions)?
        {
            return Ok(step);
        }
        let part = [Part::of(bytes)];
        if let Some(sent) = output::send_portion(end, (&part, 0), portions) {
            break sent?;
        }
        if !portions.have_some() {
            let sent = output::send_on(end, bytes, 0).ok_or(Errno::RESTART)?;
            break errno::check(sent)?;
        }
    };
    match sent {
        sent if sent == read => {
            if let Some(measure) = measure {
                measure.end(sent);
            }
            Ok(Step::On(sent))
        }
        // Even if all has been sent: the kernel goes on only while there is room, as the signal is there until the call ends.
        sent => Ok(Step::Last(sent + ask_again(end, &bytes[sent..]))),
    }
}

/// More of what has been sent in part, where the kernel has the connection: it would begin again a call that has sent nothing.
/// None: the ring has it.
fn by_kernel(end: &End, bytes: &[u8], portions: &mut Portions) -> Result<Option<Step>, Errno> {
    switch::advance(end);
    if end.tx_mode() == Mode::Ring {
        return Ok(None);
    }
    let part = [Part::of(bytes)];
    Ok(match output::go_on(end, (&part, 0), portions)? {
        (0, false) => None,
        (sent, false) => Some(Step::On(sent)),
        (sent, true) => Some(Step::Last(sent + ask_again(end, &bytes[sent..]))),
    })
}

/// A portion has been sent in part. The kernel asks TCP once more for the rest, and so is told what has ended the send
/// (splice_to_socket in fs/splice.c). Over AF_UNIX a portion is one message, and the send has been told. Returns how much of
/// the rest was sent.
fn ask_again(end: &End, rest: &[u8]) -> usize {
    let mut sent = 0;
    while sent < rest.len() && end.family() == Family::Tcp {
        let more = || output::send_on(end, &rest[sent..], libc::MSG_DONTWAIT);
        match cancel::never(more).and_then(|more| usize::try_from(more).ok()) {
            Some(more) => sent += more,
            None => break,
        }
    }
    sent
}
