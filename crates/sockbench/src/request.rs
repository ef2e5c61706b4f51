//! What a client asks of a server, and the server's report on one-way traffic.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use crate::message::checked_size;

/// Bytes of a request on the wire.
pub const REQUEST_BYTES: usize = 24;
/// Bytes of a report on the wire.
pub const REPORT_BYTES: usize = 24;

const MAGIC: u32 = 0x7362_6331;
const ECHO: u32 = 1;
const SINK: u32 = 2;
const USAGE: u32 = 3;

/// What the server shall do with the messages that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Send each one back.
    Echo,
    /// Count them, beginning after this time, and report after the last.
    Sink {
        /// The time before counting begins.
        warmup: Duration,
    },
    /// Tell at once how much processor time has been used so far; no message follows.
    Usage,
}

/// The first thing said on a connection, and again after the last message of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub work: Work,
    /// The size of each message.
    pub bytes: usize,
}

/// What the receiver of one-way traffic counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// All messages, the first and the last included.
    pub received: u64,
    /// The messages after the warm-up.
    pub counted: u64,
    /// The time from the end of the warm-up to the last message.
    pub nanos: u64,
}

impl Request {
    /// The request as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let (work, warmup) = match self.work {
            Work::Echo => (ECHO, Duration::ZERO),
            Work::Sink { warmup } => (SINK, warmup),
            Work::Usage => (USAGE, Duration::ZERO),
        };
        let warmup_ns = u64::try_from(warmup.as_nanos()).unwrap_or(u64::MAX);
        let mut wire = [0; REQUEST_BYTES];
        wire[..4].copy_from_slice(&MAGIC.to_le_bytes());
        wire[4..8].copy_from_slice(&work.to_le_bytes());
        wire[8..16].copy_from_slice(&(self.bytes as u64).to_le_bytes());
        wire[16..].copy_from_slice(&warmup_ns.to_le_bytes());
        wire
    }

    /// Reads the next request; none when the client has closed the connection instead.
    ///
    /// # Errors
    /// As the system gives them, and [`ErrorKind::InvalidData`] for what is no request.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut wire = [0; REQUEST_BYTES];
        let first = from.read(&mut wire)?;
        if first == 0 {
            return Ok(None);
        }
        from.read_exact(&mut wire[first..])?;
        Self::decode(&wire).map(Some)
    }

    fn decode(wire: &[u8; REQUEST_BYTES]) -> io::Result<Self> {
        let bad = |what| io::Error::new(ErrorKind::InvalidData, what);
        if u32_at(wire, 0) != MAGIC {
            return Err(bad(format!(
                "no request but {:#x}: is the client a sockbench?",
                u32_at(wire, 0)
            )));
        }
        let work = match u32_at(wire, 4) {
            ECHO => Work::Echo,
            SINK => Work::Sink {
                warmup: Duration::from_nanos(u64_at(wire, 16)),
            },
            USAGE => Work::Usage,
            other => return Err(bad(format!("unknown work {other}"))),
        };
        let bytes = checked_size(u64_at(wire, 8)).map_err(|error| bad(error.to_string()))?;
        Ok(Self { work, bytes })
    }
}

impl Report {
    /// The report as it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; REPORT_BYTES] {
        let mut wire = [0; REPORT_BYTES];
        wire[..8].copy_from_slice(&self.received.to_le_bytes());
        wire[8..16].copy_from_slice(&self.counted.to_le_bytes());
        wire[16..].copy_from_slice(&self.nanos.to_le_bytes());
        wire
    }

    /// Reads a report.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut wire = [0; REPORT_BYTES];
        from.read_exact(&mut wire)?;
        Ok(Self {
            received: u64_at(&wire, 0),
            counted: u64_at(&wire, 8),
            nanos: u64_at(&wire, 16),
        })
    }
}

pub(crate) fn u32_at(wire: &[u8], at: usize) -> u32 {
    wire[at..]
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}

pub(crate) fn u64_at(wire: &[u8], at: usize) -> u64 {
    wire[at..]
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_reports_read_back_as_they_are_written() {
        for work in [
            Work::Echo,
            Work::Sink {
                warmup: Duration::from_millis(40),
            },
            Work::Usage,
        ] {
            let request = Request { work, bytes: 64 };
            let read = Request::read(&mut &request.encode()[..]).expect("valid");
            assert_eq!(read, Some(request));
        }
        let report = Report {
            received: 3,
            counted: 2,
            nanos: 1,
        };
        assert_eq!(
            Report::read(&mut &report.encode()[..]).expect("valid"),
            report
        );
    }

    #[test]
    fn a_closed_connection_is_no_request_and_garbage_is_an_error() {
        assert_eq!(Request::read(&mut &[][..]).expect("closed"), None);
        assert!(
            Request::read(&mut &[0; REQUEST_BYTES][..]).is_err(),
            "garbage"
        );
        assert!(Request::read(&mut &[0; 3][..]).is_err(), "truncated");
        let huge = Request {
            work: Work::Echo,
            bytes: usize::MAX,
        };
        assert!(Request::read(&mut &huge.encode()[..]).is_err(), "size");
    }
}
