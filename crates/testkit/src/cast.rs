//! All processes of one host: what the watchdog kills and what a failure quotes.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

const TAIL_LINES: usize = 30;

/// One process, which leads its own group, and the files that it logs into.
pub struct Member {
    pub name: String,
    pub pid: u32,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    child: Mutex<Reaped>,
}

/// A child, and how it ended once it has been reaped; its number may be somebody else's then.
struct Reaped {
    child: Child,
    status: Option<ExitStatus>,
}

impl Member {
    pub fn new(name: String, child: Child, stdout: PathBuf, stderr: PathBuf) -> Self {
        let pid = child.id();
        Self {
            name,
            pid,
            stdout,
            stderr,
            child: Mutex::new(Reaped {
                child,
                status: None,
            }),
        }
    }

    /// Whether it ends within `timeout`. It is not reaped by this.
    pub fn ends_within(&self, timeout: Duration) -> bool {
        let pidfd = {
            let reaped = lock(&self.child);
            if reaped.status.is_some() {
                return true;
            }
            pidfd_open(Pid::from_child(&reaped.child), PidfdFlags::empty())
                .expect("a child that is not reaped can be opened")
        };
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a test waits for less than a century");
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("cannot poll a pidfd: {errno}"),
            }
        }
    }

    /// Send `signal` to the whole group, unless it has been reaped.
    pub fn signal(&self, signal: Signal) {
        signal_unreaped(&lock(&self.child), signal);
    }

    /// Kill what is left of the group and reap the leader.
    pub fn reap(&self) -> ExitStatus {
        let mut reaped = lock(&self.child);
        signal_unreaped(&reaped, Signal::KILL);
        let status = reaped.child.wait().expect("a child can be waited for");
        reaped.status = Some(status);
        status
    }

    /// The last lines that it printed.
    pub fn tail(&self) -> String {
        let mut tail = String::new();
        for (stream, path) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let bytes = std::fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<_> = text.lines().collect();
            let skipped = lines.len().saturating_sub(TAIL_LINES);
            let name = &self.name;
            let _ = writeln!(
                tail,
                "--- {name} (pid {}) {stream}, {skipped} lines before:",
                self.pid
            );
            lines[skipped..].iter().for_each(|line| {
                let _ = writeln!(tail, "{}", line.chars().take(300).collect::<String>());
            });
        }
        tail
    }
}

fn signal_unreaped(reaped: &Reaped, signal: Signal) {
    if reaped.status.is_none() {
        // A group that has ended by itself is as good.
        let _ = kill_process_group(Pid::from_child(&reaped.child), signal);
    }
}

/// The processes that a host has started, in order.
#[derive(Clone, Default)]
pub struct Cast(Arc<Mutex<Vec<Arc<Member>>>>);

impl Cast {
    pub fn add(&self, member: Member) -> Arc<Member> {
        let member = Arc::new(member);
        lock(&self.0).push(Arc::clone(&member));
        member
    }

    pub fn count(&self) -> usize {
        lock(&self.0).len()
    }

    pub fn kill(&self) {
        lock(&self.0)
            .iter()
            .for_each(|member| member.signal(Signal::KILL));
    }

    pub fn tails(&self) -> String {
        lock(&self.0).iter().map(|member| member.tail()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
