//! How many requests must be under way at once: Little's law, in whole requests and tags.

use serde::Serialize;

use super::bandwidth::{DirectionBytes, Mix, tlp_gbps, transfer_bytes};
use super::config::LinkConfig;
use super::ethernet::Ethernet;

/// Requests under way at `per_s` when each takes `latency_ns`.
#[must_use]
pub fn in_flight(per_s: f64, latency_ns: f64) -> f64 {
    per_s * latency_ns / 1e9
}

/// The most transfers per second that `contexts` can keep going.
#[must_use]
pub fn sustained_per_s(contexts: u32, latency_ns: f64) -> f64 {
    f64::from(contexts) * 1e9 / latency_ns
}

/// Whole ones: a request that is half under way takes a tag, and a byte its place.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn whole(in_flight: f64) -> u64 {
    // What a product of rates leaves beyond its digits is none more.
    (in_flight * (1.0 - 1e-12)).ceil() as u64
}

/// What a port of this rate asks of a device and its link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Demand {
    /// Frames per second, each way.
    pub frames_per_s: f64,
    /// Time per frame, ns.
    pub interval_ns: f64,
    /// DMA reads under way for the payload alone (transmit).
    pub reads_in_flight: f64,
    /// Read tags for it: a transfer above MRRS takes several.
    pub tags: u64,
    /// Payload bytes that the device must be able to hold for these reads.
    pub read_buffer_bytes: u64,
    /// Link load of payload alone, both ways at line rate, as shares of the TLP rate.
    pub payload_load: DirectionBytes,
}

/// Computes the demand of a full-duplex port that moves `bytes`-byte frames over `link`.
#[must_use]
pub fn demand(link: &LinkConfig, port: Ethernet, bytes: u32, read_latency_ns: f64) -> Demand {
    let frames_per_s = port.frames_per_s(bytes);
    let reads_in_flight = in_flight(frames_per_s, read_latency_ns);
    let requests = f64::from(bytes.div_ceil(link.spec().mrrs_bytes));
    let byte_rate = tlp_gbps(link) * 1e9 / 8.0;
    Demand {
        frames_per_s,
        interval_ns: port.frame_interval_ns(bytes),
        reads_in_flight,
        tags: whole(reads_in_flight * requests),
        read_buffer_bytes: whole(reads_in_flight * f64::from(bytes)),
        payload_load: transfer_bytes(link, Mix::ReadWrite, bytes) * (frames_per_s / byte_rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slides_example_of_thirty_dmas() {
        // 40 Gb/s of 128 B packets is one every 30 ns; PCIe takes about 900 ns: 30 reads at once.
        let link = LinkConfig::default();
        let demand = demand(&link, Ethernet { line_gbps: 40.0 }, 128, 900.0);
        assert!((demand.interval_ns - 29.6).abs() < 1e-9);
        assert!((demand.reads_in_flight - 30.4).abs() < 0.01);
        assert_eq!((demand.tags, demand.read_buffer_bytes), (31, 3892));
        assert!((sustained_per_s(30, 900.0) - 1e9 / 30.0).abs() < 1.0);
    }
}
