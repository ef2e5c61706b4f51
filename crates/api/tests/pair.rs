//! Both ends of a connection in one process, without a monitor.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use crosslane_api::{Connection, Path};

const BYTES: usize = 30 << 20;

/// A byte of the stream.
fn byte(at: usize) -> u8 {
    let mixed = at.wrapping_mul(0x9e37_79b9) >> 13;
    u8::try_from(mixed & 0xff).unwrap()
}

/// Write the stream in pieces of many sizes, and read the other end's.
fn exchange(mut connection: Connection, seed: usize) {
    let (mut sender, mut receiver) = {
        assert_eq!(connection.sender.write(b"!").unwrap(), 1);
        connection.split()
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut at = 0;
            while at < BYTES {
                let length = (at.wrapping_mul(31) + seed) % 70_000 + 1;
                let piece: Vec<u8> = (at..BYTES.min(at + length)).map(byte).collect();
                sender.write_all(&piece).unwrap();
                at += piece.len();
            }
        });
        let (mut first, mut buffer, mut at) = ([0; 1], vec![0; 50_000], 0);
        receiver.read_exact(&mut first).unwrap();
        while at < BYTES {
            let bytes = receiver.read(&mut buffer).unwrap();
            assert!(bytes > 0, "the stream ends after {at} bytes");
            let expected: Vec<u8> = (at..at + bytes).map(byte).collect();
            assert!(
                buffer[..bytes] == expected[..],
                "within {bytes} bytes at {at}"
            );
            at += bytes;
        }
    });
}

#[test]
fn two_threads_exchange_a_stream_by_memory() {
    let (a, b) = Connection::pair().unwrap();
    let other = thread::spawn(move || exchange(b, 7));
    exchange(a, 1234);
    other.join().unwrap();
}

/// Short ones are copied out of the lane where they were waited for, others are shown there, and both may be consumed in part, and
/// read in between.
#[test]
fn what_was_looked_at_stays_until_it_is_consumed() {
    const ROUNDS: usize = 20_000;
    let length = |round: usize| round.wrapping_mul(0x9e37_79b9) % 1100 + 1;
    let (mut near, mut far) = Connection::pair().unwrap();
    let other = thread::spawn(move || {
        for round in 0..ROUNDS {
            far.receiver.read_exact(&mut [0; 1]).unwrap();
            let message: Vec<u8> = (round..round + length(round)).map(byte).collect();
            far.sender.write_all(&message).unwrap();
        }
    });
    for round in 0..ROUNDS {
        near.sender.write_all(b"?").unwrap();
        let mut found: Vec<u8> = Vec::new();
        for step in 0.. {
            let left = length(round) - found.len();
            if left == 0 {
                break;
            }
            if step % 3 == 2 {
                let mut rest = vec![0; left.min(100)];
                let bytes = near.receiver.read(&mut rest).unwrap();
                found.extend(&rest[..bytes]);
                continue;
            }
            let shown = near.receiver.peek().unwrap();
            assert!(shown.len() <= left, "round {round}");
            let mut copy = vec![0; shown.len()];
            assert_eq!(shown.copy_to(0, &mut copy), copy.len());
            let taken = copy.len().div_ceil(2);
            shown.consume(taken).unwrap();
            found.extend(&copy[..taken]);
        }
        let expected: Vec<u8> = (round..round + length(round)).map(byte).collect();
        assert!(found == expected, "round {round}");
    }
    drop(near);
    other.join().unwrap();
}

#[test]
fn the_first_byte_goes_by_memory() {
    let (mut a, mut b) = Connection::pair().unwrap();
    let mut byte = [0; 1];
    for _ in 0..100 {
        a.sender.write_all(b"1").unwrap();
        b.receiver.read_exact(&mut byte).unwrap();
        b.sender.write_all(b"2").unwrap();
        a.receiver.read_exact(&mut byte).unwrap();
        assert_eq!((a.path(), b.path()), (Path::Memory, Path::Memory));
    }
}

#[test]
fn the_end_of_one_is_the_end_of_the_stream_for_the_other() {
    let (mut a, mut b) = Connection::pair().unwrap();
    a.sender.write_all(&[7; 5000]).unwrap();
    a.shutdown(Shutdown::Write).unwrap();
    let mut found = Vec::new();
    b.receiver.read_to_end(&mut found).unwrap();
    assert_eq!(found, [7; 5000]);
    b.sender.write_all(b"still").unwrap();
    drop(b);
    found.clear();
    a.receiver.read_to_end(&mut found).unwrap();
    assert_eq!(found, b"still");
}

#[test]
fn memory_is_used_again() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ours = |line: &&str| line.contains("crosslane-spare");
        maps.lines().filter(ours).count()
    };
    for _ in 0..200 {
        let (mut a, mut b) = Connection::pair().unwrap();
        a.sender.write_all(b"1").unwrap();
        b.receiver.read_exact(&mut [0; 1]).unwrap();
        assert!(mapped() > 0);
        drop(a);
        drop(b);
    }
    // Other tests of this process have some at the same time.
    assert!(mapped() < 20, "{} are mapped", mapped());
}
