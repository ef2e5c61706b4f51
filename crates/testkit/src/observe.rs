//! What `crosslane ss` and `crosslane stats` say, once or all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crosslane_benchkit::{End, Process, ProcessError};

const ANSWER_TIME: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// What goes through rings at least on a busy machine, where short connections come and go beside those that live.
const LEAST_SHARE: f64 = 0.05;
/// What does on connections that live for some seconds.
const LONG_LIVED_SHARE: f64 = 0.5;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats(BTreeMap<String, serde_json::Value>);

impl Stats {
    /// What `crosslane stats --json` printed.
    ///
    /// # Panics
    /// When that is something else.
    pub fn parse(line: &str) -> Self {
        serde_json::from_str(line)
            .map(Self)
            .unwrap_or_else(|error| panic!("`crosslane stats --json` printed {line:?}: {error}"))
    }

    /// The counter of this name; 0 if there is none.
    pub fn count(&self, name: &str) -> u64 {
        self.0
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    }

    /// How many connections were closed on TCP, or brought back to it, for this reason.
    pub fn reason_count(&self, name: &str) -> u64 {
        self.0
            .get("reasons")
            .and_then(|reasons| reasons.get(name)?.as_u64())
            .unwrap_or(0)
    }

    /// The monitor's own number of this name; 0 if there is none.
    pub fn monitor_count(&self, name: &str) -> u64 {
        self.0
            .get("monitor")
            .and_then(|monitor| monitor.get(name)?.as_u64())
            .unwrap_or(0)
    }
}

/// Compares what `crosslane stats` counts before and after, and looks at the connections of one
/// port meanwhile, so that a failure can tell why they were not accelerated.
pub struct Witness(Option<Watch>);

struct Watch {
    port: u16,
    /// The window that rings have to be in.
    window: Option<&'static str>,
    observer: Observer,
    before: Stats,
    stop: Sender<()>,
    thread: JoinHandle<Ends>,
}

/// The last that was seen of each end, by what tells them apart.
type Ends = BTreeMap<(u32, String, String), End>;

impl Witness {
    pub(crate) fn idle() -> Self {
        Self(None)
    }

    pub(crate) fn begin(observer: Observer, port: u16) -> Self {
        let before = observer.stats().expect("crosslane stats answers");
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn({
            let observer = observer.clone();
            move || look_until(&observer, port, &stopped)
        });
        Self(Some(Watch {
            port,
            window: None,
            observer,
            before,
            stop,
            thread,
        }))
    }

    /// The same where rings have to be in this window to another host.
    #[must_use]
    pub fn over(mut self, window: &'static str) -> Self {
        if let Some(watch) = &mut self.0 {
            watch.window = Some(window);
        }
        self
    }

    /// Fail unless a good part of all bytes went through rings.
    ///
    /// # Panics
    /// When it did not, with all connections that were seen.
    pub fn assert_accelerated(self) {
        self.assert_ring_share(LEAST_SHARE);
    }

    /// Fail unless more than `least` of all bytes went through rings.
    ///
    /// # Panics
    /// When it was less, with all connections that were seen.
    pub fn assert_ring_share(self, least: f64) {
        let Some(watch) = self.0 else { return };
        let (port, before) = (watch.port, watch.before.clone());
        let (ends, after) = watch.end();
        let share = ring_share(&before, &after);
        assert!(
            share > least,
            "{share:.3} of all bytes went through rings, not above {least}; on port {port}: {:#?}",
            ends.values()
        );
    }

    /// Fail unless most bytes on connections of the port went through rings, as far as they were seen. Those are to
    /// be open still, or to have been for some seconds: short ones are over before anybody looks.
    ///
    /// # Panics
    /// When they did not, or nothing was seen.
    pub fn assert_port_accelerated(self) {
        let Some(watch) = self.0 else { return };
        let port = watch.port;
        let (ends, _) = watch.end();
        let share = ring_share_of(ends.values());
        assert!(
            share > LONG_LIVED_SHARE,
            "{share:.3} of the bytes on port {port} went through rings: {:#?}",
            ends.values()
        );
    }

    /// Fail unless at least so many processes had ends at the port itself, as its servers have, that moved bytes through
    /// rings. Those are to be open still, or to have been for some seconds.
    ///
    /// # Panics
    /// When there were fewer, with all connections that were seen.
    pub fn assert_served_by(self, least: usize) {
        let Some(watch) = self.0 else { return };
        let port = watch.port;
        let (ends, _) = watch.end();
        let count = servers(ends.values(), port).len();
        assert!(
            count >= least,
            "processes that served port {port} through rings: {count}, not {least}: {:#?}",
            ends.values()
        );
    }
}

impl Watch {
    /// Look once more. The last that was seen of each end, and what has been counted.
    fn end(self) -> (Ends, Stats) {
        drop(self.stop);
        let ends = self.thread.join().expect("the witness does not panic");
        let after = self.observer.stats().expect("crosslane stats answers");
        let elsewhere: Vec<_> = ends
            .values()
            .filter(|end| is_elsewhere(end, self.window))
            .collect();
        assert!(
            elsewhere.is_empty(),
            "rings that are not in the window {:?}: {elsewhere:#?}",
            self.window
        );
        (ends, after)
    }
}

/// Whether an end is accelerated by other memory than it should be.
fn is_elsewhere(end: &End, window: Option<&str>) -> bool {
    window.is_some() && end.is_accelerated() && end.window.as_deref() != window
}

fn look_until(observer: &Observer, port: u16, stopped: &Receiver<()>) -> Ends {
    let mut ends = Ends::new();
    loop {
        let wait = stopped.recv_timeout(BETWEEN_LOOKS);
        // A monitor that a test has killed says nothing; the counters decide.
        let seen = observer.ends().unwrap_or_default();
        let of_port = seen.into_iter().filter(|end| end.has_port(port));
        ends.extend(of_port.map(|end| ((end.pid, end.local.clone(), end.peer.clone()), end)));
        if wait != Err(RecvTimeoutError::Timeout) {
            return ends;
        }
    }
}

/// Processes of which ends at the port have moved bytes through rings.
fn servers<'a>(ends: impl Iterator<Item = &'a End>, port: u16) -> BTreeSet<u32> {
    let at_port = format!(":{port}");
    ends.filter(|end| end.local.ends_with(&at_port))
        .filter(|end| end.ring_bytes_sent + end.ring_bytes_received > 0)
        .map(|end| end.pid)
        .collect()
}

fn ring_share(before: &Stats, after: &Stats) -> f64 {
    let since = |names: [&str; 2]| -> u64 {
        names
            .iter()
            .map(|name| after.count(name).saturating_sub(before.count(name)))
            .sum()
    };
    let ring = since(["ring_bytes_sent", "ring_bytes_received"]);
    share(ring, since(["tcp_bytes_sent", "tcp_bytes_received"]))
}

fn ring_share_of<'a>(ends: impl Iterator<Item = &'a End>) -> f64 {
    let (mut ring, mut tcp) = (0, 0);
    for end in ends {
        ring += end.ring_bytes_sent + end.ring_bytes_received;
        tcp += end.tcp_bytes_sent + end.tcp_bytes_received;
    }
    share(ring, tcp)
}

/// Nothing moved is not accelerated.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share needs no more than 53 bits"
)]
fn share(ring: u64, tcp: u64) -> f64 {
    match ring + tcp {
        0 => 0.0,
        all => ring as f64 / all as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(ring: u64, tcp: u64) -> Stats {
        let json = format!(r#"{{"ring_bytes_sent":{ring},"tcp_bytes_received":{tcp},"x":[1]}}"#);
        Stats::parse(&json)
    }

    #[test]
    fn nothing_moved_is_not_accelerated() {
        assert!(ring_share(&stats(5, 5), &stats(5, 5)) <= 0.0);
        assert!(ring_share(&stats(5, 5), &stats(5, 9)) <= 0.0);
    }

    fn end(local: &str, ring: u64, tcp: u64) -> End {
        let json = format!(
            r#"{{"program":"p","pid":1,"local":"{local}","peer":"127.0.0.1:9","state":"tcp","ring_bytes_sent":{ring},
                "ring_bytes_received":0,"tcp_bytes_sent":0,"tcp_bytes_received":{tcp}}}"#
        );
        serde_json::from_str(&json).expect("an end")
    }

    #[test]
    fn the_share_of_a_port_is_of_what_its_ends_have_moved() {
        assert!(ring_share_of([].iter()) <= 0.0);
        let ends = [end("127.0.0.1:1", 90, 10), end("127.0.0.1:2", 0, 20)];
        assert!((ring_share_of(ends.iter()) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn servers_are_processes_with_ends_at_the_port_that_use_rings() {
        let of = |pid, local, ring| End {
            pid,
            ..end(local, ring, 5)
        };
        let ends = [
            of(1, "127.0.0.1:80", 1),
            of(1, "127.0.0.1:80", 2),
            of(2, "127.0.0.1:80", 3),
            of(3, "127.0.0.1:80", 0),
            of(4, "127.0.0.1:8080", 4),
        ];
        assert_eq!(servers(ends.iter(), 80), BTreeSet::from([1, 2]));
    }

    #[test]
    fn the_share_is_of_all_bytes_since() {
        assert!((ring_share(&stats(10, 10), &stats(70, 50)) - 0.6).abs() < 1e-9);
    }
}
