//! Against a kernel that the test plays: a device whose descriptor is a memory object.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::backend::vfio::device::Region;
use crate::backend::vfio::tests::{Played, device, mappable};
use crate::discover::pci::Role;

const REGISTERS_AT: u64 = 1 << 18;
const APERTURE_AT: u64 = 1 << 19;
const APERTURE_BYTES: u64 = 1 << 16;
const START: u64 = 0x20_0000_0000;

fn bridge(folder: &Path) -> PciDevice {
    let bar = |index, bytes| Bar {
        index,
        start: START,
        bytes,
        is_prefetchable: true,
        can_combine: false,
    };
    PciDevice {
        address: "0000:17:00.0".to_owned(),
        folder: folder.to_owned(),
        id: (gen4::VENDOR, gen4::DEVICE),
        revision: Some(4),
        role: Role::Ntb("Intel NTB, Ice Lake"),
        bars: vec![bar(0, REGISTER_BYTES as u64), bar(2, APERTURE_BYTES)],
        ..device()
    }
}

fn kernel() -> Played {
    let mut kernel = Played::new();
    let registers = mappable(REGISTERS_AT, REGISTER_BYTES as u64);
    kernel.regions.insert(0, registers);
    let aperture = mappable(APERTURE_AT, APERTURE_BYTES);
    kernel.regions.insert(2, aperture);
    kernel.configure(ID_AT, &[0x86, 0x80, 0x7e, 0x34]);
    kernel.configure(REVISION_AT, &[4]);
    kernel
}

#[test]
fn a_bridge_is_taken_apart() {
    let kernel = kernel();
    let parts = parts(&kernel, &bridge(Path::new("/nowhere")), None).unwrap();
    let id = Id {
        vendor: 0x8086,
        device: 0x347e,
        revision: 4,
    };
    assert_eq!(parts.id, id);
    let asked = kernel.asked.borrow();
    let lent = format!("lend {APERTURE_BYTES} at 0x100000000");
    assert!(asked.contains(&lent), "{asked:?}");
    assert!(asked.contains(&"interrupts 33".to_owned()), "{asked:?}");
    assert_eq!(kernel.command(), 2 | 4, "memory space and bus master");

    parts.registers.write(gen4::SCRATCHPAD.nth(3), 0x1234);
    let mut found = [0; 4];
    let at = REGISTERS_AT + 0x8c;
    kernel.device.read_exact_at(&mut found, at).unwrap();
    assert_eq!(u32::from_le_bytes(found), 0x1234);

    let aperture = &parts.aperture;
    assert_eq!((aperture.bar, aperture.start), (2, START));
    assert!(!aperture.is_combined);
    assert_eq!(aperture.mapping.bytes() as u64, APERTURE_BYTES);
    assert_eq!(parts.lent.address % APERTURE_BYTES, 0);
}

#[test]
fn the_region_is_mapped_combining_where_sysfs_does() {
    let folder = tempfile::tempdir().unwrap();
    let combining = folder.path().join("resource2_wc");
    let file = std::fs::File::create(&combining).unwrap();
    file.set_len(APERTURE_BYTES).unwrap();
    let parts = parts(&kernel(), &bridge(folder.path()), Some(2)).unwrap();
    assert!(parts.aperture.is_combined);
}

/// A folder with the region's file, as sysfs has it.
fn with_region(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = std::fs::File::create(folder.path().join(name)).unwrap();
    file.set_len(APERTURE_BYTES).unwrap();
    folder
}

#[test]
fn a_bridge_is_held_with_a_file_and_its_region_is_left_to_others() {
    for name in ["resource2", "resource2_wc"] {
        let folder = with_region(name);
        let memory = folder.path().join("memory");
        let kernel = kernel();
        let (held, way) = held(&kernel, &bridge(folder.path()), None, (&memory, None)).unwrap();
        assert_eq!(way, folder.path().join(name));
        let asked = kernel.asked.borrow();
        let lent = format!("lend {APERTURE_BYTES} at 0x100000000");
        assert!(asked.contains(&lent), "{asked:?}");
        assert!(!asked.contains(&"region 2".to_owned()), "{asked:?}");
        assert_eq!(kernel.command(), 2 | 4, "memory space and bus master");
        let device = &held.device;
        assert_eq!(
            (device.bar, device.start, device.bytes),
            (2, START, APERTURE_BYTES)
        );
        // The pages of the file are what is lent.
        let file = std::fs::File::options().write(true).open(&memory).unwrap();
        file.write_all_at(&[7], 9).unwrap();
        let lent = held.lent.mapping.start().as_ptr().wrapping_add(9);
        // SAFETY: inside the mapping, which lives.
        assert_eq!(unsafe { lent.read_volatile() }, 7);
    }
}

#[test]
fn what_keeps_a_bridge_from_being_held_is_said() {
    let folder = with_region("resource2");
    let memory = folder.path().join("memory");
    let refused = |folder: &Path, bytes| {
        let found = held(&kernel(), &bridge(folder), None, (&memory, bytes));
        found.map(drop).unwrap_err().to_string()
    };
    for bytes in [12288, 2 * APERTURE_BYTES] {
        let said = refused(folder.path(), Some(bytes));
        assert!(
            said.contains(&bytes.to_string()) && said.contains("BAR 2"),
            "{said}"
        );
        assert!(!memory.exists(), "nothing is made");
    }
    let said = refused(Path::new("/nowhere"), None);
    assert!(said.contains("/nowhere/resource2"), "{said}");
    const EPERM: i32 = 1;
    const EINVAL: i32 = 22;
    for (cause, remedy) in [(EPERM, "secure boot"), (EINVAL, "iomem=relaxed")] {
        let said = NtbError::Region {
            path: "/sys/r2".into(),
            cause: std::io::Error::from_raw_os_error(cause),
        };
        assert!(said.to_string().contains(remedy), "{said}");
    }
    std::fs::write(&memory, vec![0; 1 << 17]).unwrap();
    let said = refused(folder.path(), None);
    assert!(said.contains("memory"), "{said}");
}

#[test]
fn what_is_missing_is_said() {
    let nowhere = || bridge(Path::new("/nowhere"));
    let refused = |kernel: &Played, device: &PciDevice, bar| match parts(kernel, device, bar) {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    };
    let other = PciDevice {
        id: (0x8086, 0x201c),
        ..nowhere()
    };
    assert!(refused(&kernel(), &other, None).contains("8086:201c"));
    let older = PciDevice {
        revision: Some(1),
        ..nowhere()
    };
    let untouched = kernel();
    assert!(refused(&untouched, &older, None).contains("revision 0x1"));
    assert!(untouched.asked.borrow().is_empty(), "VFIO was asked");
    let bare = PciDevice {
        has_no_iommu: true,
        ..nowhere()
    };
    assert!(refused(&kernel(), &bare, None).contains("intel_iommu=on"));
    let unbound = PciDevice {
        driver: Some("ntb_hw_intel".to_owned()),
        ..nowhere()
    };
    assert!(refused(&kernel(), &unbound, None).contains("driver_override"));
    assert!(refused(&kernel(), &nowhere(), Some(0)).contains("BAR 0 leads to no other host"));
    assert!(refused(&kernel(), &nowhere(), Some(4)).contains("no memory region 4"));
    let mut small = kernel();
    small.regions.insert(0, mappable(REGISTERS_AT, 4096));
    assert!(refused(&small, &nowhere(), None).contains("no memory region 0"));
    let mut closed = kernel();
    let unmappable = Region {
        flags: 1 | 2,
        ..mappable(APERTURE_AT, APERTURE_BYTES)
    };
    closed.regions.insert(2, unmappable);
    assert!(refused(&closed, &nowhere(), None).contains("no memory region 2"));
}

#[test]
fn fewer_interrupts_than_asked_for_are_none() {
    let mut scarce = kernel();
    scarce.interrupts = 5;
    let Err(error) = parts(&scarce, &bridge(Path::new("/nowhere")), None) else {
        panic!("taken");
    };
    let said = error.to_string();
    assert!(said.contains("5 of 33 interrupts"), "{said}");
}

#[test]
fn memory_that_is_not_lent_is_told_of_by_its_cause() {
    const ENOMEM: i32 = 12;
    const EINVAL: i32 = 22;
    for (cause, remedy) in [(ENOMEM, "ulimit -l"), (EINVAL, "reserved_regions")] {
        let mut unwilling = kernel();
        unwilling.lends = Some(cause);
        let Err(error) = parts(&unwilling, &bridge(Path::new("/nowhere")), None) else {
            panic!("taken");
        };
        let said = error.to_string();
        assert!(said.contains(remedy), "{said}");
        assert_eq!(said.contains("ulimit"), cause == ENOMEM, "{said}");
    }
}
