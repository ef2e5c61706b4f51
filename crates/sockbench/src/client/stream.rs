//! One-way traffic: the client sends as fast as it can, the server counts what arrived.

use std::io::Write;

use super::{CaseError, at, stream_outcome};
use crate::connection::Connection;
use crate::message::stamp;
use crate::outcome::Outcome;
use crate::request::{Report, Request, Work};
use crate::span::{Span, Stopwatch};

/// Messages between two looks at the clock.
const BATCH: u64 = 64;

pub(super) fn run(
    connection: &mut Connection,
    bytes: usize,
    span: Span,
) -> Result<Outcome, CaseError> {
    let mut message = vec![0x5a; bytes];
    let request = Request {
        work: Work::Sink {
            warmup: span.warmup,
        },
        bytes,
    };
    connection.write_all(&request.encode()).map_err(at(0))?;
    let watch = Stopwatch::start(span);
    let mut sent = 0;
    let mut send = |last: bool, sent: &mut u64| {
        stamp(&mut message, *sent, last);
        connection.write_all(&message).map_err(at(*sent))?;
        *sent += 1;
        Ok::<(), CaseError>(())
    };
    while !watch.is_over(watch.now()) {
        for _ in 0..BATCH {
            send(false, &mut sent)?;
        }
    }
    send(true, &mut sent)?;
    let report = Report::read(connection).map_err(at(sent))?;
    if report.received != sent {
        return Err(CaseError::Lost {
            sent,
            received: report.received,
        });
    }
    if report.counted == 0 || report.nanos == 0 {
        return Err(CaseError::Nothing(span.measure));
    }
    Ok(stream_outcome(bytes, report.counted, report.nanos))
}
