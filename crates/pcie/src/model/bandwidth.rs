//! Bandwidth of writes, reads and both at once.

use serde::Serialize;

use super::ack;
use super::config::LinkConfig;
use super::tlp::{FLIT_BYTES, FLIT_TLP_BYTES, TlpKind, overhead_bytes};

/// One skip ordered set of four symbols per lane in every 1538 symbols: the longest legal interval.
const SKIP_SHARE: f64 = 4.0 / 1538.0;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// The device writes host memory.
    Write,
    /// The device reads host memory.
    Read,
    /// As much of either.
    ReadWrite,
}

/// Wire bytes that one transfer puts on each direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DirectionBytes {
    /// From the device to the host.
    pub up: f64,
    /// From the host to the device.
    pub down: f64,
}

impl std::ops::Add for DirectionBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            up: self.up + other.up,
            down: self.down + other.down,
        }
    }
}

impl std::ops::AddAssign for DirectionBytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::Mul<f64> for DirectionBytes {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            up: self.up * factor,
            down: self.down * factor,
        }
    }
}

impl DirectionBytes {
    /// The fuller direction, which limits.
    #[must_use]
    pub fn tighter(self) -> f64 {
        self.up.max(self.down)
    }
}

/// The link's bit rate after line coding: what the slides call the physical layer, in one direction.
#[must_use]
pub fn raw_gbps(link: &LinkConfig) -> f64 {
    let spec = link.spec();
    spec.generation.coding() * spec.generation.gigatransfers_per_s() * f64::from(spec.lanes)
}

/// Shares of the raw rate that are not for TLPs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkShares {
    /// Acknowledgements.
    pub ack: f64,
    /// Flow-control updates.
    pub flow_control: f64,
    /// Skip ordered sets.
    pub skip: f64,
    /// A flit's CRC, error correction and data link bytes.
    pub flit: f64,
}

/// What acknowledgements, credits, clock compensation and flits take from the raw rate.
///
/// Flits carry acknowledgements and credits in bytes of their own, so that those cost TLPs nothing
/// more. The interval of skip sets in flit mode is taken as before; either way it is 0.3 %.
#[must_use]
pub fn shares(link: &LinkConfig) -> LinkShares {
    let spec = link.spec();
    if spec.generation.is_flit() {
        let flit = 1.0 - f64::from(FLIT_TLP_BYTES) / f64::from(FLIT_BYTES);
        return LinkShares {
            ack: 0.0,
            flow_control: 0.0,
            skip: SKIP_SHARE,
            flit,
        };
    }
    let limit = f64::from(ack::limit_bytes(
        spec.generation,
        spec.lanes,
        spec.mps_bytes,
    ));
    let dllp = f64::from(ack::DLLP_BYTES) / limit;
    LinkShares {
        ack: dllp,
        flow_control: dllp,
        skip: SKIP_SHARE,
        flit: 0.0,
    }
}

/// The rate at which the bytes of one TLP follow one another: the raw rate, less what flits have besides.
#[must_use]
pub fn packet_gbps(link: &LinkConfig) -> f64 {
    raw_gbps(link) * (1.0 - shares(link).flit)
}

/// The rate left for TLPs, in one direction.
#[must_use]
pub fn tlp_gbps(link: &LinkConfig) -> f64 {
    let lost = shares(link);
    raw_gbps(link) * (1.0 - (lost.ack + lost.flow_control + lost.skip + lost.flit))
}

fn tlps(bytes: u32, most: u32) -> f64 {
    f64::from(bytes.div_ceil(most))
}

/// Wire bytes of a DMA write.
#[must_use]
pub fn write_bytes(link: &LinkConfig, bytes: u32) -> DirectionBytes {
    let headers =
        tlps(bytes, link.spec().mps_bytes) * f64::from(overhead_bytes(link, TlpKind::MemoryWrite));
    DirectionBytes {
        up: headers + f64::from(bytes),
        down: 0.0,
    }
}

/// Wire bytes of a DMA read: requests up, completions down.
#[must_use]
pub fn read_bytes(link: &LinkConfig, bytes: u32) -> DirectionBytes {
    let requests =
        tlps(bytes, link.spec().mrrs_bytes) * f64::from(overhead_bytes(link, TlpKind::MemoryRead));
    let headers =
        tlps(bytes, link.completion_bytes()) * f64::from(overhead_bytes(link, TlpKind::Completion));
    DirectionBytes {
        up: requests,
        down: headers + f64::from(bytes),
    }
}

/// Wire bytes of one transfer of the given kind; [`Mix::ReadWrite`] is one of each.
#[must_use]
pub fn transfer_bytes(link: &LinkConfig, mix: Mix, bytes: u32) -> DirectionBytes {
    match mix {
        Mix::Write => write_bytes(link, bytes),
        Mix::Read => read_bytes(link, bytes),
        Mix::ReadWrite => write_bytes(link, bytes) + read_bytes(link, bytes),
    }
}

/// Bandwidth in payload and in transfers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Payload, Gb/s; for [`Mix::ReadWrite`] of each direction.
    pub gbps: f64,
    /// Transfers per second.
    pub per_s: f64,
}

/// The most payload that transfers of this size can move.
#[must_use]
pub fn rate(link: &LinkConfig, mix: Mix, bytes: u32) -> Rate {
    let wire = transfer_bytes(link, mix, bytes).tighter();
    let gbps = tlp_gbps(link) * f64::from(bytes) / wire;
    Rate {
        gbps,
        per_s: per_second(gbps, bytes),
    }
}

/// Transfers per second of a payload rate.
#[must_use]
pub fn per_second(gbps: f64, bytes: u32) -> f64 {
    gbps * 1e9 / (8.0 * f64::from(bytes))
}
