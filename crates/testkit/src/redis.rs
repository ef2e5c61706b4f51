//! A Redis server and its clients.

use crate::{Host, Process, Program, free_port};

/// A running server.
pub struct Redis<'a> {
    host: &'a Host,
    /// Where it listens.
    pub port: u16,
    _server: Process,
}

impl<'a> Redis<'a> {
    /// Start one on the host's route.
    pub fn start(host: &'a Host, options: &[&str]) -> Self {
        Self::start_as(host, host.program("redis-server"), options)
    }

    /// Start one as `program` says.
    pub fn start_as(host: &'a Host, program: Program<'a>, options: &[&str]) -> Self {
        let port = free_port();
        let server = program
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args([
                "--enable-debug-command",
                "yes",
                "--proto-max-bulk-len",
                "512mb",
            ])
            .args(options)
            .start();
        server.wait_for_port(port);
        Self {
            host,
            port,
            _server: server,
        }
    }

    /// A client along the host's route.
    pub fn cli(&self) -> Program<'a> {
        self.as_client(self.host.program("redis-cli"))
    }

    /// `program`, with the options that take it to the server.
    pub fn as_client(&self, program: Program<'a>) -> Program<'a> {
        program.args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
    }

    /// One command by a client of its own, and its answer.
    pub fn ask(&self, command: &[&str]) -> String {
        self.cli().args(command).run().text().trim_end().to_owned()
    }

    /// A load that runs now; it prints lines of comma-separated values.
    pub fn benchmark(&self, options: &[&str]) -> Process {
        self.as_client(self.host.program("redis-benchmark"))
            .arg("--csv")
            .args(options)
            .start()
    }
}

/// A command in Redis' protocol.
pub fn resp(words: &[&str]) -> String {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!(
        "*{}\r\n{}",
        words.len(),
        words.iter().map(word).collect::<String>()
    )
}
