//! Connections that are reset while what came before may be missing.

use super::*;

/// Two ends that read in their lanes.
fn in_lanes() -> Link {
    let link = Link::new(0);
    let mut dice = Dice::new(0);
    let mut done = 0;
    while link
        .sides
        .iter()
        .any(|side| side.end.rx_mode() != Mode::Ring)
    {
        for (from, to) in [(0, 1), (1, 0)] {
            write(&link.sides[from].end, &mut dice, (0, done), 8);
            assert_eq!(read(&link.sides[to].end, &mut dice, (0, done), 8), 8);
        }
        done += 8;
    }
    link
}

/// Who was killed had left a doorbell unread, and had rung itself: nothing has told of that.
#[test]
fn a_reset_is_told_also_behind_a_doorbell_that_is_not_announced() {
    in_time("hidden", 0, || {
        let link = in_lanes();
        let [a, b] = &link.sides;
        // SAFETY: one byte is valid.
        let sent = unsafe { kernel::send(b.end.fd(), [1].as_ptr(), 1, 0) };
        assert_eq!(sent, Ok(1));
        kernel::disconnect(b.end.fd()).unwrap();
        let told = receive(&a.end, &mut [0; 10], true);
        assert_eq!(told, Err(Errno::CONNRESET));
    });
}

/// The kernel has forgotten that there was an end before the reset, when a receive comes to look.
#[test]
fn a_reset_that_is_told_as_an_end_may_hide_what_is_missing() {
    in_time("forgotten", 0, || {
        let link = in_lanes();
        let [a, b] = &link.sides;
        kernel::shutdown(b.end.fd(), libc::SHUT_WR).unwrap();
        kernel::disconnect(b.end.fd()).unwrap();
        // SAFETY: one byte is valid.
        while unsafe { kernel::send(a.end.fd(), [1].as_ptr(), 1, 0) }.is_ok() {}
        a.end.note_ending(Ending::Reset);
        assert_eq!(
            slices::receive(&a.end, &mut [0; 10], true),
            Err(Errno::AGAIN)
        );
        doubt::hear_carried(a.end.process(), a.end.token(), lost::pair_of(&a.end));
        assert_eq!(slices::receive(&a.end, &mut [0; 10], true), Ok(0));
    });
}

/// The peer was killed, and what has been sent to it since is answered by a reset.
#[test]
fn a_reset_behind_an_end_in_doubt_settles_nothing() {
    in_time("settled", 0, || {
        let link = in_lanes();
        let [a, b] = &link.sides;
        a.end.note_ending(Ending::Eof);
        a.end.note_ending(Ending::Reset);
        assert_eq!(
            slices::receive(&a.end, &mut [0; 10], true),
            Err(Errno::AGAIN)
        );
        // What comes meanwhile may not be all.
        write(&b.end, &mut Dice::new(0), (0, 0), 8);
        assert_eq!(receive(&a.end, &mut [0; 10], true), Ok(8));
        assert!(doubt::is_open(&a.end));
        doubt::hear_carried(a.end.process(), a.end.token(), lost::pair_of(&a.end));
        assert!(!doubt::is_open(&a.end));
    });
}

/// Whose end is in doubt can be sent to, and is waited for no longer than a receive may wait.
#[test]
fn an_end_in_doubt_keeps_a_receive_for_its_time_and_no_send() {
    in_time("limited", 0, || {
        let link = in_lanes();
        let [Side { end, socket }, _] = &link.sides;
        let limit = Some(Duration::from_millis(50));
        socket.set_read_timeout(limit).unwrap();
        for ending in [Ending::Eof, Ending::Reset] {
            end.note_ending(ending);
            assert!(doubt::is_open(end));
            assert_eq!(ready::look(end, libc::POLLOUT, false), libc::POLLOUT);
            let told = slices::receive(end, &mut [0; 10], false);
            assert_eq!(told, Err(Errno::AGAIN));
        }
    });
}
