//! The one line that a client prints.

use serde::{Deserialize, Serialize};

/// The shares of round trips whose times a distribution gives: the time that so many do not exceed.
pub const CDF: [f64; 12] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999,
];

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
        /// The times at [`CDF`].
        cdf_ns: Vec<u64>,
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
    /// Requests at given moments, whether or not earlier ones were answered.
    Load {
        /// The message size.
        bytes: u64,
        /// Requests per second that were due on average.
        per_second: f64,
        /// How many were answered: all of them, however late.
        answers: u64,
        /// How many were due per second, which is chance's.
        due_per_s: f64,
        /// How many were answered per second until the last one was.
        answered_per_s: f64,
        /// The median from when a request was due to when its answer was there; none without
        /// requests.
        p50_ns: Option<u64>,
        /// The 99th percentile.
        p99_ns: Option<u64>,
        /// The 99.9th percentile.
        p999_ns: Option<u64>,
        /// Processor time of the server, in seconds per second.
        server_cpu: f64,
        /// Processor time of the client, which is 1 when it looks at the clock all the time.
        client_cpu: f64,
        /// Whether packets come to the server from a device queue, which alone the kernel can poll.
        has_device_queue: bool,
    },
    /// One file fetched again and again over one connection.
    Fetch {
        /// The file's size.
        bytes: u64,
        /// How often it came.
        fetches: u64,
        /// The median from the request to the last byte.
        p50_ns: u64,
        /// The 99th percentile.
        p99_ns: u64,
        /// Payload gigabits per second while fetching.
        gbps: f64,
        /// Files per second while fetching.
        per_s: f64,
    },
    /// Requests of several clients of a store, one at a time each.
    Store {
        /// How many clients.
        clients: u64,
        /// The size of values.
        bytes: u64,
        /// How many requests were counted.
        requests: u64,
        /// Requests per second of all clients together.
        per_s: f64,
        /// The median from a request to its answer.
        p50_ns: u64,
        /// The 99th percentile.
        p99_ns: u64,
        /// The 99.9th percentile.
        p999_ns: u64,
    },
    /// Round trips on one of many connections.
    Crowd {
        /// The message size.
        bytes: u64,
        /// How many connections there are.
        connections: u64,
        /// How many round trips were counted.
        trips: u64,
        /// The median.
        p50_ns: u64,
        /// The 99th percentile.
        p99_ns: u64,
        /// The 99.9th percentile.
        p999_ns: u64,
        /// Processor time of the server while all connections were idle, in seconds per second.
        idle_server_cpu: f64,
        /// The same of the client.
        idle_client_cpu: f64,
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

/// What a client that can be looked at from outside prints at each stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// How many connections it has.
    pub ready: u64,
    /// The address of this end of the one that is measured.
    #[serde(default)]
    pub local: String,
    /// The other end's address.
    #[serde(default)]
    pub peer: String,
}

/// What the clocks of two CPUs say of each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// How far the other CPU's counter is ahead.
    pub offset_ns: f64,
    /// By how much that may be wrong either way: half of the shortest round trip between the two.
    pub within_ns: f64,
    /// What one look at the counter takes.
    pub look_ns: f64,
    /// How fast it counts.
    pub ticks_per_us: f64,
}

/// What a server prints when it can be connected to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Where, in the form of [`crate::address::Address`].
    pub listening: String,
}
