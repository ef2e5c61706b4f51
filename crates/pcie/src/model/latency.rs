//! Latency of one transfer on an idle system, as a sum of named terms.
//!
//! It is the median: where a root complex sleeps between transfers, what it takes to wake it in one of two
//! cases. The mean is far above that, and is the simulator's business, as are the other quantiles.
//!
//! The same parameters drive the simulator, which adds what queues: compare the two and the
//! difference is contention.

use serde::Serialize;

use super::bandwidth::packet_gbps;
use super::config::LinkConfig;
use super::tlp::{Tlp, TlpKind};
use crate::profile::{Device, Host};

/// Where the data is and what lies on the way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Path {
    /// Switches between device and root complex, each with its forwarding time.
    pub hops: u32,
    /// Forwarding time of one.
    pub hop_ns: f64,
    /// Length of the wires, one way.
    pub wire_ns: f64,
    /// Share of transfers whose lines are not in the cache.
    pub cold_share: f64,
    /// Share of transfers that need a page walk (0 without an IOMMU).
    pub walk_share: f64,
    /// The memory belongs to another socket.
    pub remote_node: bool,
}

/// One term of the sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Term {
    /// What takes the time.
    pub name: &'static str,
    /// How long.
    pub ns: f64,
}

fn wire_ns(link: &LinkConfig, kind: TlpKind, payload_bytes: u32) -> f64 {
    f64::from(
        Tlp {
            kind,
            payload_bytes,
        }
        .wire_bytes(link),
    ) * 8.0
        / packet_gbps(link)
}

/// Terms of a DMA read of `bytes`, from the device's command to its completion.
#[must_use]
pub fn read_terms(
    link: &LinkConfig,
    device: &Device,
    host: &Host,
    path: &Path,
    bytes: u32,
) -> Vec<Term> {
    let hops = f64::from(path.hops);
    let first = bytes.min(link.completion_bytes().min(host.completion_bytes));
    let request = wire_ns(link, TlpKind::MemoryRead, 0);
    let answer = wire_ns(link, TlpKind::Completion, first);
    vec![
        Term {
            name: "device: command to wire",
            ns: device.issue_ns,
        },
        Term {
            name: "request on the wire",
            ns: request * (1.0 + hops),
        },
        Term {
            name: "propagation and switches",
            ns: 2.0 * (path.wire_ns + hops * path.hop_ns),
        },
        Term {
            name: WAKING,
            ns: host.sleep.as_ref().map_or(0.0, |s| s.median_wake_ns(0.0)),
        },
        Term {
            name: "root complex and cache",
            ns: host.read_ns,
        },
        Term {
            name: "page walk",
            ns: path.walk_share * host.iommu.walk_ns,
        },
        Term {
            name: "memory instead of cache",
            ns: path.cold_share * host.memory_ns(),
        },
        Term {
            name: "remote node",
            ns: if path.remote_node {
                host.remote_node_ns
            } else {
                0.0
            },
        },
        Term {
            name: "first completion on the wire",
            ns: answer * (1.0 + hops),
        },
        Term {
            name: "device: moving the data",
            ns: f64::from(bytes) * device.read_ns_per_byte,
        },
        Term {
            name: "device: wire to notice",
            ns: device.retire_ns,
        },
    ]
}

/// Terms of a DMA write followed by a read of the same bytes, which the write may not be passed by.
#[must_use]
pub fn write_read_terms(
    link: &LinkConfig,
    device: &Device,
    host: &Host,
    path: &Path,
    bytes: u32,
) -> Vec<Term> {
    let spec = link.spec();
    let (full, tail) = (bytes / spec.mps_bytes, bytes % spec.mps_bytes);
    let mut on_wire = f64::from(full) * wire_ns(link, TlpKind::MemoryWrite, spec.mps_bytes);
    if tail > 0 {
        on_wire += wire_ns(link, TlpKind::MemoryWrite, tail);
    }
    let mut terms = vec![
        Term {
            name: "write on the wire",
            ns: on_wire,
        },
        Term {
            name: "device: moving the data out",
            ns: f64::from(bytes) * device.write_ns_per_byte,
        },
        Term {
            name: "device: from write to read",
            ns: device.write_to_read_ns,
        },
    ];
    // The write has put its lines into the cache, so the read finds them warm.
    let path = Path {
        cold_share: 0.0,
        ..*path
    };
    let mut read = read_terms(link, device, host, &path, bytes);
    if let Some(sleep) = &host.sleep {
        // The write's first packet has begun to wake it; the read comes later, may interrupt that, and waits
        // for the lines of the write, which commit then.
        let first = wire_ns(link, TlpKind::MemoryWrite, bytes.min(spec.mps_bytes));
        let request = wire_ns(link, TlpKind::MemoryRead, 0);
        let behind_ns = device.read_after_write_ns + on_wire - first + request;
        let interrupted = sleep.interrupted_share + sleep.interrupted_per_us * behind_ns / 1e3;
        let commit_ns = f64::from(bytes.div_ceil(64)) * host.write_line_ns;
        let awake_ns = sleep.median_wake_ns(interrupted) + commit_ns;
        for term in read.iter_mut().filter(|term| term.name == WAKING) {
            term.ns = (awake_ns - behind_ns).max(0.0);
        }
    }
    terms.extend(read);
    terms
}

const WAKING: &str = "root complex waking up";

/// The sum of terms.
#[must_use]
pub fn total_ns(terms: &[Term]) -> f64 {
    terms.iter().map(|t| t.ns).sum()
}
