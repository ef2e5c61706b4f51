//! Waiting for many, and arming one, whichever path the bytes take.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use crosslane_api::{Connection, Interest, Path, Watch, wait};

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
