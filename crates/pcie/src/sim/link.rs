//! One direction of one link: serialisation, and the credits that its receiver has given out.

use super::{Ps, ps};
use crate::model::LinkConfig;
use crate::model::bandwidth::{raw_gbps, tlp_gbps};
use crate::profile::{Credits, Link};

/// The rate that a host's link has for packets, and the bytes that the answer to a posted one takes of it. Flits
/// have bytes of their own for acknowledgements; other links send them between packets, as seldom as the host does.
pub(crate) fn left_for_packets(link: &LinkConfig, host: &Link) -> (f64, u32) {
    match link.spec().generation.is_flit() {
        true => (tlp_gbps(link), 0),
        false => (raw_gbps(link) * host.tlp_share, host.write_dllp_bytes),
    }
}

/// Serialises packets one after another.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    femtoseconds_per_byte: u64,
    flight: Ps,
    free_at: Ps,
}

impl Wire {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn new(gbps: f64, flight_ns: f64) -> Self {
        Self {
            femtoseconds_per_byte: (8e6 / gbps) as u64,
            flight: ps(flight_ns),
            free_at: 0,
        }
    }

    /// When this packet starts and when its last byte has arrived at the other end.
    pub(crate) fn send(&mut self, now: Ps, bytes: u32) -> (Ps, Ps) {
        let start = self.free_at.max(now);
        self.free_at = start + self.time(bytes);
        (start, self.free_at + self.flight)
    }

    /// When everything sent so far has left.
    pub(crate) fn free_at(&self) -> Ps {
        self.free_at
    }

    /// Leaves the wire idle for this long after the packets sent so far.
    pub(crate) fn pause(&mut self, gap: Ps) {
        self.free_at += gap;
    }

    /// Takes the wire for this long, as soon as it is free.
    pub(crate) fn occupy(&mut self, now: Ps, time: Ps) {
        self.free_at = self.free_at.max(now) + time;
    }

    pub(crate) fn time(&self, bytes: u32) -> Ps {
        u64::from(bytes) * self.femtoseconds_per_byte / 1000
    }
}

/// What a sender may still send of one class: PCIe Base Specification 2.6.1.
#[derive(Debug, Clone)]
pub(crate) struct CreditGate {
    headers: u32,
    data_units: u32,
}

impl CreditGate {
    pub(crate) fn new(credits: &Credits) -> Self {
        Self {
            headers: credits.headers,
            data_units: credits.data_units,
        }
    }

    pub(crate) fn headers_only(headers: u32) -> Self {
        Self {
            headers,
            data_units: u32::MAX,
        }
    }

    pub(crate) fn take(&mut self, payload_bytes: u32) -> bool {
        let units = payload_bytes.div_ceil(16);
        if self.headers == 0 || self.data_units < units {
            return false;
        }
        self.headers -= 1;
        self.data_units -= units;
        true
    }

    pub(crate) fn give_back(&mut self, payload_bytes: u32) {
        self.headers += 1;
        self.data_units = self.data_units.saturating_add(payload_bytes.div_ceil(16));
    }
}
