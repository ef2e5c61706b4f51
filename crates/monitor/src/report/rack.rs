//! The answer to `crosslane rack status`.

use crosslane_ctl::message::TEXT_BYTES;
use serde::{Deserialize, Serialize};

use super::{OtherHosts, Step};

/// This host and what it knows of its rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackReport {
    /// This host's name.
    pub name: String,
    /// Where other hosts connect.
    pub listen: String,
    /// What they know this host by.
    pub fingerprint: String,
    /// How often `rack.toml` has been read since the monitor started, or tried to be.
    pub reloads: u64,
    /// What was wrong with it the last time, or is not taken over before the next start.
    pub reload_trouble: Option<String>,
    /// The other hosts, in the order of `rack.toml`.
    pub hosts: Vec<HostReport>,
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Where its monitor listens.
    pub address: String,
    /// Whether the two monitors talk.
    pub connected: bool,
    /// For how long they have.
    pub connected_seconds: Option<u64>,
    /// Why they do not.
    pub trouble: Option<String>,
    /// Connections of this host's programs over windows to it.
    pub connections: usize,
    /// Windows to it.
    pub windows: Vec<WindowReport>,
}

/// A window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
    /// `open`, `closed`, `offered` to the other host, or `probing` what is in use.
    pub state: String,
    /// Why it is not open.
    pub trouble: Option<String>,
    /// Arenas that can be dealt out; the window's owner knows.
    pub arenas_free: Option<usize>,
    /// Arenas that pairs of processes share.
    pub arenas_used: Option<usize>,
    /// Arenas that were used and may still be mapped by somebody.
    pub arenas_quarantined: Option<usize>,
}

/// The answer under way.
#[derive(Debug, Default)]
pub struct Telling {
    /// What is left of it, once it has been made.
    left: Option<Vec<u8>>,
}

impl Telling {
    /// Make the next piece; nothing where there is no rack.
    pub fn step(&mut self, rack: Option<&dyn OtherHosts>) -> Step {
        let make = || rack.and_then(|rack| serde_json::to_vec(&rack.report()).ok());
        let left = self.left.get_or_insert_with(|| make().unwrap_or_default());
        if left.is_empty() {
            return Step::Done;
        }
        let rest = left.split_off(left.len().min(TEXT_BYTES));
        Step::Text(std::mem::replace(left, rest))
    }
}
