//! A child process that cannot outlive the bench and cannot hang it.
//!
//! Every child leads its own process group, so that whatever a launcher such as `crosslane run`
//! puts between us and the program ends with it. Every wait has a deadline, and a child that
//! misses it or fails becomes an error that names it and quotes what it said last.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::registry;

/// How long a child may take to end after SIGTERM before it is killed.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// How long the end of a dead child's output may take to arrive.
const DRAIN: Duration = Duration::from_secs(2);
/// How many of the last lines on standard error are kept for a message.
const KEPT_STDERR_LINES: usize = 5;

/// Why a child process was of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program is missing or cannot be executed.
    #[error("cannot start {name} ({program})")]
    Start {
        /// What the child was for.
        name: String,
        /// The program that was to be executed.
        program: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The child did not do in time what it was waited for; it has been killed.
    #[error("{name} (pid {pid}) did not {what} within {seconds:.1} s and was killed{said}")]
    TooLate {
        /// What the child was for.
        name: String,
        /// Its process id.
        pid: u32,
        /// What it was waited for.
        what: &'static str,
        /// How long it was waited for.
        seconds: f64,
        /// The end of what it wrote.
        said: Said,
    },
    /// The child ended unsuccessfully, or before it had done what it was started for.
    #[error("{name} (pid {pid}) ended early or failed: {status}{said}")]
    Failed {
        /// What the child was for.
        name: String,
        /// Its process id.
        pid: u32,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote.
        said: Said,
    },
    /// The system refused to let us watch the child.
    #[error("cannot wait for {name} (pid {pid})")]
    Wait {
        /// What the child was for.
        name: String,
        /// Its process id.
        pid: u32,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// The last lines of a child's standard error or, for programs that complain elsewhere, of its
/// standard output; shown only when there are any.
#[derive(Debug)]
pub struct Said(String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "; it said: {}", self.0)
        }
    }
}

impl Said {
    fn by(exit: &Exit) -> Self {
        if !exit.stderr.is_empty() {
            return Self(exit.stderr.clone());
        }
        Self(last_lines(exit.stdout.as_bytes()))
    }
}

/// How a child ended and what it printed.
#[derive(Debug)]
pub struct Exit {
    /// The exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output and was not yet taken with [`Process::next_line`].
    pub stdout: String,
    /// The end of what it wrote to standard error.
    pub stderr: String,
}

/// A running child process; dropping it kills it and all that it started.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    reaped: bool,
}

impl Process {
    /// Starts `command` in a process group of its own, with all three standard streams piped.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub fn spawn(name: impl Into<String>, command: &mut Command) -> Result<Self, ProcessError> {
        let name = name.into();
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = registry::spawn(command).map_err(|source| ProcessError::Start {
            name: name.clone(),
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let stdout = lines(child.stdout.take());
        let stderr = child
            .stderr
            .take()
            .map(|stream| std::thread::spawn(|| last_lines(stream)));
        Ok(Self {
            name,
            stdin: child.stdin.take(),
            stdout,
            stderr,
            child,
            reaped: false,
        })
    }

    /// The process id of the child itself, which is also its group's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the child's standard input, which many programs take as the end of their work.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Writes a line to the child's standard input, which stays open.
    pub fn say(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            // A child that does not want its input says so by how it ends.
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Writes `text` to the child's standard input and closes it.
    pub fn feed(&mut self, text: &str) {
        if let Some(mut stdin) = self.stdin.take() {
            // A child that does not want its input says so by how it ends.
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// The next line on standard output.
    ///
    /// # Errors
    /// [`ProcessError::TooLate`] (the child is killed) or [`ProcessError::Failed`] when its output
    /// ends first.
    pub fn next_line(&mut self, timeout: Duration) -> Result<String, ProcessError> {
        match self.stdout.recv_timeout(timeout) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.too_late("print a line", timeout)),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed()),
        }
    }

    /// Whether the child has not ended within `timeout`.
    ///
    /// # Errors
    /// [`ProcessError::Wait`].
    pub fn runs_after(&self, timeout: Duration) -> Result<bool, ProcessError> {
        let ended = || -> std::io::Result<bool> {
            let pid = Pid::from_child(&self.child);
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let deadline = Instant::now() + timeout;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let left = Timespec::try_from(left).map_err(std::io::Error::other)?;
                match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
                    Ok(count) => return Ok(count > 0),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        };
        let wait = |source| ProcessError::Wait {
            name: self.name.clone(),
            pid: self.pid(),
            source,
        };
        Ok(!ended().map_err(wait)?)
    }

    /// Waits until the child ends by itself, successfully.
    ///
    /// # Errors
    /// [`ProcessError::TooLate`] (the child is killed), [`ProcessError::Failed`].
    pub fn finish(mut self, timeout: Duration) -> Result<Exit, ProcessError> {
        let exit = self.wait(timeout)?;
        if exit.status.success() {
            return Ok(exit);
        }
        let said = Said::by(&exit);
        Err(ProcessError::Failed {
            name: self.name.clone(),
            pid: self.pid(),
            status: exit.status,
            said,
        })
    }

    /// Waits until the child ends by itself, in whatever way.
    ///
    /// # Errors
    /// [`ProcessError::TooLate`] (the child is killed).
    pub fn end(mut self, timeout: Duration) -> Result<Exit, ProcessError> {
        self.wait(timeout)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Exit, ProcessError> {
        if self.runs_after(timeout)? {
            return Err(self.too_late("end", timeout));
        }
        self.reap()
    }

    /// Ends the child: SIGTERM to its group, and SIGKILL to what is left after a short grace.
    ///
    /// # Errors
    /// [`ProcessError::Wait`].
    pub fn stop(mut self) -> Result<Exit, ProcessError> {
        self.close_stdin();
        registry::signal(&self.child, Signal::TERM);
        self.runs_after(GRACE)?;
        self.reap()
    }

    fn too_late(&mut self, what: &'static str, timeout: Duration) -> ProcessError {
        let said = self.last_words();
        let seconds = timeout.as_secs_f64();
        ProcessError::TooLate {
            name: self.name.clone(),
            pid: self.pid(),
            what,
            seconds,
            said,
        }
    }

    fn failed(&mut self) -> ProcessError {
        // Output has ended, so the process is about to; give it the time to set its status.
        let _ = self.runs_after(GRACE);
        match self.reap() {
            Ok(exit) => ProcessError::Failed {
                name: self.name.clone(),
                pid: self.pid(),
                status: exit.status,
                said: Said::by(&exit),
            },
            Err(error) => error,
        }
    }

    fn last_words(&mut self) -> Said {
        self.reap()
            .map_or_else(|_| Said(String::new()), |exit| Said::by(&exit))
    }

    fn reap(&mut self) -> Result<Exit, ProcessError> {
        self.stdin = None;
        self.reaped = true;
        let status = registry::reap(&mut self.child).map_err(|source| ProcessError::Wait {
            name: self.name.clone(),
            pid: self.child.id(),
            source,
        })?;
        Ok(Exit {
            status,
            stdout: self.rest_of_stdout(),
            stderr: self.rest_of_stderr(),
        })
    }

    fn rest_of_stdout(&self) -> String {
        let deadline = Instant::now() + DRAIN;
        let next = || {
            self.stdout
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        };
        std::iter::from_fn(|| next().ok()).fold(String::new(), |all, line| all + &line + "\n")
    }

    /// A process that left our group may still hold the pipe, so its end is waited for only for a while.
    fn rest_of_stderr(&mut self) -> String {
        let Some(reader) = self.stderr.take() else {
            return String::new();
        };
        let deadline = Instant::now() + DRAIN;
        while !reader.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if reader.is_finished() {
            reader.join().unwrap_or_default()
        } else {
            String::new()
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            // Nobody is left to tell; the group has been sent SIGKILL whatever this returns.
            let _ = registry::reap(&mut self.child);
        }
    }
}

fn lines(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            let all = BufReader::new(stream).lines().map_while(Result::ok);
            all.take_while(|line| sender.send(line.clone()).is_ok())
                .for_each(drop);
        });
    }
    receiver
}

fn last_lines(stream: impl Read) -> String {
    let mut kept = VecDeque::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        kept.push_back(line);
        if kept.len() > KEPT_STDERR_LINES {
            kept.pop_front();
        }
    }
    Vec::from(kept).join(" | ")
}

#[cfg(test)]
mod tests;
