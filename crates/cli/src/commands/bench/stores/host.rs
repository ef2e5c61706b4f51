//! The servers and their client.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use crosslane_benchkit::{Folder, Process};
use crosslane_sockbench::outcome::{Line, Outcome};
use crosslane_sockbench::span::Span;

use super::super::daemon::{Daemon, find, free_port, verdict};
use super::super::over::Over;
use super::super::programs::{GRACE, folder, parse};
use super::super::rounds::Measured;
use super::super::sides::Sides;
use super::results::{Figures, Key, Store};

/// Everything that is needed to start the processes.
pub struct Host {
    sides: Sides,
    span: Span,
    seed: u64,
    /// Where servers may write.
    folder: Folder,
}

/// A server and its port.
struct Running {
    /// Ended with this.
    server: Daemon,
    port: u16,
}

/// The servers of a round that have been started so far.
pub struct Servers<'a> {
    host: &'a Host,
    running: BTreeMap<(Store, Over), Running>,
}

impl Host {
    /// With servers and their client on these sides.
    pub fn new(sides: Sides, span: Span, seed: u64) -> anyhow::Result<Self> {
        Ok(Self {
            sides,
            span,
            seed,
            folder: folder()?,
        })
    }

    /// No server yet; each is started when it is first needed.
    pub fn servers(&self) -> Servers<'_> {
        Servers {
            host: self,
            running: BTreeMap::new(),
        }
    }

    fn start(&self, store: Store, over: Over) -> anyhow::Result<Running> {
        let programs = self.sides.server();
        let address = programs.address;
        let port = programs.do_there(|| free_port(address))??;
        let program = find(store.program()).context("it has gone")?;
        let mut command = over.program(programs, program);
        command.current_dir(self.folder.path());
        configure(&mut command, store, address, port);
        let server = Daemon::start(store.program(), programs, &mut command, port)?;
        if over == Over::Crosslane {
            server.ensure_loaded(&programs.crosslane)?;
        }
        Ok(Running { server, port })
    }

    fn load(&self, key: Key, running: &Running) -> anyhow::Result<Measured<Figures>> {
        let mut command = key.over.sockbench(self.sides.client());
        command.args(["store", "--connect", &running.server.address()]);
        command.args(["--protocol", key.store.protocol()]);
        command.args(["--mix", key.mix.option(), "--seed", &self.seed.to_string()]);
        command.args(["--clients", &key.clients.to_string()]);
        command.args(["--bytes", &key.bytes.to_string()]);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        command.args(["--warmup", &milliseconds(self.span.warmup)]);
        command.args(["--measure", &milliseconds(self.span.measure)]);
        let mut client = Process::spawn(format!("client over {}", key.over), &mut command)?;
        let patience = GRACE + self.span.warmup + self.span.measure;
        let line: Line = parse(&client.next_line(patience)?)?;
        let verdict = match key.over {
            Over::Tcp => None,
            Over::Crosslane => Some(verdict(self.sides.connections()?, running.port)),
        };
        client.close_stdin();
        client.finish(GRACE)?;
        let Outcome::Store {
            requests,
            per_s,
            p50_ns,
            p99_ns,
            p999_ns,
            ..
        } = line.outcome
        else {
            return Err(anyhow!("the client measured something else: {line:?}"));
        };
        let figures = Figures {
            requests,
            per_s,
            p50_ns,
            p99_ns,
            p999_ns,
        };
        Ok(Measured { figures, verdict })
    }
}

impl Servers<'_> {
    /// Measures one case. After a failure the server is a new one.
    pub fn measure(&mut self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let measured = self.try_to_measure(key);
        if measured.is_err() {
            self.running.remove(&(key.store, key.over));
        }
        measured
    }

    fn try_to_measure(&mut self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let which = (key.store, key.over);
        if !self.running.contains_key(&which) {
            let running = self.host.start(key.store, key.over)?;
            self.running.insert(which, running);
        }
        self.host.load(key, &self.running[&which])
    }
}

fn configure(command: &mut Command, store: Store, address: Ipv4Addr, port: u16) {
    let (address, port) = (&address.to_string(), &port.to_string());
    match store {
        Store::Redis => {
            command.args(["--bind", address, "--port", port]);
            command.args(["--save", "", "--appendonly", "no"]);
            // It refuses clients from elsewhere unless told to; who can reach the address is the bench.
            command.args(["--protected-mode", "no"]);
        }
        Store::Memcached => {
            command.args(["-l", address, "-p", port, "-U", "0", "-m", "1024"]);
            if rustix::process::geteuid().is_root() {
                // It refuses to run as root unless told to.
                command.args(["-u", "root"]);
            }
        }
    }
}
