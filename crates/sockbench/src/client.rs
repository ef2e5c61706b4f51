//! The client: one case on one connection, except that `connect` and `brief` need many.

mod connect;
pub(crate) mod rtt;
mod stream;

use std::io;

use hdrhistogram::Histogram;

use crate::address::Address;
use crate::connection::Connection;
use crate::message::{BadSize, Broken};
use crate::outcome::{CDF, Line, Outcome};
use crate::span::Span;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Round trips.
    Rtt,
    /// One-way traffic.
    Stream,
    /// Connect, one request, close.
    Connect,
    /// Connect, some requests, close: too few for rings to pay.
    Brief,
}

impl Case {
    /// How many requests each connection is for, where there are many.
    #[must_use]
    pub fn requests(self) -> Option<u32> {
        match self {
            Self::Rtt | Self::Stream => None,
            Self::Connect => Some(1),
            Self::Brief => Some(4),
        }
    }
}

/// Why a case gave no figure.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The transport failed.
    #[error("after {number} messages")]
    Io {
        /// How many messages or connections had been completed before.
        number: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The transport delivered something else than was sent.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The receiver did not get what was sent.
    #[error("{sent} messages were sent and {received} received")]
    Lost {
        /// Messages sent.
        sent: u64,
        /// Messages that the receiver says it got.
        received: u64,
    },
    /// Nothing happened in the time that counts.
    #[error("nothing was completed in the {0:?} after the warm-up; measure for longer")]
    Nothing(std::time::Duration),
    /// The message size makes no sense.
    #[error(transparent)]
    Size(#[from] BadSize),
}

/// Runs a case; also returns its connection, still open, so that it can be looked at from outside.
///
/// # Errors
/// [`CaseError`].
pub fn run(
    case: Case,
    address: &Address,
    bytes: u64,
    span: Span,
) -> Result<(Line, Option<Connection>), CaseError> {
    let size = crate::message::checked_size(bytes)?;
    if let Some(requests) = case.requests() {
        let outcome = connect::run(address, size, requests, span)?;
        return Ok((
            Line {
                outcome,
                local: String::new(),
                peer: String::new(),
            },
            None,
        ));
    }
    let mut connection = Connection::open(address).map_err(at(0))?;
    let (local, peer) = connection.names().map_err(at(0))?;
    let outcome = match case {
        Case::Rtt => rtt::run(&mut connection, size, span)?,
        Case::Stream => stream::run(&mut connection, size, span)?,
        Case::Connect | Case::Brief => unreachable!("a case of many connections"),
    };
    Ok((
        Line {
            outcome,
            local,
            peer,
        },
        Some(connection),
    ))
}

/// Says how far a case had come when the system refused something.
pub fn at(number: u64) -> impl Fn(io::Error) -> CaseError {
    move |source| CaseError::Io { number, source }
}

/// A rate over a time in nanoseconds; integers up to 2^53 are exact, and no bench counts further.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times stay far below 2^53"
)]
pub fn per_second(count: u64, nanos: u64) -> f64 {
    count as f64 * 1e9 / nanos as f64
}

/// The figures of so many one-way messages.
#[must_use]
pub fn stream_outcome(bytes: usize, messages: u64, nanos: u64) -> Outcome {
    let msgs_per_s = per_second(messages, nanos);
    let bits = u32::try_from(8 * bytes).map_or(f64::INFINITY, f64::from);
    Outcome::Stream {
        bytes: bytes as u64,
        messages,
        gbps: msgs_per_s * bits / 1e9,
        msgs_per_s,
    }
}

/// A histogram that tells apart times of up to a minute to three digits.
///
/// # Panics
/// Never: the bounds are valid.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid constants")
}

/// The figures of a histogram of round trips.
///
/// # Errors
/// When it is empty.
pub fn rtt_outcome(bytes: usize, times: &Histogram<u64>, span: Span) -> Result<Outcome, CaseError> {
    if times.is_empty() {
        return Err(CaseError::Nothing(span.measure));
    }
    Ok(Outcome::Rtt {
        bytes: bytes as u64,
        trips: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        cdf_ns: CDF.map(|share| times.value_at_quantile(share)).to_vec(),
    })
}
