//! Who measures what: the ordinary program, or the peer's own.

use std::time::Duration;

use anyhow::bail;
use crosslane_benchkit::Process;
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::span::Span;

use super::super::placement::Placement;
use super::super::programs::{GRACE, Programs, parse};
use super::super::rounds::Measured;
use super::super::sockets::case::Case;
use super::super::sockets::ground::Ground;
use super::super::sockets::host::{Host as Sockets, Servers};
use super::super::sockets::transport::Transport;
use super::foreign;
use super::results::{Figures, Key, Peer};

/// Everything that is needed to start the processes.
pub struct Host {
    sockets: Sockets,
    programs: Programs,
    span: Span,
}

impl Host {
    /// Finds the programs.
    pub fn new(span: Span) -> anyhow::Result<Self> {
        Ok(Self {
            sockets: Sockets::new(Ground::here()?, span, Placement::Free)?,
            programs: Programs::find()?,
            span,
        })
    }

    /// The ordinary program's servers; each is started when it is first needed.
    pub fn servers(&self) -> Servers<'_> {
        self.sockets.servers()
    }

    /// Measures one case of one peer.
    pub fn measure(&self, servers: &mut Servers, key: Key) -> anyhow::Result<Measured<Figures>> {
        let mut over = |transport| {
            let measured = servers.measure(key.case, transport)?;
            Ok(Measured {
                figures: figures(&measured.figures)?,
                verdict: measured.verdict,
            })
        };
        let figures = match key.peer {
            Peer::Tcp => return over(Transport::Tcp),
            Peer::Unix => return over(Transport::Unix),
            Peer::Crosslane => return over(Transport::Crosslane),
            Peer::Pipe => self.pipe(key.case)?,
            Peer::Ucx => foreign::calibrated(self.span, |count| foreign::ucx(key.case, count))?,
            Peer::Libfabric => {
                foreign::calibrated(self.span, |count| foreign::libfabric(key.case, count))?
            }
        };
        Ok(Measured {
            figures,
            verdict: None,
        })
    }

    fn pipe(&self, case: Case) -> anyhow::Result<Figures> {
        let mut command = self.programs.plain();
        command.args(["client", "--connect", "pipe:", "--case", case.name()]);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        command.args(["--bytes", &case.bytes.to_string()]);
        command.args(["--warmup", &milliseconds(self.span.warmup)]);
        command.args(["--measure", &milliseconds(self.span.measure)]);
        let patience = self.span.warmup + self.span.measure + GRACE;
        let exit = Process::spawn("pipe client", &mut command)?.finish(patience)?;
        figures(&parse::<Line>(&exit.stdout)?.outcome)
    }
}

fn figures(outcome: &Outcome) -> anyhow::Result<Figures> {
    match outcome {
        Outcome::Rtt { trips, p50_ns, .. } => Ok(Figures::RoundTrip {
            trips: *trips,
            p50_ns: Some(super::super::output::number(*p50_ns)),
            mean_ns: None,
        }),
        Outcome::Stream {
            bytes,
            messages,
            msgs_per_s,
            ..
        } => Ok(Figures::stream(*bytes, *messages, *msgs_per_s)),
        other => bail!("the client measured something else: {other:?}"),
    }
}
