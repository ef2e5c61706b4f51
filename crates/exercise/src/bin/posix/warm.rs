//! Brings the two processes of a check together over a connection that has seen some traffic.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crosslane_exercise::calls::{accept, bind, connect, getpeername, getsockname, listen};
use crosslane_exercise::calls::{close, recv, send, setsockopt, socket};

use crate::checks::{Check, Cue};
use crate::stage::Other;
use crate::{Options, Stage};

const PAUSE: Duration = Duration::from_millis(10);
/// After the pause, as something may have been got ready meanwhile.
const AFTER_PAUSE: u32 = 10;

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
    let mut far = this_program(options);
    far.args(["--far", check.name]);
    let (fd, mut far, other) = if options.near_connects {
        let mut far = start(&mut far);
        let mut other = Other::child(&mut far);
        let listens: SocketAddr = other
            .line()
            .parse()
            .expect("the far side names its address");
        let fd = socket_for(address());
        connect(fd, listens).expect("the far side listens");
        (fd, far, other)
    } else {
        let listener = listening_at(address());
        let listens = local(listener, address());
        let mut far = start(far.arg("--connect").arg(listens.to_string()));
        let other = Other::child(&mut far);
        let fd = accept(listener).expect("the far side connects");
        close(listener).expect("a listener can be closed");
        (fd, far, other)
    };
    let mut stage = Stage::new(fd, other);
    warm(fd, options, true);
    if options.step {
        announce(check, fd);
    }
    stage.go();
    near(&mut stage);
    let line = stage.trace_with_far();
    // The far side stays until its input ends.
    drop(stage);
    let status = far.wait().expect("a child can be waited for");
    if status.success() {
        line
    } else {
        format!("{line} | far: {status}")
    }
}

/// Play the far part of `check`.
pub fn play_far(check: &Check, options: &Options) {
    let Cue::Pair { far, address, .. } = check.cue else {
        panic!("{} has no far part", check.name)
    };
    let mut other = Other::parent();
    let fd = match options.connect {
        Some(near) => {
            let fd = socket_for(address());
            connect(fd, near).expect("the near side listens");
            fd
        }
        None => {
            let listener = listening_at(address());
            other.say(&local(listener, address()).to_string());
            let fd = accept(listener).expect("the near side connects");
            close(listener).expect("a listener can be closed");
            fd
        }
    };
    let mut stage = Stage::new(fd, other);
    warm(fd, options, false);
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
    command
}

fn start(far: &mut Command) -> Child {
    far.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started")
}

fn socket_for(address: SocketAddr) -> RawFd {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    socket(family, 0).expect("a socket can be made")
}

/// A listener whose port the kernel chooses. One for `::ffff:127.0.0.1` listens on all of IPv6,
/// and so on IPv4 too.
fn listening_at(address: SocketAddr) -> RawFd {
    let fd = socket_for(address);
    let is_mapped = matches!(address, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some());
    let bound = if is_mapped {
        "[::]:0".parse().expect("it is an address")
    } else {
        address
    };
    bind(fd, bound).expect("the loopback address is there");
    listen(fd, 5).expect("a bound socket can listen");
    fd
}

/// Where `listener` can be reached from this machine, through `address`.
fn local(listener: RawFd, address: SocketAddr) -> SocketAddr {
    let name = getsockname(listener).expect("a listener has a name");
    let port = name.address().expect("it is an IP address").port();
    SocketAddr::new(address.ip(), port)
}

fn warm(fd: RawFd, options: &Options, is_near: bool) {
    if !options.nagle {
        // What has been sent should have arrived when the other side is told so.
        setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).expect("it is a connection");
    }
    if options.warm == 0 {
        return;
    }
    (0..options.warm).for_each(|_| round_trip(fd, is_near));
    std::thread::sleep(PAUSE);
    (0..AFTER_PAUSE).for_each(|_| round_trip(fd, is_near));
}

fn round_trip(fd: RawFd, is_near: bool) {
    let mut byte = [0];
    if is_near {
        assert_eq!(send(fd, b"?", 0), Ok(1), "warming failed");
    }
    assert_eq!(recv(fd, &mut byte, 0), Ok(1), "warming failed");
    if !is_near {
        assert_eq!(send(fd, b"!", 0), Ok(1), "warming failed");
    }
}

fn announce(check: &Check, fd: RawFd) {
    let name = |name: Result<crosslane_exercise::calls::Name, _>| {
        name.ok()
            .and_then(|name| name.address())
            .expect("a connection has two addresses")
    };
    let (local, peer) = (name(getsockname(fd)), name(getpeername(fd)));
    println!("@ready {} {local} {peer}", check.name);
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .expect("whoever asked for --step answers");
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
