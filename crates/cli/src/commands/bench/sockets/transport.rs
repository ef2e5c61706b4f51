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
    /// The lanes alone, without sockets above them
    Lane,
    /// The window alone, between two hosts: payload, fence, number, fence
    Window,
    /// The least that the machine does, on one host: a bare cache-line ping-pong between two CPUs; for streams,
    /// copies into memory and out again
    Limit,
}

/// The ping-pong is one cache line, so it is shown beside the messages of that size.
const LIMIT_BYTES: u64 = 64;

impl Transport {
    /// Those on one host.
    pub const ON_ONE_HOST: [Self; 5] = [
        Self::Tcp,
        Self::Unix,
        Self::Crosslane,
        Self::Lane,
        Self::Limit,
    ];

    /// Those between two.
    pub const BETWEEN_HOSTS: [Self; 4] = [Self::Tcp, Self::Crosslane, Self::Lane, Self::Window];

    /// Whether the case exists over it.
    pub fn has(self, case: Case) -> bool {
        let is_rtt = case.kind == client::Case::Rtt;
        let is_stream = case.kind == client::Case::Stream;
        match self {
            Self::Tcp | Self::Unix | Self::Crosslane => true,
            Self::Lane => is_rtt || is_stream,
            Self::Window => is_rtt,
            Self::Limit => is_stream || is_rtt && case.bytes == LIMIT_BYTES,
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
