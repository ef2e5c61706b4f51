use core::time::Duration;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use crosslane_sys::busy::MutexGuard;

use super::*;
use crate::close;

/// A connection of which the monitor has not heard, and the sockets.
fn tracked() -> (End, [TcpStream; 2]) {
    crosslane_sys::process::resolve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let end = track(near.as_raw_fd(), Family::Tcp, false, None).unwrap();
    (end, [near, far])
}

#[test]
fn no_socket_is_registered_as_another_connection() {
    let ([one, two], _sockets): ([End; 2], Vec<_>) = {
        let ((one, a), (two, b)) = (tracked(), tracked());
        ([one, two], vec![a, b])
    };
    // As when another thread has closed a connection, and the number and the entry are others'.
    assert!(!begin(&one.by_name(two.fd)));
    assert_eq!(one.phase(), EndPhase::Plain);
    assert!(begin(&one));
    assert!(is_in_flight(&one));
    acknowledged(one.process(), one.token());
    assert!(!begin(&one), "it is registered");
    assert!(!is_in_flight(&one), "and has been answered");
}

/// What is registered has been read to its end or not, whoever has asked meanwhile.
#[test]
fn the_end_of_the_stream_that_was_read_before_is_known() {
    for (sent, is_read_out) in [(&b""[..], true), (b"rest", false)] {
        let (end, [_near, mut far]) = tracked();
        far.write_all(sent).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let is_over = || kernel::poll_now(end.fd, libc::POLLRDHUP) & libc::POLLRDHUP != 0;
        while !is_over() {
            std::thread::yield_now();
        }
        assert_eq!(raw::receive(&end, false, || 0), Some(0));
        assert!(!end.has_flags(end_flags::READ_OUT), "nobody has asked");
        assert!(begin(&end));
        assert_eq!(end.has_flags(end_flags::READ_OUT), is_read_out);
    }
}

/// The program sends, after so many bytes both ways. Returns whether the end is to be registered at once.
fn sends(end: &End, sent: u64, received: u64) -> bool {
    end.entry.tx.tcp_data.store(sent, Ordering::Relaxed);
    end.entry.rx.tcp_data.store(received, Ordering::Relaxed);
    due::goes_on(end)
}

#[test]
fn a_conversation_is_registered_when_it_goes_on() {
    let (end, _sockets) = tracked();
    assert!(!sends(&end, 0, 0), "its first send");
    assert!(!sends(&end, 500, 0), "nothing was answered");
    assert!(!sends(&end, 500, 100), "few bytes");
    assert!(!sends(&end, 3000, 100), "more of the same exchange");
    assert!(sends(&end, 3000, 200));
    assert!(!sends(&end, 4000, 300), "it has been asked for");

    let (end, _sockets) = tracked();
    assert!(!sends(&end, 0, 2000), "it answers");
    assert!(!sends(&end, 5000, 2000), "in two parts");
    assert!(sends(&end, 9000, 2100), "and answers again");
}

/// Nobody else talks to the monitor.
fn hold() -> MutexGuard<'static, control::Control> {
    loop {
        match control::try_hold() {
            Some(control) => return control,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn what_the_kernel_said_before_a_change_is_not_remembered() {
    let (end, _sockets) = tracked();
    let waiting = || end.local.waiting.load(Ordering::Relaxed);
    end.forget_waiting();
    let before = waiting();
    assert!(!end.ask_nonblocking(before));
    assert!(end.is_blocking(), "nothing has changed");
    end.forget_waiting();
    let asked = waiting();
    assert_ne!(asked, before);
    end.forget_waiting();
    end.ask_nonblocking(asked);
    assert!(!end.is_blocking(), "it has been changed since");
}

#[test]
fn who_is_too_late_to_register_leaves_the_reason_alone() {
    let (end, _sockets) = tracked();
    let talks = hold();
    assert!(begin(&end));
    registered(&end);
    hasten(&end);
    // It has seen the end before.
    progress_plain(&end, false);
    assert_eq!(end.reason(), Reason::NoPeer);
    unregister(&end);
    drop(talks);
}

#[test]
fn a_close_waits_for_who_is_about_to_register() {
    let (end, _sockets) = tracked();
    let talks = hold();
    let token = end.token();
    assert!(begin(&end));
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| close::before_close(&end));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!closes.is_finished());
        assert_eq!(end.token(), token);
        assert_eq!(end.phase(), EndPhase::Registered);
        unregister(&end);
        drop(talks);
    });
    assert!(find(end.process(), token).is_none());
}
