//! Calls that ask about a descriptor or set what it is like.

use crosslane_exercise::Errno;
use crosslane_exercise::calls::{
    Name, Named, fcntl, file_type, getpeername, getpeername_with_room, getsockname,
    getsockname_with_room, getsockopt, getsockopt_bytes, ioctl_nonblocking, ioctl_read, seek,
    set_linger, set_nonblocking, set_timeout, setsockopt, take_error,
};
use libc::{FD_CLOEXEC, FIONREAD, SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET};

use super::{Outcome, fd, shown};
use crate::call::Call;
use crate::word::Choice;

/// From <linux/sockios.h>; the same as TIOCOUTQ.
const SIOCOUTQ: libc::Ioctl = 0x5411;
const SIOCATMARK: libc::Ioctl = 0x8905;

pub fn act(call: &Call) -> Option<Outcome> {
    Some(match *call {
        Call::Fionread { fd: on } => Outcome::of(ioctl_read(fd(on), FIONREAD)),
        // How much has been acknowledged is a matter of time.
        Call::Outq { fd: on } => Outcome::of(ioctl_read(fd(on), SIOCOUTQ).map(|_| "ok")),
        Call::Atmark { fd: on } => Outcome::of(ioctl_read(fd(on), SIOCATMARK)),
        Call::Fionbio { fd: of, on } => Outcome::of(ioctl_nonblocking(fd(of), on)),
        Call::GetFlags { fd: on } => {
            let flags = fcntl(fd(on), libc::F_GETFL, 0);
            Outcome::of(flags.map(|flags| format!("{flags:#x}")))
        }
        Call::SetNonblocking { fd: of, on } => Outcome::of(set_nonblocking(fd(of), on)),
        Call::GetCloexec { fd: on } => Outcome::of(fcntl(fd(on), libc::F_GETFD, 0)),
        Call::SetCloexec { fd: of, on } => {
            let flag = if on { FD_CLOEXEC } else { 0 };
            Outcome::of(fcntl(fd(of), libc::F_SETFD, flag))
        }
        Call::Getsockopt {
            fd: on,
            option: Choice::ERROR,
        } => Outcome::of(take_error(fd(on))),
        Call::Getsockopt { fd: on, option } => {
            let (level, name) = option.value();
            Outcome::of(getsockopt(fd(on), level, name))
        }
        Call::Setsockopt {
            fd: on,
            option,
            value,
        } => {
            let (level, name) = option.value();
            Outcome::of(setsockopt(fd(on), level, name, value))
        }
        Call::Linger { fd: on, seconds } => {
            Outcome::of(set_linger(fd(on), Some(seconds).filter(|&s| s >= 0)))
        }
        Call::GetLinger { fd: on } => {
            let mut value = [0; 8];
            let length = getsockopt_bytes(fd(on), SOL_SOCKET, SO_LINGER, &mut value);
            Outcome::text(format!("{} {value:?}", shown(&length)))
        }
        Call::Rcvtimeo { fd: on, timeout_ms } => {
            Outcome::of(set_timeout(fd(on), SO_RCVTIMEO, i64::from(timeout_ms)))
        }
        Call::Sndtimeo { fd: on, timeout_ms } => {
            Outcome::of(set_timeout(fd(on), SO_SNDTIMEO, i64::from(timeout_ms)))
        }
        Call::Names { fd: on } => {
            let (own, peer) = (getsockname(fd(on)), getpeername(fd(on)));
            Outcome::text(format!("{} {}", host(own), host(peer)))
        }
        Call::NamesShort { fd: on, room } => {
            let own = getsockname_with_room(fd(on), room);
            let peer = getpeername_with_room(fd(on), room);
            Outcome::text(format!("{} {}", name(own), name(peer)))
        }
        Call::Stat { fd: on } => Outcome::of(file_type(fd(on)).map(|kind| format!("{kind:o}"))),
        Call::Seek { fd: on } => Outcome::of(seek(fd(on))),
        _ => return None,
    })
}

fn name(named: Result<Named, Errno>) -> String {
    shown(&named.map(|named| {
        let family = named.family.map_or("-".into(), |family| family.to_string());
        let end = if named.is_kept { "kept" } else { "overrun" };
        format!("{}:{family}:{end}", named.length)
    }))
}

/// Ports and numbers in names are chosen; that there is one can be told.
fn host(name: Result<Name, Errno>) -> String {
    if let Some(name) = name.as_ref().ok().and_then(Name::unix_name) {
        return if name.is_empty() { "nameless" } else { "named" }.into();
    }
    let address = name.map(|name| name.address());
    shown(&address.map(|address| {
        address.map_or("no-address".into(), |address| {
            let port = if address.port() == 0 { "0" } else { "port" };
            format!("{}:{port}", address.ip())
        })
    }))
}
