//! How much processor time a process has used, told by itself.

use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::request::{Request, Work, u64_at};

/// Bytes of an answer on the wire.
pub const USAGE_BYTES: usize = 16;

/// For how long a program may look for more after a message, longer than any that is known does.
const SETTLING: Duration = Duration::from_millis(100);

/// What a process has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, in the program and in the kernel.
    pub cpu_ns: u64,
    /// Whether the packets of the connection that was asked on come from a device queue.
    pub has_device_queue: bool,
}

/// The processor time of this process.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + nanos
}

/// Processor time in seconds per second of the server and of this program, while nothing happens
/// for so long.
///
/// The server wakes up to be asked, and may then look for more messages for a while. This is not
/// part of being idle, so it is taken off: it is in a short wait just as in a long one.
///
/// # Errors
/// As the system gives them.
pub fn idle_cpu(connection: &mut (impl Read + Write), time: Duration) -> io::Result<[f64; 2]> {
    let short = used_in(connection, SETTLING)?;
    let long = used_in(connection, SETTLING + time)?;
    let of = |index: usize| (long[index] - short[index]).max(0.0) / time.as_secs_f64();
    Ok([of(0), of(1)])
}

/// Seconds of processor time of server and client in a wait of this length.
fn used_in(connection: &mut (impl Read + Write), time: Duration) -> io::Result<[f64; 2]> {
    let (before, own_before) = (Usage::ask(connection)?, own_cpu_ns());
    std::thread::sleep(time);
    let own = own_cpu_ns() - own_before;
    let after = Usage::ask(connection)?;
    Ok([after.cpu_ns - before.cpu_ns, own].map(|ns| Duration::from_nanos(ns).as_secs_f64()))
}

impl Usage {
    /// Asks the server, which must not be in the middle of something.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn ask(connection: &mut (impl Read + Write)) -> io::Result<Self> {
        let request = Request {
            work: Work::Usage,
            bytes: size_of::<u64>(),
        };
        connection.write_all(&request.encode())?;
        let mut wire = [0; USAGE_BYTES];
        connection.read_exact(&mut wire)?;
        Ok(Self {
            cpu_ns: u64_at(&wire, 0),
            has_device_queue: u64_at(&wire, 8) != 0,
        })
    }

    /// The answer as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; USAGE_BYTES] {
        let mut wire = [0; USAGE_BYTES];
        wire[..8].copy_from_slice(&self.cpu_ns.to_le_bytes());
        wire[8..].copy_from_slice(&u64::from(self.has_device_queue).to_le_bytes());
        wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time() {
        let before = own_cpu_ns();
        let mut sum = 0_u64;
        while own_cpu_ns() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_cpu_ns() > before);
    }
}
