//! Against a kernel that the test plays.

use std::os::unix::fs::FileExt;

use super::device::Region;
use super::*;
use crate::discover::pci::Bar;

mod played;

use played::{BAR_OFFSET, CONFIG_OFFSET, MAY_READ_WRITE};
pub use played::{Played, mappable};

const BAR_BYTES: u64 = 1 << 15;

const COMMAND: u64 = 4;

impl Played {
    pub fn new() -> Self {
        Self::with_region(BAR_BYTES)
    }

    pub fn configure(&self, at: u64, bytes: &[u8]) {
        self.device.write_all_at(bytes, CONFIG_OFFSET + at).unwrap();
    }

    pub fn command(&self) -> u16 {
        let mut command = [0; 2];
        let at = CONFIG_OFFSET + COMMAND;
        self.device.read_exact_at(&mut command, at).unwrap();
        u16::from_le_bytes(command)
    }
}

pub fn device() -> PciDevice {
    PciDevice {
        address: "0000:00:05.0".to_owned(),
        folder: "/nowhere/0000:00:05.0".into(),
        id: (0x1af4, 0x1110),
        revision: Some(1),
        role: Role::IvshmemPlain,
        bars: vec![Bar {
            index: 2,
            start: 0xfe00_0000,
            bytes: BAR_BYTES,
            is_prefetchable: false,
            can_combine: false,
        }],
        is_enabled: false,
        driver: Some("vfio-pci".to_owned()),
        iommu_group: Some(7),
        has_no_iommu: false,
        numa_node: None,
    }
}

#[test]
fn requests_come_in_the_order_that_the_kernel_wants() {
    let kernel = Played::new();
    VfioWindow::open(&kernel, &device(), 2).unwrap();
    let asked = [
        "/dev/vfio/vfio",
        "/dev/vfio/7",
        "version",
        "viable",
        "join 1",
        "0000:00:05.0",
        "region 7",
        "region 2",
    ];
    assert_eq!(*kernel.asked.borrow(), asked);
}

#[test]
fn the_region_of_the_device_is_mapped_and_answers() {
    let kernel = Played::new();
    let window = VfioWindow::open(&kernel, &device(), 2).unwrap();
    // SAFETY: the window outlives its halves.
    let (_, remote) = unsafe { crate::backend::halves(&window, 1) };
    remote.store(8, 0x1234);
    remote.fence();
    let mut found = [0; 8];
    kernel
        .device
        .read_exact_at(&mut found, BAR_OFFSET + 8)
        .unwrap();
    assert_eq!(u64::from_le_bytes(found), 0x1234);
    assert_eq!(kernel.command(), MEMORY_SPACE);
}

#[test]
fn what_is_missing_is_said() {
    let refused = |kernel: Played, device: PciDevice| {
        VfioWindow::open(&kernel, &device, 2)
            .unwrap_err()
            .to_string()
    };
    let unbound = PciDevice {
        driver: None,
        ..device()
    };
    assert!(refused(Played::new(), unbound).contains("driver_override"));
    let alone = PciDevice {
        iommu_group: None,
        ..device()
    };
    assert!(refused(Played::new(), alone).contains("IOMMU"));
    let kernel = Played {
        is_viable: false,
        ..Played::new()
    };
    assert!(refused(kernel, device()).contains("other drivers"));
    let mut kernel = Played::new();
    let unmappable = Region {
        flags: MAY_READ_WRITE,
        ..mappable(BAR_OFFSET, BAR_BYTES)
    };
    kernel.regions.insert(2, unmappable);
    assert!(refused(kernel, device()).contains("no memory region 2"));
}

#[test]
fn without_an_iommu_the_group_has_another_name() {
    let kernel = Played::new();
    let bare = PciDevice {
        has_no_iommu: true,
        ..device()
    };
    VfioWindow::open(&kernel, &bare, 2).unwrap();
    assert_eq!(kernel.asked.borrow()[1], "/dev/vfio/noiommu-7");
    assert!(kernel.asked.borrow().contains(&"join 8".to_owned()));
}
