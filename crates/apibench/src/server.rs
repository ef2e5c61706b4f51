//! The server: one connection at a time, as many requests on it as the client likes.

use std::io;

use crosslane_sockbench::request::{Report, Request, Work};
use crosslane_sockbench::span::{Span, Stopwatch};

use crate::stream::Position;
use crate::way::{Listening, Wire};

/// A receiver of small messages takes as many at a time as a sender of batches sends.
const AT_LEAST_AT_A_TIME: usize = 4096;

/// Serves for ever. A connection that fails is reported on standard error and ends alone.
///
/// # Errors
/// When accepting fails.
pub fn serve(listening: &Listening) -> io::Result<()> {
    loop {
        let mut wire = listening.accept()?;
        if let Err(error) = converse(wire.as_mut()) {
            eprintln!("crosslane-apibench server: {error}");
        }
    }
}

/// Serve one connection.
///
/// # Errors
/// As the system gives them, and where what came is not what was sent.
pub fn converse(mut wire: &mut dyn Wire) -> io::Result<()> {
    let Some(request) = Request::read(&mut wire)? else {
        return Ok(());
    };
    match request.work {
        Work::Sink { warmup } => {
            let measure = std::time::Duration::MAX;
            let report = sink(
                wire,
                request.bytes,
                &Stopwatch::start(Span { warmup, measure }),
            )?;
            wire.write_all(&report.encode())
        }
        Work::Echo | Work::Usage => {
            while wire.echo(request.bytes)? > 0 {}
            Ok(())
        }
    }
}

fn sink(wire: &mut dyn Wire, bytes: usize, watch: &Stopwatch) -> io::Result<Report> {
    let most = bytes.max(AT_LEAST_AT_A_TIME / bytes * bytes);
    let mut position = Position::default();
    while !is_over(&position, bytes) && !watch.is_warm(watch.now()) {
        receive(wire, &mut position, most)?;
    }
    let (warm_at, uncounted) = (watch.now(), position.bytes());
    while !is_over(&position, bytes) {
        receive(wire, &mut position, most)?;
    }
    let nanos = watch.between_ns(warm_at, watch.now());
    let messages = |all: u64| all / bytes as u64;
    Ok(Report {
        received: messages(position.bytes()),
        counted: messages(position.bytes() - uncounted),
        nanos,
    })
}

fn receive(wire: &mut dyn Wire, position: &mut Position, most: usize) -> io::Result<()> {
    match wire.receive(position, most)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Whether the last message is complete.
fn is_over(position: &Position, bytes: usize) -> bool {
    position.is_last() && position.bytes().is_multiple_of(bytes as u64)
}
