//! Calls that make, join, copy and end descriptors.

use std::net::SocketAddr;

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Name, accept4, bind, close, close_range, connect, dup, dup2, dup3, fcntl, getsockname, listen,
    receive_fd, send_fd, shutdown, socket,
};

use super::{Matter, Outcome, Place, fd};
use crate::call::Call;
use crate::word::Family;

const BACKLOG: i32 = 8;
/// F_DUPFD must not find the lowest number by chance.
const FROM: i32 = 40;
/// Nobody listens on the port of discard.
const NOBODY: u16 = 9;

pub fn act(call: &Call, matter: Matter, place: Place) -> Option<Outcome> {
    Some(match *call {
        Call::Socket {
            family,
            nonblocking,
            ..
        } => Outcome::made(socket(domain(family), flags(nonblocking))),
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
    if family == Family::v4 {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }
}

fn flags(nonblocking: bool) -> i32 {
    if nonblocking { libc::SOCK_NONBLOCK } else { 0 }
}

/// The outcome has the port only as what the kernel chose.
fn listen_at(fd: i32, family: Family) -> Result<&'static str, Errno> {
    bind(fd, family.value().0.parse().expect("it is an address"))?;
    listen(fd, BACKLOG)?;
    Ok("listening")
}

/// The port on which `fd` listens.
pub fn port_of(fd: i32) -> Option<u16> {
    let address = getsockname(fd).ok()?.address()?;
    Some(address.port())
}

fn target(family: Family, port: u16) -> SocketAddr {
    let mut address: SocketAddr = family.value().1.parse().expect("it is an address");
    address.set_port(port);
    address
}
