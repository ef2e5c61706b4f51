//! The device's side: a DMA engine as numbers.

use serde::{Deserialize, Serialize};

use super::machines::DEVICES;
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
        let mut device: Self = error::read(KIND, name, &known.join(", "))?;
        device.check()?;
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
        let range =
            |field, value, good, legal| error::range(KIND, &self.name, (field, value), good, legal);
        let contexts = f64::from(u32::try_from(self.contexts).unwrap_or(u32::MAX));
        let some = (1..=MAX_CONTEXTS).contains(&self.contexts);
        range("contexts", contexts, some, "1 to 65536")?;
        let tick = self.tick_ns;
        range(
            "tick_ns",
            tick,
            (0.001..=1e6).contains(&tick),
            "0.001 to 1e6 ns",
        )?;
        let times = [
            ("issue_ns", self.issue_ns),
            ("retire_ns", self.retire_ns),
            ("read_ns_per_byte", self.read_ns_per_byte),
            ("write_ns_per_byte", self.write_ns_per_byte),
            ("write_to_read_ns", self.write_to_read_ns),
            ("write_gap_ns", self.write_gap_ns),
            ("packet_gap_ns", self.packet_gap_ns),
            ("write_bubble_ns", self.write_bubble_ns),
            ("partial_ns", self.partial_ns),
            ("request_gap_ns", self.request_gap_ns),
            ("shared_ns_per_byte", self.shared_ns_per_byte),
            ("shared_beyond_ns_per_byte", self.shared_beyond_ns_per_byte),
        ];
        for (field, value) in times {
            range(field, value, (0.0..=1e6).contains(&value), "0 to 1e6 ns")?;
        }
        let (part, whole) = (self.read_after_write_ns, self.write_to_read_ns);
        let legal = (0.0..=whole).contains(&part);
        range("read_after_write_ns", part, legal, "0 to write_to_read_ns")
    }
}

/// More than any tag field holds.
const MAX_CONTEXTS: usize = 65_536;

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
        assert!(
            unknown.contains("--device takes nfp-6000, ideal"),
            "{unknown}"
        );
    }
}
