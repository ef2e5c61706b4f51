//! The one line that a client prints.

use serde::{Deserialize, Serialize};

/// What a case measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "case", rename_all = "lowercase")]
pub enum Outcome {
    /// Blocking round trips of one message each way.
    Rtt {
        /// The message size.
        bytes: u64,
        /// How many round trips were counted.
        trips: u64,
        /// The median.
        p50_ns: u64,
        /// The 99th percentile.
        p99_ns: u64,
        /// The 99.9th percentile.
        p999_ns: u64,
    },
    /// One-way messages, one `send` and one `recv` call or more each.
    Stream {
        /// The message size.
        bytes: u64,
        /// How many messages the receiver counted.
        messages: u64,
        /// Payload gigabits per second at the receiver.
        gbps: f64,
        /// Messages per second at the receiver.
        msgs_per_s: f64,
    },
    /// Connections opened, used for one request and its reply, and closed, one after the other.
    Connect {
        /// How many connections were counted.
        connections: u64,
        /// Connections per second.
        per_s: f64,
    },
}

/// An outcome and the names of the connection it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The client's address, where it has one and used one connection only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// The server's address, likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
}

/// What a server prints when it can be connected to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Where, in the form of [`crate::address::Address`].
    pub listening: String,
}
