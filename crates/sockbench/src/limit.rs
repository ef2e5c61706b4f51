//! The bare ping-pong: two threads on two CPUs, one shared cache line each way, nothing else.
//!
//! No transport between two CPUs of this machine can have a shorter round trip, so this is what a
//! round trip is compared with.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::{CaseError, histogram, rtt_outcome};
use crate::cpus::{PlaceError, pin, two_cpus};
use crate::outcome::{Line, Outcome};
use crate::span::{Span, Stopwatch};

/// What the answering thread takes as the end.
pub(crate) const STOP: u64 = u64::MAX;
/// One cache line is what crosses, whatever part of it a message fills.
const LINE_BYTES: usize = 64;

/// A word alone in its cache line, and in the pair of lines that a prefetcher may fetch together.
#[repr(align(128))]
struct Line128(AtomicU64);

/// Why there is no limit to be had.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The threads cannot be placed.
    #[error("the cache-line limit needs two CPUs: {0}")]
    Place(#[from] PlaceError),
    /// Nothing was measured.
    #[error(transparent)]
    Case(#[from] CaseError),
}

/// Measures round trips of one cache line.
///
/// # Errors
/// [`LimitError`].
pub fn run(span: Span) -> Result<Line, LimitError> {
    let outcome = between_two_cpus(answer, |ping, pong| ask(ping, pong, span))?;
    Ok(Line {
        outcome,
        local: String::new(),
        peer: String::new(),
    })
}

/// Runs `ask` here and `answer` in a thread on another CPU, with a line each way. The latter ends
/// when it reads [`STOP`] from the first one.
pub(crate) fn between_two_cpus<T>(
    answer: impl FnOnce(&AtomicU64, &AtomicU64) + Send,
    ask: impl FnOnce(&AtomicU64, &AtomicU64) -> Result<T, LimitError>,
) -> Result<T, LimitError> {
    let (here, there) = two_cpus()?;
    let (ping, pong) = (Line128(AtomicU64::new(0)), Line128(AtomicU64::new(0)));
    let (ready, pinned) = std::sync::mpsc::sync_channel(1);
    let (asked, answered) = (&ping, &pong);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let result = pin(there);
            let may_answer = result.is_ok();
            if ready.send(result).is_ok() && may_answer {
                answer(&asked.0, &answered.0);
            }
        });
        let peer = pinned
            .recv()
            .expect("the answering thread always sends its result");
        let placed = peer.and_then(|()| pin(here)).map_err(LimitError::from);
        let outcome = placed.and_then(|()| ask(&ping.0, &pong.0));
        ping.0.store(STOP, Ordering::Release); // SYNC: ping
        outcome
    })
}

fn ask(ping: &AtomicU64, pong: &AtomicU64, span: Span) -> Result<Outcome, LimitError> {
    let mut times = histogram();
    let watch = Stopwatch::start(span);
    let mut number = 0;
    while !watch.is_over(watch.now()) {
        number += 1;
        let sent_at = watch.now();
        ping.store(number, Ordering::Release); // SYNC: ping
        while pong.load(Ordering::Acquire) != number {} // SYNC: pong
        let back_at = watch.now();
        if watch.is_warm(sent_at) {
            times.saturating_record(watch.between_ns(sent_at, back_at));
        }
    }
    Ok(rtt_outcome(LINE_BYTES, &times, span)?)
}

fn answer(ping: &AtomicU64, pong: &AtomicU64) {
    let mut last = 0;
    while last != STOP {
        let now = ping.load(Ordering::Acquire); // SYNC: ping
        if now != last {
            pong.store(now, Ordering::Release); // SYNC: pong
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_limit_is_a_plausible_round_trip_where_there_are_two_cpus() {
        let span = Span {
            warmup: Duration::from_millis(1),
            measure: Duration::from_millis(200), // several time slices
        };
        match run(span) {
            Ok(Line {
                outcome:
                    Outcome::Rtt {
                        trips,
                        p50_ns,
                        p99_ns,
                        ..
                    },
                ..
            }) => {
                assert!(trips > 0 && p50_ns > 0 && p50_ns <= p99_ns);
            }
            Err(LimitError::Place(PlaceError::TooFew(count))) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: only {count} CPU here");
            }
            other => panic!("{other:?}"),
        }
    }
}
