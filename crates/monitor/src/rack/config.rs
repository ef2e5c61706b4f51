//! `rack.toml`: this host, the others, windows to them, and who may use those.

mod allow;
mod file;
mod renew;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::identity::Fingerprint;

pub use allow::{Allow, Subject};
pub use renew::Renewed;

/// Where the system's monitor looks.
pub const SYSTEM_PATH: &str = "/etc/crosslane/rack.toml";

/// The port on which monitors listen for each other, unless configured.
pub const DEFAULT_PORT: u16 = 7411;

/// Connections over windows of one user, unless configured.
pub const DEFAULT_CONNECTIONS_PER_USER: usize = 4096;

/// Most bytes of a host's or window's name.
pub const NAME_BYTES: usize = 63;

/// What `rack.toml` says, checked.
#[derive(Clone, Debug)]
pub struct RackConfig {
    /// This host's name.
    pub name: String,
    /// Where other hosts connect.
    pub listen: SocketAddr,
    /// File with this host's certificate.
    pub certificate: PathBuf,
    /// File with its key.
    pub key: PathBuf,
    /// Connections over windows that one user may have.
    pub connections_per_user: usize,
    /// The others.
    pub hosts: Vec<HostConfig>,
    /// Windows to them.
    pub windows: Vec<WindowConfig>,
    /// Who may use windows; nobody else does.
    pub allow: Vec<Allow>,
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Its name, as it calls itself.
    pub name: String,
    /// Where its monitor listens.
    pub address: SocketAddr,
    /// Where its programs may be: connections with these, and no others, are sought there.
    pub addresses: Vec<IpAddr>,
    /// What it proves itself by.
    pub fingerprint: Fingerprint,
    /// The file that was read last does not name it any more.
    pub is_gone: bool,
}

/// What a window is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// A file in tmpfs or hugetlbfs that both hosts open: two hosts on one machine.
    File,
    /// A region of a PCI device, by its file in sysfs (`resource2`).
    Bar,
    /// Memory that hosts share and keep coherent (CXL): a DAX device, or a file on a file system of such
    /// memory. It is mapped only, as a region is.
    Dax,
    /// A memory at each host, which the other one can only write: a PCIe bridge.
    Posted,
}

/// The other host's memory, of a window that has one at each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeyondConfig {
    /// Its file here: a region of the bridge in sysfs (`resource2_wc`), or a file in tmpfs.
    pub path: PathBuf,
    /// Where in that it begins.
    pub offset: u64,
}

/// A window to another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Its name, the same on both hosts.
    pub name: String,
    /// What it is.
    pub kind: WindowKind,
    /// Its file; of two memories this host's.
    pub path: PathBuf,
    /// Where in the file it begins.
    pub offset: u64,
    /// The other host's memory, if it is not the same.
    pub beyond: Option<BeyondConfig>,
    /// How long it is.
    pub bytes: u64,
    /// Bytes of each ring; the owner's word counts.
    pub ring_bytes: u32,
    /// Connections in one arena, which belongs to one pair of processes; the owner's word counts.
    pub slots: u32,
    /// The host at its other side.
    pub host: String,
    /// The file that was read last does not name it any more.
    pub is_gone: bool,
}

/// What is wrong with `rack.toml`.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}; `crosslane rack init` makes one")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// It is not TOML, or has a key that is not known, or lacks one.
    #[error("{path} line {line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that cannot be.
    #[error("{path} line {line}: {key} = {value:?} {problem}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The value's key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
}

impl RackConfig {
    /// Read and check a file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(path, &text)
    }

    /// Check a text; names of other files in it are relative to `path`'s directory.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        file::parse(path, text)
    }

    /// The place of a host that is named in the file.
    pub fn host_named(&self, name: &str) -> Option<usize> {
        let is_it = |host: &HostConfig| host.name == name && !host.is_gone;
        self.hosts.iter().position(is_it)
    }

    /// Whether a program may use the windows to a host.
    pub fn permits(&self, subject: &Subject<'_>) -> bool {
        self.allow.iter().any(|allow| allow.permits(subject))
    }
}

#[cfg(test)]
mod tests;
