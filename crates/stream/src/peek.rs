//! Looking past the places where the stream passes between ring and TCP. Nothing is taken, so a look
//! at one side alone would see the same short piece again and again.

use core::sync::atomic::Ordering;

use crosslane_ctl::lane::NO_REPLAY;
use crosslane_ctl::slab::{Ending, Mode, end_flags};
use crosslane_ring::{Control, Failed, LaneMemory, Next, Part, Parts, RxCursor, WindowLane};
use crosslane_sys::{Errno, kernel, program};

use crate::beside::Beside;
use crate::ending::{self, failed, lied};
use crate::family::Family;
use crate::receive::Options;
use crate::step::receive_parts;
use crate::wait::WaitedForRest;
use crate::{End, lost, place, wait};

/// Passages that one look follows.
const MOST_PASSAGES: usize = 8;

/// A place where the stream has bytes.
enum Place<'a> {
    /// On TCP, after so many bytes that are not this place's, and at most so many.
    Tcp { skipped: u64, most: u64 },
    /// In the ring from this cursor on, which is to pass them.
    Ring(&'a WindowLane, &'a mut RxCursor),
}

/// What a visit has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Once,
    /// The sender has begun to send again what stands in the ring, of which TCP may have shown some.
    Twice,
}

/// Copy what the stream holds now into `parts`, on both sides of passages, and take nothing. The rest of a message whose
/// sender is in the middle of the call is waited for, if it comes soon.
///
/// # Errors
/// If the peer has broken the ring's rules, or as recv(2).
pub(crate) fn peek_on(
    end: &End,
    parts: &mut Parts<'_>,
    beside: Option<&Beside>,
) -> Result<usize, Errno> {
    let whole = parts.clone();
    let (mut seen, mut waited) = (0, WaitedForRest::default());
    loop {
        let (bytes, rest) = peek_once(end, parts, beside)?;
        let has_grown = bytes > core::mem::replace(&mut seen, bytes);
        let comes = |(lane, cursor): (WindowLane, RxCursor)| {
            wait::wait_for_rest(place::peer(end), &mut waited, || cursor.has_record(&lane))
        };
        if !has_grown || end.ending() != Ending::Open || !rest.is_some_and(comes) {
            return Ok(bytes);
        }
        *parts = whole.clone();
    }
}

/// Returns how much has been copied, and where the rest of a message is to come.
fn peek_once(
    end: &End,
    parts: &mut Parts<'_>,
    beside: Option<&Beside>,
) -> Result<(usize, Option<(WindowLane, RxCursor)>), Errno> {
    let asked = parts.left();
    // Before a START is looked for: what comes behind one is doorbells.
    let (queued, is_at_mark) = held_by_tcp(end, asked)?;
    // What stands beside some bytes ends a peek behind them.
    let (mut has_ended, mut rest) = (false, None);
    let seen = visit(end, |place| match place {
        _ if has_ended => Ok(0),
        Place::Tcp { skipped, most } => {
            let has_some = parts.left() < asked;
            if has_some && is_at_mark && skipped == 0 {
                has_ended = true;
                return Ok(0);
            }
            let most = most.min(queued.saturating_sub(skipped));
            match peek_tcp(end, parts, beside, (skipped, most)) {
                Ok((bytes, is_last)) => {
                    has_ended = is_last;
                    Ok(bytes)
                }
                // The next call's, as the bytes come first.
                Err(errno) if has_some => {
                    if errno != Errno::FAULT {
                        ending::note_error(end, errno);
                    }
                    has_ended = true;
                    Ok(0)
                }
                Err(errno) => Err(errno),
            }
        }
        Place::Ring(lane, cursor) => {
            let copied = cursor.copy_on(lane, parts);
            if copied == Err(Failed::Fault) && parts.left() < asked {
                has_ended = true;
                return Ok(0);
            }
            let (bytes, goes_on) = copied.map_err(|why| failed(end, why))?;
            rest = goes_on.then_some((*lane, *cursor));
            Ok(bytes as u64)
        }
    })?;
    match lost::is_found(end) || seen == Seen::Twice {
        true => Ok((0, None)),
        false => Ok((asked - parts.left(), rest)),
    }
}

/// How much of `asked` bytes a look at TCP gives, and whether an urgent byte comes first: there FIONREAD tells of nothing. A
/// look that has nothing yet goes past it, others end.
fn held_by_tcp(end: &End, asked: usize) -> Result<(u64, bool), Errno> {
    let queued = kernel::queued(end.fd(), libc::FIONREAD)?;
    if queued > 0 || end.family() != Family::Tcp || !kernel::is_at_mark(end.fd()) {
        return Ok((queued.into(), false));
    }
    match end.family().available(end.fd(), asked) {
        Ok(held) => Ok((held as u64, true)),
        Err(Errno::AGAIN | Errno::INTR) => Ok((0, true)),
        Err(errno) => {
            ending::note_error(end, errno);
            Ok((0, true))
        }
    }
}

/// How much the stream holds now, on both sides of passages.
///
/// # Errors
/// As [`peek_on`].
pub(crate) fn count(end: &End) -> Result<usize, Errno> {
    if lost::is_dry(end) {
        return Ok(0);
    }
    let queued = u64::from(kernel::queued(end.fd(), libc::FIONREAD)?);
    let mut total = 0;
    let seen = visit(end, |place| {
        let bytes = match place {
            Place::Tcp { skipped, most } => queued.saturating_sub(skipped).min(most),
            Place::Ring(lane, cursor) => pass_data(end, lane, cursor)?,
        };
        total += bytes;
        Ok(bytes)
    })?;
    // A START that is not seen has doorbells counted.
    match lost::is_found(end) {
        true => Ok(0),
        false if seen == Seen::Twice => count(end),
        false => Ok(usize::try_from(total).unwrap_or(usize::MAX)),
    }
}

/// Over AF_UNIX a receive without room takes what stands beside the next byte, if the kernel has that byte. A look sees as much
/// as [`look_beside`].
pub fn take_beside(end: &End, options: Options<'_>) {
    let _rx = end.lock_rx();
    if options.peek || end.rx_mode() == Mode::Tcp {
        receive_nothing(end, options.peek, options.beside);
    }
}

/// A look at an AF_UNIX stream tells of the first descriptors that stand beside it, wherever that is: the kernel goes on to look
/// behind the bytes that there is room for (unix_stream_read_generic in net/unix/af_unix.c).
pub fn look_beside(end: &End, beside: &Beside) {
    let _rx = end.lock_rx();
    receive_nothing(end, true, Some(beside));
}

/// Whether what a look at the kernel's first `bytes` has found beside them stands behind them: the kernel of AF_UNIX looks there,
/// too, and no look of it goes on behind what it has found.
pub(crate) fn stands_behind(end: &End, bytes: usize) -> bool {
    let mut room = vec![0u8; bytes.saturating_add(1)];
    let whole = [Part::of_mut(&mut room)];
    // SAFETY: the part is the vector.
    let Some(whole) = (unsafe { Parts::new(&whole) }) else {
        return false;
    };
    receive_parts(end, &whole, true, None).is_ok_and(|(seen, _)| seen > bytes)
}

/// A receive of no byte, from the kernel. What it is told is for the next call.
fn receive_nothing(end: &End, peek: bool, beside: Option<&Beside>) {
    // SAFETY: msghdr is plain integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    let flags = if peek { libc::MSG_PEEK } else { 0 };
    let flags = flags | beside.map_or(0, |beside| beside.lend(&mut message));
    // SAFETY: there are no pieces; whoever made `beside` has promised the room for control messages.
    match unsafe { kernel::recvmsg(end.fd(), &raw mut message, flags) } {
        Ok(_) => {
            if let Some(beside) = beside {
                beside.note(&message);
            }
        }
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => ending::note_error(end, errno),
    }
}

/// Move the cursor over the data at it.
fn pass_data(end: &End, lane: &WindowLane, cursor: &mut RxCursor) -> Result<u64, Errno> {
    let (mut total, lap_end) = (0, cursor.head + u64::from(lane.lines()));
    while cursor.head < lap_end
        && let Next::Data(left) = cursor.come_to_next(lane).map_err(|lie| lied(end, lie))?
    {
        total += left as u64;
        cursor.pass(left, left);
    }
    Ok(total)
}

/// Visit the places where the stream goes on, in order, until one has less than there may come.
fn visit(end: &End, mut look: impl FnMut(Place<'_>) -> Result<u64, Errno>) -> Result<Seen, Errno> {
    let _rx = end.lock_rx();
    if lost::is_dry(end) {
        return Ok(Seen::Once);
    }
    let Some(lane) = end.rx_lane() else {
        let all = Place::Tcp {
            skipped: 0,
            most: u64::MAX,
        };
        if end.is_kernels() {
            look(all)?;
        }
        return Ok(Seen::Once);
    };
    let rx = &end.entry.rx;
    let taken = rx.tcp_bytes.load(Ordering::Relaxed);
    let (mut mode, mut on_tcp, mut cursor) = (end.rx_mode(), taken, end.rx_cursor());
    if mode == Mode::Drain {
        (mode, on_tcp) = (Mode::Tcp, rx.tcp_limit.load(Ordering::Relaxed));
    }
    for _ in 0..MOST_PASSAGES {
        match mode {
            Mode::Tcp => {
                let start = next_control(end, &lane, &cursor, Control::Start)?;
                on_tcp += look(Place::Tcp {
                    skipped: on_tcp.saturating_sub(taken),
                    most: start.map_or(u64::MAX, |start| start.saturating_sub(on_tcp)),
                })?;
                if start != Some(on_tcp) {
                    break;
                }
                mode = match end.has_flags(end_flags::FROZEN) {
                    true => Mode::Replay,
                    false => Mode::Ring,
                };
            }
            Mode::Ring => {
                look(Place::Ring(&lane, &mut cursor))?;
                let Some(stop) = next_control(end, &lane, &cursor, Control::Stop)? else {
                    break;
                };
                (mode, on_tcp) = (Mode::Tcp, stop);
            }
            Mode::Replay => return visit_frozen(end, &lane, (taken, cursor), look),
            Mode::Drain => break,
        }
        cursor.head += 1;
    }
    Ok(Seen::Once)
}

/// As [`visit`], in a ring that is frozen: what stands there, and behind a STOP what TCP holds, unless it is sent again.
fn visit_frozen(
    end: &End,
    lane: &WindowLane,
    (taken, mut cursor): (u64, RxCursor),
    mut look: impl FnMut(Place<'_>) -> Result<u64, Errno>,
) -> Result<Seen, Errno> {
    let on_tcp = |at: u64| Place::Tcp {
        skipped: at.saturating_sub(taken),
        most: u64::MAX,
    };
    if let Some(at) = replayed_at(end, lane) {
        look(on_tcp(at))?;
        return Ok(Seen::Once);
    }
    look(Place::Ring(lane, &mut cursor))?;
    let Some(stop) = next_control(end, lane, &cursor, Control::Stop)? else {
        return Ok(Seen::Once);
    };
    look(on_tcp(stop))?;
    Ok(match replayed_at(end, lane) {
        None => Seen::Once,
        Some(_) => Seen::Twice,
    })
}

/// Where on TCP the peer sends again what is in the ring, if it has begun to.
fn replayed_at(end: &End, lane: &WindowLane) -> Option<u64> {
    let sender = &lane.control().sender;
    let seen = end.entry.wait.replay_seen.load(Ordering::Relaxed);
    let is_answered = sender.replay_seq.load(Ordering::SeqCst) != seen; // SYNC: frozen
    let at = sender.replay_at.load(Ordering::Relaxed);
    (is_answered && at != NO_REPLAY).then_some(at)
}

/// The number in the control record at the cursor, if there is one of this kind.
fn next_control(
    end: &End,
    lane: &WindowLane,
    cursor: &RxCursor,
    kind: Control,
) -> Result<Option<u64>, Errno> {
    match cursor.peek(lane).map_err(|lie| lied(end, lie))? {
        Next::Control(found, number) if found == kind => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// Copy what TCP holds after its first `skipped` bytes, at most `most`. Returns how much, and whether
/// something stands beside it.
fn peek_tcp(
    end: &End,
    parts: &mut Parts<'_>,
    beside: Option<&Beside>,
    (skipped, most): (u64, u64),
) -> Result<(u64, bool), Errno> {
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let most = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .min(parts.left());
    let wanted = skipped.saturating_add(most);
    let held = match end.family().available(end.fd(), wanted) {
        Ok(held) if held > skipped => held,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok((0, false)),
        Err(errno) => return Err(errno),
    };
    let mut bytes = vec![0u8; held];
    let whole = [Part::of_mut(&mut bytes)];
    // SAFETY: the part is the vector.
    let Some(whole) = (unsafe { Parts::new(&whole) }) else {
        return Ok((0, false));
    };
    let (held, is_last) = receive_parts(end, &whole, true, beside)?;
    let is_last = is_last && !(held == wanted && stands_behind(end, held));
    let mut rest = bytes.get(skipped..held).unwrap_or_default();
    let (copied, before) = (rest.len(), parts.clone());
    while let Some((to, piece)) = parts.take(rest.len())
        && piece > 0
    {
        // SAFETY: `take` hands out valid pieces, and the rest has so many bytes.
        if let Err(fault) = unsafe { program::copy(rest.as_ptr(), to, piece) } {
            *parts = before;
            return Err(fault.into());
        }
        rest = &rest[piece..];
    }
    Ok((copied as u64, is_last))
}
