//! Clients that break every rule: they are disconnected, and nobody else notices.

mod common;

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::{Client, Running, WATCHDOG, monitor, monitor_with, tcp_pair};
use crosslane_ctl::message::{ClientMessage, MonitorMessage, Query};
use crosslane_ctl::slab::{EndPhase, SLAB_BYTES, SLAB_ENTRIES};
use crosslane_monitor::client::MonitorClient;
use crosslane_window::memory::create_sealed;
use proptest::prelude::*;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// The monitor still does its work for others.
fn assert_serves(monitor: &Running) {
    let (one, two) = (monitor.client(), monitor.client());
    let (a, b) = tcp_pair();
    one.register(1, &a);
    two.register(1, &b);
    let (grant, _) = one.expect_grant();
    assert_eq!(two.expect_grant().0.slot, grant.slot);
}

/// This makes the monitor hang up, once, and serve others as before.
fn is_expelled(what: &str, misbehave: impl Fn(&Client)) {
    let monitor = monitor();
    let client = monitor.client();
    misbehave(&client);
    client.expect_hangup();
    assert_eq!(monitor.counters().monitor.protocol_errors, 1, "{what}");
    assert_serves(&monitor);
}

fn send(client: &Client, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    client.send_bytes(bytes, fds).unwrap();
}

#[test]
fn what_is_no_message_is_the_last_one() {
    let hello = ClientMessage::Hello.encode();
    let register = ClientMessage::Register { token: 1 }.encode();
    let query = ClientMessage::Query(Query::Counters).encode();
    let mut future = register.as_bytes().to_vec();
    future[4] = 99;
    let mut unknown = register.as_bytes().to_vec();
    unknown[6] = 77;
    let cut = &register.as_bytes()[..9];
    let half_query = &query.as_bytes()[..17];
    let long = [0x41; 4096];
    for bytes in [
        &b"x"[..],
        b"garbage garbage garbage",
        &future,
        &unknown,
        cut,
        half_query,
        &long,
    ] {
        is_expelled(&format!("{bytes:?}"), |client| send(client, bytes, &[]));
    }
    is_expelled("Hello twice", |client| {
        send(client, hello.as_bytes(), &[client.slab_fd.as_fd()]);
    });
}

#[test]
fn a_client_of_another_version_is_told_ours() {
    let monitor = monitor();
    let client = monitor.connect();
    let mut future = ClientMessage::Hello.encode().as_bytes().to_vec();
    future[4] = 99;
    send(&client, &future, &[client.slab_fd.as_fd()]);
    assert_eq!(client.expect(), MonitorMessage::Welcome);
    client.expect_hangup();
}

#[test]
fn messages_need_their_descriptors() {
    for message in [ClientMessage::Register { token: 1 }, ClientMessage::Lease] {
        is_expelled("no descriptor", |client| client.send(message, &[]));
    }
}

#[test]
fn only_introduced_clients_are_listened_to() {
    for message in [
        ClientMessage::Register { token: 1 },
        ClientMessage::Release { token: 1, pair: 0 },
        ClientMessage::Lease,
    ] {
        let monitor = monitor();
        let client = monitor.connect();
        client.send(message, &[client.slab_fd.as_fd()]);
        client.expect_hangup();
        assert_serves(&monitor);
    }
}

#[test]
fn what_is_no_slab_is_refused() {
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    let small = create_sealed("test", 4096).unwrap();
    let empty = create_sealed("test", SLAB_BYTES).unwrap();
    let socket = OwnedFd::from(UnixStream::pair().unwrap().0);
    for fd in [file, small, empty, socket] {
        let monitor = monitor();
        let client = monitor.connect();
        client.send(ClientMessage::Hello, &[fd.as_fd()]);
        client.expect_hangup();
        assert_serves(&monitor);
    }
}

#[test]
fn a_lease_must_be_able_to_end() {
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    let tcp = OwnedFd::from(tcp_pair().0);
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    for fd in [file, tcp, epoll] {
        is_expelled("a lease", |client| {
            client.send(ClientMessage::Lease, &[fd.as_fd()]);
        });
    }
}

/// One end is passed in heaps, the other tells when all copies are closed.
fn telltale() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

fn expect_closed(other: &OwnedFd) {
    common::wait_for(other);
    let mut buffer = [0; 1];
    assert_eq!(rustix::io::read(other, &mut buffer), Ok(0));
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let monitor = monitor();
    let client = monitor.client();
    let (passed, other) = telltale();
    client.send(
        ClientMessage::Release { token: 1, pair: 0 },
        &[passed.as_fd()],
    );
    client.send(ClientMessage::Query(Query::Counters), &[passed.as_fd()]);
    drop(passed);
    expect_closed(&other);
}

#[test]
fn a_socket_whose_close_waits_holds_up_its_own_client_only() {
    let monitor = monitor();
    let client = monitor.client();
    let (slow, unread) = slow_pair();
    client.send(ClientMessage::Register { token: 1 }, &[slow.as_fd()]);
    client.send(ClientMessage::Release { token: 1, pair: 0 }, &[]);
    // Closed here first or not: the answer comes when it is closed there.
    close_without_waiting(slow);
    assert_serves(&monitor);
    drop(unread);
    assert_eq!(client.expect(), MonitorMessage::Registered { token: 1 });
    client.expect_silence();
    monitor.wait_until("no end is left", |counters| counters.monitor.ends == 0);
}

/// The close of the first waits until the second is closed.
fn slow_pair() -> (TcpStream, TcpStream) {
    use std::io::Write;
    let (mut slow, unread) = tcp_pair();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    set_socket_linger(&slow, Some(Duration::from_secs(3600))).unwrap();
    (slow, unread)
}

#[test]
fn what_stands_unread_in_a_socket_of_a_lease_holds_up_nobody() {
    let monitor = monitor();
    let client = monitor.client();
    let (slow, unread) = slow_pair();
    let (watched, held) = telltale();
    client.send(ClientMessage::Lease, &[watched.as_fd()]);
    let child = Client {
        socket: held,
        ..monitor.connect()
    };
    child.send_bytes(b"x", &[slow.as_fd()]).unwrap();
    drop(watched);
    close_without_waiting(slow);
    monitor.wait_until("it is held", |counters| counters.monitor.leases == 1);
    drop(child);
    monitor.wait_until("it has ended", |counters| counters.monitor.leases == 0);
    assert_serves(&monitor);
    drop(unread);
}

#[test]
fn slow_descriptors_that_nobody_asked_for_hold_up_who_passes_them_only() {
    let monitor = monitor();
    let client = monitor.client();
    let slow: Vec<_> = (0..3).map(|_| slow_pair()).collect();
    for (slow, _) in &slow {
        let message = ClientMessage::Release { token: 1, pair: 0 };
        client.send(message, &[slow.as_fd()]);
    }
    client.send(ClientMessage::Query(Query::Counters), &[]);
    let (slow, unread): (Vec<_>, Vec<_>) = slow.into_iter().unzip();
    close_without_waiting(slow);
    assert_serves(&monitor);
    drop(unread);
    assert!(matches!(client.expect(), MonitorMessage::Text(_)));
}

/// The last close may be ours, and would wait.
fn close_without_waiting(socket: impl Send + 'static) {
    std::thread::spawn(move || drop(socket));
}

#[test]
fn a_storm_of_descriptors_leaves_none_behind() {
    let monitor = monitor();
    let (passed, other) = telltale();
    for count in [2, 3, 100, 253] {
        let client = monitor.client();
        let fds = vec![passed.as_fd(); count];
        let message = ClientMessage::Register { token: 1 };
        send(&client, message.encode().as_bytes(), &fds);
        client.expect_hangup();
    }
    drop(passed);
    expect_closed(&other);
    assert_serves(&monitor);
}

#[test]
fn a_client_that_never_reads_is_dropped_and_holds_up_nobody() {
    let monitor = monitor();
    let client = monitor.client();
    let (a, _b) = tcp_pair();
    let message = ClientMessage::Register { token: 1 }.encode();
    let mut sent = 0u32;
    while monitor.counters().monitor.too_slow == 0 {
        (0..1000).for_each(|_| send(&client, message.as_bytes(), &[a.as_fd()]));
        sent += 1000;
        assert_serves(&monitor);
        assert!(sent < 1_000_000, "the monitor keeps everything");
    }
    assert_eq!(monitor.counters().monitor.too_slow, 1);
    assert_serves(&monitor);
}

#[test]
fn a_query_that_nobody_reads_holds_up_nobody() {
    let monitor = monitor();
    let client = monitor.client();
    fill(&client, SLAB_ENTRIES);
    let query = ClientMessage::Query(Query::Connections);
    for _ in 0..100 {
        client.send(query, &[]);
    }
    assert_serves(&monitor);
    drop(client);
    monitor.wait_until("the end of it", |counters| {
        counters.monitor.connections == 1
    });
}

#[test]
fn one_user_cannot_take_all_connections() {
    let monitor = monitor_with(|config| config.quotas.connections_per_user = 3);
    let clients: Vec<_> = (0..3).map(|_| monitor.client()).collect();
    let fourth = monitor.connect();
    fourth.expect_hangup();
    drop(clients);
    // The monitor hears of the three in its own time.
    let end = Instant::now() + WATCHDOG;
    let counters = loop {
        let client = MonitorClient::connect(monitor.directory.path()).unwrap();
        match client.counters(WATCHDOG) {
            Ok(counters) => break counters,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    assert!(counters.monitor.turned_away >= 1);
}

/// Entries in use, full of nonsense.
fn fill(client: &Client, used: u32) {
    client.slab.header().entries_used.store(u32::MAX, Relaxed);
    for counter in &client.slab.header().counters {
        counter.store(u64::MAX, Relaxed);
    }
    for index in 0..used {
        let entry = client.slab.entry(index).unwrap();
        entry.id.phase.store(EndPhase::Granted as u32, Relaxed);
        entry.id.reason.store(index, Relaxed);
        entry.id.fd.store(-5, Relaxed);
        entry.tx.ring_bytes.store(u64::MAX, Relaxed);
        entry.rx.mode.store(index, Relaxed);
    }
}

#[test]
fn a_slab_full_of_nonsense_is_shown_as_it_is() {
    let monitor = monitor();
    let client = monitor.client();
    fill(&client, SLAB_ENTRIES);
    let asking = MonitorClient::connect(monitor.directory.path()).unwrap();
    let connections = asking.connections(WATCHDOG).unwrap();
    assert_eq!(connections.len(), SLAB_ENTRIES as usize);
    let counters = asking.counters(WATCHDOG).unwrap();
    assert_eq!(counters.counters["ring_bytes_sent"], u64::MAX);
    assert_serves(&monitor);
}

#[test]
fn a_slab_that_changes_while_it_is_shown_harms_nobody() {
    let monitor = monitor();
    let client = monitor.client();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 1u32;
            while !done.load(Relaxed) {
                value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let entry = client.slab.entry(value >> 16).unwrap();
                entry.id.phase.store(value & 3, Relaxed);
                entry.id.generation.store(value, Relaxed);
                client.slab.header().entries_used.store(value, Relaxed);
            }
        });
        let asking = MonitorClient::connect(monitor.directory.path()).unwrap();
        for _ in 0..10 {
            asking.connections(WATCHDOG).unwrap();
            asking.counters(WATCHDOG).unwrap();
        }
        done.store(true, Relaxed);
    });
}

/// A datagram that a fuzzer may send, with kinds of descriptors beside it.
fn datagram() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let message = prop_oneof![
        Just(ClientMessage::Hello),
        (0..4u64).prop_map(|token| ClientMessage::Register { token }),
        (0..4u64).prop_map(|token| ClientMessage::Release { token, pair: 0 }),
        Just(ClientMessage::Lease),
        Just(ClientMessage::Query(Query::Connections)),
        Just(ClientMessage::Query(Query::Counters)),
    ];
    let twisted =
        (message, any::<Option<(usize, u8)>>(), 0..40usize).prop_map(|(message, twist, cut)| {
            let mut bytes = message.encode().as_bytes().to_vec();
            if let Some((at, value)) = twist {
                let at = at % bytes.len();
                bytes[at] ^= value & 1;
            }
            // Mostly whole.
            if cut > 0 && cut < 4 {
                bytes.truncate(bytes.len() / cut);
            }
            bytes
        });
    let bytes = prop_oneof![4 => twisted, 1 => proptest::collection::vec(any::<u8>(), 1..200)];
    (bytes, proptest::collection::vec(0..5u8, 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_datagrams_keep_the_monitor_from_its_work(
        datagrams in proptest::collection::vec(datagram(), 1..30),
    ) {
        let monitor = monitor();
        let (a, _b) = tcp_pair();
        let (lease, _held) = telltale();
        let file = OwnedFd::from(File::open("/dev/null").unwrap());
        let mut client = monitor.connect();
        for (bytes, kinds) in datagrams {
            let fds: Vec<_> = kinds
                .iter()
                .map(|kind| match kind {
                    0 | 1 => client.slab_fd.as_fd(),
                    2 => a.as_fd(),
                    3 => lease.as_fd(),
                    _ => file.as_fd(),
                })
                .collect();
            if client.send_bytes(&bytes, &fds).is_err() {
                client = monitor.client();
            }
        }
        assert_serves(&monitor);
    }
}
