//! What the program is run over.

use std::fmt;

use crosslane_sockbench::client;

use super::case::Case;

/// A transport, or what bounds them all; in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP over the loopback device, or between two hosts
    Tcp,
    /// AF_UNIX stream sockets, on one host
    Unix,
    /// TCP under `crosslane run`
    Crosslane,
    /// The lanes in a window without sockets above them, between two hosts
    Lane,
    /// The window alone, between two hosts: payload, fence, number, fence
    Window,
    /// A bare cache-line ping-pong between two CPUs, on one host
    Limit,
}

/// The limit is one cache line, so it is shown beside the messages of that size.
const LIMIT_BYTES: u64 = 64;

impl Transport {
    /// Those on one host.
    pub const ON_ONE_HOST: [Self; 4] = [Self::Tcp, Self::Unix, Self::Crosslane, Self::Limit];

    /// Those between two.
    pub const BETWEEN_HOSTS: [Self; 4] = [Self::Tcp, Self::Crosslane, Self::Lane, Self::Window];

    /// Whether the case exists over it.
    pub fn has(self, case: Case) -> bool {
        let is_rtt = case.kind == client::Case::Rtt;
        match self {
            Self::Tcp | Self::Unix | Self::Crosslane => true,
            Self::Lane | Self::Window => is_rtt,
            Self::Limit => is_rtt && case.bytes == LIMIT_BYTES,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Crosslane => "crosslane",
            Self::Lane => "lane",
            Self::Window => "window",
            Self::Limit => "limit",
        })
    }
}
