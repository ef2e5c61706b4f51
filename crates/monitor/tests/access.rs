//! Who may use the monitor, who sees what, and network namespaces.

mod common;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use common::{Client, Running, WATCHDOG, monitor, tcp_pair};
use crosslane_ctl::message::{ClientMessage, MonitorMessage};
use crosslane_ctl::paths::socket_in;
use crosslane_ctl::slab::EndPhase;
use crosslane_monitor::client::{ClientError, ConnectionReport, MonitorClient};
use rustix::fd::AsFd;
use rustix::fs::Uid;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces, set_thread_uid};

/// Do something as another user, in a thread of its own. `None`, loudly, if we are not root.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: only root can be other users");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_uid(Uid::from_raw(uid)).unwrap();
            act()
        });
        Some(thread.join().unwrap())
    })
}

fn open_to_all(monitor: &Running) {
    let mode = |mode| PermissionsExt::from_mode(mode);
    std::fs::set_permissions(monitor.directory.path(), mode(0o755)).unwrap();
}

fn connections(monitor: &Running) -> Vec<ConnectionReport> {
    let client = MonitorClient::connect(monitor.directory.path()).unwrap();
    client.connections(WATCHDOG).unwrap()
}

/// Show a connection on TCP in the slab.
fn show(client: &Client, index: u32, fd: i32) {
    let entry = client.slab.entry(index).unwrap();
    entry.id.fd.store(fd, Relaxed);
    entry.id.phase.store(EndPhase::Plain as u32, Relaxed);
    client.slab.header().entries_used.store(index + 1, Relaxed);
}

#[test]
fn root_sees_all_programs_and_others_their_own() {
    let monitor = monitor();
    open_to_all(&monitor);
    let own = monitor.client();
    show(&own, 0, 5);
    let Some(theirs) = as_user(12345, || monitor.client()) else {
        return;
    };
    show(&theirs, 0, 6);
    let fds = |of: Vec<ConnectionReport>| {
        let mut fds: Vec<_> = of.iter().map(|connection| connection.fd).collect();
        fds.sort_unstable();
        fds
    };
    assert_eq!(fds(connections(&monitor)), [5, 6]);
    assert_eq!(fds(as_user(12345, || connections(&monitor)).unwrap()), [6]);
    assert!(fds(as_user(54321, || connections(&monitor)).unwrap()).is_empty());
    own.slab.header().counters[0].store(100, Relaxed);
    theirs.slab.header().counters[0].store(1, Relaxed);
    drop((own, theirs));
    monitor.wait_until("both gone", |counters| counters.monitor.processes == 0);
    let count = || monitor.counters().counters["connections"];
    assert_eq!(count(), 101);
    assert_eq!(as_user(12345, count), Some(1));
    assert_eq!(as_user(54321, count), Some(0));
}

#[test]
fn programs_of_different_users_can_be_paired_by_root() {
    let monitor = monitor();
    open_to_all(&monitor);
    let (a, b) = tcp_pair();
    let one = monitor.client();
    one.register(1, &a);
    let grant = as_user(12345, || {
        let two = monitor.client();
        two.register(1, &b);
        two.expect_grant().0
    });
    if let Some(grant) = grant {
        assert_eq!(one.expect_grant().0.slot, grant.slot);
    }
}

#[test]
fn a_user_s_own_monitor_turns_other_users_away() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap_or_default();
    let Some(monitor) = as_user(12345, || common::start_in(directory, |_| {})) else {
        return;
    };
    // Leave nothing between others and the check of who they are.
    open_to_all(&monitor);
    let socket = socket_in(monitor.directory.path());
    std::fs::set_permissions(socket, PermissionsExt::from_mode(0o666)).unwrap();
    as_user(54321, || monitor.connect().expect_hangup());
    as_user(12345, || monitor.client());
    let turned_away = as_user(12345, || monitor.counters().monitor.turned_away);
    assert_eq!(turned_away, Some(1));
}

#[test]
fn roots_private_monitor_serves_other_users_only_if_they_know_its_secret() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: only root can be other users");
        return;
    }
    let monitor = common::monitor_with(|config| {
        config.service = crosslane_monitor::config::Service::Private { linger: WATCHDOG };
    });
    let mode = PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(monitor.directory.path(), mode).unwrap();
    let secret = crosslane_monitor::secret::of(monitor.directory.path()).unwrap();
    let (a, b) = tcp_pair();
    let own = monitor.client();
    own.register(1, &a);
    as_user(12345, || {
        assert_eq!(
            crosslane_monitor::secret::of(monitor.directory.path()),
            None
        );
        let silent = monitor.connect();
        silent.send(ClientMessage::Hello, &[silent.slab_fd.as_fd()]);
        silent.expect_hangup();
        let asking = MonitorClient::connect(monitor.directory.path()).unwrap();
        assert!(asking.connections(WATCHDOG).is_err());
        let guessing = monitor.connect();
        guessing.send(ClientMessage::Secret { secret: !secret }, &[]);
        guessing.expect_hangup();
        let mut knowing = monitor.connect();
        knowing.send(ClientMessage::Secret { secret }, &[]);
        knowing.hello();
        knowing.register(1, &b);
        knowing.expect_grant();
    });
    own.expect_grant();
    assert_eq!(monitor.counters().monitor.protocol_errors, 3);
}

#[test]
fn the_command_does_not_talk_to_the_monitor_of_a_stranger() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap_or_default();
    let Some(monitor) = as_user(12345, || common::start_in(directory, |_| {})) else {
        return;
    };
    open_to_all(&monitor);
    let socket = socket_in(monitor.directory.path());
    std::fs::set_permissions(socket, PermissionsExt::from_mode(0o666)).unwrap();
    let found = as_user(54321, || MonitorClient::connect(monitor.directory.path()));
    assert!(matches!(
        found,
        Some(Err(ClientError::Stranger { owner: 12345, .. }))
    ));
}

#[test]
fn a_new_connection_is_shown_before_it_is_registered() {
    let monitor = monitor();
    let client = monitor.client();
    show(&client, 3, 9);
    let connections = connections(&monitor);
    let [connection] = &connections[..] else {
        panic!("{connections:?}");
    };
    assert_eq!((connection.pid, connection.fd), (std::process::id(), 9));
    assert_eq!(connection.state, "tcp");
    assert_eq!(connection.reason.as_deref(), Some("too-young"));
    assert!(connection.local.is_empty());
}

#[test]
fn bytes_of_a_killed_process_s_connections_are_not_forgotten() {
    let monitor = monitor();
    let client = monitor.client();
    for index in [0, 1, 9000, 65_535] {
        show(&client, index, 9);
        let entry = client.slab.entry(index).unwrap();
        entry.tx.ring_bytes.store(100, Relaxed);
        entry.rx.tcp_data.store(1, Relaxed);
    }
    let sums = || {
        let counters = monitor.counters().counters;
        (counters["ring_bytes_sent"], counters["tcp_bytes_received"])
    };
    assert_eq!(sums(), (400, 4));
    // Its child comes back with the same table.
    let slab_fd = client.slab_fd.try_clone().unwrap();
    drop(client);
    monitor.wait_until("the end of the process", |c| c.monitor.processes == 0);
    monitor.wait_until("its bytes", |c| c.counters["ring_bytes_sent"] == 400);
    let child = monitor.connect();
    child.send(ClientMessage::Hello, &[slab_fd.as_fd()]);
    assert_eq!(child.expect(), MonitorMessage::Welcome);
    assert_eq!(sums(), (400, 4));
}

#[test]
fn a_registered_connection_is_shown_with_its_names() {
    let monitor = monitor();
    let client = monitor.client();
    let (a, _b) = tcp_pair();
    show(&client, 3, 9);
    client
        .slab
        .entry(3)
        .unwrap()
        .id
        .generation
        .store(7, Relaxed);
    client.register(7 << 32 | 3, &a);
    let connections = connections(&monitor);
    assert_eq!(connections[0].local, a.local_addr().unwrap().to_string());
    assert_eq!(connections[0].peer, a.peer_addr().unwrap().to_string());
}

/// A network namespace that lives as long as a process in it.
struct Namespace(Child);

impl Namespace {
    /// `None`, loudly, where we may not make one.
    fn new() -> Option<Self> {
        let made = Self::make();
        if made.is_none() {
            let why = "network namespaces cannot be made here";
            let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        }
        made
    }

    fn make() -> Option<Self> {
        let script = "ip link set lo up && echo up && exec sleep 600";
        let made = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = made.ok()?;
        let mut line = String::new();
        let output = child.stdout.take()?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).ok()?;
        let namespace = Self(child);
        (line.trim() == "up").then_some(namespace)
    }

    fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.0.id());
        let namespace = std::fs::File::open(path).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = ThreadNameSpaceType::NETWORK;
                move_into_thread_name_spaces(namespace.as_fd(), kind).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection between these ports of the loopback address.
fn connection(from: u16, to: u16) -> (TcpStream, TcpStream) {
    let name = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let at = |port| {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_socket_reuseaddr(&fd, true).unwrap();
        bind(&fd, &name(port)).unwrap();
        fd
    };
    let listener = at(to);
    listen(&listener, 1).unwrap();
    let stream = at(from);
    connect(&stream, &name(to)).unwrap();
    let accepted = TcpListener::from(listener).accept().unwrap().0;
    (stream.into(), accepted)
}

#[test]
fn equal_names_in_two_network_namespaces_are_not_paired() {
    let (Some(first), Some(second)) = (Namespace::new(), Namespace::new()) else {
        return;
    };
    let (a, a_accepted) = first.inside(|| connection(40_001, 40_002));
    let (b, b_accepted) = second.inside(|| connection(40_001, 40_002));
    let monitor = monitor();
    let (one, two) = (monitor.client(), monitor.client());
    one.register(1, &a);
    two.register(1, &b_accepted);
    one.expect_silence();
    two.expect_silence();
    one.register(2, &a_accepted);
    assert_eq!(one.expect_grant().0.token, 1);
    assert_eq!(one.expect_grant().0.token, 2);
    two.register(2, &b);
    assert_eq!(two.expect_grant().0.token, 1);
    assert_eq!(two.expect_grant().0.token, 2);
}
