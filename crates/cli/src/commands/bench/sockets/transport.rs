//! What the program is run over.

use std::fmt;

use crosslane_sockbench::client;

use super::case::Case;

/// A transport, or what bounds them all; in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP over the loopback device
    Tcp,
    /// AF_UNIX stream sockets
    Unix,
    /// TCP under `crosslane run`
    Crosslane,
    /// A bare cache-line ping-pong between two CPUs
    Limit,
}

/// The limit is one cache line, so it is shown beside the messages of that size.
const LIMIT_BYTES: u64 = 64;

impl Transport {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Unix, Self::Crosslane, Self::Limit];

    /// Whether the case exists over it.
    pub fn has(self, case: Case) -> bool {
        self != Self::Limit
            || case
                == Case {
                    kind: client::Case::Rtt,
                    bytes: LIMIT_BYTES,
                }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Crosslane => "crosslane",
            Self::Limit => "limit",
        })
    }
}
