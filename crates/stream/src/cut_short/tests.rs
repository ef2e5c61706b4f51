use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::*;
use crate::both::{ends, unix_ends};
use crate::replay::tests::{BYTES, WATCHDOG, make_small, message};
use crate::{peek, replay, rest, slices, switch};

/// What the far end has read in its lane before it freezes: part of the first record.
const BEFORE: usize = 100;

/// How much it receives by TCP of what is sent again before the near end's stream ends: nothing, some, or all.
const TAKEN: [usize; 6] = [0, 1, 4000, 9000, 20_000, BYTES - BEFORE];

/// The near end has sent the message in records of different lengths, of which the far end has read the first bytes.
fn send_message([near, far]: &[End; 2], sockets: &[impl AsRawFd]) -> Vec<u8> {
    make_small(sockets);
    let whole = message();
    let (first, rest) = whole.split_at(9000);
    let (second, third) = rest.split_at(3);
    for part in [first, second, third] {
        assert_eq!(slices::send(near, part, true), Ok(part.len()));
    }
    let mut read = vec![0; BEFORE];
    assert_eq!(slices::receive(far, &mut read, true), Ok(BEFORE));
    read
}

fn freeze(far: &End) {
    switch::freeze(far);
    rest::begin(far, Reason::Passed);
    rest::object(far);
    switch::leave(far, Reason::Passed);
}

/// The near end says where it sends again, and sends nothing.
fn answer_nothing(near: &End) {
    let lane = near.tx_lane().unwrap();
    assert!(replay::claim_freeze(near, &lane));
    replay::answer_freeze(near, &lane, near.entry.tx.tcp_bytes.load(Ordering::Relaxed));
    switch::drop_claim(&lane);
}

/// The far end has read `read` in all when it has taken `taken` bytes of what the near end sends again.
fn take([near, far]: &[End; 2], taken: usize, read: &mut Vec<u8>) {
    let mut byte = [0];
    while read.len() < BEFORE + taken {
        switch::attend(near);
        match slices::receive(far, &mut byte, true) {
            Ok(1) => read.extend(byte),
            other => assert_eq!(other, Err(Errno::AGAIN)),
        }
    }
}

/// The far end has read all that came by TCP, and the end of it is there.
fn take_all_of_tcp(both: &[End; 2], read: &mut Vec<u8>) {
    let fd = both[1].fd();
    let deadline = Instant::now() + WATCHDOG;
    loop {
        assert!(Instant::now() < deadline, "the stream does not end");
        std::thread::yield_now();
        // In this order: nothing comes behind the end.
        let is_over = kernel::poll_now(fd, libc::POLLRDHUP) != 0;
        match kernel::queued(fd, libc::FIONREAD) {
            Ok(0) if is_over => return,
            Ok(0) => {}
            _ => take(both, read.len() - BEFORE + 1, read),
        }
    }
}

/// As the kernel does for a process that is killed and has read all. Here nobody else has the number meanwhile.
fn end_stream(near: &End) {
    kernel::shutdown(near.fd(), libc::SHUT_WR).unwrap();
}

/// What the far end still receives, and what it is told then.
fn read_on_to_end(far: &End, read: &mut Vec<u8>) -> Result<usize, Errno> {
    let mut some = [0; 3000];
    loop {
        match slices::receive(far, &mut some, false) {
            Ok(bytes @ 1..) => read.extend(&some[..bytes]),
            told => return told,
        }
    }
}

fn check_all(far: &End, mut read: Vec<u8>) {
    assert_eq!(read_on_to_end(far, &mut read), Ok(0));
    assert!(read == message(), "{} of {BYTES} bytes", read.len());
    assert_eq!(slices::receive(far, &mut [0; 10], false), Ok(0));
    assert_eq!(far.entry.wait.error.load(Ordering::Relaxed), 0);
}

#[test]
fn what_was_not_sent_again_before_the_end_is_read_in_the_lane() {
    for taken in TAKEN {
        let (both, sockets) = ends();
        let mut read = send_message(&both, &sockets);
        freeze(&both[1]);
        take(&both, taken, &mut read);
        end_stream(&both[0]);
        check_all(&both[1], read);
    }
}

#[test]
fn it_is_over_af_unix() {
    for taken in TAKEN {
        let (both, sockets) = unix_ends();
        let mut read = send_message(&both, &sockets);
        freeze(&both[1]);
        take(&both, taken, &mut read);
        end_stream(&both[0]);
        check_all(&both[1], read);
    }
}

#[test]
fn it_is_before_a_stop() {
    for taken in TAKEN {
        let (both, sockets) = ends();
        let mut read = send_message(&both, &sockets);
        switch::leave(&both[0], Reason::Passed);
        freeze(&both[1]);
        take(&both, taken, &mut read);
        end_stream(&both[0]);
        check_all(&both[1], read);
    }
}

#[test]
fn it_is_if_nobody_has_seen_the_freeze() {
    let (both, sockets) = ends();
    let read = send_message(&both, &sockets);
    freeze(&both[1]);
    end_stream(&both[0]);
    check_all(&both[1], read);
}

#[test]
fn it_is_if_the_answer_was_all() {
    let (both, sockets) = ends();
    let [near, far] = &both;
    let read = send_message(&both, &sockets);
    freeze(far);
    answer_nothing(near);
    end_stream(near);
    check_all(far, read);
}

#[test]
fn it_is_before_a_reset() {
    for taken in [0, 4000] {
        let (both, sockets) = ends();
        let mut read = send_message(&both, &sockets);
        freeze(&both[1]);
        take(&both, taken, &mut read);
        crate::reset::at_close(&both[0]);
        kernel::disconnect(both[0].fd()).unwrap();
        let told = read_on_to_end(&both[1], &mut read);
        assert_eq!(told, Err(Errno::CONNRESET));
        assert!(read == message(), "{} of {BYTES} bytes", read.len());
    }
}

#[test]
fn it_is_behind_what_a_program_without_the_library_has_read() {
    for taken in [1, 4000] {
        let (both, sockets) = ends();
        let [near, far] = &both;
        let mut read = send_message(&both, &sockets);
        far.entry.wait.away.store(1, Ordering::SeqCst);
        freeze(far);
        switch::attend(near);
        assert!(switch::is_plain(far));
        let mut others = vec![0; taken];
        (&*sockets[1]).read_exact(&mut others).unwrap();
        read.extend(others);
        end_stream(near);
        check_all(far, read);
    }
}

/// The kernel does not count there.
#[test]
fn an_end_of_which_nobody_knows_what_is_missing_is_told_as_a_reset_over_af_unix() {
    let (both, sockets) = unix_ends();
    let [near, far] = &both;
    let mut read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    switch::attend(near);
    assert!(switch::is_plain(far));
    (&*sockets[1]).read_exact(&mut [0; 10]).unwrap();
    end_stream(near);
    assert_eq!(read_on_to_end(far, &mut read), Err(Errno::CONNRESET));
    assert_eq!(slices::receive(far, &mut [0; 10], false), Ok(0));
}

/// A look by who gives the socket away tells nobody the end, and takes nothing from who adopts it.
#[test]
fn what_nobody_knows_while_the_socket_is_on_its_way_is_known_to_who_adopts_it() {
    let (both, sockets) = unix_ends();
    let [near, far] = &both;
    let read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    answer_nothing(near);
    end_stream(near);
    assert!(switch::is_plain(far));
    assert_eq!(far.entry.wait.error.load(Ordering::Relaxed), 0);
    far.entry.wait.away.store(0, Ordering::SeqCst);
    check_all(far, read);
}

#[test]
fn who_receives_meanwhile_is_told_a_reset_and_the_adopter_has_the_rest() {
    let (both, sockets) = unix_ends();
    let [near, far] = &both;
    let read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    answer_nothing(near);
    end_stream(near);
    let mut some = [0; 10];
    assert_eq!(
        slices::receive(far, &mut some, false),
        Err(Errno::CONNRESET)
    );
    assert_eq!(slices::receive(far, &mut some, false), Ok(0));
    far.entry.wait.away.store(0, Ordering::SeqCst);
    check_all(far, read);
}

#[test]
fn an_end_of_which_nobody_knows_what_is_missing_is_not_left_to_the_kernel() {
    let (both, sockets) = unix_ends();
    let [near, far] = &both;
    let mut read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    answer_nothing(near);
    step::take_passages(near);
    end_stream(near);
    switch::pin(far, Reason::Passed);
    assert!(switch::is_plain(far));
    assert!(!switch::retire_now(far));
    assert_eq!(read_on_to_end(far, &mut read), Err(Errno::CONNRESET));
}

#[test]
fn a_freeze_stands_while_others_may_have_the_socket() {
    let (both, sockets) = ends();
    let [near, far] = &both;
    let _read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    rest::unfreeze(far);
    assert!(far.has_flags(end_flags::FROZEN));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| slices::send(near, b"more", false));
        let mut plain = vec![0; BYTES - BEFORE + 4];
        (&*sockets[1]).read_exact(&mut plain).unwrap();
        assert_eq!(sender.join().unwrap(), Ok(4));
        assert!(plain[..BYTES - BEFORE] == message()[BEFORE..] && plain.ends_with(b"more"));
    });
}

#[test]
fn all_that_came_by_tcp_is_an_end_in_good_order_whoever_has_read_it() {
    let (both, sockets) = unix_ends();
    let [near, far] = &both;
    let mut read = send_message(&both, &sockets);
    far.entry.wait.away.store(1, Ordering::SeqCst);
    freeze(far);
    while near.tx_mode() != Mode::Tcp {
        switch::attend(near);
        let _ = switch::is_plain(far);
        if far.rx_mode() == Mode::Tcp && kernel::queued(far.fd(), libc::FIONREAD) != Ok(0) {
            let mut some = [0; 100];
            let bytes = (&*sockets[1]).read(&mut some).unwrap();
            read.extend(&some[..bytes]);
        }
    }
    end_stream(near);
    check_all(far, read);
}

#[test]
fn looks_see_what_is_left_in_the_lane() {
    let (both, sockets) = ends();
    let mut read = send_message(&both, &sockets);
    freeze(&both[1]);
    take(&both, 4000, &mut read);
    end_stream(&both[0]);
    take_all_of_tcp(&both, &mut read);
    let left = BYTES - read.len();
    assert!(left > 0);
    let found = crate::ready::look(&both[1], libc::POLLIN, true);
    assert_eq!(found & libc::POLLIN, libc::POLLIN);
    assert_eq!(peek::count(&both[1]), Ok(left));
    check_all(&both[1], read);
}

#[test]
fn one_receive_goes_on_from_tcp_to_the_lane() {
    let (both, sockets) = ends();
    let mut read = send_message(&both, &sockets);
    freeze(&both[1]);
    take(&both, 1, &mut read);
    end_stream(&both[0]);
    let mut rest = vec![0; BYTES];
    let left = BYTES - read.len();
    assert_eq!(slices::receive(&both[1], &mut rest, false), Ok(left));
    read.extend(&rest[..left]);
    check_all(&both[1], read);
}

#[test]
fn a_lane_is_kept_until_all_has_been_sent_again() {
    let (both, sockets) = ends();
    let [near, far] = &both;
    let mut read = send_message(&both, &sockets);
    freeze(far);
    take(&both, 1, &mut read);
    assert!(replay::is_under_way(near));
    rest::look_now(far);
    assert!(!switch::retire(far) && far.has_flags(end_flags::FROZEN));
    take(&both, BYTES - BEFORE, &mut read);
    switch::retire(far);
    rest::look_now(far);
    assert!(!far.is_pinned() && !far.has_flags(end_flags::FROZEN));
    (&*sockets[0]).write_all(b".").unwrap();
    assert_eq!(slices::receive(far, &mut [0; 10], false), Ok(1));
}

#[test]
fn a_liar_is_reset() {
    for behind in [0, 1 << 20, 512] {
        let (both, sockets) = ends();
        let [near, far] = &both;
        let mut read = send_message(&both, &sockets);
        freeze(far);
        take(&both, 1, &mut read);
        let lane = near.tx_lane().unwrap();
        lane.control()
            .sender
            .replay_end
            .store(behind, Ordering::Relaxed);
        end_stream(near);
        assert_eq!(read_on_to_end(far, &mut read), Err(Errno::CONNRESET));
        assert_eq!(far.reason(), Reason::PeerLied);
    }
}
