//! TCP ports: free ones, and which are listened on.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the kernel's own choice (`ip_local_port_range`), so that no client's port can be in the
/// way of a server that starts a moment later.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that nobody uses, different at each call.
///
/// # Panics
/// When all are taken.
pub fn free_port() -> u16 {
    // Test programs that run side by side begin at different places.
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).expect("it is below COUNT");
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok())
        .expect("one of 12,000 ports is free")
}

/// Whether some socket in the network namespace of process `pid` listens on `port`. Looking at the
/// kernel's table makes no connection that a server would have to serve.
pub fn is_listening(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .any(|table| table.lines().any(|line| listens(line, port)))
}

/// A line is `  sl: LOCAL:PORT REMOTE:PORT STATE ...` in hexadecimal.
fn listens(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|address| address.rsplit_once(':'));
    let is_port = local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port));
    is_port && fields.nth(1) == Some(LISTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_bound() {
        let (a, b) = (free_port(), free_port());
        assert_ne!(a, b);
        assert!(!is_listening(std::process::id(), a));
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, a)).unwrap();
        assert!(is_listening(std::process::id(), a));
    }

    #[test]
    fn a_connection_is_not_a_listener() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_listening(
            std::process::id(),
            client.local_addr().unwrap().port()
        ));
    }
}
