//! Calls that make, join, copy and end descriptors.

use std::net::SocketAddr;

use crosslane_exercise::calls::{
    Name, accept4, bind, bind_name, close, close_range, connect, dup, dup2, dup3, fcntl,
    getsockname, listen, receive_fd, send_fd, shutdown, socket, socketpair,
};
use crosslane_exercise::{Answer, Errno};

use super::{Matter, Outcome, Place, fd};
use crate::call::Call;
use crate::word::Family;

const BACKLOG: i32 = 8;
/// F_DUPFD must not find the lowest number by chance.
const FROM: i32 = 40;
const UNIX_NAME: &str = "crosslane-differ-";
/// Names that a process may take. Players that run at the same time share them all.
const PORTS_EACH: u32 = 64;
/// Nobody listens on the port of discard.
const NOBODY: u16 = 9;

pub fn act(call: &Call, matter: Matter, place: Place) -> Option<Outcome> {
    Some(match *call {
        Call::Socket {
            family,
            nonblocking,
            ..
        } => Outcome::made(socket(domain(family), flags(nonblocking))),
        Call::Socketpair { .. } => match socketpair() {
            Err(errno) => Outcome::text(errno.to_string()),
            Ok([one, other]) => Outcome {
                text: format!("{one} {other}"),
                bytes: 0,
                fd: Some(one),
            },
        },
        Call::Listen { fd: on, family } => Outcome::of(listen_at(fd(on), family)),
        Call::Connect { fd: on, family, .. } => {
            Outcome::of(connect(fd(on), target(family, matter.port)))
        }
        Call::ConnectNobody { fd: on, family } => {
            Outcome::of(connect(fd(on), target(family, NOBODY)))
        }
        Call::Disconnect { fd: on } => Outcome::of(connect(fd(on), Name::unspecified())),
        Call::Accept {
            fd: on,
            nonblocking,
            ..
        } => Outcome::made(accept4(fd(on), flags(nonblocking))),
        Call::Shutdown { fd: on, how } => Outcome::of(shutdown(fd(on), how.value())),
        Call::Close { fd: on } => Outcome::of(close(fd(on))),
        Call::CloseRange { fd: on } => Outcome::of(close_range(on.0, on.0, 0)),
        Call::Dup { fd: on, .. } => Outcome::made(dup(fd(on))),
        Call::DupFrom {
            fd: on, cloexec, ..
        } => {
            let command = if cloexec {
                libc::F_DUPFD_CLOEXEC
            } else {
                libc::F_DUPFD
            };
            let made = fcntl(fd(on), command, FROM);
            Outcome::made(made.map(|fd| i32::try_from(fd).expect("a descriptor is an int")))
        }
        Call::Dup2 { fd: on, onto } => Outcome::made(dup2(fd(on), fd(onto))),
        Call::Dup3 { fd: on, onto } => Outcome::made(dup3(fd(on), fd(onto), libc::O_CLOEXEC)),
        Call::Pass { fd: on } => Outcome::of(send_fd(place.passage[0], fd(on))),
        Call::Take { .. } => Outcome::made(receive_fd(place.passage[1])),
        _ => return None,
    })
}

fn domain(family: Family) -> i32 {
    match family {
        Family::v4 => libc::AF_INET,
        Family::v6 | Family::mapped => libc::AF_INET6,
        Family::unix | Family::pair => libc::AF_UNIX,
    }
}

fn flags(nonblocking: bool) -> i32 {
    if nonblocking { libc::SOCK_NONBLOCK } else { 0 }
}

/// The outcome has the port only as what the kernel chose.
fn listen_at(fd: i32, family: Family) -> Result<&'static str, Errno> {
    match family.value() {
        Some((here, _)) => bind(fd, here.parse().expect("it is an address"))?,
        None => bind_unix(fd)?,
    };
    listen(fd, BACKLOG)?;
    Ok("listening")
}

/// Names outside of the file system have a number for a port, too, as long as any other.
fn unix_name(port: u16) -> Name {
    Name::of_unix(&format!("{UNIX_NAME}{port:05}"))
}

fn bind_unix(fd: i32) -> Answer {
    let first = std::process::id() * PORTS_EACH;
    let mut taken = Err(Errno(libc::EADDRINUSE));
    for number in first..first + PORTS_EACH {
        taken = bind_name(fd, &unix_name(u16::try_from(number & 0xffff).unwrap_or(0)));
        if taken != Err(Errno(libc::EADDRINUSE)) {
            break;
        }
    }
    taken
}

/// The port on which `fd` listens.
pub fn port_of(fd: i32) -> Option<u16> {
    let name = getsockname(fd).ok()?;
    if let Some(name) = name.unix_name() {
        return name.strip_prefix(UNIX_NAME)?.parse().ok();
    }
    Some(name.address()?.port())
}

fn target(family: Family, port: u16) -> Name {
    let Some((_, there)) = family.value() else {
        return unix_name(port);
    };
    let mut address: SocketAddr = there.parse().expect("it is an address");
    address.set_port(port);
    address.into()
}
