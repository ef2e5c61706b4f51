//! A program to be started: its arguments, and what goes in.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cast::Member;
use crate::host::{Host, Route};
use crate::process::{Output, Process};
use crate::wait_until;

/// For Python programs that [`Program::run_talks`] runs: `talk_until_accelerated(connection, talk)` calls `talk` again and
/// again, however late the monitor is, and says how often. It reads standard input, and is for AF_INET and AF_UNIX.
pub const TALK: &str = r#"
def talk_until_accelerated(connection, talk):
    import os, select, socket
    name = "unix:%d" % os.fstat(connection.fileno()).st_ino
    if connection.family == socket.AF_INET:
        name = "%s:%d" % connection.getsockname()
    print("talks as", name, flush=True)
    count = 0
    while not select.select([0], [], [], 0)[0]:
        talk()
        count += 1
    os.read(0, 1)
    return count
"#;

/// What [`TALK`] prints before the name of its end.
const TALKS_AS: &str = "talks as ";

/// A program on a [`Host`] that has not been started.
pub struct Program<'a> {
    host: &'a Host,
    route: Route,
    path: PathBuf,
    run_options: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    stdin: Input,
}

enum Input {
    Nothing,
    File(PathBuf),
    Pipe,
}

impl<'a> Program<'a> {
    pub(crate) fn new(host: &'a Host, path: &Path, route: Route) -> Self {
        Self {
            host,
            route,
            path: path.to_owned(),
            run_options: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            stdin: Input::Nothing,
        }
    }

    /// Add an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Add arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self
    }

    /// Set an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Add an option of `crosslane run`; means nothing natively.
    #[must_use]
    pub fn run_option(mut self, option: &str, value: &str) -> Self {
        self.run_options.extend([option.into(), value.into()]);
        self
    }

    /// Add an option of `crosslane run` that takes no value.
    #[must_use]
    pub fn run_flag(mut self, option: &str) -> Self {
        self.run_options.push(option.into());
        self
    }

    /// Have `crosslane run` explain at the end, as JSON, into this file of the host's folder.
    #[must_use]
    pub fn explained(mut self, name: &str) -> Self {
        let mut to = OsString::from("--explain-to=");
        to.push(self.host.folder().join(name));
        self.run_options.extend(["--explain=json".into(), to]);
        self
    }

    /// Read standard input from these bytes.
    #[must_use]
    pub fn input(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let name = format!("{}.in", self.log_name());
        self.stdin = Input::File(self.host.file(&name, bytes));
        self
    }

    /// Keep standard input open for [`Process::write_line`].
    #[must_use]
    pub fn with_open_input(mut self) -> Self {
        self.stdin = Input::Pipe;
        self
    }

    /// Start it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(self) -> Process {
        let name = self.log_name();
        let [stdout, stderr] =
            ["out", "err"].map(|stream| self.host.folder().join(format!("{name}.{stream}")));
        let create = |path| File::create(path).expect("a log in the test's own folder");
        let mut child = self
            .command()
            .stdin(match &self.stdin {
                Input::Nothing => Stdio::null(),
                Input::File(path) => File::open(path)
                    .expect("the input was written before")
                    .into(),
                Input::Pipe => Stdio::piped(),
            })
            .stdout(create(&stdout))
            .stderr(create(&stderr))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.path.display()));
        let stdin = child.stdin.take();
        Process::new(
            self.host
                .cast()
                .add(Member::new(name, child, stdout, stderr)),
            stdin,
        )
    }

    /// Run it to its end.
    pub fn finish(self) -> Output {
        self.start().finish()
    }

    /// Run it to its end, which must be a good one.
    pub fn run(self) -> Output {
        self.start().finish().expect_success()
    }

    /// Run a program with [`TALK`] in it to its end, which must be a good one. Each of its talks is over when both ends are
    /// accelerated; natively, at once. What the talks have printed is left out.
    pub fn run_talks(self) -> Output {
        let (host, route) = (self.host, self.route);
        let mut process = self.with_open_input().start();
        while let Some(line) = process.next_line() {
            let Some(name) = line.strip_prefix(TALKS_AS) else {
                continue;
            };
            if route == Route::Crosslane {
                wait_for_acceleration(host, &process, name);
            }
            process.write_line("");
        }
        let mut output = process.finish().expect_success();
        let text = output.text();
        let lines = text.split_inclusive('\n');
        let others = lines.filter(|line| !line.starts_with(TALKS_AS));
        output.stdout = others.collect::<String>().into_bytes();
        output
    }

    fn command(&self) -> Command {
        // `setpriv` gives way to the program, which then ends with this test even when that is
        // killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(namespace) = self.host.namespace() {
            command.args(["ip", "netns", "exec", namespace]);
        }
        if self.route == Route::Crosslane {
            command
                .arg(crate::binary("crosslane"))
                .arg("run")
                .args(&self.run_options)
                .arg("--");
        }
        let (variable, runtime_dir) = self.host.runtime_dir();
        command
            .arg(&self.path)
            .args(&self.arguments)
            .env(variable, runtime_dir)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.host.folder())
            .process_group(0);
        command
    }

    /// `3-redis-cli`: the order of starts, then the program.
    fn log_name(&self) -> String {
        let file_name = self
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        format!("{}-{file_name}", self.host.cast().count())
    }
}

/// Wait until both ends of a connection are accelerated, one of which has this name.
fn wait_for_acceleration(host: &Host, process: &Process, name: &str) {
    wait_until("both ends to be accelerated", || {
        process.assert_running();
        let ends = host.ends();
        let accelerated = ends
            .iter()
            .filter(|end| (end.local == name || end.peer == name) && end.is_accelerated());
        (accelerated.count() == 2).then_some(())
    });
}
