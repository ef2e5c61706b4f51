//! What an administrator can set.

use std::path::PathBuf;
use std::time::Duration;

use crosslane_ctl::lane::Geometry;

use crate::rack::config::RackConfig;

/// How a monitor is to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the socket and the lock are.
    pub directory: PathBuf,
    /// Whom it serves.
    pub service: Service,
    /// How arenas are cut.
    pub geometry: Geometry,
    /// No rings are granted while the machine has less memory than this.
    pub memory_floor_bytes: u64,
    /// Limits that keep one client from harming others.
    pub quotas: Quotas,
    /// The other hosts of its rack, if it is in one.
    pub rack: Option<RackConfig>,
}

/// Whom a monitor serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Every user if it runs as root, else its own; runs until it is stopped.
    System,
    /// What its own user runs, if that is root also after it has become another user (see
    /// [`crate::secret`]); ends when the last program that used it has been gone for this long.
    Private {
        /// How long it stays without programs.
        linger: Duration,
    },
}

/// Most of everything that a client can make the monitor keep.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// Control connections of one user.
    pub connections_per_user: usize,
    /// Registered ends of one process.
    pub ends_per_process: usize,
    /// Registered ends of one user.
    pub ends_per_user: usize,
    /// Arenas that one process may map.
    pub arenas_per_process: usize,
    /// Leases of one process.
    pub leases_per_process: usize,
    /// Leases of one user.
    pub leases_per_user: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            connections_per_user: 8192,
            ends_per_process: 65_536,
            ends_per_user: 1 << 18,
            arenas_per_process: 8192,
            leases_per_process: 1024,
            leases_per_user: 16_384,
        }
    }
}

/// No rings are granted while the machine has less memory than this, unless configured.
pub const DEFAULT_MEMORY_FLOOR_BYTES: u64 = 64 << 20;

/// How long a private monitor stays without programs, unless configured.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(60);
