//! What a member leaves that is killed between two steps, as another one finds it.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use crosslane_ctl::lane::receiver_flags::CLOSED;
use crosslane_sys::kernel;

use super::*;
use crate::both::{Socket, ends, queued};
use crate::close;
use crate::slices;
use crate::switch;

/// Somebody has died with this direction and these marks.
pub(crate) fn die(end: &End, lock: &AtomicU32, marks: u32) {
    let dead = end.table().expect();
    end.table().family().forget(dead);
    let word = u32::from(dead.number()) | marks;
    assert_eq!(lock.swap(word, Ordering::SeqCst), 0);
    // Others have the end, too.
    end.add_flags(end_flags::FORKED);
}

fn receives(end: &End, expected: &[u8]) {
    let mut bytes = vec![0; expected.len() + 10];
    let mut got = 0;
    let deadline = Instant::now() + Duration::from_secs(5);
    while got < expected.len() {
        assert!(Instant::now() < deadline, "{got} bytes have come");
        match slices::receive(end, &mut bytes[got..], true) {
            Ok(more) => got += more,
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }
    assert_eq!(&bytes[..got], expected);
}

fn sends(end: &End, bytes: &[u8]) {
    assert_eq!(slices::send(end, bytes, false), Ok(bytes.len()));
}

/// What a peer sends when it has gone back to TCP.
fn leaves_ring(end: &End) {
    assert!(switch::go_by_tcp(end, Reason::PeerAsked));
}

#[test]
fn a_member_that_lives_keeps_its_direction() {
    let ([end, _peer], _sockets) = ends();
    let other = end.table().expect();
    let lock = &end.entry.tx.lock;
    lock.store(other.number().into(), Ordering::SeqCst);
    end.add_flags(end_flags::FORKED);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| drop(end.lock_tx()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        end.table().family().forget(other);
    });
}

/// It keeps its process id, and nothing of the connection.
#[test]
fn a_member_that_becomes_another_program_has_left_its_direction() {
    let ([end, _peer], _sockets) = ends();
    let member = end.table().expect();
    let lock = &end.entry.tx.lock;
    end.add_flags(end_flags::FORKED);
    let arguments = [c"sleep".as_ptr(), c"60".as_ptr(), core::ptr::null()];
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        end.table().family().join(member);
        lock.store(member.number().into(), Ordering::SeqCst);
        // SAFETY: C strings, and null behind the last of them.
        unsafe { libc::execv(c"/bin/sleep".as_ptr(), arguments.as_ptr()) };
        std::process::abort();
    }
    while lock.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(end.lock_tx());
    let lives = crosslane_sys::process::is_alive(child.cast_unsigned());
    // SAFETY: it is ours, and has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: the status is not wanted.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    assert!(lives);
}

#[test]
fn a_record_of_the_dead_is_not_written_over() {
    let ([end, peer], _sockets) = ends();
    let tail = end.entry.tx.tail.load(Ordering::Relaxed);
    sends(&end, b"first");
    receives(&peer, b"first");
    sends(&end, b"second");
    end.entry.tx.tail.store(tail, Ordering::Relaxed);
    die(&end, &end.entry.tx.lock, 0);
    sends(&end, b"third");
    receives(&peer, b"secondthird");
}

#[test]
fn what_the_dead_have_read_is_not_read_again() {
    let ([end, peer], _sockets) = ends();
    let before = end.rx_cursor();
    sends(&peer, b"read");
    receives(&end, b"read");
    end.set_rx_cursor(before);
    die(&end, &end.entry.rx.lock, 0);
    sends(&peer, b"new");
    receives(&end, b"new");
}

#[test]
fn a_doorbell_of_the_dead_is_counted() {
    let ([end, peer], _sockets) = ends();
    end.entry.tx.bells_owed.store(1, Ordering::Relaxed);
    // SAFETY: the byte is valid for one read.
    let sent = unsafe { kernel::send(end.fd(), &raw const b"!"[0], 1, 0) };
    assert_eq!(sent, Ok(1));
    die(&end, &end.entry.tx.lock, COUNTING);
    leaves_ring(&end);
    sends(&end, b"data");
    receives(&peer, b"data");
    assert_eq!(queued(&peer), 0);
}

#[test]
fn a_doorbell_that_the_dead_have_not_sent_is_sent() {
    let ([end, peer], _sockets) = ends();
    let lane = end.tx_lane().unwrap();
    sends(&end, b"record");
    let total = &lane.control().sender.tcp_total;
    total.fetch_or(RINGING, Ordering::SeqCst);
    die(&end, &end.entry.tx.lock, 0);
    drop(end.lock_tx());
    assert_eq!(queued(&peer), 1);
    receives(&peer, b"record");
    leaves_ring(&end);
    sends(&end, b"data");
    receives(&peer, b"data");
}

#[test]
fn doorbells_that_the_dead_have_taken_are_counted() {
    let ([end, peer], _sockets) = ends();
    bell::ring_again(&peer, &peer.tx_lane().unwrap());
    assert_eq!(queued(&end), 1);
    assert_eq!(kernel::discard(end.fd(), 1), Ok(1));
    die(&end, &end.entry.rx.lock, COUNTING);
    leaves_ring(&peer);
    sends(&peer, b"data");
    receives(&end, b"data");
}

#[test]
fn the_end_of_the_stream_is_not_counted() {
    let ([end, peer], _sockets) = ends();
    let [sent, received] =
        [&peer.entry.tx, &end.entry.tx].map(|tx| tx.tcp_bytes.load(Ordering::Relaxed));
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    kernel::shutdown(peer.fd(), libc::SHUT_WR).unwrap();
    assert_eq!(kernel_view::received(&end), Some(taken));
    assert_eq!(kernel_view::sent(&end), Some(received));
    assert_eq!(kernel_view::sent(&peer), None, "{sent} and an end");
}

#[test]
fn what_cannot_be_known_resets_the_connection() {
    for direction in [0, 1] {
        let ([end, peer], _sockets) = ends();
        let count = || {
            let reasons = &end.table().header().reasons;
            reasons[Reason::Torn as usize].load(Ordering::Relaxed)
        };
        let before = count();
        if direction == 0 {
            die(&end, &end.entry.tx.lock, PASSAGE);
            drop(end.lock_tx());
        } else {
            die(&end, &end.entry.rx.lock, PASSAGE);
            drop(end.lock_rx());
        }
        assert!(count() > before);
        let reset = Err(Errno::CONNRESET);
        assert_eq!(slices::receive(&peer, &mut [0; 10], false), reset);
        match direction {
            0 => assert_eq!(slices::send(&end, b"data", false), reset),
            _ => assert_eq!(slices::receive(&end, &mut [0; 10], false), reset),
        }
        assert_eq!(slices::send(&end, b"data", false), Err(Errno::PIPE));
        assert_eq!(slices::receive(&end, &mut [0; 10], false), Ok(0));
    }
}

#[test]
fn a_doorbell_that_the_dead_have_only_promised_is_sent() {
    let ([end, peer], _sockets) = ends();
    sends(&end, b"record");
    end.entry.tx.bells_owed.store(1, Ordering::Relaxed);
    bell::publish_total(&end, &end.tx_lane().unwrap(), 0);
    die(&end, &end.entry.tx.lock, 0);
    drop(end.lock_tx());
    assert_eq!(queued(&peer), 1);
    receives(&peer, b"record");
    leaves_ring(&end);
    sends(&end, b"data");
    receives(&peer, b"data");
}

#[test]
fn who_sleeps_over_a_record_of_the_dead_is_rung() {
    let ([end, peer], _sockets) = ends();
    sends(&end, b"record");
    bell::arm(&peer, &peer.rx_lane().unwrap());
    die(&end, &end.entry.tx.lock, 0);
    drop(end.lock_tx());
    assert_eq!(queued(&peer), 1);
    // Once.
    die(&end, &end.entry.tx.lock, 0);
    drop(end.lock_tx());
    assert_eq!(queued(&peer), 1);
}

#[test]
fn who_waits_for_space_that_the_dead_have_made_is_rung() {
    let ([end, peer], _sockets) = ends();
    sends(&peer, b"read");
    receives(&end, b"read");
    bell::want_space(&peer, &peer.tx_lane().unwrap());
    die(&end, &end.entry.rx.lock, 0);
    drop(end.lock_rx());
    assert_eq!(queued(&peer), 1);
}

#[test]
fn a_peer_that_closes_is_not_rung_for_the_dead() {
    let ([end, peer], _sockets) = ends();
    let [lane, back] = [end.tx_lane().unwrap(), peer.rx_lane().unwrap()];
    end.entry.tx.bells_owed.store(1, Ordering::Relaxed);
    bell::publish_total(&end, &lane, RINGING);
    back.control()
        .receiver
        .flags
        .fetch_or(CLOSED, Ordering::SeqCst);
    die(&end, &end.entry.tx.lock, 0);
    drop(end.lock_tx());
    assert_eq!(queued(&peer), 0);
    assert_eq!(bell::take(&peer, &back), bell::Bells::None);
}

#[test]
fn bytes_behind_an_urgent_one_are_not_taken_for_received() {
    let ([end, peer], _sockets) = ends();
    let taken = end.entry.rx.tcp_bytes.load(Ordering::Relaxed);
    // SAFETY: the bytes are valid for reads.
    let sent = unsafe { kernel::send(peer.fd(), b"ab!".as_ptr(), 3, libc::MSG_OOB) };
    assert_eq!(sent, Ok(3));
    // SAFETY: as above.
    let sent = unsafe { kernel::send(peer.fd(), b"behind".as_ptr(), 6, 0) };
    assert_eq!(sent, Ok(6));
    assert_eq!(queued(&end), 2);
    assert_eq!(kernel_view::received(&end), None);
    assert_eq!(kernel::discard(end.fd(), 2), Ok(2));
    assert_eq!(kernel_view::received(&end), None, "{taken} and two");
}

#[test]
fn less_than_has_been_counted_is_no_count() {
    let ([end, _peer], _sockets) = ends();
    assert!(kernel_view::received(&end).is_some());
    end.entry.rx.tcp_bytes.fetch_add(1, Ordering::Relaxed);
    assert_eq!(kernel_view::received(&end), None);
}

/// As [`ends`], over AF_UNIX.
fn unix_ends() -> ([End; 2], [Socket<TcpStream>; 2]) {
    let (ends, sockets) = ends();
    let (near, far) = UnixStream::pair().unwrap();
    for (end, socket) in ends.iter().zip([near, far]) {
        // SAFETY: the number stays that of the stream which `sockets` has.
        assert!(unsafe { libc::dup2(socket.as_raw_fd(), end.fd()) } >= 0);
        end.add_flags(end_flags::UNIX);
    }
    (ends, sockets)
}

#[test]
fn over_unix_both_are_told_of_an_end_that_cannot_be_known() {
    for direction in [0, 1] {
        let ([end, peer], _sockets) = unix_ends();
        sends(&end, b"before");
        if direction == 0 {
            end.entry.tx.bells_owed.store(1, Ordering::Relaxed);
            die(&end, &end.entry.tx.lock, COUNTING);
            drop(end.lock_tx());
        } else {
            // What comes behind the hole.
            // SAFETY: the byte is valid for one read.
            let sent = unsafe { kernel::send(peer.fd(), &raw const b"!"[0], 1, 0) };
            assert_eq!(sent, Ok(1));
            die(&end, &end.entry.rx.lock, COUNTING);
            drop(end.lock_rx());
        }
        receives(&peer, b"before");
        let reset = Err(Errno::CONNRESET);
        assert_eq!(slices::receive(&peer, &mut [0; 10], false), reset);
        assert_eq!(slices::receive(&end, &mut [0; 10], false), reset);
        assert_eq!(slices::receive(&end, &mut [0; 10], false), Ok(0));
        assert_eq!(slices::send(&end, b"data", false), Err(Errno::PIPE));
        // Not when their numbers are those of others.
        [end, peer].iter().for_each(close::before_close);
    }
}

#[test]
fn over_unix_a_doorbell_that_has_been_counted_is_known() {
    let ([end, peer], _sockets) = unix_ends();
    die(&end, &end.entry.tx.lock, COUNTING);
    sends(&end, b"data");
    receives(&peer, b"data");
}
