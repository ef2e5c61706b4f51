//! The kernel's own count of a connection's bytes, held against ours before a switch: bytes that
//! moved past the library must keep a connection on TCP.
//!
//! The kernel does not count the bytes of an AF_UNIX stream. There a sender shows its own count in the
//! lane until the direction enters the ring, with the calls that are inside the kernel; what is sent is
//! in the receiver's queue at once, so that a receiver can hold the count against what it has taken and
//! what is queued. That finds out for both ends whether bytes have moved past the library.

use core::sync::atomic::Ordering;
use std::os::fd::RawFd;

use crosslane_ctl::lane::counted;
use crosslane_ctl::lane::receiver_flags::STAND_BY;
use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_ring::WindowLane;
use crosslane_sys::{cancel, cpu, kernel};

use crate::End;
use crate::family::Family;
use crate::lock::{self, PASSAGE};

/// The part of `struct tcp_info` (linux/tcp.h) up to `tcpi_bytes_received`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state: u8,
    before: [u8; 119],
    bytes_acked: u64,
    bytes_received: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(TcpInfo, bytes_acked) == 120);
    assert!(core::mem::offset_of!(TcpInfo, bytes_received) == 128);
};

/// TCP_ESTABLISHED and others of the kernel's state machine.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// Those after the peer's FIN: TCP_TIME_WAIT, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING.
const ENDED: [u8; 5] = [6, CLOSED, CLOSE_WAIT, 9, 11];

/// How long a sender begins no call because the receiver counts: it may have to be woken first.
const STAND_BY_US: u64 = 100;

/// How often bytes may move between the kernel calls of one look.
const LOOKS: u32 = 8;

/// What holding the kernel's count against ours gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// They agree.
    Agrees,
    /// Bytes were moving between the two kernel calls that make a count; ask again later.
    Moving,
    /// Bytes have moved past the library.
    Differs,
    /// The connection is not established any more: the kernel counts ends as bytes.
    Closing,
}

impl Count {
    /// `kernel` lags behind `ours` while bytes are moving, and never runs ahead.
    fn compare(kernel: u64, ours: u64) -> Self {
        match kernel.cmp(&ours) {
            core::cmp::Ordering::Equal => Self::Agrees,
            core::cmp::Ordering::Less => Self::Moving,
            core::cmp::Ordering::Greater => Self::Differs,
        }
    }
}

fn info(fd: RawFd) -> Option<TcpInfo> {
    kernel::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()
}

/// Whether the kernel has been given exactly the bytes that the library has counted.
pub(crate) fn compare_sent(end: &End) -> Count {
    let sent = end.entry.tx.tcp_bytes.load(Ordering::Relaxed);
    match end.family() {
        Family::Tcp => compare_tcp_sent(end.fd(), sent, end.has_flags(end_flags::PASSIVE)),
        // A call that has just been cancelled may have sent more.
        Family::Unix if end.is_pinned() => Count::Moving,
        // The receiver has compared before it said that it is ready.
        Family::Unix if is_open(end.fd()) => Count::Agrees,
        Family::Unix => Count::Closing,
    }
}

/// Whether the bytes that the library has counted have been taken from the kernel, and no others.
/// The caller holds the receiving direction.
pub(crate) fn compare_received(end: &End, lane: &WindowLane) -> Count {
    let received = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    match end.family() {
        Family::Tcp => compare_tcp_received(end.fd(), received),
        Family::Unix => {
            let count = compare_with_peer(end.fd(), received, lane);
            ask_to_stand_by(lane, count == Count::Moving);
            count
        }
    }
}

/// How many bytes the kernel has been given in all; `None` where it does not say. The caller is the only one who sends.
pub(crate) fn sent(end: &End) -> Option<u64> {
    let first = u64::from(!end.has_flags(end_flags::PASSIVE));
    count_at_rest(end, libc::TIOCOUTQ, |info, queued| {
        // After our own end the kernel counts that, too.
        let is_open = matches!(info.state, ESTABLISHED | CLOSE_WAIT);
        let given = (info.bytes_acked + queued).checked_sub(first);
        given.filter(|_| is_open)
    })
}

/// How many bytes have been taken from the kernel in all; `None` where it does not say. The caller holds the receiving
/// direction.
pub(crate) fn received(end: &End) -> Option<u64> {
    let rx = &end.entry.rx;
    if rx.raw_calls.load(Ordering::SeqCst) != 0 {
        return None;
    }
    let received = count_at_rest(end, libc::FIONREAD, |info, queued| {
        let ends = match info.state {
            ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 => 0,
            CLOSE_WAIT => 1,
            _ => return None,
        };
        info.bytes_received.checked_sub(queued + ends)
    });
    // After the count, which ends at an urgent byte that has come before.
    received.filter(|received| {
        !is_urgent(end.fd()) && *received >= rx.tcp_bytes.load(Ordering::Relaxed)
    })
}

/// How many bytes the kernel has brought before the peer's end, all of which have been taken, `counted` by the library, perhaps
/// with others. `None` where it does not say: behind a reset it does not tell whether the peer had ended before, which counts
/// as a byte.
pub(crate) fn brought_before_end(end: &End, counted: u64, is_all: bool) -> Option<u64> {
    let info = info(end.fd())?;
    let ends = match info.state {
        CLOSED => info
            .bytes_received
            .checked_sub(counted)
            .filter(|ends| *ends <= u64::from(is_all))?,
        _ => 1,
    };
    info.bytes_received.checked_sub(ends)
}

fn is_urgent(fd: RawFd) -> bool {
    kernel::poll_now(fd, libc::POLLPRI) & libc::POLLPRI != 0 || kernel::is_at_mark(fd)
}

/// Look at a count and a queue until no byte has moved between the two.
fn count_at_rest(
    end: &End,
    queue: libc::c_ulong,
    count: impl Fn(TcpInfo, u64) -> Option<u64>,
) -> Option<u64> {
    if end.family() != Family::Tcp {
        return None;
    }
    let word = |info: &TcpInfo| (info.state, info.bytes_acked, info.bytes_received);
    for _ in 0..LOOKS {
        let before = info(end.fd())?;
        let queued = kernel::queued(end.fd(), queue).ok()?;
        let after = info(end.fd())?;
        if word(&before) == word(&after) {
            return count(after, queued.into());
        }
    }
    None
}

/// All bytes that the kernel has brought, taken or not. What stands behind an urgent byte is not in TCP's FIONREAD.
pub(crate) fn arrived(end: &End) -> u64 {
    if end.family() == Family::Tcp {
        return info(end.fd()).map_or(0, |info| info.bytes_received);
    }
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    taken + u64::from(kernel::queued(end.fd(), libc::FIONREAD).unwrap_or(0))
}

/// Whether the kernel knows that the peer sends nothing any more, behind an own shutdown for reading, too. AF_UNIX does not tell
/// whose shutdown it was.
pub(crate) fn has_ended(end: &End) -> bool {
    end.family() == Family::Unix || info(end.fd()).is_none_or(|info| ENDED.contains(&info.state))
}

fn is_open(fd: RawFd) -> bool {
    let ended = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    kernel::poll_now(fd, libc::POLLRDHUP) & ended == 0 && kernel::can_send_unix(fd)
}

fn compare_with_peer(fd: RawFd, received: u64, lane: &WindowLane) -> Count {
    let shown = &lane.control().sender.counted;
    at_rest(|| {
        let before = shown.load(Ordering::SeqCst); // SYNC: counted
        // Of a sender that sleeps in its call, each receive would ask the kernel anew.
        let Some(sent) = counted::bytes_at_rest(before) else {
            return Some(Count::Moving);
        };
        if !is_open(fd) {
            return None;
        }
        let queued = kernel::queued(fd, libc::FIONREAD).ok()?;
        let after = shown.load(Ordering::SeqCst); // SYNC: counted
        Some(match sent == received + u64::from(queued) {
            _ if before != after => Count::Moving,
            true => Count::Agrees,
            false => Count::Differs,
        })
    })
}

/// Show the peer of an AF_UNIX stream how much has been sent; from then on [`count_sending`] counts.
pub(crate) fn show_sent(end: &End) {
    if end.family() == Family::Tcp || end.has_flags(end_flags::COUNTED) {
        return;
    }
    let _tx = end.lock_tx();
    let Some(lane) = end.tx_lane() else { return };
    if end.tx_mode() != Mode::Tcp || end.has_flags(end_flags::COUNTED) {
        return;
    }
    let tx = &end.entry.tx;
    let _passage = lock::mark(&tx.lock, PASSAGE);
    // As for a switch: a call that enters the kernel's send counts itself, then looks at the mode.
    tx.mode.store(Mode::Ring as u32, Ordering::SeqCst); // SYNC: raw
    if tx.raw_calls.load(Ordering::SeqCst) == 0 {
        let sent = counted::at_rest(tx.tcp_bytes.load(Ordering::Relaxed));
        lane.control().sender.counted.store(sent, Ordering::SeqCst); // SYNC: counted
        end.add_flags(end_flags::COUNTED);
    }
    tx.mode.store(Mode::Tcp as u32, Ordering::SeqCst);
}

/// The direction leaves the ring: what has been sent meanwhile, doorbells and all, is shown when it is
/// to enter again. The caller holds it.
pub(crate) fn count_anew(end: &End, lane: &WindowLane) {
    if end.has_flags(end_flags::COUNTED) {
        lane.control().sender.counted.store(0, Ordering::SeqCst); // SYNC: counted
        end.clear_flags(end_flags::COUNTED);
    }
}

/// Run a call that sends by the kernel. The peer sees when it is inside, and what it has sent; not where the
/// connection no longer `has_lane`, which is then another's.
pub(crate) fn count_sending(
    end: &End,
    call: impl FnOnce() -> isize,
    has_lane: impl Fn() -> bool,
) -> isize {
    let lane = end.tx_lane().filter(|_| end.has_flags(end_flags::COUNTED));
    let Some(lane) = lane else { return call() };
    stand_by(&lane);
    let shown = &lane.control().sender.counted;
    shown.fetch_add(counted::CALL, Ordering::SeqCst); // SYNC: counted
    let leave = || {
        if has_lane() {
            shown.fetch_sub(counted::CALL, Ordering::SeqCst);
        }
    };
    let sent = cancel::undone(leave, call);
    if !has_lane() {
        return sent;
    }
    let bytes = u64::try_from(sent).unwrap_or(0);
    let change = (bytes * counted::BYTE).wrapping_sub(counted::CALL);
    shown.fetch_add(change, Ordering::SeqCst); // SYNC: counted
    sent
}

/// Under load there is always a call inside the kernel: ask the sender for a moment without one.
fn ask_to_stand_by(lane: &WindowLane, wanted: bool) {
    let flags = &lane.control().receiver.flags;
    match wanted {
        true => drop(flags.fetch_or(STAND_BY, Ordering::SeqCst)),
        false if flags.load(Ordering::Relaxed) & STAND_BY != 0 => stop_standing_by(lane),
        false => {}
    }
}

fn stop_standing_by(lane: &WindowLane) {
    let flags = &lane.control().receiver.flags;
    flags.fetch_and(!STAND_BY, Ordering::SeqCst);
}

/// Give the receiver the moment that it has asked for.
fn stand_by(lane: &WindowLane) {
    let flags = &lane.control().receiver.flags;
    if flags.load(Ordering::Relaxed) & STAND_BY == 0 {
        return;
    }
    let until = cpu::ticks() + STAND_BY_US * cpu::ticks_per_us();
    while flags.load(Ordering::SeqCst) & STAND_BY != 0 {
        if cpu::ticks() >= until {
            return stop_standing_by(lane);
        }
        std::thread::yield_now();
    }
}

/// Whether the kernel has been given exactly `sent` bytes. Its count includes the SYN of the end
/// that connected.
fn compare_tcp_sent(fd: RawFd, sent: u64, passive: bool) -> Count {
    let ours = sent + u64::from(!passive);
    at_rest(|| {
        let info = established(fd)?;
        let queued = kernel::queued(fd, libc::TIOCOUTQ).ok()?;
        Some(Count::compare(info.bytes_acked + u64::from(queued), ours))
    })
}

/// Whether exactly `received` bytes have been taken from the kernel.
fn compare_tcp_received(fd: RawFd, received: u64) -> Count {
    at_rest(|| {
        let info = established(fd)?;
        let queued = kernel::queued(fd, libc::FIONREAD).ok()?;
        Some(Count::compare(
            info.bytes_received,
            received + u64::from(queued),
        ))
    })
}

/// Look until no byte moves between the two kernel calls that make a count: a stream under load
/// never rests for long. The end of the stream may come meanwhile, and counts as a byte.
fn at_rest(look: impl Fn() -> Option<Count>) -> Count {
    for _ in 0..LOOKS {
        match look() {
            None => return Count::Closing,
            Some(Count::Moving) => {}
            Some(Count::Differs) => return look().map_or(Count::Closing, |_| Count::Differs),
            Some(count) => return count,
        }
    }
    Count::Moving
}

fn established(fd: RawFd) -> Option<TcpInfo> {
    info(fd).filter(|info| info.state == ESTABLISHED)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_kernel_counts_as_we_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let (near, far) = (client.as_raw_fd(), server.as_raw_fd());
        client.write_all(&[1; 1000]).unwrap();
        assert_eq!(compare_tcp_sent(near, 1000, false), Count::Agrees);
        assert_eq!(compare_tcp_received(far, 0), Count::Agrees);
        server.read_exact(&mut [0; 300]).unwrap();
        assert_eq!(compare_tcp_received(far, 300), Count::Agrees);
        assert_eq!(compare_tcp_received(far, 299), Count::Differs);
        server.write_all(&[2; 7]).unwrap();
        assert_eq!(compare_tcp_sent(far, 7, true), Count::Agrees);
        assert_eq!(compare_tcp_sent(far, 6, true), Count::Differs);
        assert_eq!(compare_tcp_sent(near, 999, false), Count::Differs);
        drop(server); // with 700 bytes unread
        let ended = client.read_to_end(&mut Vec::new());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(compare_tcp_sent(near, 1000, false), Count::Closing);
    }
}
