//! Peeking past the places where the stream passes between ring and TCP, for MSG_WAITALL: nothing is
//! taken, so a look at one side alone would see the same short piece for ever.

use core::sync::atomic::Ordering;

use crosslane_ctl::slab::Mode;
use crosslane_ring::{Control, Next, Parts, WindowLane};
use crosslane_sys::{Errno, kernel};

use crate::End;
use crate::ending::lied;

/// Passages that one look follows.
const MOST_PASSAGES: usize = 8;

/// Copy what the stream holds now into `parts`, on both sides of passages, and take nothing.
///
/// # Errors
/// If the peer has broken the ring's rules, or as recv(2).
pub(crate) fn peek_on(end: &End, parts: &mut Parts<'_>) -> Result<usize, Errno> {
    let Some(lane) = end.rx_lane() else {
        return Ok(0);
    };
    let _rx = end.lock_rx();
    let rx = &end.entry.rx;
    let taken = rx.tcp_bytes.load(Ordering::Relaxed);
    let limit = rx.tcp_limit.load(Ordering::Relaxed);
    let (mut mode, mut on_tcp, mut cursor) = (end.rx_mode(), taken, end.rx_cursor());
    if mode == Mode::Drain {
        (mode, on_tcp) = (Mode::Tcp, limit);
    }
    let asked = parts.left();
    for _ in 0..MOST_PASSAGES {
        match mode {
            Mode::Tcp => {
                let start = next_control(end, &lane, &cursor, Control::Start)?;
                let most = start.map_or(u64::MAX, |start| start.saturating_sub(on_tcp));
                on_tcp += peek_tcp(end, parts, on_tcp.saturating_sub(taken), most)?;
                if start != Some(on_tcp) {
                    break;
                }
                cursor.head += 1;
                mode = Mode::Ring;
            }
            Mode::Ring => {
                cursor.copy_on(&lane, parts).map_err(|lie| lied(end, lie))?;
                let Some(stop) = next_control(end, &lane, &cursor, Control::Stop)? else {
                    break;
                };
                cursor.head += 1;
                (mode, on_tcp) = (Mode::Tcp, stop);
            }
            Mode::Drain | Mode::Replay => break,
        }
        if parts.left() == 0 {
            break;
        }
    }
    Ok(asked - parts.left())
}

/// The number in the control record at the cursor, if there is one of this kind.
fn next_control(
    end: &End,
    lane: &WindowLane,
    cursor: &crosslane_ring::RxCursor,
    kind: Control,
) -> Result<Option<u64>, Errno> {
    match cursor.peek(lane).map_err(|lie| lied(end, lie))? {
        Next::Control(found, number) if found == kind => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// Copy what TCP holds after its first `skipped` bytes, at most `most`. Returns how much.
fn peek_tcp(end: &End, parts: &mut Parts<'_>, skipped: u64, most: u64) -> Result<u64, Errno> {
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let most = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .min(parts.left());
    let held = match kernel::available(end.fd(), skipped.saturating_add(most)) {
        Ok(held) if held > skipped => held,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
        Err(errno) => return Err(errno),
    };
    let mut bytes = vec![0u8; held];
    // SAFETY: the vector has so many bytes.
    let held = unsafe { kernel::recv(end.fd(), bytes.as_mut_ptr(), held, libc::MSG_PEEK) }?;
    let mut rest = bytes.get(skipped..held).unwrap_or_default();
    let copied = rest.len();
    while let Some((to, piece)) = parts.take(rest.len())
        && piece > 0
    {
        // SAFETY: `take` hands out valid pieces, and the rest has so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(rest.as_ptr(), to, piece) };
        rest = &rest[piece..];
    }
    Ok(copied as u64)
}
