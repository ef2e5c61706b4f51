//! This machine's PCI devices, from sysfs: what their links are and what the model says they carry.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::model::bandwidth::{rate, tlp_gbps};
use crate::model::{Generation, LinkConfig, LinkSpec, Mix};

/// Where Linux shows PCI devices.
pub const SYSFS: &str = "/sys/bus/pci/devices";

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PciDevice {
    /// Domain, bus, device, function.
    pub address: String,
    /// Vendor and device numbers.
    pub id: String,
    /// What kind it is, by its class code.
    pub class: &'static str,
    /// Generation of the link as it runs now, if it is a PCI Express link.
    pub generation: Option<u32>,
    /// Lanes in use.
    pub lanes: Option<u32>,
    /// What the device could do, where that is more.
    pub best: Option<String>,
    /// Maximum payload size; reading it takes root.
    pub mps_bytes: Option<u32>,
    /// Maximum read request size; as `mps_bytes`.
    pub mrrs_bytes: Option<u32>,
    /// NUMA node, if the kernel knows.
    pub numa_node: Option<u32>,
    /// TLP rate each way; with the usual 256 and 512 B where the sizes are not readable.
    pub tlp_gbps: Option<f64>,
    /// Payload of 64 B writes, and of reads of 512 B.
    pub write_64_gbps: Option<f64>,
    /// As `write_64_gbps`.
    pub read_512_gbps: Option<f64>,
}

/// All devices under a folder such as [`SYSFS`], by address.
///
/// # Errors
/// If the folder cannot be listed.
pub fn list(folder: &Path) -> std::io::Result<Vec<PciDevice>> {
    let mut devices: Vec<PciDevice> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| device(&entry.path()))
        .collect();
    devices.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(devices)
}

fn device(path: &Path) -> PciDevice {
    let text = |name: &str| {
        fs::read_to_string(path.join(name))
            .map(|s| s.trim().to_owned())
            .unwrap_or_default()
    };
    let id = |name: &str| text(name).trim_start_matches("0x").to_owned();
    let number = |name: &str| {
        text(name)
            .parse::<u32>()
            .ok()
            .filter(|n| (1..=32).contains(n))
    };
    let generation = generation(&text("current_link_speed"));
    let lanes = number("current_link_width");
    let now = (generation, lanes);
    let most = (
        self::generation(&text("max_link_speed")),
        number("max_link_width"),
    );
    let best = match most {
        (Some(best), Some(width)) if most != now => Some(format!("gen{best} x{width}")),
        _ => None,
    };
    let (mps_bytes, mrrs_bytes) = fs::read(path.join("config"))
        .ok()
        .and_then(|c| sizes(&c))
        .unzip();
    let link = generation
        .zip(lanes)
        .and_then(|(g, l)| link(g, l, mps_bytes, mrrs_bytes));
    PciDevice {
        address: path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default(),
        id: format!("{}:{}", id("vendor"), id("device")),
        class: class(&text("class")),
        generation,
        lanes,
        best,
        mps_bytes,
        mrrs_bytes,
        numa_node: text("numa_node").parse().ok(),
        tlp_gbps: link.map(|l| tlp_gbps(&l)),
        write_64_gbps: link.map(|l| rate(&l, Mix::Write, 64).gbps),
        read_512_gbps: link.map(|l| rate(&l, Mix::Read, 512).gbps),
    }
}

fn generation(speed: &str) -> Option<u32> {
    let gigatransfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let same = |g: &Generation| (g.gigatransfers_per_s() - gigatransfers).abs() < 0.01;
    Generation::ALL
        .into_iter()
        .find(same)
        .map(Generation::number)
}

/// A device may run with a read request size below its payload size; the model then takes the latter
/// for both, because no completion is larger than its request either way.
fn link(generation: u32, lanes: u32, mps: Option<u32>, mrrs: Option<u32>) -> Option<LinkConfig> {
    let mps_bytes = mps.unwrap_or(256);
    let spec = LinkSpec {
        generation: Generation::from_number(generation).ok()?,
        lanes,
        mps_bytes,
        mrrs_bytes: mrrs.unwrap_or(512).max(mps_bytes),
        ..LinkSpec::default()
    };
    LinkConfig::new(spec).ok()
}

const STATUS_HAS_CAPABILITIES: usize = 0x06;
const CAPABILITIES: usize = 0x34;
const PCI_EXPRESS: u8 = 0x10;
const DEVICE_CONTROL: usize = 8;

/// Payload and read request size out of configuration space, which without root is 64 bytes and so
/// ends before the capability (PCIe Base Specification 7.5.3.4).
fn sizes(config: &[u8]) -> Option<(u32, u32)> {
    if config.get(STATUS_HAS_CAPABILITIES)? & 0x10 == 0 {
        return None;
    }
    let mut at = usize::from(config.get(CAPABILITIES)? & 0xfc);
    // A malformed list could be a circle; there is room for 48 capabilities.
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        if *config.get(at)? == PCI_EXPRESS {
            let low = u32::from(*config.get(at + DEVICE_CONTROL)?);
            let high = u32::from(*config.get(at + DEVICE_CONTROL + 1)?);
            return Some((128 << (low >> 5 & 7), 128 << (high >> 4 & 7)));
        }
        at = usize::from(config.get(at + 1)? & 0xfc);
    }
    None
}

fn class(code: &str) -> &'static str {
    match code.get(2..4) {
        Some("01") => "storage",
        Some("02") => "network",
        Some("03") => "display",
        Some("04") => "multimedia",
        Some("05") => "memory",
        Some("06") => "bridge",
        Some("07") => "communication",
        Some("08") => "system",
        Some("0c") => "serial bus",
        Some("12") => "accelerator",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(name: &str, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().join(format!("crosslane-pci-{name}-{}", std::process::id()));
        let device = root.join("0000:3b:00.0");
        fs::create_dir_all(&device).unwrap();
        for (file, content) in files {
            fs::write(device.join(file), content).unwrap();
        }
        root
    }

    #[test]
    fn a_nic_on_a_narrowed_link() {
        let mut config = vec![0_u8; 256];
        config[STATUS_HAS_CAPABILITIES] = 0x10;
        (config[CAPABILITIES], config[0x40], config[0x41]) = (0x40, 0x05, 0x60);
        (config[0x60], config[0x68], config[0x69]) = (PCI_EXPRESS, 1 << 5, 2 << 4);
        let root = fake(
            "nic",
            &[
                ("vendor", b"0x15b3\n"),
                ("device", b"0x1017\n"),
                ("class", b"0x020000\n"),
                ("current_link_speed", b"8.0 GT/s PCIe\n"),
                ("current_link_width", b"8\n"),
                ("max_link_speed", b"16.0 GT/s PCIe\n"),
                ("max_link_width", b"16\n"),
                ("numa_node", b"-1\n"),
                ("config", &config),
            ],
        );
        let found = list(&root).unwrap().remove(0);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            (found.generation, found.lanes, found.class),
            (Some(3), Some(8), "network")
        );
        assert_eq!((found.mps_bytes, found.mrrs_bytes), (Some(256), Some(512)));
        assert_eq!(
            (found.best.as_deref(), found.numa_node),
            (Some("gen4 x16"), None)
        );
        assert!((found.tlp_gbps.unwrap() - 57.8848).abs() < 1e-4);
    }

    #[test]
    fn a_device_without_a_link_and_a_capability_list_in_a_circle() {
        let mut config = vec![0_u8; 256];
        config[STATUS_HAS_CAPABILITIES] = 0x10;
        (config[CAPABILITIES], config[0x40], config[0x41]) = (0x40, 0x05, 0x40);
        let root = fake(
            "virtio",
            &[
                ("vendor", b"0x1af4\n"),
                ("class", b"0x020000\n"),
                ("config", &config),
            ],
        );
        let found = list(&root).unwrap().remove(0);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            (found.generation, found.mps_bytes, found.tlp_gbps),
            (None, None, None)
        );
        assert!(list(Path::new("/nonexistent")).is_err());
    }
}
