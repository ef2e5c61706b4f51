//! Where a server listens: `tcp:IP:PORT`, or `unix:PATH` or `unix:@NAME` (the abstract namespace,
//! which leaves no file behind). To a server behind `pipe:` nobody listens: its client starts it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// An address of either family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A stream socket in the file system, or with a leading `@` in the abstract namespace.
    Unix(String),
    /// A process that the client starts, with a pipe to it and one from it.
    Pipe,
}

/// A text that is no address.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no address; write tcp:127.0.0.1:4000, tcp:[::1]:4000, unix:/path, unix:@name or pipe:"
)]
pub struct NotAnAddress(String);

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let bad = || NotAnAddress(text.to_owned());
        match text.split_once(':') {
            Some(("tcp", address)) => address.parse().map(Self::Tcp).map_err(|_| bad()),
            Some(("pipe", "")) => Ok(Self::Pipe),
            Some(("unix", name)) if !name.is_empty() => Ok(Self::Unix(name.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(name) => write!(f, "unix:{name}"),
            Self::Pipe => f.write_str("pipe:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in [
            "tcp:127.0.0.1:4000",
            "tcp:[::1]:1",
            "unix:/run/x",
            "unix:@name",
            "pipe:",
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_remedy() {
        for text in [
            "",
            "tcp:",
            "tcp:localhost:1",
            "udp:127.0.0.1:1",
            "unix:",
            "127.0.0.1:1",
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("write tcp:"), "{error}");
        }
    }
}
