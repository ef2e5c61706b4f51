//! Random bytes by random calls, both ways over one connection, checked: `stress [SEED [BYTES]]`.
//!
//! One end has a thread for each half, whose calls wait. The other is an event loop over calls that
//! do not, by `wait` or by poll on the descriptor.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use crosslane_api::{Bytes, Connection, Interest, Listener, Receiver, Rest, Sender, Watch, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut number = |default| match numbers.next() {
        Some(Ok(number)) => number,
        Some(Err(_)) => usage(),
        None => default,
    };
    let (seed, bytes) = (number(1), number(50_000_000));

    let listener = Listener::bind("127.0.0.1:0")?;
    let near = Connection::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let path = thread::scope(|scope| {
        let (sender, receiver) = near.split();
        let sending = scope.spawn(move || send_all(sender, Dice(seed), bytes));
        let receiving = scope.spawn(move || receive_all(receiver, Dice(seed + 1), bytes));
        let path = both_ways(far, Dice(seed + 2), bytes);
        for half in [sending, receiving] {
            half.join()
                .map_err(|_| io::Error::other("a thread has failed"))??;
        }
        path
    })?;
    println!("{bytes} bytes each way with seed {seed}, in the end by {path}");
    Ok(())
}

fn usage() -> ! {
    eprintln!("usage: stress [SEED [BYTES]]");
    std::process::exit(2)
}

/// A small generator of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % end
    }

    /// Short ones, those that just fill a line, and long ones.
    fn size(&mut self, most: u64) -> usize {
        let size = match self.below(4) {
            0 => 1 + self.below(200),
            1 => 64 * (1 + self.below(20)) - 10 + self.below(4),
            2 => 1 + self.below(9_000),
            _ => 1 + self.below(60_000),
        };
        usize::try_from(size.min(most)).unwrap_or(1)
    }
}

/// The byte at a position of each stream: neighbours differ, and no period divides a line.
fn byte_at(position: u64) -> u8 {
    (position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0]
}

fn bytes_at(position: u64, bytes: usize) -> Vec<u8> {
    (position..).take(bytes).map(byte_at).collect()
}

fn check(position: u64, bytes: &Bytes<'_>) -> io::Result<()> {
    let copy = bytes.to_vec();
    if copy != bytes_at(position, copy.len()) {
        let wrong = format!(
            "the stream differs between {position} and {} on",
            copy.len()
        );
        return Err(io::Error::new(ErrorKind::InvalidData, wrong));
    }
    Ok(())
}

/// One way of sending the bytes at `at`, at most `left`. Returns how many were sent.
fn send_some(sender: &mut Sender, dice: &mut Dice, at: u64, left: u64) -> io::Result<u64> {
    let size = dice.size(left);
    match dice.below(8) {
        0 => sender.write(&bytes_at(at, size)).map(|sent| sent as u64),
        1 => {
            let mut cancelled = sender.reserve(size)?;
            cancelled.put(&vec![0xee; size]);
            Ok(0)
        }
        way => {
            let mut room = sender.reserve(size)?;
            let bytes = bytes_at(at, size);
            while room.filled() < room.capacity() && dice.below(6) > 0 {
                let most = room.spare().len().min(room.capacity() - room.filled());
                let piece = dice.size(most as u64);
                let from = room.filled();
                let wrong = way == 2;
                let filling = if wrong {
                    vec![0; piece]
                } else {
                    bytes[from..from + piece].to_vec()
                };
                room.put(&filling);
                if wrong {
                    room.put_at(from, &bytes[from..from + piece]);
                }
            }
            let filled = room.filled();
            if dice.below(50) == 0 {
                thread::sleep(Duration::from_micros(dice.below(2_000)));
            }
            room.commit()?;
            Ok(filled as u64)
        }
    }
}

/// One way of receiving the bytes at `at`. None at the end of the stream.
fn receive_some(receiver: &mut Receiver, dice: &mut Dice, at: u64) -> io::Result<Option<u64>> {
    if dice.below(5) == 0 {
        let mut copy = vec![0; dice.size(60_000)];
        let received = receiver.read(&mut copy)?;
        check(at, &Bytes::of_slice(&copy[..received]))?;
        return Ok((received > 0).then_some(received as u64));
    }
    let received = receiver.peek()?;
    if received.is_empty() {
        return Ok(None);
    }
    let mut position = at;
    for piece in received.pieces() {
        check(position, &piece)?;
        position += piece.len() as u64;
    }
    let shown = received.len();
    let consumed = match dice.below(3) {
        0 => dice.size(shown as u64),
        _ => shown,
    };
    received.consume(consumed)?;
    Ok(Some(consumed as u64))
}

fn send_all(mut sender: Sender, mut dice: Dice, bytes: u64) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes {
        sent += send_some(&mut sender, &mut dice, sent, bytes - sent)?;
    }
    sender.flush()
}

fn receive_all(mut receiver: Receiver, mut dice: Dice, bytes: u64) -> io::Result<()> {
    let mut received = 0;
    while let Some(more) = receive_some(&mut receiver, &mut dice, received)? {
        received += more;
    }
    is_all(received, bytes)
}

fn is_all(received: u64, bytes: u64) -> io::Result<()> {
    match received == bytes {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{received} of {bytes} bytes came"
        ))),
    }
}

/// Send and receive in one thread, without waiting in either.
fn both_ways(mut connection: Connection, mut dice: Dice, bytes: u64) -> io::Result<String> {
    connection.set_nonblocking(true)?;
    let (mut sent, mut received) = (0, 0);
    let mut path = String::new();
    while sent < bytes || received < bytes || connection.sender.has_kept() {
        let mut interest = Interest {
            read: received < bytes,
            write: sent < bytes || connection.sender.has_kept(),
        };
        let (sender, receiver) = (&mut connection.sender, &mut connection.receiver);
        if received < bytes
            && let Some(more) = unless_blocked(receive_some(receiver, &mut dice, received))?
        {
            let Some(more) = more else { break };
            received += more;
            interest.read = false;
        }
        if sent < bytes {
            let more = send_some(sender, &mut dice, sent, bytes - sent);
            if let Some(more) = unless_blocked(more)? {
                sent += more;
                interest.write = false;
            }
        } else if unless_blocked(sender.flush())?.is_some() {
            interest.write = false;
        }
        if interest.read && (interest.write || sent == bytes) {
            rest(&mut connection, &mut dice, interest)?;
        }
        path = format!("{:?}", connection.path());
    }
    is_all(received, bytes)?;
    // The peer reads up to here; the end of its own stream is its dropped half's.
    connection.shutdown(Shutdown::Write)?;
    Ok(path)
}

fn unless_blocked<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn rest(connection: &mut Connection, dice: &mut Dice, interest: Interest) -> io::Result<()> {
    if dice.below(2) == 0 {
        wait(&mut [Watch::new(connection, interest)], None)?;
        return Ok(());
    }
    let Rest::Sleep { events, at_most } = connection.arm(interest) else {
        return Ok(());
    };
    let events = PollFlags::from_bits_retain(events.cast_unsigned());
    let limit = at_most.and_then(|limit| Timespec::try_from(limit).ok());
    let mut one = [PollFd::from_borrowed_fd(connection.as_fd(), events)];
    poll(&mut one, limit.as_ref())?;
    Ok(())
}
