//! PCI devices whose memory is a window: inter-VM memory, and non-transparent bridges.

use std::io;
use std::path::{Path, PathBuf};

use super::{link_name, text};

/// What a device is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// QEMU's inter-VM memory, without interrupts.
    IvshmemPlain,
    /// The same with doorbells: a region of registers, and interrupts by MSI-X.
    IvshmemDoorbell,
    /// A non-transparent bridge of this family.
    Ntb(&'static str),
    /// Something else.
    Other,
}

impl Role {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IvshmemPlain => "ivshmem-plain",
            Self::IvshmemDoorbell => "ivshmem-doorbell",
            Self::Ntb(family) => family,
            Self::Other => "PCI device",
        }
    }

    /// Whether the kernel's shared memory lies in a region of the device.
    pub const fn is_ivshmem(self) -> bool {
        matches!(self, Self::IvshmemPlain | Self::IvshmemDoorbell)
    }
}

/// A memory region of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Which.
    pub index: u32,
    /// Where it begins on the machine's bus.
    pub start: u64,
    /// How large.
    pub bytes: u64,
    /// Whether reads have no side effects, so that writes may be combined.
    pub is_prefetchable: bool,
    /// Whether the kernel offers a write-combining file for it.
    pub can_combine: bool,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Domain, bus, device, function.
    pub address: String,
    /// Its folder in sysfs.
    pub folder: PathBuf,
    /// Vendor and device numbers.
    pub id: (u16, u16),
    /// Which step of it, if the kernel says.
    pub revision: Option<u8>,
    /// What it is to us.
    pub role: Role,
    /// Its memory regions.
    pub bars: Vec<Bar>,
    /// Whether it answers at its addresses.
    pub is_enabled: bool,
    /// The driver that has it.
    pub driver: Option<String>,
    /// Its group, where an IOMMU is switched on.
    pub iommu_group: Option<u32>,
    /// Whether that group only pretends to have one.
    pub has_no_iommu: bool,
    /// NUMA node, if the kernel knows.
    pub numa_node: Option<u32>,
}

impl PciDevice {
    /// The region that is a window: of ivshmem the third, of others the largest.
    pub fn window_bar(&self) -> Option<u32> {
        if self.role.is_ivshmem() {
            return self
                .bars
                .iter()
                .find(|bar| bar.index == 2)
                .map(|bar| bar.index);
        }
        self.bars
            .iter()
            .max_by_key(|bar| bar.bytes)
            .map(|bar| bar.index)
    }
}

/// All devices of a folder such as `/sys/bus/pci/devices`, by address; those that vanish meanwhile are left out.
///
/// # Errors
/// If the folder cannot be listed.
pub fn devices(folder: &Path) -> io::Result<Vec<PciDevice>> {
    let entries = std::fs::read_dir(folder)?.flatten();
    let mut devices: Vec<_> = entries
        .filter_map(|entry| device(&entry.path()).ok())
        .collect();
    devices.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(devices)
}

/// The device of a folder.
///
/// # Errors
/// If the folder is none of a device.
pub fn device(folder: &Path) -> io::Result<PciDevice> {
    let number = |name: &str| hex(&std::fs::read_to_string(folder.join(name))?);
    let short = |value: u64| u16::try_from(value).map_err(|_| io::ErrorKind::InvalidData.into());
    let id: (u16, u16) = (
        number("vendor").and_then(short)?,
        number("device").and_then(short)?,
    );
    let class = number("class").unwrap_or(0);
    let bars = bars(folder, &std::fs::read_to_string(folder.join("resource"))?);
    let name = folder.file_name().and_then(|name| name.to_str());
    let numa = text(&folder.join("numa_node"));
    Ok(PciDevice {
        address: name.unwrap_or_default().to_owned(),
        folder: folder.to_owned(),
        id,
        revision: number("revision")
            .ok()
            .and_then(|step| step.try_into().ok()),
        role: role(id, class, &bars),
        bars,
        is_enabled: text(&folder.join("enable")).is_some_and(|count| count != "0"),
        driver: link_name(&folder.join("driver")),
        iommu_group: link_name(&folder.join("iommu_group")).and_then(|name| name.parse().ok()),
        has_no_iommu: text(&folder.join("iommu_group/name"))
            .is_some_and(|name| name == "vfio-noiommu"),
        // -1 where the kernel does not know.
        numa_node: numa.and_then(|node| node.parse().ok()),
    })
}

/// Whether words are an address such as `0000:00:05.0`.
pub fn is_address(words: &str) -> bool {
    let parts: Vec<&str> = words.split([':', '.']).collect();
    let is_hex = |part: &str| part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let lengths = parts.iter().map(|part| part.len());
    lengths.eq([4, 2, 2, 1]) && parts.iter().all(|part| is_hex(part)) && words.contains('.')
}

fn hex(text: &str) -> io::Result<u64> {
    let digits = text.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The regions that the file `resource` lists, a line each: first and last address, and flags.
fn bars(folder: &Path, listed: &str) -> Vec<Bar> {
    const MEMORY: u64 = 0x200;
    const PREFETCHABLE: u64 = 0x2000;
    let bar = |(index, line): (u32, &str)| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| hex(word).ok())
            .collect();
        let &[first, last, flags] = numbers.as_slice() else {
            return None;
        };
        let bytes = last.checked_sub(first)?.checked_add(1)?;
        (flags & MEMORY != 0 && last > 0).then(|| Bar {
            index,
            start: first,
            bytes,
            is_prefetchable: flags & PREFETCHABLE != 0,
            can_combine: folder.join(format!("resource{index}_wc")).exists(),
        })
    };
    // The first six are the device's regions; then come its ROM and those of bridges.
    (0..6).zip(listed.lines()).filter_map(bar).collect()
}

const RED_HAT: u16 = 0x1af4;
const IVSHMEM: u16 = 0x1110;

/// A bridge that is none of those that the specification names.
const CLASS_OTHER_BRIDGE: u64 = 0x0680;

fn role((vendor, device): (u16, u16), class: u64, bars: &[Bar]) -> Role {
    let is_bridge = class >> 8 == CLASS_OTHER_BRIDGE;
    match (vendor, device) {
        // Region 1 is the table of interrupts, which the plain one does not have.
        (RED_HAT, IVSHMEM) if bars.iter().any(|bar| bar.index == 1) => Role::IvshmemDoorbell,
        (RED_HAT, IVSHMEM) => Role::IvshmemPlain,
        (0x8086, 0x201c) => Role::Ntb("Intel NTB, Skylake"),
        (0x8086, 0x347e) => Role::Ntb("Intel NTB, Ice Lake"),
        (0x8086, 0x3db4) => Role::Ntb("Intel NTB, Sapphire Rapids"),
        (0x8086, 0x3725 | 0x3c0d | 0x0e0d | 0x2f0d | 0x6f0d) => {
            Role::Ntb("Intel NTB, before Skylake")
        }
        (0x1022, 0x145b | 0x148b | 0x14c0 | 0x14c3) => Role::Ntb("AMD NTB"),
        (0x11f8, _) if is_bridge => Role::Ntb("Switchtec NTB"),
        (0x111d, _) if is_bridge => Role::Ntb("IDT NTB"),
        _ => Role::Other,
    }
}
