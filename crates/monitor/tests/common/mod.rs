//! A monitor in a temporary directory and clients that speak its protocol over real sockets.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use crosslane_ctl::lane::Geometry;
use crosslane_ctl::message::{ClientMessage, Grant, HEADER_BYTES, MonitorMessage, TEXT_BYTES};
use crosslane_ctl::paths::socket_in;
use crosslane_monitor::client::{CountersReport, MonitorClient};
use crosslane_monitor::config::{Config, Quotas, Service};
use crosslane_monitor::server::Monitor;
use crosslane_window::slab::SlabMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};

/// Every wait in these tests ends after this long, with a failure.
pub const WATCHDOG: Duration = Duration::from_secs(20);

/// A small arena, so that tests use up more than one.
pub const GEOMETRY: Geometry = Geometry {
    ring_lines: 2048,
    slots: 4,
};

/// A running monitor, stopped when dropped.
pub struct Running {
    pub directory: tempfile::TempDir,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// What tests usually want.
pub fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_owned(),
        service: Service::System,
        geometry: GEOMETRY,
        memory_floor_bytes: 0,
        quotas: Quotas::default(),
        rack: None,
    }
}

/// Start a monitor.
pub fn monitor() -> Running {
    monitor_with(|_| {})
}

/// Start a monitor with a changed configuration.
pub fn monitor_with(change: impl FnOnce(&mut Config)) -> Running {
    let directory = tempfile::tempdir().unwrap();
    start_in(directory, change)
}

/// Start a monitor in a directory of an earlier one.
pub fn start_in(directory: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = config(directory.path());
    change(&mut config);
    let (read, write) = UnixStream::pair().unwrap();
    let monitor = Monitor::start(&config, read.into()).unwrap();
    let thread = std::thread::spawn(move || monitor.run());
    Running {
        directory,
        stop: Some(write),
        thread: Some(thread),
    }
}

impl Running {
    /// Stop it and keep the directory.
    pub fn stop(mut self) -> tempfile::TempDir {
        self.end();
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    /// Wait for a private monitor to end by itself.
    pub fn wait_for_end(&mut self) {
        let (done, ended) = std::sync::mpsc::channel();
        let thread = self.thread.take().unwrap();
        std::thread::spawn(move || done.send(thread.join().unwrap()));
        ended.recv_timeout(WATCHDOG).unwrap().unwrap();
    }

    /// A connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(self.directory.path())
    }

    /// A connection that has said Hello.
    pub fn client(&self) -> Client {
        let mut client = self.connect();
        client.hello();
        client
    }

    /// Its counters.
    pub fn counters(&self) -> CountersReport {
        let client = MonitorClient::connect(self.directory.path()).unwrap();
        client.counters(WATCHDOG).unwrap()
    }

    /// Wait until the counters look as wanted.
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&CountersReport) -> bool) {
        let end = std::time::Instant::now() + WATCHDOG;
        loop {
            let counters = self.counters();
            if wanted(&counters) {
                return;
            }
            assert!(std::time::Instant::now() < end, "{what}: {counters:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Wait until a descriptor is readable, or fail.
pub fn wait_for(fd: &OwnedFd) {
    let timeout = Timespec {
        tv_sec: i64::try_from(WATCHDOG.as_secs()).unwrap(),
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "nothing comes");
}

/// A program's side of a control connection.
pub struct Client {
    pub socket: OwnedFd,
    pub slab: SlabMap,
    pub slab_fd: OwnedFd,
}

impl Client {
    pub fn connect(directory: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(socket_in(directory)).unwrap()).unwrap();
        let (slab, slab_fd) = SlabMap::create(std::process::id()).unwrap();
        Self {
            socket,
            slab,
            slab_fd,
        }
    }

    /// The same process, at another monitor.
    pub fn reconnect(&mut self, directory: &Path) {
        self.socket = Self::connect(directory).socket;
        self.hello();
    }

    pub fn hello(&mut self) {
        self.send(ClientMessage::Hello, &[self.slab_fd.as_fd()]);
        assert_eq!(self.expect(), MonitorMessage::Welcome);
    }

    pub fn send(&self, message: ClientMessage, fds: &[BorrowedFd<'_>]) {
        self.send_bytes(message.encode().as_bytes(), fds).unwrap();
    }

    pub fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags).map(|_| ())
    }

    /// The next message and its descriptor; `None` when the monitor has hung up.
    pub fn receive(&self) -> Option<(MonitorMessage, Option<OwnedFd>)> {
        wait_for(&self.socket);
        let mut bytes = vec![0; HEADER_BYTES + TEXT_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = match recvmsg(&self.socket, &mut slices, &mut control, flags) {
            Ok(message) if message.bytes > 0 => message.bytes,
            Ok(_) | Err(Errno::CONNRESET) => return None,
            Err(error) => panic!("{error}"),
        };
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut passed) = message {
                fd = passed.next();
            }
        }
        Some((MonitorMessage::decode(&bytes[..length]).unwrap(), fd))
    }

    /// The next message, which must be there.
    pub fn expect(&self) -> MonitorMessage {
        self.receive().expect("the monitor hung up").0
    }

    /// The next message, which must be a grant.
    pub fn expect_grant(&self) -> (Grant, Option<OwnedFd>) {
        match self.receive().expect("the monitor hung up") {
            (MonitorMessage::Grant(grant), fd) => (grant, fd),
            (other, _) => panic!("expected a grant, not {other:?}"),
        }
    }

    /// Nothing has been said so far that we have not read. All that was caused by our earlier
    /// messages has come when the answer to this query is there.
    pub fn expect_silence(&self) {
        self.send(
            ClientMessage::Query(crosslane_ctl::message::Query::Connections),
            &[],
        );
        loop {
            match self.expect() {
                MonitorMessage::Text(text) if text.is_empty() => return,
                MonitorMessage::Text(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Register a socket.
    pub fn register(&self, token: u64, socket: impl AsFd) {
        self.send(ClientMessage::Register { token }, &[socket.as_fd()]);
        assert_eq!(self.expect(), MonitorMessage::Registered { token });
    }

    pub fn release(&self, token: u64) {
        self.send(ClientMessage::Release { token, pair: 0 }, &[]);
    }

    /// The monitor hangs up.
    pub fn expect_hangup(&self) {
        while self.receive().is_some() {}
    }
}

/// Both ends of a connection to a name.
pub fn tcp_pair_at(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(listen).unwrap();
    let port = listener.local_addr().unwrap().port();
    let a = TcpStream::connect((connect, port)).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Both ends of a connection.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    tcp_pair_at("127.0.0.1:0", "127.0.0.1")
}
