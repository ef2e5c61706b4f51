//! Waiting for many, and arming one, whichever path the bytes take.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use crosslane_api::{Connection, Interest, Path, Rest, Watch, wait};
use rustix::event::{PollFd, PollFlags, poll};

/// Longer than a receiver may stand still before TCP carries the rest.
const STANDSTILL: Duration = Duration::from_millis(25);

/// Send until neither the lane nor TCP takes any more. Returns how many bytes that were.
fn fill(connection: &mut Connection) -> usize {
    connection.set_nonblocking(true).unwrap();
    let (mut sent, mut refused) = (0, 0);
    while refused < 10 {
        match connection.sender.write(&[7; 1 << 16]) {
            Ok(bytes) => {
                (sent, refused) = (sent + bytes, 0);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
                thread::sleep(STANDSTILL);
            }
        }
    }
    sent
}

/// Whether a poll for what `arm` said is over at once; `None` if there was no reason to sleep.
fn wakes_at_once(connection: &mut Connection, interest: Interest) -> Option<bool> {
    let Rest::Sleep { events, .. } = connection.arm(interest) else {
        return None;
    };
    let events = PollFlags::from_bits_retain(u16::try_from(events).unwrap());
    let mut one = [PollFd::new(connection, events)];
    Some(poll(&mut one, Some(&Default::default())).unwrap() > 0)
}

/// What of `interest` is ready within `millis`.
fn ready(connection: &mut Connection, interest: Interest, millis: u64) -> Interest {
    let mut watches = [Watch::new(connection, interest)];
    wait(&mut watches, Some(Duration::from_millis(millis))).unwrap();
    watches[0].ready
}

#[test]
fn a_direction_on_tcp_that_is_full_is_not_writable() {
    let (mut near, mut far) = Connection::pair().unwrap();
    let sent = fill(&mut near);
    assert_ne!(near.path(), Path::Memory);
    for interest in [Interest::WRITE, Interest::BOTH] {
        assert_eq!(ready(&mut near, interest, 100), Interest::default());
    }
    far.sender.write_all(b"!").unwrap();
    assert_eq!(ready(&mut near, Interest::BOTH, 5000), Interest::READ);
    let other = thread::spawn(move || {
        far.receiver.read_exact(&mut vec![0; sent]).unwrap();
        far
    });
    assert_eq!(ready(&mut near, Interest::WRITE, 5000), Interest::WRITE);
    drop(other.join().unwrap());
}

#[test]
fn a_doorbell_for_both_halves_does_not_wake_again_when_its_message_is_read() {
    let (mut near, mut far) = Connection::pair().unwrap();
    fill(&mut near);
    assert_eq!(wakes_at_once(&mut near, Interest::BOTH), Some(false));
    far.sender.write_all(b"!").unwrap();
    near.receiver.peek().unwrap().consume_all().unwrap();
    assert_eq!(wakes_at_once(&mut near, Interest::READ), Some(false));
}

#[test]
fn who_waits_for_room_on_tcp_is_not_woken_by_a_message_that_is_left_unread() {
    let (mut near, mut far) = Connection::pair().unwrap();
    fill(&mut near);
    assert_eq!(wakes_at_once(&mut near, Interest::READ), Some(false));
    far.sender.write_all(b"!").unwrap();
    assert_eq!(wakes_at_once(&mut near, Interest::WRITE), Some(false));
    assert_eq!(wakes_at_once(&mut near, Interest::READ), None);
}

#[test]
fn who_waits_for_room_in_memory_is_woken_once_by_a_message_that_is_left_unread() {
    let (mut near, mut far) = Connection::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    assert_eq!(ready(&mut near, Interest::READ, 1), Interest::default());
    assert_eq!(wakes_at_once(&mut near, Interest::READ), Some(false));
    far.sender.write_all(b"!").unwrap();
    while near.sender.write(&[7; 1 << 16]).is_ok() {}
    // Where this takes too long, the direction goes to TCP, which has room.
    if wakes_at_once(&mut near, Interest::WRITE) == Some(true) {
        assert_ne!(wakes_at_once(&mut near, Interest::WRITE), Some(true));
    }
    assert_eq!(near.receiver.peek().unwrap().len(), 1);
}

#[test]
fn the_end_of_what_comes_does_not_wake_who_waits_for_room() {
    let (mut near, mut far) = Connection::pair().unwrap();
    fill(&mut near);
    far.sender.shutdown().unwrap();
    assert_eq!(ready(&mut near, Interest::READ, 5000), Interest::READ);
    assert!(near.receiver.peek().unwrap().is_empty());
    assert_eq!(wakes_at_once(&mut near, Interest::WRITE), Some(false));
    assert_eq!(ready(&mut near, Interest::WRITE, 100), Interest::default());
}

#[test]
fn a_broken_connection_is_told_of_whatever_is_waited_for() {
    let (mut near, mut far) = Connection::pair().unwrap();
    assert_eq!(
        ready(&mut near, Interest::default(), 50),
        Interest::default()
    );
    near.sender.write_all(b"never read").unwrap();
    far.sender.write_all(b"!").unwrap();
    drop(far);
    let mut watches = [Watch::new(&mut near, Interest::default())];
    assert_eq!(wait(&mut watches, Some(Duration::from_secs(5))).unwrap(), 1);
    assert!(watches[0].is_broken() && watches[0].ready.is_none());
}
