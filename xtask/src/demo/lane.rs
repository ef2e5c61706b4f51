//! One side of the comparison: a program over TCP, or the same program under `crosslane run`.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use crosslane_benchkit::{Crosslane, End, Process, Verdict, plain};

use super::workload::Program;

/// Starting a server takes milliseconds; only a hang takes this.
const START_TIME: Duration = Duration::from_secs(15);
/// How much longer than asked a client may run.
const GRACE: Duration = Duration::from_secs(20);
/// Between two looks at a client's connections.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// The state of a listening socket in the kernel's table.
const LISTENING: &str = "0A";

/// What a program's connections run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Tcp,
    Crosslane,
}

/// A running server and how to run clients against it.
pub struct Lane<'a> {
    pub side: Side,
    pub port: u16,
    crosslane: &'a Crosslane,
    _server: Process,
}

/// What a client left behind.
pub struct Pass {
    pub stdout: String,
    /// Looked up while it ran; none for TCP, and when it had ended before it could be looked at.
    pub verdict: Option<Verdict>,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Crosslane => "crosslane",
        }
    }

    fn command(self, crosslane: &Crosslane, words: &[String]) -> anyhow::Result<Command> {
        let (program, arguments) = words.split_first().context("an empty command line")?;
        let mut command = match self {
            Self::Tcp => plain(program),
            Self::Crosslane => crosslane.run(program),
        };
        command.args(arguments);
        Ok(command)
    }
}

impl<'a> Lane<'a> {
    /// Starts the server on a free port and waits until it listens.
    pub fn open(side: Side, program: &Program, crosslane: &'a Crosslane) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = side.command(crosslane, &(program.server)(port))?;
        let name = format!("{} ({})", program.name, side.name());
        let server = Process::spawn(&name, command.current_dir(std::env::temp_dir()))?;
        let deadline = Instant::now() + START_TIME;
        while !is_listening(port)? {
            if !server.runs_after(Duration::from_millis(5))? {
                server.finish(Duration::ZERO)?;
                bail!("{name} ended at once");
            }
            ensure!(
                Instant::now() < deadline,
                "{name} does not listen on port {port} after {START_TIME:?}"
            );
        }
        if side == Side::Crosslane && !crosslane.is_loaded_in(server.pid()) {
            let said = server.stop()?.stderr;
            bail!("`crosslane run` ran {name} without Crosslane: {said}");
        }
        Ok(Self {
            side,
            port,
            crosslane,
            _server: server,
        })
    }

    /// Runs a client that takes about `time`; on the Crosslane side, looks at its connections from
    /// when half of that is over, and again when most of it is: a client may lose in between what it had.
    pub fn run(&self, client: &[String], time: Duration) -> anyhow::Result<Pass> {
        let mut command = self.side.command(self.crosslane, client)?;
        let name = format!("{} ({})", client[0], self.side.name());
        let begun = Instant::now();
        let process = Process::spawn(name, &mut command)?;
        let verdict = match self.side {
            Side::Crosslane if process.runs_after(time / 2)? => {
                let halfway = self.watch(&process)?;
                let left = (time * 9 / 10).saturating_sub(begun.elapsed());
                match process.runs_after(left)? {
                    true => Some(later(halfway, &self.ends()?)),
                    false => Some(halfway),
                }
            }
            _ => None,
        };
        Ok(Pass {
            stdout: process.finish(time + GRACE)?.stdout,
            verdict,
        })
    }

    /// Looks until the client's connections are accelerated or the client ends: some programs wait
    /// before they send anything, and asking once is all that the others are disturbed by.
    fn watch(&self, client: &Process) -> anyhow::Result<Verdict> {
        loop {
            let verdict = Verdict::of(&self.ends()?);
            if verdict.accelerated || !client.runs_after(BETWEEN_LOOKS)? {
                return Ok(verdict);
            }
        }
    }

    fn ends(&self) -> anyhow::Result<Vec<End>> {
        let mut ends = self.crosslane.connections()?;
        ends.retain(|end| end.has_port(self.port));
        Ok(ends)
    }
}

/// What a second look says; the first one's where the client has closed its connections since.
fn later(first: Verdict, ends: &[End]) -> Verdict {
    match ends {
        [] => first,
        ends => Verdict::of(ends),
    }
}

fn free_port() -> anyhow::Result<u16> {
    let listener =
        std::net::TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

/// Asks the kernel's table, because connecting would be counted as a client.
fn is_listening(port: u16) -> anyhow::Result<bool> {
    let table = std::fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
    let suffix = format!(":{port:04X}");
    Ok(table.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        matches!(fields.as_slice(), [_, local, _, state, ..] if local.ends_with(&suffix) && *state == LISTENING)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_lost_its_rings_after_the_first_look_was_not_accelerated() {
        let end = |state: &str| End {
            program: "redis-server".into(),
            pid: 1,
            local: "127.0.0.1:6379".into(),
            peer: "127.0.0.1:40000".into(),
            state: state.into(),
            reason: None,
            window: None,
            ring_bytes_sent: 90,
            ring_bytes_received: 0,
            tcp_bytes_sent: 10,
            tcp_bytes_received: 0,
        };
        let first = Verdict {
            accelerated: true,
            reason: None,
            ring_share: None,
        };
        assert!(!later(first.clone(), &[end("tcp")]).accelerated);
        assert_eq!(later(first.clone(), &[]), first);
    }

    #[test]
    fn a_listening_port_is_known_without_connecting() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        assert!(is_listening(port).expect("Linux has the table"));
        drop(listener);
        assert!(!is_listening(port).expect("Linux has the table"));
    }
}
