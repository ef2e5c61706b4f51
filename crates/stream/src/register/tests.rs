use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

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

#[test]
fn a_close_waits_for_who_is_about_to_register() {
    let (end, _sockets) = tracked();
    let talks = loop {
        match control::try_hold() {
            Some(control) => break control,
            None => std::thread::yield_now(),
        }
    };
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
