//! What a check plays on: its connection, the other side, and the trace of what was seen.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, RawFd};
use std::process::Child;

use crosslane_exercise::calls::{kill_self, poll_one, read, send};
use crosslane_exercise::{Answer, Errno};

/// More than any event takes to arrive on one machine.
const PATIENCE_MS: i32 = 10_000;
/// What stands in a trace for a check that is not all of itself.
const NOT_ROOT: &str = "EPERM,not-root";
/// Longer data is shown by length and digest.
const SHOWN_BYTES: usize = 24;

/// One side of a check.
pub struct Stage {
    /// The connection; -1 for a check that makes its own.
    pub fd: RawFd,
    other: Other,
    trace: Vec<String>,
}

impl Stage {
    pub fn new(fd: RawFd, other: Other) -> Self {
        Self {
            fd,
            other,
            trace: Vec::new(),
        }
    }

    pub fn alone() -> Self {
        Self::new(
            -1,
            Other {
                reader: Box::new(std::io::empty()),
                writer: Box::new(std::io::sink()),
            },
        )
    }

    /// Note what was seen.
    pub fn say(&mut self, what: &str, value: impl Shown) {
        self.trace.push(format!("{what}={}", value.shown()));
    }

    /// Note what came of a call that only root may make; where it was refused for that, whoever reads the trace is to say so aloud.
    pub fn say_as_root(&mut self, what: &str, answer: Answer) {
        match answer {
            Err(Errno(libc::EPERM)) => self.say(what, NOT_ROOT),
            answer => self.say(what, answer),
        }
    }

    /// Let the other side pass its [`Stage::wait`].
    pub fn go(&mut self) {
        self.other.say("go");
    }

    /// Wait for the other side's [`Stage::go`].
    pub fn wait(&mut self) {
        let line = self.other.line();
        assert_eq!(line, "go", "the two sides of a check go in step");
    }

    /// Tell the other side's [`Stage::told`] where something listens.
    pub fn tell(&mut self, address: SocketAddr) {
        self.other.say(&address.to_string());
    }

    /// Wait for what the other side has to [`Stage::tell`].
    pub fn told(&mut self) -> SocketAddr {
        let line = self.other.line();
        line.parse().expect("the two sides of a check go in step")
    }

    /// Have this process killed.
    pub fn die(&mut self) {
        self.other.say(&std::process::id().to_string());
        kill_self();
    }

    /// Wait until the other side's process has died, and all of it is closed.
    pub fn until_gone(&mut self) {
        let pid = self.other.line();
        let path = format!("/proc/{pid}/stat");
        let is_alive = || std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z "));
        while is_alive() {
            std::thread::yield_now();
        }
    }

    /// read(2) at most so many bytes and note them.
    pub fn read(&mut self, most: usize) {
        let mut buffer = vec![0; most];
        let answer = read(self.fd, &mut buffer);
        self.say("read", data(&buffer, answer));
    }

    /// send(2) without flags and note how much it took.
    pub fn send(&mut self, bytes: &[u8]) {
        let answer = send(self.fd, bytes, libc::MSG_NOSIGNAL);
        self.say("send", answer);
    }

    /// Read exactly `count` bytes, and note their digest or what came instead.
    pub fn read_exactly(&mut self, count: usize) {
        let answer = take(self.fd, count).map(|bytes| digest(&bytes));
        self.say("took", answer);
    }

    /// Wait until one of `events` shows, which it must.
    pub fn until(&mut self, events: i16) {
        let seen = poll_one(self.fd, events, Some(PATIENCE_MS));
        if seen.is_ok_and(|seen| seen == 0) {
            self.say("waited in vain for", events_text(events));
        }
    }

    /// poll(2) for everything without waiting, and note it.
    pub fn poll(&mut self) {
        let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
        let seen = poll_one(self.fd, all, Some(0)).map(events_text);
        self.say("poll", seen);
    }

    pub fn trace(&self) -> String {
        self.trace.join(" ")
    }

    /// The trace of both sides; waits for that of the far one.
    pub fn trace_with_far(&mut self) -> String {
        let far = self.other.line();
        format!(
            "{} | {}",
            self.trace(),
            far.strip_prefix('=').unwrap_or("the far side is gone")
        )
    }

    /// Give the near side the trace, and stay until it needs the connection no more.
    pub fn hand_over_trace(&mut self) {
        let trace = format!("={}", self.trace());
        self.other.say(&trace);
        self.other.line();
    }

    /// Give the near side the trace and end this process with everything open.
    pub fn hand_over_trace_and(&mut self, exit: fn(i32) -> !) {
        let trace = format!("={}", self.trace());
        self.other.say(&trace);
        exit(0)
    }
}

/// The other process of a check, by pipes that have nothing to do with the connection.
pub struct Other {
    reader: Box<dyn BufRead + Send>,
    writer: Box<dyn Write + Send>,
}

impl Other {
    /// The far process, seen from the near one.
    pub fn child(child: &mut Child) -> Self {
        let reader = child.stdout.take().expect("its output is a pipe");
        let writer = child.stdin.take().expect("its input is a pipe");
        Self {
            reader: Box::new(BufReader::new(reader)),
            writer: Box::new(writer),
        }
    }

    /// A process at the other end of two pipes.
    pub fn pipes(from: RawFd, to: RawFd) -> Self {
        // SAFETY: the caller has made the pipes and gives their descriptors away.
        let file = |fd| unsafe { std::fs::File::from_raw_fd(fd) };
        Self {
            reader: Box::new(BufReader::new(file(from))),
            writer: Box::new(file(to)),
        }
    }

    /// The near process, seen from the far one.
    pub fn parent() -> Self {
        let reader = BufReader::new(std::io::stdin());
        Self {
            reader: Box::new(reader),
            writer: Box::new(std::io::stdout()),
        }
    }

    pub fn say(&mut self, line: &str) {
        // A side that has died is noted when its line is missing.
        let _ = writeln!(self.writer, "{line}").and_then(|()| self.writer.flush());
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .expect("the pipe between the sides works");
        line.trim_end().to_owned()
    }
}

/// What can stand in a trace.
pub trait Shown {
    fn shown(&self) -> String;
}

impl<T: Display> Shown for Result<T, Errno> {
    fn shown(&self) -> String {
        match self {
            Ok(value) => value.to_string(),
            Err(errno) => errno.to_string(),
        }
    }
}

macro_rules! shown_as_displayed {
    ($($kind:ty)*) => {
        $(impl Shown for $kind {
            fn shown(&self) -> String { self.to_string() }
        })*
    };
}

shown_as_displayed! { &str String bool u8 usize i32 u32 u64 i64 Errno }

/// Whether all of a word was sent.
pub fn says(fd: RawFd, word: &[u8]) -> bool {
    send(fd, word, libc::MSG_NOSIGNAL) == Ok(word.len())
}

/// Whether one read gives exactly this word.
pub fn hears(fd: RawFd, word: &[u8]) -> bool {
    let mut buffer = vec![0; word.len()];
    read(fd, &mut buffer) == Ok(word.len()) && buffer == word
}

/// Read until there are `count` bytes. Fewer: the stream ended before.
pub fn take(fd: RawFd, count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; count];
    let mut taken = 0;
    while taken < count {
        match read(fd, &mut bytes[taken..])? {
            0 => break,
            more => taken += more,
        }
    }
    bytes.truncate(taken);
    Ok(bytes)
}

/// Read to the end of the stream.
pub fn drain(fd: RawFd) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        match read(fd, &mut buffer)? {
            0 => return Ok(bytes),
            more => bytes.extend_from_slice(&buffer[..more]),
        }
    }
}

/// Bytes that differ from their neighbours for `count` bytes.
pub fn pattern(count: usize) -> Vec<u8> {
    (0u8..=250).cycle().take(count).collect()
}

/// The bytes themselves when they are few, else their number and a checksum.
pub fn digest(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES {
        return format!("{}\"{}\"", bytes.len(), bytes.escape_ascii());
    }
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}#{hash:016x}", bytes.len())
}

/// What a reading call left in its buffer.
pub fn data(buffer: &[u8], answer: Answer) -> Result<String, Errno> {
    answer.map(|count| digest(&buffer[..count]))
}

/// `IN|OUT` for poll's flags.
pub fn events_text(events: i16) -> String {
    let names = [
        (libc::POLLIN, "IN"),
        (libc::POLLPRI, "PRI"),
        (libc::POLLOUT, "OUT"),
        (libc::POLLERR, "ERR"),
        (libc::POLLHUP, "HUP"),
        (libc::POLLNVAL, "NVAL"),
        (libc::POLLRDHUP, "RDHUP"),
    ];
    let set: Vec<_> = names
        .iter()
        .filter(|(bit, _)| events & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if set.is_empty() {
        "none".into()
    } else {
        set.join("|")
    }
}

/// The same for the flags of epoll, which are those of poll.
pub fn epoll_text(events: &[(u32, u64)]) -> String {
    let one = |&(events, data): &(u32, u64)| {
        let low = i16::try_from(events & 0x7fff).expect("fifteen bits are left");
        format!("{data:x}:{}", events_text(low))
    };
    format!("[{}]", events.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Have the kernel end this process when a check hangs.
pub fn limit_to_seconds(seconds: u32) {
    // SAFETY: no memory is passed, and nobody else uses the alarm.
    unsafe { libc::alarm(seconds) };
}
