//! `crosslane window probe`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crosslane_window::backend::BarWindow;
use crosslane_window::discover::memory::{self, Kind, Mount};
use crosslane_window::discover::pci::{self, Bar, PciDevice, Role};
use crosslane_window::discover::{Roots, dax};
use crosslane_window::ntb::gen4::REVISIONS;
use crosslane_window::ntb::is_driven;
use crosslane_window::policy::Traits;
use serde::Serialize;

use crate::commands::pcie::output::{OutputArgs, emit};

/// Arguments of `crosslane window probe`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// One window, or what could be one.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    /// What `crosslane window test` takes.
    place: String,
    bytes: Option<u64>,
    writes: &'static str,
    /// What to expect for a write to arrive: what such windows declare, not what this one takes.
    posted_latency_ns: u32,
    numa_node: Option<u32>,
    usable: bool,
    /// What is missing, and what to do.
    missing: Option<String>,
}

/// Kinds that a machine may have, and what is said of those that it has not.
const ABSENT: [(&[&str], &str); 4] = [
    (
        &["ivshmem-plain", "ivshmem-doorbell"],
        "no inter-VM memory (PCI device 1af4:1110)",
    ),
    (
        &["NTB"],
        "no PCIe bridge that is known (Intel, AMD, Switchtec, IDT)",
    ),
    (
        &["DAX device", "fsdax"],
        "no DAX device, and no file system mounted with DAX",
    ),
    (&["hugetlbfs"], "no hugetlbfs mounted"),
];

/// Print what there is.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let rows = rows(&Roots::system())?;
    args.output.print("windows of this machine", &rows, 0)?;
    if args.output.is_for_people() {
        for (kinds, absent) in ABSENT {
            if !rows
                .iter()
                .any(|row| kinds.iter().any(|kind| row.kind.contains(kind)))
            {
                emit(&format!("{absent}\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(roots: &Roots) -> anyhow::Result<Vec<Row>> {
    // A machine without PCI has no such folder.
    let devices = pci::devices(&roots.pci).unwrap_or_default();
    let of_device = |device| of_device(device, roots);
    let mut rows: Vec<Row> = devices.iter().filter_map(of_device).collect();
    rows.extend(dax::devices(roots)?.iter().map(of_dax));
    rows.extend(memory::mounts(roots)?.iter().map(of_mount));
    Ok(rows)
}

fn of_device(device: &PciDevice, roots: &Roots) -> Option<Row> {
    if device.role == Role::Other {
        return None;
    }
    let is_driven = is_driven(device.id);
    let is_vfio = device.driver.as_deref() == Some("vfio-pci") && !is_driven;
    // The driver's, unless it is told another.
    let bar = if is_driven {
        Some(2)
    } else {
        device.window_bar()
    };
    let bar = device.bars.iter().find(|found| Some(found.index) == bar);
    let missing = match bar {
        None => Some("it has no memory region".to_owned()),
        Some(_) if is_driven => lack_of_bridge(device, roots),
        Some(bar) => lack(device, bar, roots),
    };
    let way = match (is_driven, is_vfio) {
        (true, _) => "ntb:",
        (_, true) => "vfio:",
        _ => "",
    };
    let (writes, traits) = match bar {
        _ if is_vfio => ("uncached", Traits::UNCACHED_BAR),
        Some(bar) if bar.can_combine => ("combined", Traits::COMBINED_BAR),
        Some(bar) if bar.is_prefetchable => ("uncached (no resourceN_wc)", Traits::UNCACHED_BAR),
        _ => ("uncached", Traits::UNCACHED_BAR),
    };
    Some(Row {
        kind: device.role.name(),
        place: format!("{way}{}", device.address),
        bytes: bar.map(|bar| bar.bytes),
        writes,
        posted_latency_ns: traits.posted_latency_ns,
        numa_node: device.numa_node,
        usable: missing.is_none(),
        missing,
    })
}

fn lack(device: &PciDevice, bar: &Bar, roots: &Roots) -> Option<String> {
    if !device.role.is_ivshmem() {
        return Some(
            "Crosslane drives Intel's of Ice Lake only (8086:347e); see docs/hardware.md"
                .to_owned(),
        );
    }
    match device.driver.as_deref() {
        Some("vfio-pci") => match device.iommu_group {
            Some(number) => access(&group_file(device, number, roots)),
            None => Some("it is bound to vfio-pci, and no IOMMU is switched on".to_owned()),
        },
        Some(driver) => Some(format!("the driver {driver} has it")),
        None => BarWindow::try_open(device, bar.index)
            .err()
            .map(|error| error.to_string()),
    }
}

/// What whoever opens a device by VFIO opens.
fn group_file(device: &PciDevice, number: u32, roots: &Roots) -> PathBuf {
    let unsafely = if device.has_no_iommu { "noiommu-" } else { "" };
    roots.dev.join(format!("vfio/{unsafely}{number}"))
}

/// What a bridge takes: an IOMMU, VFIO's driver, and its group's file.
fn lack_of_bridge(device: &PciDevice, roots: &Roots) -> Option<String> {
    let (address, folder) = (&device.address, device.folder.display());
    if let Some(step) = device.revision.filter(|step| !REVISIONS.contains(step)) {
        let (first, last) = (REVISIONS.start(), REVISIONS.end());
        return Some(format!(
            "it is revision {step:#x}; Crosslane drives {first:#x} to {last:#x} only"
        ));
    }
    let number = match device.iommu_group {
        Some(number) if !device.has_no_iommu => number,
        _ => return Some("no IOMMU is switched on; boot with intel_iommu=on".to_owned()),
    };
    match device.driver.as_deref() {
        Some("vfio-pci") => access(&group_file(device, number, roots)),
        driver => {
            let unbind = driver.map_or(String::new(), |_| {
                format!("echo {address} > {folder}/driver/unbind; ")
            });
            Some(format!(
                "its driver is {}; as root: modprobe vfio-pci; {unbind}echo vfio-pci > \
                 {folder}/driver_override; echo {address} > /sys/bus/pci/drivers_probe",
                driver.unwrap_or("none")
            ))
        }
    }
}

/// What keeps us from a file, if anything.
fn access(path: &Path) -> Option<String> {
    let error = OpenOptions::new().read(true).write(true).open(path).err()?;
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run as root, or give the file to a group",
        _ => "",
    };
    Some(format!("{}: {error}{remedy}", path.display()))
}

fn of_dax(device: &dax::DaxDevice) -> Row {
    let missing = match device.driver.as_deref() {
        Some("device_dax") => access(&device.path),
        Some("kmem") => Some(
            "the kernel uses it as its own memory; daxctl reconfigure-device -m devdax".to_owned(),
        ),
        _ => Some("no driver; modprobe device_dax".to_owned()),
    };
    Row {
        kind: "DAX device",
        place: device.path.display().to_string(),
        bytes: Some(device.bytes),
        writes: "flushed",
        posted_latency_ns: Traits::FLUSHED.posted_latency_ns,
        numa_node: device.node,
        usable: missing.is_none(),
        missing,
    }
}

fn of_mount(mount: &Mount) -> Row {
    let found = rustix::fs::statvfs(&mount.path).ok();
    let bytes = found.map(|found| match (mount.kind, found.f_blocks) {
        // One that has no limit of its own does not say what the kernel has left for it.
        (Kind::Hugetlbfs, 0) => free_pages(found.f_frsize) * found.f_frsize,
        _ => found.f_bavail * found.f_frsize,
    });
    let missing = match (mount.kind, bytes) {
        (_, None) => Some("it cannot be looked at".to_owned()),
        (Kind::Hugetlbfs, Some(0)) => {
            Some("no huge pages are free; as root: echo N > /proc/sys/vm/nr_hugepages".to_owned())
        }
        (_, Some(0)) => Some("it is full".to_owned()),
        _ => None,
    };
    let (writes, traits) = match mount.kind {
        Kind::FsDax => ("flushed", Traits::FLUSHED),
        _ => ("coherent", Traits::MEMORY),
    };
    Row {
        kind: mount.kind.name(),
        place: format!("{}/...", mount.path.display()),
        bytes,
        writes,
        posted_latency_ns: traits.posted_latency_ns,
        numa_node: None,
        usable: missing.is_none(),
        missing,
    }
}

/// How many huge pages of this size nobody has or has been promised.
fn free_pages(bytes: u64) -> u64 {
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", bytes >> 10);
    let count = |name| {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let free = count("free_hugepages").unwrap_or(0);
    free.saturating_sub(count("resv_hugepages").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(folder: &Path, enabled: &str) -> Roots {
        let device = folder.join("pci/0000:00:05.0");
        std::fs::create_dir_all(&device).unwrap();
        let none = "0x0 0x0 0x0\n";
        let resource = [
            "0xf000 0xf0ff 0x40200\n",
            none,
            "0x100000 0x4fffff 0x140204\n",
        ]
        .concat();
        let files = [
            ("vendor", "0x1af4"),
            ("device", "0x1110"),
            ("class", "0x050000"),
            ("enable", enabled),
            ("resource", &resource),
            ("resource2", ""),
        ];
        for (name, text) in files {
            std::fs::write(device.join(name), text).unwrap();
        }
        let mounts = folder.join("mountinfo");
        std::fs::write(&mounts, "25 1 0:22 / /dev/shm rw - tmpfs tmpfs rw\n").unwrap();
        Roots {
            pci: folder.join("pci"),
            dax: folder.join("dax"),
            dev: folder.join("dev"),
            mounts,
        }
    }

    #[test]
    fn a_device_is_listed_with_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let found = rows(&played(folder.path(), "0")).unwrap();
        let kinds: Vec<_> = found
            .iter()
            .map(|row| (row.kind, row.bytes.is_some()))
            .collect();
        assert_eq!(kinds, [("ivshmem-plain", true), ("tmpfs", true)]);
        let declared = [Traits::UNCACHED_BAR, Traits::MEMORY].map(|of| of.posted_latency_ns);
        let shown: Vec<_> = found.iter().map(|row| row.posted_latency_ns).collect();
        assert_eq!(shown, declared);
        assert_eq!(found[0].bytes, Some(4 << 20));
        assert!(found[0].missing.as_ref().unwrap().contains("echo 1 >"));
        let found = rows(&played(folder.path(), "1")).unwrap();
        assert!(found[0].usable && found[1].usable, "{found:?}");
    }

    #[test]
    fn a_device_that_a_driver_has_is_used_by_way_of_it_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let roots = played(folder.path(), "0");
        let device = roots.pci.join("0000:00:05.0");
        let link = |to: &str, name: &str| {
            let _ = std::fs::remove_file(device.join(name));
            std::os::unix::fs::symlink(to, device.join(name)).unwrap();
        };
        let found = || rows(&roots).unwrap().remove(0);
        let missing = || found().missing.unwrap_or_default();
        link("../../../drivers/uio", "driver");
        assert_eq!(missing(), "the driver uio has it");
        link("../../../drivers/vfio-pci", "driver");
        assert_eq!(found().place, "vfio:0000:00:05.0");
        assert!(missing().contains("no IOMMU"), "{}", missing());
        link("../../../kernel/iommu_groups/9", "iommu_group");
        assert!(missing().contains("vfio/9"), "{}", missing());
        std::fs::create_dir_all(roots.dev.join("vfio")).unwrap();
        std::fs::write(roots.dev.join("vfio/9"), "").unwrap();
        // The driver enables it when it is opened.
        assert!(found().usable, "{}", missing());
    }

    /// To open a region's file is not to have it: locked down, or claimed, it cannot be mapped.
    #[test]
    fn a_region_that_cannot_be_mapped_is_not_usable() {
        let folder = tempfile::tempdir().unwrap();
        let roots = played(folder.path(), "1");
        let region = roots.pci.join("0000:00:05.0/resource2");
        std::fs::remove_file(&region).unwrap();
        // A device that is opened as any, and refuses to be mapped.
        std::os::unix::fs::symlink("/dev/null", &region).unwrap();
        let found = rows(&roots).unwrap().remove(0);
        let missing = found.missing.unwrap_or_default();
        assert!(!found.usable && missing.contains("cannot map"), "{missing}");
    }

    /// What a bridge lacks, one thing after the other.
    #[test]
    fn a_bridge_says_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let roots = played(folder.path(), "1");
        let device = roots.pci.join("0000:00:05.0");
        for (name, text) in [("vendor", "0x8086"), ("device", "0x347e")] {
            std::fs::write(device.join(name), text).unwrap();
        }
        let bridge = || rows(&roots).unwrap().remove(0);
        let missing = || bridge().missing.unwrap_or_default();
        std::fs::write(device.join("revision"), "0x01").unwrap();
        assert!(missing().contains("revision 0x1"), "{}", missing());
        std::fs::write(device.join("revision"), "0x04").unwrap();
        assert_eq!(bridge().place, "ntb:0000:00:05.0");
        assert_eq!(bridge().bytes, Some(4 << 20));
        assert!(missing().contains("intel_iommu=on"), "{}", missing());
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, device.join(name)).unwrap();
        };
        link("../../../kernel/iommu_groups/31", "iommu_group");
        link("../../../drivers/ntb_hw_intel", "driver");
        assert!(missing().contains("driver/unbind"), "{}", missing());
        std::fs::remove_file(device.join("driver")).unwrap();
        link("../../../drivers/vfio-pci", "driver");
        assert!(missing().contains("vfio/31"), "{}", missing());
        std::fs::create_dir_all(roots.dev.join("vfio")).unwrap();
        std::fs::write(roots.dev.join("vfio/31"), "").unwrap();
        assert!(bridge().usable, "{}", missing());
        std::fs::write(device.join("device"), "0x201c").unwrap();
        assert!(missing().contains("8086:347e"), "{}", missing());
    }
}
