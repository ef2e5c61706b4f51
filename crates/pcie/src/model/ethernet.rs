//! Ethernet beside PCIe: what a line rate asks for.

use serde::Serialize;

/// Preamble and start of frame.
pub const PREAMBLE_BYTES: u32 = 8;
/// Gap between frames.
pub const GAP_BYTES: u32 = 12;
/// Frame check sequence.
pub const CRC_BYTES: u32 = 4;
/// Smallest frame, header and CRC included, tagged or not.
pub const MIN_FRAME_BYTES: u32 = 64;

/// An Ethernet port.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ethernet {
    /// Line rate, Gb/s.
    pub line_gbps: f64,
}

impl Ethernet {
    /// Frames per second of this size, header and CRC included; short frames are padded.
    #[must_use]
    pub fn frames_per_s(self, frame_bytes: u32) -> f64 {
        let wire = frame_bytes.max(MIN_FRAME_BYTES) + PREAMBLE_BYTES + GAP_BYTES;
        self.line_gbps * 1e9 / f64::from(wire * 8)
    }

    /// Frame bits per second, padding, preamble and gap not counted, Gb/s.
    #[must_use]
    pub fn gbps(self, frame_bytes: u32) -> f64 {
        self.frames_per_s(frame_bytes) * f64::from(frame_bytes) * 8.0 / 1e9
    }

    /// Time from one frame to the next.
    #[must_use]
    pub fn frame_interval_ns(self, frame_bytes: u32) -> f64 {
        1e9 / self.frames_per_s(frame_bytes)
    }

    /// The frame of a payload: 14 bytes of header, 18 with a VLAN tag, and the CRC.
    #[must_use]
    pub fn frame_of_payload(payload_bytes: u32, vlan: bool) -> u32 {
        let header = if vlan { 18 } else { 14 };
        (payload_bytes + header + CRC_BYTES).max(MIN_FRAME_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_gigabit_numbers() {
        let port = Ethernet { line_gbps: 40.0 };
        assert!((port.gbps(64) - 30.476).abs() < 5e-4);
        assert!((port.gbps(1500) - 39.474).abs() < 5e-4);
        // The slides round this to "a new packet every 30 ns".
        assert!((port.frame_interval_ns(128) - 29.6).abs() < 1e-9);
        assert_eq!(Ethernet::frame_of_payload(46, false), 64);
        assert_eq!(Ethernet::frame_of_payload(42, true), 64);
    }
}
