//! A client with many connections, of which one is active while it is measured.
//!
//! Whoever runs it steers it by lines on its standard input, so that memory and connections can be
//! looked at between its steps: `open`, `touch` (a few round trips on each connection), `measure`.

use std::io::{self, BufRead, Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::address::Address;
use crate::client::{CaseError, at, rtt};
use crate::connection::Connection;
use crate::message::{check, stamp};
use crate::outcome::{Line, Outcome, Ready};
use crate::request::{Request, Work};
use crate::span::Span;
use crate::usage::{Usage, idle_cpu};

/// Descriptors that a program has besides its connections.
const OTHER_DESCRIPTORS: u64 = 64;
/// Round trips on each connection when it is touched.
const TOUCHES: u64 = 3;
/// How many connections are opened before the server must have accepted them: with 128 waiting,
/// the standard library's listener takes no more, and TCP tries again a second later.
const UNACCEPTED: u64 = 64;

/// The crowd.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many connections.
    pub connections: u64,
    /// The size of messages.
    pub bytes: u64,
    /// For how long the active one is measured, and before that all are idle.
    pub span: Span,
}

/// Why there is no crowd.
#[derive(Debug, thiserror::Error)]
pub enum CrowdError {
    /// The connections do not work.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// Too few descriptors may be open.
    #[error(transparent)]
    Limit(#[from] LimitTooLow),
    /// Standard input or output fails.
    #[error("cannot be steered")]
    Steering(#[from] io::Error),
    /// A word that means nothing.
    #[error("{0:?} is no step; there are open, touch and measure")]
    Step(String),
}

/// The limit on descriptors cannot be raised.
#[derive(Debug, thiserror::Error)]
#[error(
    "{connections} connections need {needed} descriptors, and the limit is {limit}: \
     raise `ulimit -Hn` (and fs.nr_open), or name fewer connections"
)]
pub struct LimitTooLow {
    connections: u64,
    needed: u64,
    limit: u64,
}

/// Lets this process have so many connections, raising the hard limit where that is allowed.
///
/// # Errors
/// [`LimitTooLow`].
pub fn allow_connections(connections: u64) -> Result<(), LimitTooLow> {
    let needed = connections.saturating_add(OTHER_DESCRIPTORS);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let hard = limit.maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit {
        current: Some(needed),
        maximum: hard,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| LimitTooLow {
        connections,
        needed,
        limit: limit.maximum.unwrap_or(u64::MAX),
    })
}

/// Takes steps until standard input ends.
///
/// # Errors
/// [`CrowdError`].
pub fn run(address: &Address, crowd: &Crowd) -> Result<(), CrowdError> {
    allow_connections(crowd.connections)?;
    let size = crate::message::checked_size(crowd.bytes).map_err(CaseError::from)?;
    let mut members = Members::default();
    say(&members.ready()?)?;
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "open" => members.open(address, crowd.connections)?,
            "touch" => members.touch(size)?,
            "measure" => {
                say(&members.measure(size, crowd.span)?)?;
                continue;
            }
            other => return Err(CrowdError::Step(other.to_owned())),
        }
        say(&members.ready()?)?;
    }
    Ok(())
}

fn say(line: &impl serde::Serialize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(line)?)?;
    output.flush()
}

#[derive(Default)]
struct Members(Vec<Connection>);

impl Members {
    fn open(&mut self, address: &Address, connections: u64) -> Result<(), CaseError> {
        for number in 0..connections {
            let mut connection = Connection::open(address).map_err(at(number))?;
            if number % UNACCEPTED == 0 {
                Usage::ask(&mut connection).map_err(at(number))?;
            }
            self.0.push(connection);
        }
        Ok(())
    }

    /// A few round trips on each, so that every connection has been used.
    fn touch(&mut self, bytes: usize) -> Result<(), CaseError> {
        let (mut out, mut back) = (vec![0x5a; bytes], vec![0; bytes]);
        let echo = Request {
            work: Work::Echo,
            bytes,
        };
        for connection in &mut self.0 {
            connection.write_all(&echo.encode()).map_err(at(0))?;
            for number in 0..TOUCHES {
                stamp(&mut out, number, number + 1 == TOUCHES);
                connection.write_all(&out).map_err(at(number))?;
                connection.read_exact(&mut back).map_err(at(number))?;
                check(&back, number)?;
            }
        }
        Ok(())
    }

    /// The active one is neither the oldest nor the newest.
    fn active(&self) -> usize {
        self.0.len() / 2
    }

    fn ready(&self) -> Result<Ready, CaseError> {
        let active = self.0.get(self.active()).map(Connection::names);
        let (local, peer) = active.transpose().map_err(at(0))?.unwrap_or_default();
        Ok(Ready {
            ready: self.0.len() as u64,
            local,
            peer,
        })
    }

    fn measure(&mut self, bytes: usize, span: Span) -> Result<Line, CaseError> {
        let (connections, active) = (self.0.len() as u64, self.active());
        let Some(connection) = self.0.get_mut(active) else {
            return Err(CaseError::Nothing(span.measure));
        };
        let (local, peer) = connection.names().map_err(at(0))?;
        let [idle_server_cpu, idle_client_cpu] =
            idle_cpu(connection, span.measure).map_err(at(0))?;
        let Outcome::Rtt {
            bytes,
            trips,
            p50_ns,
            p99_ns,
            p999_ns,
            ..
        } = rtt::run(connection, bytes, span)?
        else {
            unreachable!("round trips give round trips")
        };
        let outcome = Outcome::Crowd {
            bytes,
            connections,
            trips,
            p50_ns,
            p99_ns,
            p999_ns,
            idle_server_cpu,
            idle_client_cpu,
        };
        Ok(Line {
            outcome,
            local,
            peer,
        })
    }
}
