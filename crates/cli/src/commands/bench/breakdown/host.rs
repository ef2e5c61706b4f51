//! The processes of the bench, and the files that they leave.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use crosslane_benchkit::{Folder, Process, Verdict};
use crosslane_sockbench::cpus::two_cpus;
use crosslane_sockbench::moments;
use crosslane_sockbench::outcome::{Clocks, Line};

use super::super::programs::{GRACE, Programs, SOCKBENCH, Server, folder, parse};
use super::super::rounds::Measured;
use super::path::{Side, moments_of, one_way, steps};
use super::results::{Figures, Key};

/// Everything that is needed to start the processes.
pub struct Host {
    programs: Programs,
    traced: PathBuf,
    messages: u64,
    clocks: Clocks,
    /// The processors of the server and of the client.
    cpus: (usize, usize),
}

/// Messages in rings from the first one on.
const EAGER: [&str; 2] = ["--eager", "1-65535"];

/// Of so many round trips all moments must be known before medians mean anything.
const LEAST: usize = 1000;

impl Host {
    /// Finds the programs and both libraries, and compares the counters.
    pub fn new(
        library: Option<PathBuf>,
        messages: u64,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Self> {
        let programs = Programs::find()?;
        let traced = match library {
            Some(library) => std::path::absolute(library)?,
            None => traced_library(programs.crosslane.executable())?,
        };
        let normal = programs.crosslane.executable();
        let normal = normal.with_file_name("libcrosslane.so");
        if changed(&traced) < changed(&normal) {
            notes.push(format!(
                "the traced library is older than {}; build it again unless nothing has changed",
                normal.display()
            ));
        }
        let exit = Process::spawn("clocks", programs.plain().arg("clocks"))?.finish(GRACE)?;
        Ok(Self {
            clocks: parse(&exit.stdout)?,
            cpus: two_cpus()?,
            programs,
            traced,
            messages,
        })
    }

    /// What the counters say of each other.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Measures one size, with the traced library and with the normal one.
    pub fn measure(&self, key: Key) -> anyhow::Result<Measured<Figures>> {
        let folder = folder()?;
        let verdict = self.converse(key, &folder, Some(&self.traced))?;
        let [client, server] = ["client", "server"].map(|name| self.side(&folder, name));
        let steps = steps(&client?, &server?);
        ensure!(
            steps.len() > LEAST,
            "{} notes no moments of messages in rings, only {} of {}; is it built with the feature trace?",
            self.traced.display(),
            steps.len(),
            self.messages
        );
        let normal = self.converse(key, &folder, None)?;
        let plain = self.side(&folder, "client")?.program;
        let plain: Vec<_> = second_half(&plain).iter().map(one_way).collect();
        Ok(Measured {
            figures: Figures::of(second_half(&steps), &plain, self.clocks.ticks_per_us),
            verdict: Some(if verdict.accelerated { normal } else { verdict }),
        })
    }

    /// Has two programs converse, whose moments are then in files.
    fn converse(
        &self,
        key: Key,
        folder: &Folder,
        library: Option<&Path>,
    ) -> anyhow::Result<Verdict> {
        let mut command = self.program(key, folder, "server", library);
        let mut server = Server::start("server", command.args(["--listen", "tcp:127.0.0.1:0"]))?;
        self.programs.ensure_loaded(&server)?;
        let mut command = self.program(key, folder, "client", library);
        let mut client = Process::spawn("client", command.args(["--connect", &server.address]))?;
        let line: Line = match client.next_line(GRACE) {
            Ok(line) => parse(&line)?,
            Err(error) => return Err(server.blame(error.into())),
        };
        let mut ends = self.programs.crosslane.connections()?;
        ends.retain(|end| end.is_between(&line.local, &line.peer));
        client.close_stdin();
        client.finish(GRACE)?;
        server.process.close_stdin();
        server.process.finish(GRACE)?;
        Ok(Verdict::of(&ends))
    }

    fn program(&self, key: Key, folder: &Folder, name: &str, library: Option<&Path>) -> Command {
        let (server, client) = self.cpus;
        let cpu = if name == "server" { server } else { client };
        let mut command = self.programs.accelerated(&EAGER);
        if let Some(library) = library {
            command.env("CROSSLANE_LIBRARY", library);
            let file = folder.path().join(format!("{name}.library"));
            command.env(crosslane_ring::trace::FILE_VARIABLE, file);
        }
        command.args(["--cpu", &cpu.to_string(), "moments"]);
        command.args(["--bytes", &key.bytes.to_string()]);
        command.args(["--messages", &self.messages.to_string(), "--into"]);
        command.arg(folder.path().join(name));
        command
    }

    fn side(&self, folder: &Folder, name: &str) -> anyhow::Result<Side> {
        let read = |name: &str| {
            let path = folder.path().join(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let program = read(name).with_context(|| format!("{SOCKBENCH} has left no moments"))?;
        // A library that is not traced leaves no file.
        let library = read(&format!("{name}.library")).unwrap_or_default();
        Ok(Side {
            program: moments::of_bytes(&program),
            library: moments_of(&library),
        })
    }
}

/// What counts of a conversation.
fn second_half<T>(all: &[T]) -> &[T] {
    &all[all.len() / 2..]
}

/// When a file was changed; long ago where it is not there.
fn changed(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().and_then(|data| data.modified()).ok()
}

/// Where cargo puts it: a target folder of its own, inside the one that this command is in.
fn traced_library(command: &Path) -> anyhow::Result<PathBuf> {
    let target = command.parent().and_then(Path::parent);
    let folder = target.unwrap_or(command).join("trace");
    let library = folder.join("release/libcrosslane.so");
    ensure!(
        library.is_file(),
        "there is no traced library; build it with: cargo build --release --package crosslane-preload \
         --features trace --target-dir {}, or name it by --library",
        folder.display()
    );
    Ok(library)
}
