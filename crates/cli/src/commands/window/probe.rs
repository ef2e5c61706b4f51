//! `crosslane window probe`.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

use crosslane_window::discover::memory::{self, Kind, Mount};
use crosslane_window::discover::pci::{self, Bar, PciDevice, Role};
use crosslane_window::discover::{Roots, dax};
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
    let mut rows: Vec<Row> = devices.iter().filter_map(of_device).collect();
    rows.extend(dax::devices(roots)?.iter().map(of_dax));
    rows.extend(memory::mounts(roots)?.iter().map(of_mount));
    Ok(rows)
}

fn of_device(device: &PciDevice) -> Option<Row> {
    if device.role == Role::Other {
        return None;
    }
    let bar = device.window_bar();
    let bar = device.bars.iter().find(|found| Some(found.index) == bar);
    let missing = match bar {
        None => Some("it has no memory region".to_owned()),
        Some(bar) => lack(device, bar),
    };
    Some(Row {
        kind: device.role.name(),
        place: device.address.clone(),
        bytes: bar.map(|bar| bar.bytes),
        writes: match bar {
            Some(bar) if bar.can_combine => "combined",
            Some(bar) if bar.is_prefetchable => "uncached (no resourceN_wc)",
            _ => "uncached",
        },
        numa_node: device.numa_node,
        usable: missing.is_none(),
        missing,
    })
}

fn lack(device: &PciDevice, bar: &Bar) -> Option<String> {
    let folder = device.folder.display();
    if !device.role.is_ivshmem() {
        return Some(
            "Crosslane has no driver that sets its translation; see docs/hardware.md".to_owned(),
        );
    }
    if let Some(driver) = device
        .driver
        .as_deref()
        .filter(|driver| *driver != "vfio-pci")
    {
        return Some(format!("the driver {driver} has it"));
    }
    if !device.is_enabled {
        return Some(format!("not enabled; as root: echo 1 > {folder}/enable"));
    }
    access(&device.folder.join(format!("resource{}", bar.index)))
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
        numa_node: device.node,
        usable: missing.is_none(),
        missing,
    }
}

fn of_mount(mount: &Mount) -> Row {
    let found = rustix::fs::statvfs(&mount.path).ok();
    let bytes = found.map(|found| found.f_bavail * found.f_frsize);
    let missing = match (mount.kind, bytes) {
        (_, None) => Some("it cannot be looked at".to_owned()),
        (Kind::Hugetlbfs, Some(0)) => {
            Some("no huge pages are free; as root: echo N > /proc/sys/vm/nr_hugepages".to_owned())
        }
        (_, Some(0)) => Some("it is full".to_owned()),
        _ => None,
    };
    Row {
        kind: mount.kind.name(),
        place: format!("{}/...", mount.path.display()),
        bytes,
        writes: if mount.kind == Kind::FsDax {
            "flushed"
        } else {
            "coherent"
        },
        numa_node: None,
        usable: missing.is_none(),
        missing,
    }
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
        assert_eq!(found[0].bytes, Some(4 << 20));
        assert!(found[0].missing.as_ref().unwrap().contains("echo 1 >"));
        let found = rows(&played(folder.path(), "1")).unwrap();
        assert!(found[0].usable && found[1].usable, "{found:?}");
    }
}
