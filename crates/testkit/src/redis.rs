//! A Redis server and its clients.

use crate::{Host, Output, Process, Program, Sides, free_port};

/// A running server.
pub struct Redis<'a> {
    clients: &'a Host,
    address: &'static str,
    /// Where it listens.
    pub port: u16,
    server: Process,
}

impl<'a> Redis<'a> {
    /// Start one on the host's route, for clients of the same host.
    pub fn start(host: &'a Host, options: &[&str]) -> Self {
        Self::listen(host.program("redis-server"), host, "127.0.0.1", options)
    }

    /// Start one on the server's side, for clients on theirs.
    pub fn between(sides: &'a Sides, options: &[&str]) -> Self {
        Self::between_as(sides, sides.server().program("redis-server"), options)
    }

    /// The same as `program` says.
    pub fn between_as(sides: &'a Sides, program: Program<'a>, options: &[&str]) -> Self {
        Self::listen(program, sides.client(), sides.address(), options)
    }

    fn listen(
        program: Program<'a>,
        clients: &'a Host,
        address: &'static str,
        options: &[&str],
    ) -> Self {
        let port = free_port();
        let server = program
            .args(["--port", &port.to_string(), "--bind", address])
            .args(["--save", "", "--protected-mode", "no"])
            .args(["--enable-debug-command", "yes"])
            .args(["--proto-max-bulk-len", "512mb"])
            .args(options)
            .start();
        server.wait_for_port(port);
        Self {
            clients,
            address,
            port,
            server,
        }
    }

    /// A client along the host's route.
    pub fn cli(&self) -> Program<'a> {
        self.as_client(self.clients.program("redis-cli"))
    }

    /// `program`, with the options that take it to the server.
    pub fn as_client(&self, program: Program<'a>) -> Program<'a> {
        program.args(["-h", self.address, "-p", &self.port.to_string()])
    }

    /// One command by a client of its own, and its answer.
    pub fn ask(&self, command: &[&str]) -> String {
        self.cli().args(command).run().text().trim_end().to_owned()
    }

    /// Wait for the server's end.
    pub fn finish(self) -> Output {
        self.server.finish()
    }

    /// A load that runs now; it prints lines of comma-separated values.
    pub fn benchmark(&self, options: &[&str]) -> Process {
        self.as_client(self.clients.program("redis-benchmark"))
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
