//! The windows to test, each opened twice, as two hosts would.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use crosslane_ntb_model::attach::{Setup, attach};
use crosslane_ntb_model::serve::Model;
use crosslane_sys::memory::Mapping;
use crosslane_window::backend::{
    BarWindow, DaxWindow, FileWindow, Kernel, Place, Region, VfioWindow, Window, open,
};
use crosslane_window::discover::{Roots, memory, pci};
use crosslane_window::ntb::NtbWindow;

#[path = "../../../window/src/backend/vfio/tests/played.rs"]
mod played;

use played::Played;

/// Bytes of the windows that the tests make.
pub const BYTES: usize = 1 << 20;

/// A window as each of both hosts sees it.
pub type Opened = [Box<dyn Window>; 2];

/// A folder of its own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Below `parent`.
    pub fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(format!("crosslane-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in memory only.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A device's folder as sysfs has it, with a region 2 of so many bytes.
pub fn play_device(
    root: &Path,
    address: &str,
    id: (&str, &str),
    class: &str,
    prefetchable: bool,
) -> PathBuf {
    let folder = root.join(address);
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("vendor", &format!("0x{}\n", id.0));
    write("device", &format!("0x{}\n", id.1));
    write("class", &format!("0x{class}\n"));
    write("enable", "1\n");
    write("numa_node", "-1\n");
    let flags = if prefetchable { "14220c" } else { "140204" };
    let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    let registers = "0x00000000febf1000 0x00000000febf10ff 0x0000000000040200\n";
    let region = format!(
        "0x{:016x} 0x{:016x} 0x{flags:0>16}\n",
        0xfe00_0000_usize,
        0xfe00_0000 + BYTES - 1
    );
    write(
        "resource",
        &[registers, none, &region, none, none, none].concat(),
    );
    File::create(folder.join("resource2"))
        .unwrap()
        .set_len(BYTES as u64)
        .unwrap();
    if prefetchable {
        std::fs::hard_link(folder.join("resource2"), folder.join("resource2_wc")).unwrap();
    }
    folder
}

fn file(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    path
}

fn twice<W: Window + 'static>(open: impl Fn() -> W) -> Opened {
    [Box::new(open()), Box::new(open())]
}

/// All windows that there are to test, or those alone that somebody has named, where that is asked for.
pub fn all(name: &str) -> (Vec<(String, Opened)>, Vec<Folder>) {
    let names = std::env::var("CROSSLANE_TEST_WINDOWS").ok();
    let named_alone = names
        .as_deref()
        .and_then(|names| names.strip_prefix("only:"));
    if let Some(names) = named_alone {
        return (named(names), Vec::new());
    }
    let (mut windows, folders) = of_memory(name);
    assert!(windows.len() >= 8);
    match names {
        Some(names) => windows.extend(named(&names)),
        None => SKIPPED_DEVICES
            .call_once(|| skipped("windows of real devices: CROSSLANE_TEST_WINDOWS names none")),
    }
    (windows, folders)
}

/// Memory, by each way in which windows are written and read.
fn of_memory(name: &str) -> (Vec<(String, Opened)>, Vec<Folder>) {
    let folder = Folder::new(Path::new("/dev/shm"), name);
    let root = &folder.0;
    let (_, object) = FileWindow::memfd(BYTES).unwrap();
    let memfd = Path::new("memfd");
    let shared = file(root, "shared");
    let dax = file(root, "dax");
    let bar = |address: &str, prefetchable| {
        let folder = play_device(root, address, ("1af4", "1110"), "050000", prefetchable);
        let device = pci::device(&folder).unwrap();
        twice(move || BarWindow::open(&device, 2).unwrap())
    };
    let mut windows = vec![
        (
            "memfd".to_owned(),
            twice(|| FileWindow::of(memfd, &object, "memfd").unwrap()),
        ),
        (
            "tmpfs".to_owned(),
            twice(|| FileWindow::open(&shared).unwrap()),
        ),
        ("played BAR".to_owned(), bar("0000:00:05.0", false)),
        ("played combining BAR".to_owned(), bar("0000:00:06.0", true)),
        (
            "played DAX, flushed".to_owned(),
            twice(|| DaxWindow::file(&dax, false).unwrap()),
        ),
        (
            "played DAX, coherent".to_owned(),
            twice(|| DaxWindow::file(&dax, true).unwrap()),
        ),
    ];
    windows.push(("played VFIO".to_owned(), of_vfio(root)));
    windows.push(("modelled NTB".to_owned(), of_bridges()));
    let mut folders = vec![folder];
    if let Some((huge, folder)) = of_huge_pages(name) {
        windows.push(("hugetlbfs".to_owned(), huge));
        folders.push(folder);
    }
    (windows, folders)
}

/// A device that vfio-pci has, and a kernel that gives its region to both sides.
fn of_vfio(root: &Path) -> Opened {
    let id = ("1af4", "1110");
    let folder = play_device(root, "0000:00:07.0", id, "050000", true);
    symlink("../../../drivers/vfio-pci", folder.join("driver")).unwrap();
    symlink("../../../kernel/iommu_groups/7", folder.join("iommu_group")).unwrap();
    let device = pci::device(&folder).unwrap();
    let kernel = Played::with_region(BYTES as u64);
    twice(|| VfioWindow::open(&kernel, &device, 2).unwrap())
}

/// Two bridges back to back, as the driver's own tests have them.
fn of_bridges() -> Opened {
    const PATIENCE: Duration = Duration::from_secs(60);
    let model = Model::new(BYTES as u64);
    let opening = [0, 1].map(|side| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        model.serve(theirs);
        std::thread::spawn(move || {
            let parts = attach(ours, Setup::of(side, BYTES)).unwrap();
            NtbWindow::open(parts, PATIENCE).unwrap()
        })
    });
    opening.map(|window| Box::new(window.join().unwrap()) as Box<dyn Window>)
}

fn of_huge_pages(name: &str) -> Option<(Opened, Folder)> {
    let mounts = memory::mounts(&Roots::system()).unwrap();
    let mount = mounts
        .iter()
        .find(|mount| mount.kind == memory::Kind::Hugetlbfs);
    let opened = mount.and_then(|mount| {
        let folder = Folder::new(&mount.path, name);
        let path = folder.0.join("window");
        File::create(&path).ok()?.set_len(2 << 20).ok()?;
        let both = [FileWindow::open(&path).ok()?, FileWindow::open(&path).ok()?];
        Some((
            both.map(|window| Box::new(window) as Box<dyn Window>),
            folder,
        ))
    });
    if opened.is_none() {
        SKIPPED_HUGE.call_once(|| skipped("windows in hugetlbfs: none is mounted with free pages"));
    }
    opened
}

/// All tests of a run lack them, or none.
static SKIPPED_HUGE: Once = Once::new();
static SKIPPED_DEVICES: Once = Once::new();

/// Say what does not run here past the capture of the test runner, which drops what tests print that pass.
fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Devices by their names, between commas.
fn named(names: &str) -> Vec<(String, Opened)> {
    let opened = |name: &str| {
        let window = || open(&Place::of(name), &Roots::system(), false).unwrap();
        (name.to_owned(), [window(), window()])
    };
    names.split(',').map(opened).collect()
}
