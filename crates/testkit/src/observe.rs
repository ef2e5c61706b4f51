//! What `crosslane ss` and `crosslane stats` say, once or all the time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crosslane_benchkit::{End, Process, ProcessError};

const ANSWER_TIME: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The command failed or hung.
    #[error(transparent)]
    Command(#[from] ProcessError),
    /// It printed something else.
    #[error("`crosslane {command} --json` printed {line:?}: {source}")]
    Json {
        /// `ss` or `stats`.
        command: &'static str,
        /// What it printed.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Asks one monitor.
#[derive(Clone)]
pub struct Observer {
    executable: PathBuf,
    variable: &'static str,
    runtime_dir: PathBuf,
}

impl Observer {
    pub fn new((variable, runtime_dir): (&'static str, &Path)) -> Self {
        let executable = crate::binary("crosslane");
        Self {
            executable,
            variable,
            runtime_dir: runtime_dir.to_owned(),
        }
    }

    pub fn ends(&self) -> Result<Vec<End>, ObserveError> {
        self.ask("ss")
    }

    pub fn stats(&self) -> Result<Stats, ObserveError> {
        Ok(self.ask("stats")?.pop().map(Stats).unwrap_or_default())
    }

    /// The values in the answer, one a line.
    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        command: &'static str,
    ) -> Result<Vec<T>, ObserveError> {
        let mut ask = Command::new(&self.executable);
        ask.args([command, "--json"])
            .env(self.variable, &self.runtime_dir);
        let answer = Process::spawn(format!("crosslane {command}"), &mut ask)?;
        let parse = |line: &str| {
            serde_json::from_str(line).map_err(|source| ObserveError::Json {
                command,
                line: line.to_owned(),
                source,
            })
        };
        answer
            .finish(ANSWER_TIME)?
            .stdout
            .lines()
            .map(parse)
            .collect()
    }
}

/// The counters of all programs together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stats(BTreeMap<String, serde_json::Value>);

impl Stats {
    /// The counter of this name; 0 if there is none.
    pub fn count(&self, name: &str) -> u64 {
        self.0
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    }
}

/// Looks at the connections of one port again and again while a test runs, and remembers the last
/// that was seen of each end.
pub struct Witness(Option<Watch>);

struct Watch {
    port: u16,
    stop: Sender<()>,
    thread: JoinHandle<Result<Ends, ObserveError>>,
}

/// The ends by what tells them apart.
type Ends = BTreeMap<(u32, String, String), End>;

impl Witness {
    pub(crate) fn idle() -> Self {
        Self(None)
    }

    pub(crate) fn begin(observer: Observer, port: u16) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut ends = Ends::new();
            loop {
                let wait = stopped.recv_timeout(BETWEEN_LOOKS);
                let of_port = observer
                    .ends()?
                    .into_iter()
                    .filter(|end| end.has_port(port));
                ends.extend(
                    of_port.map(|end| ((end.pid, end.local.clone(), end.peer.clone()), end)),
                );
                if wait != Err(RecvTimeoutError::Timeout) {
                    return Ok(ends);
                }
            }
        });
        Self(Some(Watch { port, stop, thread }))
    }

    /// Fail unless some end was accelerated and moved bytes through its ring.
    ///
    /// # Panics
    /// When none did, with all that was seen.
    pub fn assert_accelerated(self) {
        self.assert_ring_share(0.0);
    }

    /// Fail unless more than `least` of all bytes that were seen went through rings.
    ///
    /// # Panics
    /// When it was less, with all that was seen.
    pub fn assert_ring_share(self, least: f64) {
        let Some(watch) = self.0 else { return };
        drop(watch.stop);
        let ends = watch.thread.join().expect("the witness does not panic");
        let ends = ends.unwrap_or_else(|error| panic!("the witness saw nothing: {error}"));
        let share = ring_share(ends.values());
        assert!(
            share > least,
            "{:.3} of the bytes of port {} went through rings, not above {least}: {:#?}",
            share,
            watch.port,
            ends.values()
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share needs no more than 53 bits"
)]
fn ring_share<'a>(ends: impl Iterator<Item = &'a End>) -> f64 {
    let (mut ring, mut all) = (0, 0);
    for end in ends {
        ring += end.ring_bytes_sent + end.ring_bytes_received;
        all += end.tcp_bytes_sent + end.tcp_bytes_received;
    }
    all += ring;
    if all == 0 {
        0.0
    } else {
        ring as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(ring: u64, tcp: u64) -> End {
        let json = format!(
            r#"{{"program":"p","pid":1,"fd":3,"local":"127.0.0.1:1","peer":"127.0.0.1:2",
            "state":"accelerated","reason":null,"ring_bytes_sent":{ring},"ring_bytes_received":0,
            "tcp_bytes_sent":{tcp},"tcp_bytes_received":0}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn nothing_seen_is_not_accelerated() {
        assert!(ring_share([].iter()) <= 0.0);
    }

    #[test]
    fn the_share_is_of_all_bytes() {
        let share = ring_share([end(30, 10), end(30, 30)].iter());
        assert!((share - 0.6).abs() < 1e-9);
    }
}
