//! The processes of the bench: for each measurement a monitor, a server and a client of its own,
//! so that memory begins at nothing.

use std::process::Command;
use std::time::Duration;

use crosslane_benchkit::{End, Process, Verdict};
use crosslane_sockbench::outcome::{Line, Ready};
use crosslane_sockbench::server::crowd::By;
use crosslane_sockbench::span::Span;

use super::super::monitor::Monitor;
use super::super::placement::Placement;
use super::super::programs::{GRACE, Programs, Server, parse};
use super::super::rounds::Measured;
use super::memory::{Memory, kernel_bytes};
use super::results::{Figures, Growth, Key, Transport};

/// Opening a connection and using it takes a fraction of this, also on a busy machine.
const EACH: Duration = Duration::from_millis(10);
/// How often every connection is used before one that is not accelerated counts as such.
const MOST_TOUCHES: usize = 20;

/// Everything that is needed to start the processes.
pub struct Host {
    programs: Programs,
    span: Span,
    by: By,
    /// The CPUs of the server and of the client, when they are to be pinned.
    cpus: Option<(usize, usize)>,
}

/// The processes of one measurement.
struct Cast {
    key: Key,
    span: Span,
    monitor: Option<Monitor>,
    server: Server,
    client: Process,
}

/// Memory at a moment.
struct Snapshot {
    programs: Memory,
    monitor: Memory,
    kernel_bytes: u64,
}

impl Host {
    /// Finds the programs.
    pub fn new((span, by): (Span, By), placement: Placement) -> anyhow::Result<Self> {
        Ok(Self {
            programs: Programs::find()?,
            span,
            by,
            cpus: placement.cpus()?,
        })
    }

    /// Measures so many connections.
    pub fn measure(&self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let monitor = match key.over {
            Transport::Crosslane => Some(Monitor::start(&self.programs.crosslane)?),
            Transport::Tcp => None,
        };
        let mut cast = self.cast(key, monitor)?;
        match cast.play() {
            Ok(measured) => Ok(measured),
            Err(error) => Err(cast.server.blame(error)),
        }
    }

    fn cast(&self, key: Key, monitor: Option<Monitor>) -> anyhow::Result<Cast> {
        let connections = key.connections.to_string();
        let name = key.over.to_string();
        let mut command = self.program(monitor.as_ref(), self.cpus.map(|(server, _)| server));
        command.args(["server", "--crowd", &connections]);
        if self.by == By::Poll {
            command.args(["--by", "poll"]);
        }
        let server = Server::start(&name, &mut command)?;
        if monitor.is_some() {
            self.programs.ensure_loaded(&server)?;
        }
        let mut command = self.program(monitor.as_ref(), self.cpus.map(|(_, client)| client));
        command.args(["crowd", "--connect", &server.address]);
        command.args(["--connections", &connections]);
        command.args(["--warmup", &self.span.warmup.as_millis().to_string()]);
        command.args(["--measure", &self.span.measure.as_millis().to_string()]);
        Ok(Cast {
            key,
            span: self.span,
            monitor,
            server,
            client: Process::spawn(format!("{name} client"), &mut command)?,
        })
    }

    fn program(&self, monitor: Option<&Monitor>, cpu: Option<usize>) -> Command {
        let mut command = match monitor {
            Some(monitor) => self.programs.using(&monitor.crosslane).accelerated(&[]),
            None => self.programs.plain(),
        };
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command
    }
}

impl Cast {
    fn play(&mut self) -> anyhow::Result<Measured<Figures>> {
        let _no_connection_yet: Ready = self.hear(GRACE)?;
        let before = self.snapshot()?;
        let patience = GRACE + EACH * self.key.connections;
        self.client.say("open");
        self.hear::<Ready>(patience)?;
        let (ready, verdict) = self.use_all(patience)?;
        let after = self.snapshot()?;

        let ends = self.ends(&ready)?;
        self.client.say("measure");
        let line: Line = self.hear(GRACE + 4 * (self.span.warmup + self.span.measure))?;
        let active = match (&ends, self.ends(&ready)?) {
            (Some(before), Some(after)) => Some(Verdict::since(before, &after)),
            _ => None,
        };
        self.client.close_stdin();
        let growth = after.since(&before);
        Ok(Measured {
            figures: Figures::of(&line.outcome, growth)?,
            // All of them must be accelerated, and the active one while it is measured.
            verdict: verdict.filter(|verdict| !verdict.accelerated).or(active),
        })
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self, patience: Duration) -> anyhow::Result<T> {
        parse(&self.client.next_line(patience)?)
    }

    /// Uses every connection, over Crosslane until all are accelerated.
    fn use_all(&mut self, patience: Duration) -> anyhow::Result<(Ready, Option<Verdict>)> {
        let mut touched = 0;
        loop {
            self.client.say("touch");
            let ready: Ready = self.hear(patience)?;
            touched += 1;
            let Some(monitor) = &self.monitor else {
                return Ok((ready, None));
            };
            let ends = monitor.crosslane.connections()?;
            let verdict = judge(&ends, self.key.connections);
            if verdict.accelerated || touched == MOST_TOUCHES {
                return Ok((ready, Some(verdict)));
            }
        }
    }

    /// The ends of the active connection, where it is Crosslane's.
    fn ends(&self, active: &Ready) -> anyhow::Result<Option<Vec<End>>> {
        let Some(monitor) = &self.monitor else {
            return Ok(None);
        };
        let mut ends = monitor.crosslane.connections()?;
        ends.retain(|end| end.is_between(&active.local, &active.peer));
        Ok(Some(ends))
    }

    fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let [server, client] = [self.server.process.pid(), self.client.pid()].map(Memory::of);
        let monitor = self.monitor.as_ref();
        Ok(Snapshot {
            programs: server?.sum(client?),
            monitor: monitor.map_or(Ok(Memory::default()), |it| Memory::of(it.process.pid()))?,
            kernel_bytes: kernel_bytes()?,
        })
    }
}

/// Whether all of so many connections are accelerated, at both ends. By their states alone: their
/// first bytes went over TCP, and they have carried no others yet.
fn judge(ends: &[End], connections: u32) -> Verdict {
    let accelerated = ends.iter().filter(|end| end.is_accelerated()).count();
    let expected = 2 * connections as usize;
    if ends.len() == expected && accelerated == expected {
        return Verdict {
            accelerated: true,
            reason: None,
            ring_share: None,
        };
    }
    let mut reasons: Vec<_> = ends.iter().filter_map(|end| end.reason.clone()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let reasons = reasons.join(", ");
    Verdict {
        accelerated: false,
        reason: Some(format!(
            "{accelerated} of {expected} ends are accelerated ({reasons})"
        )),
        ring_share: None,
    }
}

impl Snapshot {
    fn since(&self, before: &Self) -> Growth {
        let less = u64::saturating_sub;
        Growth {
            program_bytes: less(self.programs.private_bytes, before.programs.private_bytes),
            monitor_bytes: less(self.monitor.private_bytes, before.monitor.private_bytes),
            shared_bytes: less(
                self.programs.sum(self.monitor).shared_bytes,
                before.programs.sum(before.monitor).shared_bytes,
            ),
            kernel_bytes: less(self.kernel_bytes, before.kernel_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(state: &str, reason: Option<&str>) -> End {
        End {
            program: "server".into(),
            pid: 1,
            local: "127.0.0.1:1".into(),
            peer: "127.0.0.1:2".into(),
            state: state.into(),
            reason: reason.map(Into::into),
            window: None,
            ring_bytes_sent: 0,
            ring_bytes_received: 0,
            tcp_bytes_sent: 100,
            tcp_bytes_received: 100,
        }
    }

    #[test]
    fn every_end_of_every_connection_must_be_accelerated() {
        let fast = || end("accelerated", None);
        assert!(judge(&[fast(), fast()], 1).accelerated);
        assert!(!judge(&[fast(), fast()], 2).accelerated, "ends are missing");
        let verdict = judge(&[fast(), end("tcp", Some("no-memory"))], 1);
        assert_eq!(
            verdict.reason.as_deref(),
            Some("1 of 2 ends are accelerated (no-memory)")
        );
    }
}
