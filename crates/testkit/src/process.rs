//! A running program, and what it leaves.

use std::io::Write;
use std::process::{ChildStdin, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use crate::cast::Member;
use crate::ports::is_listening;
use crate::wait_until;

/// Longer than any watchdog, which ends the wait by killing the program.
const FOREVER: Duration = Duration::from_secs(3600);

/// A running program with its process group; dropping it kills both.
pub struct Process {
    member: Arc<Member>,
    stdin: Option<ChildStdin>,
    bytes_read: usize,
}

/// How a program ended and what it printed.
pub struct Output {
    /// The program's name in logs.
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Everything that it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything that it wrote to standard error.
    pub stderr: Vec<u8>,
    tail: String,
}

impl Process {
    pub(crate) fn new(member: Arc<Member>, stdin: Option<ChildStdin>) -> Self {
        Self {
            member,
            stdin,
            bytes_read: 0,
        }
    }

    /// The process id, which is its group's too.
    pub fn pid(&self) -> u32 {
        self.member.pid
    }

    /// Everything that it wrote to standard output so far.
    pub fn stdout(&self) -> Vec<u8> {
        std::fs::read(&self.member.stdout).expect("its log is there")
    }

    /// Everything that it printed so far, on both streams.
    pub fn log(&self) -> String {
        let stderr = std::fs::read(&self.member.stderr).expect("its log is there");
        let both = [self.stdout(), stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        !self.member.ends_within(Duration::ZERO)
    }

    /// Fail unless it is running.
    pub fn assert_running(&self) {
        assert!(
            self.is_running(),
            "{} has ended:\n{}",
            self.member.name,
            self.member.tail()
        );
    }

    /// Wait until something listens on `port`.
    pub fn wait_for_port(&self, port: u16) {
        wait_until(&format!("{} to listen on {port}", self.member.name), || {
            self.assert_running();
            is_listening(self.pid(), port).then_some(())
        });
    }

    /// Wait until it has printed `text`.
    pub fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{} to print {text:?}", self.member.name), || {
            if self.log().contains(text) {
                return Some(());
            }
            self.assert_running();
            None
        });
    }

    /// The next whole line of its standard output that has not been taken by this before. None:
    /// it has ended.
    pub fn next_line(&mut self) -> Option<String> {
        wait_until(&format!("a line of {}", self.member.name), || {
            let has_ended = self.member.ends_within(Duration::ZERO);
            let stdout = self.stdout();
            let rest = &stdout[self.bytes_read..];
            match rest.iter().position(|&byte| byte == b'\n') {
                Some(end) => {
                    self.bytes_read += end + 1;
                    Some(Some(String::from_utf8_lossy(&rest[..end]).into_owned()))
                }
                None => has_ended.then_some(None),
            }
        })
    }

    /// Write a line to its standard input, which was opened for this.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self
            .stdin
            .as_mut()
            .expect("the program was started with open input");
        writeln!(stdin, "{line}").unwrap_or_else(|error| {
            panic!(
                "{} does not read: {error}\n{}",
                self.member.name,
                self.member.tail()
            )
        });
    }

    /// Send `signal` to it and its group.
    pub fn signal(&self, signal: Signal) {
        self.member.signal(signal);
    }

    /// Kill it and its group with -9.
    pub fn kill(self) -> Output {
        self.signal(Signal::KILL);
        self.finish()
    }

    /// Ask it to end, and wait until it has.
    pub fn stop(self) -> Output {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Wait for its end.
    pub fn finish(mut self) -> Output {
        self.stdin = None;
        self.member.ends_within(FOREVER);
        self.finish_now()
    }

    fn finish_now(self) -> Output {
        let status = self.member.reap();
        let read = |path| std::fs::read(path).expect("its log is there");
        Output {
            name: self.member.name.clone(),
            status,
            stdout: read(&self.member.stdout),
            stderr: read(&self.member.stderr),
            tail: self.member.tail(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.member.reap();
    }
}

impl Output {
    /// Fail unless it ended with 0.
    #[must_use]
    pub fn expect_success(self) -> Self {
        assert!(
            self.status.success(),
            "{}: {}\n{}",
            self.name,
            self.status,
            self.tail
        );
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Route};

    fn shell<'a>(host: &'a Host, script: &str) -> crate::Program<'a> {
        host.program("/bin/sh").args(["-c", script])
    }

    #[test]
    fn output_and_status_are_kept() {
        let host = Host::new(Route::Tcp);
        let output = shell(&host, "cat; echo b >&2; exit 3")
            .input("a\n")
            .finish();
        assert_eq!(
            (output.text().as_str(), output.stderr.as_slice()),
            ("a\n", &b"b\n"[..])
        );
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    #[should_panic(expected = "exit status: 1")]
    fn a_bad_end_fails_the_test() {
        let _ = shell(&Host::new(Route::Tcp), "false").run();
    }

    #[test]
    fn who_is_asked_to_end_has_time_to_do_it_well() {
        let host = Host::new(Route::Tcp);
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done";
        let mut process = shell(&host, script).start();
        assert_eq!(process.next_line().as_deref(), Some("up"));
        assert_eq!(process.stop().expect_success().text(), "up\nbye\n");
    }

    #[test]
    fn a_conversation_goes_line_by_line() {
        let host = Host::new(Route::Tcp);
        let mut process = shell(&host, "read x; echo got $x; read y")
            .with_open_input()
            .start();
        process.write_line("one");
        assert_eq!(process.next_line().as_deref(), Some("got one"));
        process.write_line("two");
        assert_eq!(process.next_line(), None);
    }

    #[test]
    fn grandchildren_end_with_the_process() {
        let host = Host::new(Route::Tcp);
        let mut process = shell(&host, "sleep 1000 & echo $!; wait").start();
        let grandchild = process.next_line().unwrap();
        drop(process);
        let stat = || std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
        crate::wait_until("the end of the grandchild", || {
            stat()
                .map_or(true, |stat| stat.contains(") Z "))
                .then_some(())
        });
    }
}
