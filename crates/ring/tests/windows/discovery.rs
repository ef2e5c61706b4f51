//! A folder that looks like sysfs.

use std::os::unix::fs::symlink;
use std::path::Path;

use crosslane_window::backend::{Place, WindowError, open};
use crosslane_window::discover::{Roots, dax, pci};
use crosslane_window::policy::Writes;

use crate::windows::{BYTES, Folder, play_device};

fn roots(folder: &Path) -> Roots {
    Roots {
        pci: folder.join("pci"),
        dax: folder.join("dax"),
        dev: folder.join("dev"),
        mounts: folder.join("mountinfo"),
    }
}

/// Address, numbers, class, and what they mean.
type Played = (
    &'static str,
    (&'static str, &'static str),
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const DEVICES: [Played; 7] = [
    ("0000:00:05.0", ("1af4", "1110"), "050000", "ivshmem-plain"),
    ("0000:00:06.0", ("1af4", "1110"), "050000", "ivshmem-doorbell"),
    ("0000:17:00.0", ("8086", "201c"), "068000", "Intel NTB, Skylake"),
    ("0000:18:00.0", ("8086", "347e"), "068000", "Intel NTB, Ice Lake"),
    ("0000:19:00.1", ("11f8", "8546"), "068000", "Switchtec NTB"),
    ("0000:1a:00.0", ("11f8", "8546"), "058000", "PCI device"),
    ("0000:1b:00.0", ("8086", "100e"), "020000", "PCI device"),
];

#[test]
fn devices_are_recognised_by_their_numbers() {
    let folder = Folder::new(Path::new("/dev/shm"), "sysfs");
    let roots = roots(&folder.0);
    for (address, id, class, _) in DEVICES {
        play_device(&roots.pci, address, id, class, address.ends_with('1'));
    }
    let doorbell = roots.pci.join("0000:00:06.0/resource");
    let listed = std::fs::read_to_string(&doorbell).unwrap();
    let table = "0x00000000febf2000 0x00000000febf2fff 0x0000000000040200";
    let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    std::fs::write(&doorbell, listed.replacen(none, table, 1)).unwrap();
    symlink(
        "../../../drivers/vfio-pci",
        roots.pci.join("0000:17:00.0/driver"),
    )
    .unwrap();
    symlink(
        "../../../kernel/iommu_groups/31",
        roots.pci.join("0000:17:00.0/iommu_group"),
    )
    .unwrap();

    let found = pci::devices(&roots.pci).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|device| (device.address.as_str(), device.role.name()))
        .collect();
    assert_eq!(names, DEVICES.map(|(address, _, _, name)| (address, name)));
    let plain = &found[0];
    assert_eq!(plain.window_bar(), Some(2));
    assert_eq!(
        (plain.driver.as_deref(), plain.iommu_group, plain.numa_node),
        (None, None, None)
    );
    assert_eq!(
        plain
            .bars
            .iter()
            .map(|bar| (bar.index, bar.bytes))
            .collect::<Vec<_>>(),
        [(0, 256), (2, BYTES as u64)]
    );
    assert_eq!(
        (found[2].driver.as_deref(), found[2].iommu_group),
        (Some("vfio-pci"), Some(31))
    );
    let combining = found
        .iter()
        .map(|device| device.bars.iter().any(|bar| bar.can_combine));
    assert_eq!(
        combining.collect::<Vec<_>>(),
        [false, false, false, false, true, false, false]
    );
}

#[test]
fn places_open_as_what_they_are() {
    let folder = Folder::new(Path::new("/dev/shm"), "places-of");
    let roots = roots(&folder.0);
    play_device(&roots.pci, "0000:00:05.0", ("1af4", "1110"), "050000", true);
    let writes = |place: &Place| open(place, &roots, false).unwrap().traits().writes;
    assert_eq!(writes(&Place::of("0000:00:05.0")), Writes::Combined);
    let resource = |name: &str| Place::Path(roots.pci.join("0000:00:05.0").join(name));
    assert_eq!(writes(&resource("resource2")), Writes::Uncached);
    assert_eq!(writes(&resource("resource2_wc")), Writes::Combined);
    let combined = open(&resource("resource2_wc"), &roots, false).unwrap();
    assert!(combined.traits().fences_loads, "it is read that way, too");
    let plain = folder.0.join("plain");
    std::fs::write(&plain, vec![0; BYTES]).unwrap();
    assert_eq!(writes(&Place::Path(plain)), Writes::Coherent);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = Folder::new(Path::new("/dev/shm"), "errors");
    let roots = roots(&folder.0);
    let device = play_device(
        &roots.pci,
        "0000:00:05.0",
        ("1af4", "1110"),
        "050000",
        false,
    );
    let why = |words: &str| -> WindowError {
        match open(&Place::of(words), &roots, false) {
            Ok(window) => panic!("{words} opened as {}", window.description()),
            Err(error) => error,
        }
    };
    assert!(why("0000:00:07.0").to_string().contains("window probe"));
    assert!(
        why("0000:00:05.0/4")
            .to_string()
            .contains("no memory region 4")
    );
    assert!(
        why("vfio:0000:00:05.0")
            .to_string()
            .contains("driver is none")
    );
    std::fs::write(device.join("enable"), "0\n").unwrap();
    assert!(why("0000:00:05.0").to_string().contains("echo 1 >"));
    symlink("../../../drivers/vfio-pci", device.join("driver")).unwrap();
    let bound = why("0000:00:05.0").to_string();
    assert!(bound.contains("vfio:0000:00:05.0") && !bound.contains("echo"));
    std::fs::remove_file(device.join("driver")).unwrap();
    symlink("../../../drivers/uio", device.join("driver")).unwrap();
    let bound = why("0000:00:05.0").to_string();
    assert!(bound.contains("uio") && bound.contains("driver/unbind; echo 1 >"));
    let small = folder.0.join("small");
    std::fs::write(&small, [0; 5000]).unwrap();
    assert!(
        why(small.to_str().unwrap())
            .to_string()
            .contains("5000 bytes are too small")
    );
    assert!(why("/proc/self/exe").to_string().contains("cannot open"));
    assert!(why("/dev/null").to_string().contains("null"));
}

#[test]
fn dax_devices_have_the_size_that_sysfs_says() {
    let folder = Folder::new(Path::new("/dev/shm"), "dax-bus");
    let roots = roots(&folder.0);
    assert_eq!(dax::devices(&roots).unwrap(), []);
    let device = roots.dax.join("dax1.0");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("size"), "270582939648\n").unwrap();
    std::fs::write(device.join("align"), "2097152\n").unwrap();
    std::fs::write(device.join("target_node"), "2\n").unwrap();
    symlink("../../drivers/device_dax", device.join("driver")).unwrap();
    let found = dax::devices(&roots).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, roots.dev.join("dax1.0"));
    assert_eq!((found[0].bytes, found[0].node), (270_582_939_648, Some(2)));
    assert_eq!(found[0].driver.as_deref(), Some("device_dax"));
    let align = dax::device_align(&found[0].path, &roots.dax);
    assert_eq!(align.unwrap(), 2 << 20);
}
