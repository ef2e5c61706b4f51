//! The client: one case on one connection.

use std::io;
use std::net::SocketAddr;

use crosslane_sockbench::client::{CaseError, at, histogram, rtt_outcome, stream_outcome};
use crosslane_sockbench::cpus;
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::request::{Report, Request, Work};
use crosslane_sockbench::span::{Span, Stopwatch};

use crate::server::converse;
use crate::stream::Position;
use crate::way::{Way, Wire, connect, pair};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Round trips
    Rtt,
    /// One-way traffic, message by message
    Stream,
    /// One-way traffic, sixteen messages at a time
    Batch,
}

/// Messages of a batch.
const BATCH: usize = 16;

/// Messages between two looks at the clock.
const MESSAGES_PER_LOOK: usize = 64;

/// Runs a case; also returns its connection, still open.
///
/// # Errors
/// [`CaseError`].
pub fn run(
    way: Way,
    case: Case,
    address: SocketAddr,
    bytes: usize,
    span: Span,
) -> Result<(Line, Box<dyn Wire>), CaseError> {
    let mut wire = connect(way, address).map_err(at(0))?;
    let line = measure(wire.as_mut(), case, bytes, span)?;
    Ok((line, wire))
}

/// Runs a case between this thread and another one of this process, on the processor `server` if that is
/// said.
///
/// # Errors
/// [`CaseError`]; also if nothing travels in memory in the end.
pub fn run_within(
    way: Way,
    case: Case,
    bytes: usize,
    span: Span,
    server: Option<usize>,
) -> Result<Line, CaseError> {
    let [mut near, mut far] = pair(way).map_err(at(0))?;
    let answering = std::thread::spawn(move || {
        server.map_or(Ok(()), cpus::pin).map_err(io::Error::other)?;
        converse(far.as_mut())
    });
    let line = measure(near.as_mut(), case, bytes, span)?;
    if way != Way::Sockets && !near.is_in_memory() {
        return Err(at(0)(io::Error::other("the connection has left memory")));
    }
    drop(near);
    match answering.join() {
        Ok(served) => served.map_err(at(0))?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    Ok(line)
}

fn measure(wire: &mut dyn Wire, case: Case, bytes: usize, span: Span) -> Result<Line, CaseError> {
    let (local, peer) = wire.names().map_err(at(0))?;
    let outcome = match case {
        Case::Rtt => round_trips(wire, bytes, span)?,
        Case::Stream => one_way(wire, bytes, 1, span)?,
        Case::Batch => one_way(wire, bytes, BATCH, span)?,
    };
    let (local, peer) = (local.to_string(), peer.to_string());
    Ok(Line {
        outcome,
        local,
        peer,
    })
}

fn ask(wire: &mut dyn Wire, work: Work, bytes: usize) -> Result<(), CaseError> {
    let request = Request { work, bytes }.encode();
    wire.write_all(&request).map_err(at(0))
}

fn round_trips(wire: &mut dyn Wire, bytes: usize, span: Span) -> Result<Outcome, CaseError> {
    ask(wire, Work::Echo, bytes)?;
    let mut times = histogram();
    let (mut out, mut back) = (Position::default(), Position::default());
    let watch = Stopwatch::start(span);
    let mut number = 0;
    while !watch.is_over(watch.now()) {
        let sent_at = watch.now();
        wire.send(&mut out, bytes).map_err(at(number))?;
        while back.bytes() < out.bytes() {
            let left = out.bytes() - back.bytes();
            let most = usize::try_from(left).unwrap_or(bytes);
            if wire.receive(&mut back, most).map_err(at(number))? == 0 {
                return Err(at(number)(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let back_at = watch.now();
        if watch.is_warm(sent_at) {
            times.saturating_record(watch.between_ns(sent_at, back_at));
        }
        number += 1;
    }
    rtt_outcome(bytes, &times, span)
}

fn one_way(
    mut wire: &mut dyn Wire,
    bytes: usize,
    batch: usize,
    span: Span,
) -> Result<Outcome, CaseError> {
    let warmup = span.warmup;
    ask(wire, Work::Sink { warmup }, bytes)?;
    let watch = Stopwatch::start(span);
    let mut out = Position::default();
    let sent = |out: &Position| out.bytes() / bytes as u64;
    while !watch.is_over(watch.now()) {
        for _ in 0..MESSAGES_PER_LOOK / batch {
            wire.send(&mut out, batch * bytes).map_err(at(sent(&out)))?;
        }
    }
    out.begin_last();
    wire.send(&mut out, bytes).map_err(at(sent(&out)))?;
    let sent = sent(&out);
    let report = Report::read(&mut wire).map_err(at(sent))?;
    if report.received != sent {
        let received = report.received;
        return Err(CaseError::Lost { sent, received });
    }
    if report.counted == 0 || report.nanos == 0 {
        return Err(CaseError::Nothing(span.measure));
    }
    Ok(stream_outcome(bytes, report.counted, report.nanos))
}
