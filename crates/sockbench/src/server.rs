//! The server: one connection at a time, as many requests on it as the client likes. [`crowd`] is
//! the one for many connections at once.

pub mod crowd;

use std::io::{self, ErrorKind, Read, Write};

use crate::connection::{Connection, Listener};
use crate::message::check;
use crate::pipes::Pipes;
use crate::receiving::{Receiving, Spinning, has_device_queue, let_kernel_poll};
use crate::request::{Report, Request, Work};
use crate::span::{Span, Stopwatch};
use crate::usage::{Usage, own_cpu_ns};

/// Serves for ever. A connection that fails is reported on standard error and ends alone.
///
/// # Errors
/// When accepting fails, or the kernel does not poll although it should.
pub fn serve(listener: &Listener, receiving: Receiving) -> io::Result<()> {
    loop {
        let mut connection = listener.accept()?;
        let polls = has_device_queue(&connection);
        let done = match receiving {
            Receiving::Spin => Spinning::new(&mut connection)
                .and_then(|mut spinning| converse(&mut spinning, polls)),
            Receiving::Block | Receiving::BusyPoll => converse(&mut connection, polls),
        };
        if let Err(error) = done {
            eprintln!("crosslane-sockbench server: {error}");
        }
    }
}

/// Answers one client on the standard streams until it closes them.
///
/// # Errors
/// When reading or writing fails, or the client talks nonsense.
pub fn answer() -> io::Result<()> {
    converse(&mut Connection::Pipes(Pipes::of_this_process()?), false)
}

/// Prepares a listener for how its connections will wait.
///
/// # Errors
/// When the kernel refuses.
pub fn prepare(listener: &Listener, receiving: Receiving) -> io::Result<()> {
    match receiving {
        Receiving::BusyPoll => let_kernel_poll(listener),
        Receiving::Block | Receiving::Spin => Ok(()),
    }
}

fn converse(connection: &mut (impl Read + Write), has_device_queue: bool) -> io::Result<()> {
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
            Work::Usage => connection.write_all(&usage(has_device_queue).encode())?,
        }
    }
    Ok(())
}

fn usage(has_device_queue: bool) -> Usage {
    Usage {
        cpu_ns: own_cpu_ns(),
        has_device_queue,
    }
}

fn echo(connection: &mut (impl Read + Write), bytes: usize) -> io::Result<()> {
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

fn sink(connection: &mut impl Read, bytes: usize, watch: &Stopwatch) -> io::Result<Report> {
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
