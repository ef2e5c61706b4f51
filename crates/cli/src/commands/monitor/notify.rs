//! Telling a service manager that programs can connect: the protocol of sd_notify(3).

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable that names the service manager's socket.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// Say that the service is ready, if somebody wants to know.
pub fn ready() -> io::Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(name) if !name.is_empty() => say_ready(&name),
        _ => Ok(()),
    }
}

fn say_ready(name: &OsStr) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        // There are others, for virtual machines.
        _ => return Err(ErrorKind::Unsupported.into()),
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address)?;
    Ok(())
}
