//! Names of sockets that the monitor does not know, from /proc: descriptor, inode, and the
//! kernel's table of connections in the network namespace of the process.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// A socket's name and its peer's.
pub type Tuple = (SocketAddr, SocketAddr);

/// Connections by inode, read once for each network namespace.
#[derive(Debug, Default)]
pub struct Tuples {
    namespaces: HashMap<PathBuf, HashMap<u64, Tuple>>,
}

impl Tuples {
    /// The names of a process's socket, where we may see them.
    pub fn of(&mut self, pid: u32, fd: i32) -> Option<Tuple> {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let table = self
            .namespaces
            .entry(namespace)
            .or_insert_with(|| read_tables(pid));
        table.get(&inode.parse().ok()?).copied()
    }
}

fn read_tables(pid: u32) -> HashMap<u64, Tuple> {
    ["tcp", "tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(parse).collect::<Vec<_>>())
        .collect()
}

/// Inode and names in a line of /proc/net/tcp.
fn parse(line: &str) -> Option<(u64, Tuple)> {
    let mut words = line.split_whitespace();
    let local = name(words.nth(1)?)?;
    let remote = name(words.next()?)?;
    let inode = words.nth(6)?.parse().ok()?;
    Some((inode, (local, remote)))
}

/// A name as the kernel prints it: 32-bit words of the address in the machine's byte order, in
/// hexadecimal, and the port.
fn name(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len())
        .step_by(8)
        .map(|at| {
            let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
            Some(word.to_ne_bytes())
        })
        .collect();
    let bytes = words?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    fn is_found(listen: &str, connect: &str) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect((connect, port)).unwrap();
        let found = Tuples::default().of(std::process::id(), stream.as_raw_fd());
        let wanted = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn a_socket_of_our_own_is_found() {
        is_found("127.0.0.1:0", "127.0.0.1");
        is_found("[::1]:0", "::1");
    }

    #[test]
    fn what_is_no_socket_has_no_name() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut tuples = Tuples::default();
        assert_eq!(tuples.of(std::process::id(), file.as_raw_fd()), None);
        assert_eq!(tuples.of(std::process::id(), -1), None);
        assert_eq!(parse("nonsense"), None);
        assert_eq!(name("0100007F"), None);
        assert_eq!(name("01000:0050"), None);
    }
}
