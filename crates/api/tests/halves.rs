//! The halves of a connection by themselves: ending one, ending what another thread waits for, and commits that do not wait.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crosslane_api::{Connection, WHOLE_BYTES};

/// Run what may hang where it is wrong.
fn watched<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || done.send(what()));
    let outcome = outcome.recv_timeout(Duration::from_secs(60));
    outcome.expect("it fails or takes for ever")
}

#[test]
fn a_sender_alone_ends_its_stream() {
    watched(|| {
        let (near, mut far) = Connection::pair().unwrap();
        let (mut sender, mut receiver) = near.split();
        let echo = thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            far.write_all(&all).unwrap();
        });
        thread::spawn(move || {
            let mut room = sender.reserve(5000).unwrap();
            assert_eq!(room.put(&[7; 5000]), 5000);
            room.commit().unwrap();
            sender.shutdown().unwrap();
            let refused = sender.write(b"more").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        });
        let mut back = Vec::new();
        receiver.read_to_end(&mut back).unwrap();
        assert_eq!(back, [7; 5000]);
        echo.join().unwrap();
    });
}

#[test]
fn a_look_that_waits_is_ended_by_another_thread() {
    watched(|| {
        let (near, _far) = Connection::pair().unwrap();
        let (_sender, mut receiver) = near.split();
        let closer = receiver.closer();
        let looks = thread::spawn(move || receiver.peek().unwrap().is_empty());
        thread::sleep(Duration::from_millis(50));
        closer.clone().shutdown(Shutdown::Read).unwrap();
        assert!(looks.join().unwrap());
    });
}

#[test]
fn a_send_that_waits_is_ended_by_another_thread() {
    watched(|| {
        let (near, _far) = Connection::pair().unwrap();
        let closer = near.closer();
        let (mut sender, _receiver) = near.split();
        let sends = thread::spawn(move || {
            loop {
                match sender.reserve(WHOLE_BYTES).map(|mut room| {
                    room.put(&[7; WHOLE_BYTES]);
                    room.commit()
                }) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) | Err(error) => return error.kind(),
                }
            }
        });
        thread::sleep(Duration::from_millis(300));
        closer.shutdown(Shutdown::Both).unwrap();
        assert_eq!(sends.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

/// The peer's lane ends where the message is built that is never sent.
#[test]
fn a_stream_that_is_ended_under_a_reservation_ends_before_it() {
    watched(|| {
        let (mut near, mut far) = Connection::pair().unwrap();
        near.sender.write_all(b"all").unwrap();
        let closer = near.closer();
        let mut room = near.sender.reserve(5000).unwrap();
        closer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(room.put(&[0xff; 5000]), 5000);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"all");
        assert_eq!(room.commit().unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_closer_keeps_no_connection_open() {
    watched(|| {
        let (near, mut far) = Connection::pair().unwrap();
        let closer = near.closer();
        drop(near);
        assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
        let refused = closer.shutdown(Shutdown::Both).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotConnected);
    });
}

/// What TCP has no room for is kept back, and sent by a later call.
#[test]
fn a_reservation_made_without_waiting_is_committed_without() {
    watched(|| {
        let (mut near, mut far) = Connection::pair().unwrap();
        let mut sent = 0;
        while !near.sender.has_kept() {
            match near.sender.try_reserve(WHOLE_BYTES) {
                Ok(mut room) => {
                    sent += room.put(&[7; WHOLE_BYTES]);
                    room.commit().unwrap();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    // So long a receiver may stand still before TCP carries the rest.
                    thread::sleep(Duration::from_millis(25));
                }
            }
        }
        let refused = near.sender.try_reserve(1).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let reads = thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        near.sender.shutdown().unwrap();
        assert_eq!(reads.join().unwrap(), vec![7; sent]);
    });
}
