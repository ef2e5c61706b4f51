//! The server: one connection at a time, as many requests on it as the client likes.

use std::io::{self, ErrorKind, Read, Write};

use crate::connection::{Connection, Listener};
use crate::message::check;
use crate::request::{Report, Request, Work};
use crate::span::{Span, Stopwatch};

/// Serves for ever. A connection that fails is reported on standard error and ends alone.
///
/// # Errors
/// When accepting fails.
pub fn serve(listener: &Listener) -> io::Result<()> {
    loop {
        let mut connection = listener.accept()?;
        if let Err(error) = converse(&mut connection) {
            eprintln!("crosslane-sockbench server: {error}");
        }
    }
}

fn converse(connection: &mut Connection) -> io::Result<()> {
    while let Some(request) = Request::read(connection)? {
        match request.work {
            Work::Echo => echo(connection, request.bytes)?,
            Work::Sink { warmup } => {
                let span = Span {
                    warmup,
                    measure: std::time::Duration::MAX,
                };
                let report = sink(connection, request.bytes, &Stopwatch::start(span))?;
                connection.write_all(&report.encode())?;
            }
        }
    }
    Ok(())
}

fn echo(connection: &mut Connection, bytes: usize) -> io::Result<()> {
    let mut message = vec![0; bytes];
    for number in 0.. {
        connection.read_exact(&mut message)?;
        let last = check(&message, number).map_err(broken)?;
        connection.write_all(&message)?;
        if last {
            break;
        }
    }
    Ok(())
}

fn sink(connection: &mut Connection, bytes: usize, watch: &Stopwatch) -> io::Result<Report> {
    let mut message = vec![0; bytes];
    let mut next = 0;
    let mut receive = |number: &mut u64| -> io::Result<bool> {
        connection.read_exact(&mut message)?;
        let last = check(&message, *number).map_err(broken)?;
        *number += 1;
        Ok(last)
    };
    let mut last = false;
    while !last && !watch.is_warm(watch.now()) {
        last = receive(&mut next)?;
    }
    let (warm_at, uncounted) = (watch.now(), next);
    while !last {
        last = receive(&mut next)?;
    }
    let nanos = watch.between_ns(warm_at, watch.now());
    Ok(Report {
        received: next,
        counted: next - uncounted,
        nanos,
    })
}

fn broken(error: crate::message::Broken) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
