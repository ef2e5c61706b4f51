//! Both ends of one connection in one thread, where nobody ever waits: every message costs the same
//! instructions, so that they can be counted.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use crate::address::Address;
use crate::connection::{Connection, Listener};

/// Round trips before the counted ones, with time for a monitor to find the ends.
const WARMUP: u64 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Messages that a receiver is behind.
const BACKLOG: usize = 100;
/// Until a receiver sleeps, however slow the machine.
const ASLEEP: Duration = Duration::from_millis(300);

/// Sends `messages` of `bytes` each, in turn from either end, after a warm-up; or all from one end, to a receiver that
/// was woken and is `behind` from then on.
///
/// # Errors
/// As the system gives them.
pub fn run(messages: u64, bytes: usize, behind: bool) -> io::Result<()> {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let (listener, address) = Listener::open(&any)?;
    let mut one = Connection::open(&address)?;
    let mut other = listener.accept()?;
    let mut message = vec![0; bytes];
    for _ in 0..WARMUP {
        round_trip(&mut one, &mut other, &mut message)?;
        thread::sleep(PAUSE);
    }
    if behind {
        fall_behind(&mut one, &mut other, &mut message)?;
        for _ in 0..messages {
            one.write_all(&message)?;
            other.read_exact(&mut message)?;
        }
        return Ok(());
    }
    for _ in 0..messages / 2 {
        round_trip(&mut one, &mut other, &mut message)?;
    }
    Ok(())
}

/// Makes a connection for each of so many messages of `bytes`, which the other end answers before both are closed.
///
/// # Errors
/// As the system gives them.
pub fn run_briefly(messages: u64, bytes: usize) -> io::Result<()> {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let (listener, address) = Listener::open(&any)?;
    let mut message = vec![0; bytes];
    for _ in 0..messages {
        let mut one = Connection::open(&address)?;
        let mut other = listener.accept()?;
        round_trip(&mut one, &mut other, &mut message)?;
    }
    Ok(())
}

fn round_trip(one: &mut Connection, other: &mut Connection, message: &mut [u8]) -> io::Result<()> {
    one.write_all(message)?;
    other.read_exact(message)?;
    other.write_all(message)?;
    one.read_exact(message)
}

/// Have `other` woken by more than it reads then.
fn fall_behind(one: &mut Connection, other: &mut Connection, message: &mut [u8]) -> io::Result<()> {
    let backlog = message.repeat(BACKLOG);
    thread::scope(|scope| {
        let woken = scope.spawn(|| other.read_exact(message));
        thread::sleep(ASLEEP);
        one.write_all(&backlog)?;
        woken
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
