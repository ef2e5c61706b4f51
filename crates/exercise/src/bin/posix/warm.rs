//! Brings the two processes of a check together over a connection that has seen some traffic.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crosslane_exercise::calls::{
    Name, accept, bind_name, close, connect, dup2, exit_now, fork, getpeername, getsockname,
    listen, pipe, recv, send, setsockopt, socket, socketpair, wait_for,
};

use crate::checks::{Check, Cue};
use crate::place::{Over, Place};
use crate::stage::{Other, limit_to_seconds};
use crate::{LIMIT_S, Options, Stage};

const PAUSE: Duration = Duration::from_millis(10);
/// After the pause, as something may have been got ready meanwhile.
const AFTER_PAUSE: u32 = 10;

/// What the near side says while it warms a connection, and at last.
const GO_ON: u8 = b'?';
const WARM: u8 = b'.';

/// Play the near part of `check` and return its line.
pub fn play_near(check: &Check, options: &Options) -> String {
    let line = match check.cue {
        Cue::Solo(near) => {
            let mut stage = Stage::alone();
            near(&mut stage);
            stage.trace()
        }
        Cue::Pair { near, address, .. } => near_of_pair(check, near, address, options),
    };
    format!("{}: {line}", check.name)
}

fn near_of_pair(
    check: &Check,
    near: fn(&mut Stage),
    address: fn() -> SocketAddr,
    options: &Options,
) -> String {
    if options.over == Over::Pair {
        let (fd, far, other) = with_child(check, options);
        return near_of_connection(check, near, options, (fd, other), || wait_for(far) == Ok(0));
    }
    let mut far = this_program(options);
    far.args(["--far", check.name]);
    let (fd, mut far, other) = if options.near_connects {
        let mut far = start(&mut far);
        let mut other = Other::child(&mut far);
        let fd = socket_for(&options.place(address()));
        connect(fd, Place::parse(&other.line()).name()).expect("the far side listens");
        (fd, far, other)
    } else {
        let (listener, listens) = listening_at(options.place(address()));
        let mut far = start(far.arg("--connect").arg(listens.to_string()));
        let other = Other::child(&mut far);
        let fd = accept(listener).expect("the far side connects");
        close(listener).expect("a listener can be closed");
        (fd, far, other)
    };
    let wait = move || far.wait().expect("a child can be waited for").success();
    near_of_connection(check, near, options, (fd, other), wait)
}

/// Play the near part; `wait` waits for the far process, and tells whether it has succeeded.
fn near_of_connection(
    check: &Check,
    near: fn(&mut Stage),
    options: &Options,
    (fd, other): (RawFd, Other),
    wait: impl FnOnce() -> bool,
) -> String {
    let mut stage = Stage::new(fd, other);
    prepare(fd, options);
    warm(fd, options, || announce(check, fd, options));
    stage.go();
    near(&mut stage);
    let line = stage.trace_with_far();
    // The far side stays until its input ends.
    drop(stage);
    match wait() {
        true => line,
        false => format!("{line} | the far side has failed"),
    }
}

/// Make a socket pair, and a child that plays the far part of `check` on one end.
fn with_child(check: &Check, options: &Options) -> (RawFd, libc::pid_t, Other) {
    let [ours, theirs] = socketpair().expect("a pair can be made");
    let [from_far, to_near] = pipe().expect("a pipe can be made");
    let [from_near, to_far] = pipe().expect("a pipe can be made");
    let all = |fds: [RawFd; 3]| fds.map(|fd| close(fd).expect("it is open"));
    match fork().expect("a process can be made") {
        Some(child) => {
            all([theirs, to_near, from_near]);
            (ours, child, Other::pipes(from_far, to_far))
        }
        None => {
            // As the far process of other connections has them.
            for (pipe, standard) in [(from_near, 0), (to_near, 1)] {
                dup2(pipe, standard).expect("a standard stream can be replaced");
                close(pipe).expect("it is open");
            }
            all([ours, from_far, to_far]);
            limit_to_seconds(LIMIT_S);
            far_of_connection(check, theirs, Other::parent(), options);
            exit_now(0)
        }
    }
}

/// Play the far part of `check`.
pub fn play_far(check: &Check, options: &Options) {
    let mut other = Other::parent();
    let fd = match &options.connect {
        Some(near) => {
            let near = Place::parse(near);
            let fd = socket_for(&near);
            connect(fd, near.name()).expect("the near side listens");
            fd
        }
        None => {
            let Cue::Pair { address, .. } = check.cue else {
                panic!("{} has no far part", check.name)
            };
            let (listener, listens) = listening_at(options.place(address()));
            other.say(&listens.to_string());
            let fd = accept(listener).expect("the near side connects");
            close(listener).expect("a listener can be closed");
            fd
        }
    };
    far_of_connection(check, fd, other, options);
}

fn far_of_connection(check: &Check, fd: RawFd, other: Other, options: &Options) {
    let Cue::Pair { far, .. } = check.cue else {
        panic!("{} has no far part", check.name)
    };
    let mut stage = Stage::new(fd, other);
    prepare(fd, options);
    if options.warm > 0 {
        answer_until_warm(fd);
    }
    stage.wait();
    far(&mut stage);
    stage.hand_over_trace();
}

/// This program again, with the options that both sides must agree on.
pub fn this_program(options: &Options) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--warm").arg(options.warm.to_string());
    if options.near_connects {
        command.arg("--near-connects");
    }
    if options.nagle {
        command.arg("--nagle");
    }
    command.args(["--over", options.over.name()]);
    command
}

fn start(far: &mut Command) -> Child {
    far.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started")
}

fn socket_for(place: &Place) -> RawFd {
    let family = match place {
        Place::Ip(address) if address.is_ipv4() => libc::AF_INET,
        Place::Ip(_) => libc::AF_INET6,
        Place::Unix(_) => libc::AF_UNIX,
    };
    socket(family, 0).expect("a socket can be made")
}

/// A listener, and where it can be reached. The kernel chooses the port; a listener for
/// `::ffff:127.0.0.1` listens on all of IPv6, and so on IPv4 too.
fn listening_at(place: Place) -> (RawFd, Place) {
    let fd = socket_for(&place);
    let is_mapped =
        matches!(place, Place::Ip(SocketAddr::V6(v6)) if v6.ip().to_ipv4_mapped().is_some());
    let bound = if is_mapped {
        let everywhere: SocketAddr = "[::]:0".parse().expect("it is an address");
        Name::from(everywhere)
    } else {
        place.name()
    };
    bind_name(fd, &bound).expect("the address is free");
    listen(fd, 5).expect("a bound socket can listen");
    let reached = match place {
        Place::Ip(address) => {
            let name = getsockname(fd).expect("a listener has a name");
            let port = name.address().expect("it is an IP address").port();
            Place::Ip(SocketAddr::new(address.ip(), port))
        }
        Place::Unix(_) => place,
    };
    (fd, reached)
}

fn prepare(fd: RawFd, options: &Options) {
    if !options.nagle && options.over == Over::Tcp {
        // What has been sent should have arrived when the other side is told so.
        setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).expect("it is a connection");
    }
}

/// Talk with the far side as much as the options say, and on while `wants_more`.
fn warm(fd: RawFd, options: &Options, wants_more: impl Fn() -> bool) {
    if options.warm == 0 {
        let _ = wants_more();
        return;
    }
    (0..options.warm).for_each(|_| round_trip(fd, GO_ON));
    loop {
        std::thread::sleep(PAUSE);
        (0..AFTER_PAUSE).for_each(|_| round_trip(fd, GO_ON));
        if !wants_more() {
            break;
        }
    }
    round_trip(fd, WARM);
}

fn round_trip(fd: RawFd, word: u8) {
    assert_eq!(send(fd, &[word], 0), Ok(1), "warming failed");
    assert_eq!(recv(fd, &mut [0], 0), Ok(1), "warming failed");
}

fn answer_until_warm(fd: RawFd) {
    let mut word = [0];
    while word != [WARM] {
        assert_eq!(recv(fd, &mut word, 0), Ok(1), "warming failed");
        assert_eq!(send(fd, b"!", 0), Ok(1), "warming failed");
    }
}

/// With `--step`, let whoever asked for it look at the connection. Whether it is to be warmer.
fn announce(check: &Check, fd: RawFd, options: &Options) -> bool {
    if !options.step {
        return false;
    }
    let name = |name: Result<Name, _>| {
        name.ok()
            .and_then(|name| name.address())
            .expect("a connection has two addresses")
            .to_string()
    };
    let (local, peer) = match options.over {
        Over::Tcp => (name(getsockname(fd)), name(getpeername(fd))),
        // Only the kernel and whoever asks it know the peer.
        Over::Unix | Over::Pair => (unix_name(fd), "-".to_owned()),
    };
    println!("@ready {} {local} {peer}", check.name);
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .expect("whoever asked for --step answers");
    answer.trim_end() == "again"
}

/// As `crosslane ss` names an AF_UNIX socket.
fn unix_name(fd: RawFd) -> String {
    use std::os::unix::fs::MetadataExt;
    let socket = std::fs::metadata(format!("/proc/self/fd/{fd}")).expect("it is open");
    format!("unix:{}", socket.ino())
}

/// The plain loopback address.
pub fn v4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The loopback address of IPv6.
pub fn v6() -> SocketAddr {
    (std::net::Ipv6Addr::LOCALHOST, 0).into()
}

/// The loopback address of IPv4 as IPv6 sockets see it.
pub fn mapped() -> SocketAddr {
    (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0).into()
}
