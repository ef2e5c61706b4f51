//! The device's side: a DMA engine as numbers.

use serde::{Deserialize, Serialize};

use super::machines::DEVICES;
use super::number::{self, Field, Legal, real, whole};
use super::{ProfileError, error};

/// A device: its DMA engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Resolution of its clock; measured times are multiples.
    pub tick_ns: f64,
    /// Command to first request on the wire; overlaps with other commands.
    pub issue_ns: f64,
    /// Last data to notice; overlaps.
    pub retire_ns: f64,
    /// DMA reads under way at once.
    pub contexts: usize,
    /// Time that one context takes to move a byte in.
    pub read_ns_per_byte: f64,
    /// Time that moving a byte out takes before its packet can leave.
    pub write_ns_per_byte: f64,
    /// Write-then-read: from the command to the write's data, besides moving it.
    pub write_to_read_ns: f64,
    /// Part of `write_to_read_ns` that passes between the write leaving and the read leaving.
    pub read_after_write_ns: f64,
    /// Least time between DMA writes.
    pub write_gap_ns: f64,
    /// Least time between the packets of one DMA write.
    pub packet_gap_ns: f64,
    /// Idle time after each DMA write.
    pub write_bubble_ns: f64,
    /// Whether a write's tail goes out as packets of 128 and 64 bytes.
    pub power_of_two_tail: bool,
    /// Reads that are no multiple of 16 bytes take the device's memory for this long.
    pub partial_ns: f64,
    /// Time that a read request takes from the port that writes leave by.
    pub request_gap_ns: f64,
    /// Time that a byte read and a byte written take together on the device's own bus.
    pub shared_ns_per_byte: f64,
    /// The same beyond the first kibibyte of a DMA, which is spread over a second bus.
    pub shared_beyond_ns_per_byte: f64,
}

const KIND: &str = "device";

impl Device {
    /// The ready device of this name, or the profile in the file of this name.
    ///
    /// # Errors
    /// [`ProfileError`] if there is neither, or the file is not a profile.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        let mut ready = DEVICES.iter();
        if let Some((_, make)) = ready.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Ok(make());
        }
        let known: Vec<&str> = DEVICES.iter().map(|(name, _)| *name).collect();
        let mut device: Self = error::read(KIND, name, &known.join(", "), FIELDS)?;
        device.check_in(&|| name.to_owned())?;
        let ready = DEVICES.iter().find(|(known, _)| *known == device.name);
        if ready.is_some_and(|(_, make)| make() != device) {
            device.name = error::stem(name);
        }
        Ok(device)
    }

    /// Checks that every number can be simulated.
    ///
    /// # Errors
    /// The first field found outside its range.
    pub fn check(&self) -> Result<(), ProfileError> {
        let place = || format!("{KIND} profile {}", self.name);
        self.check_in(&place)
    }

    fn check_in(&self, place: &dyn Fn() -> String) -> Result<(), ProfileError> {
        number::check(self, place, FIELDS)?;
        let (part, whole) = (self.read_after_write_ns, self.write_to_read_ns);
        if part > whole {
            let legal = format!("0 to write_to_read_ns, {whole}");
            return Err(error::wrong(place, "read_after_write_ns", part, legal));
        }
        Ok(())
    }
}

const TIME: Legal = Legal::Real(0.0, 1e6, "ns");

/// What each of its numbers may be.
const FIELDS: &[Field<Device>] = &[
    (
        "contexts",
        |d| whole(d.contexts),
        Legal::Whole(1, MAX_CONTEXTS as u64),
    ),
    (
        "tick_ns",
        |d| real(d.tick_ns),
        Legal::Real(0.001, 1e6, "ns"),
    ),
    ("issue_ns", |d| real(d.issue_ns), TIME),
    ("retire_ns", |d| real(d.retire_ns), TIME),
    ("read_ns_per_byte", |d| real(d.read_ns_per_byte), TIME),
    ("write_ns_per_byte", |d| real(d.write_ns_per_byte), TIME),
    ("write_to_read_ns", |d| real(d.write_to_read_ns), TIME),
    ("read_after_write_ns", |d| real(d.read_after_write_ns), TIME),
    ("write_gap_ns", |d| real(d.write_gap_ns), TIME),
    ("packet_gap_ns", |d| real(d.packet_gap_ns), TIME),
    ("write_bubble_ns", |d| real(d.write_bubble_ns), TIME),
    ("partial_ns", |d| real(d.partial_ns), TIME),
    ("request_gap_ns", |d| real(d.request_gap_ns), TIME),
    ("shared_ns_per_byte", |d| real(d.shared_ns_per_byte), TIME),
    (
        "shared_beyond_ns_per_byte",
        |d| real(d.shared_beyond_ns_per_byte),
        TIME,
    ),
];

/// The most DMA reads under way at once: more than any tag field holds.
pub const MAX_CONTEXTS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_devices_are_legal_and_survive_json() {
        for (name, make) in DEVICES {
            let device = make();
            assert_eq!(device.name, *name);
            device.check().unwrap();
            let text = serde_json::to_string(&device).unwrap();
            assert_eq!(serde_json::from_str::<Device>(&text).unwrap(), device);
        }
    }

    #[test]
    fn fields_outside_their_range_are_named() {
        let refused = |change: fn(&mut Device)| {
            let mut device = Device::load("nfp-6000").unwrap();
            change(&mut device);
            device.check().unwrap_err().to_string()
        };
        assert!(refused(|d| d.contexts = 0).contains("device profile nfp-6000: contexts is 0"));
        assert!(refused(|d| d.write_gap_ns = f64::NAN).contains("write_gap_ns is NaN"));
        assert!(refused(|d| d.read_after_write_ns = 300.0).contains("0 to write_to_read_ns"));
        let unknown = Device::load("cx-7").unwrap_err().to_string();
        assert!(unknown.contains("known are nfp-6000, ideal"), "{unknown}");
    }
}
