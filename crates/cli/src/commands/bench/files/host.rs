//! nginx and those who ask it for files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Folder, Process, Verdict};
use crosslane_sockbench::fetch::content;
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::span::Span;

use super::super::daemon::{Daemon, address, find, free_port, verdict};
use super::super::over::Over;
use super::super::programs::{GRACE, Programs, folder, parse};
use super::super::rounds::Measured;
use super::limit;
use super::results::{Figures, Key, Kind, Way};

pub const NGINX: &str = "nginx";
pub const WRK: &str = "wrk";
pub const AB: &str = "ab";

/// Connections that wrk has.
const CONNECTIONS: &str = "16";
/// Clients that ab is at a time.
const CLIENTS: &str = "8";
/// More requests than ab makes before its time is up.
const ENDLESS: &str = "100000000";

/// Everything that is needed to start the processes.
pub struct Host {
    programs: Programs,
    span: Span,
    workers: u8,
    /// Files named by their sizes, and what else nginx writes.
    folder: Folder,
}

/// An nginx that listens at a port for each way.
struct Site {
    /// Ended with this.
    _server: Daemon,
    ports: [u16; 2],
}

/// The servers of a round that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<Over, Site>,
}

impl Host {
    /// Finds the programs and makes the files.
    pub fn new(span: Span, sizes: &[u64], workers: u8) -> anyhow::Result<Self> {
        let folder = folder()?;
        for bytes in sizes {
            let path = folder.path().join(bytes.to_string());
            std::fs::write(&path, content(usize::try_from(*bytes)?))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self {
            programs: Programs::find()?,
            span,
            workers,
            folder,
        })
    }

    /// No server yet; each is started when it is first needed.
    pub fn servers(&self) -> Servers<'_> {
        Servers {
            host: self,
            running: BTreeMap::new(),
        }
    }

    fn start(&self, over: Over) -> anyhow::Result<Site> {
        let at = self.programs.address;
        let ports = [free_port(at)?, free_port(at)?];
        let file = self.folder.path().join(format!("{over}.conf"));
        std::fs::write(&file, self.configuration(over, ports))?;
        let nginx = find(NGINX).context("nginx has gone")?;
        let mut command = over.program(&self.programs, nginx);
        command.args(["-e", "stderr", "-c"]).arg(&file);
        let server = Daemon::start(NGINX, &self.programs, &mut command, ports[0])?;
        if over == Over::Crosslane {
            server.ensure_loaded(&self.programs.crosslane)?;
        }
        Ok(Site {
            _server: server,
            ports,
        })
    }

    /// As Debian configures it but for the workers, no log, and connections that stay.
    fn configuration(&self, over: Over, [sendfile, write]: [u16; 2]) -> String {
        // Otherwise the workers would be somebody who cannot read the folder.
        let user = match rustix::process::geteuid().is_root() {
            true => "user root;",
            false => "",
        };
        let (folder, workers) = (self.folder.path().display(), self.workers);
        format!(
            "daemon off; {user} worker_processes {workers}; pid {folder}/{over}.pid; error_log stderr error;
             events {{ worker_connections 512; }}
             http {{
                 access_log off; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 1h;
                 client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                 fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
                 scgi_temp_path {folder}/scgi;
                 server {{ listen 127.0.0.1:{sendfile}; root {folder}; sendfile on; }}
                 server {{ listen 127.0.0.1:{write}; root {folder}; sendfile off; }}
             }}"
        )
    }

    /// The copies alone, of the file that would be fetched.
    fn limit(&self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let file = self.folder.path().join(key.bytes.to_string());
        let figures = limit::measure(&file, key.bytes, key.way, self.span)?;
        let verdict = None;
        Ok(Measured { figures, verdict })
    }

    fn fetch(&self, key: Key, over: Over, port: u16) -> anyhow::Result<Measured<Figures>> {
        let mut command = over.sockbench(&self.programs);
        command.args(["fetch", "--connect", &address(port)]);
        let bytes = key.bytes.to_string();
        command.args(["--bytes", &bytes, "--path", &format!("/{bytes}")]);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        command.args(["--warmup", &milliseconds(self.span.warmup)]);
        command.args(["--measure", &milliseconds(self.span.measure)]);
        let mut client = Process::spawn(format!("client over {over}"), &mut command)?;
        let patience = GRACE + self.span.warmup + self.span.measure;
        let line: Line = parse(&client.next_line(patience)?)?;
        let verdict = self.verdict(over, port)?;
        client.close_stdin();
        client.finish(GRACE)?;
        let Outcome::Fetch {
            fetches,
            p50_ns,
            p99_ns,
            gbps,
            ..
        } = line.outcome
        else {
            return Err(anyhow!("the client measured something else: {line:?}"));
        };
        let figures = Figures::Fetch {
            fetches,
            p50_ns,
            p99_ns,
            gbps,
        };
        Ok(Measured { figures, verdict })
    }

    /// wrk is asked about in the middle, because its connections end with it.
    fn requests(&self, key: Key, over: Over, port: u16) -> anyhow::Result<Measured<Figures>> {
        let seconds = self.span.measure.as_secs().max(1);
        let mut command = over.program(&self.programs, WRK);
        command.args(["-t", "1", "-c", CONNECTIONS]);
        command.args(["-d", &format!("{seconds}s")]);
        command.arg(format!("http://127.0.0.1:{port}/{}", key.bytes));
        let wrk = Process::spawn(format!("wrk over {over}"), &mut command)?;
        wrk.runs_after(Duration::from_secs(seconds) / 2)?;
        let verdict = self.verdict(over, port)?;
        let text = wrk.finish(GRACE + Duration::from_secs(seconds))?.stdout;
        let per_s = requests_per_second(&text).with_context(|| format!("wrk printed {text:?}"))?;
        let figures = Figures::Requests { per_s };
        Ok(Measured { figures, verdict })
    }

    /// Each over a connection of its own, too short to be worth a ring.
    fn short_connections(
        &self,
        key: Key,
        over: Over,
        port: u16,
    ) -> anyhow::Result<Measured<Figures>> {
        let seconds = self.span.measure.as_secs().max(1);
        let mut command = over.program(&self.programs, AB);
        command.args([
            "-q",
            "-c",
            CLIENTS,
            "-t",
            &seconds.to_string(),
            "-n",
            ENDLESS,
        ]);
        command.arg(format!("http://127.0.0.1:{port}/{}", key.bytes));
        let ab = Process::spawn(format!("ab over {over}"), &mut command)?;
        let text = ab.finish(GRACE + Duration::from_secs(seconds))?.stdout;
        let per_s =
            connections_per_second(&text).with_context(|| format!("ab printed {text:?}"))?;
        let (figures, verdict) = (Figures::Requests { per_s }, None);
        Ok(Measured { figures, verdict })
    }

    fn verdict(&self, over: Over, port: u16) -> anyhow::Result<Option<Verdict>> {
        match over {
            Over::Tcp => Ok(None),
            Over::Crosslane => Ok(Some(verdict(self.programs.crosslane.connections()?, port))),
        }
    }
}

impl Servers<'_> {
    /// Measures one case. After a failure the server is a new one.
    pub fn measure(&mut self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let Some(over) = key.carrier.over() else {
            return self.host.limit(key);
        };
        let measured = self.measure_over(key, over);
        if measured.is_err() {
            self.running.remove(&over);
        }
        measured
    }

    fn measure_over(&mut self, key: Key, over: Over) -> anyhow::Result<Measured<Figures>> {
        let site = match self.running.entry(over) {
            Entry::Occupied(site) => site.into_mut(),
            Entry::Vacant(place) => place.insert(self.host.start(over)?),
        };
        let port = site.port(key.way);
        match key.kind {
            Kind::Fetch => self.host.fetch(key, over, port),
            Kind::Requests => self.host.requests(key, over, port),
            Kind::Short => self.host.short_connections(key, over, port),
        }
    }
}

impl Site {
    fn port(&self, way: Way) -> u16 {
        let [sendfile, write] = self.ports;
        match way {
            Way::Sendfile => sendfile,
            Way::Write => write,
        }
    }
}

fn connections_per_second(text: &str) -> anyhow::Result<f64> {
    let figure = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    anyhow::ensure!(
        figure("Failed requests:") == Some(0.0) && figure("Non-2xx responses:").is_none(),
        "there were errors"
    );
    figure("Requests per second:").context("there is no rate")
}

fn requests_per_second(text: &str) -> anyhow::Result<f64> {
    for wrong in ["Socket errors", "Non-2xx"] {
        anyhow::ensure!(!text.contains(wrong), "there were errors");
    }
    let mut lines = text.lines();
    let rate = lines.find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    Ok(rate.context("there is no rate")?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abs_rate_is_found_and_its_errors_are_no_figures() {
        let text = "Failed requests:        0\nRequests per second:    39635.12 [#/sec] (mean)\n";
        assert_eq!(connections_per_second(text).expect("a rate"), 39635.12);
        assert!(connections_per_second(&text.replace(" 0", " 1")).is_err());
        assert!(connections_per_second(&format!("{text}Non-2xx responses:      3\n")).is_err());
        assert!(connections_per_second("").is_err());
    }

    #[test]
    fn wrks_rate_is_found_and_its_errors_are_no_figures() {
        let text =
            "  1234 requests in 1.00s, 1.0MB read\nRequests/sec:  12345.67\nTransfer/sec: 1MB\n";
        assert_eq!(requests_per_second(text).expect("a rate"), 12345.67);
        assert!(requests_per_second("Requests/sec: 1\nSocket errors: read 1").is_err());
        assert!(requests_per_second("").is_err());
    }
}
