//! Windows that the command cannot open here: a device under VFIO, of a kernel that the test plays, and bridges, of the
//! model of their registers. What two processes do over a file is tested with the command itself (`tests/window.rs`).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Parser;
use crosslane_ntb_model::attach::{Setup, attach};
use crosslane_ntb_model::serve::Model;
use crosslane_sys::memory::Mapping;
use crosslane_window::backend::{Kernel, Region, VfioWindow};
use crosslane_window::discover::pci;
use crosslane_window::ntb::NtbWindow;

use super::*;

#[path = "../../../../../window/src/backend/vfio/tests/played.rs"]
mod played;

const BYTES: usize = 1 << 20;

/// The command's arguments behind `bench window`.
#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    args: Args,
}

fn args(words: &[&str]) -> Args {
    Bench::parse_from([&["bench"], words].concat()).args
}

fn kinds(rows: &[Row]) -> BTreeSet<&'static str> {
    rows.iter().map(|row| row.kind).collect()
}

fn assert_measured(rows: &[Row], kinds_of_messages: bool) {
    let accesses = [
        "read",
        "read_bandwidth",
        "write",
        "write_bandwidth",
        "write_read",
    ];
    let messages = ["one_way", "one_way_best", "overhead", "overhead_best"];
    let messages = messages.into_iter().filter(|_| kinds_of_messages);
    assert_eq!(kinds(rows), accesses.into_iter().chain(messages).collect());
    let of_2048 = rows
        .iter()
        .filter(|row| row.bytes == 2048 && row.gbps.is_none());
    let lengthened = accesses
        .into_iter()
        .filter(|kind| !kind.contains("bandwidth"));
    let of_2048: BTreeSet<_> = of_2048.map(|row| row.kind).collect();
    assert_eq!(of_2048, lengthened.collect());
    let is_figure = |row: &Row| row.ns.or(row.gbps).is_some_and(f64::is_finite);
    assert!(rows.iter().all(is_figure), "{rows:?}");
}

/// As sysfs shows an ivshmem device that vfio-pci has.
fn vfio_device(folder: &tempfile::TempDir) -> PathBuf {
    let folder = folder.path().join("0000:00:07.0");
    std::fs::create_dir(&folder).unwrap();
    let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
    let region = "0x00000000fe000000 0x00000000fe0fffff 0x000000000014220c\n";
    let files = [
        ("vendor", "0x1af4\n"),
        ("device", "0x1110\n"),
        ("class", "0x050000\n"),
        ("enable", "1\n"),
        ("resource", &[none, none, region, none, none, none].concat()),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let memory = File::create(folder.join("resource2")).unwrap();
    memory.set_len(BYTES as u64).unwrap();
    symlink("../../../drivers/vfio-pci", folder.join("driver")).unwrap();
    symlink("../../../kernel/iommu_groups/7", folder.join("iommu_group")).unwrap();
    folder
}

/// A group can be opened once: both sides and the loads of one processor go by one mapping.
#[test]
fn a_device_under_vfio_is_measured_by_the_mapping_that_it_has_been_opened_by() {
    let folder = tempfile::tempdir().unwrap();
    let device = pci::device(&vfio_device(&folder)).unwrap();
    let kernel = played::Played::with_region(BYTES as u64);
    let window: &'static dyn Window =
        Box::leak(Box::new(VfioWindow::open(&kernel, &device, 2).unwrap()));
    let asked = kernel.asked.borrow().len();
    let args = args(&["vfio:0000:00:07.0", "--overwrite", "--quick"]);
    let rows = alone(&args, window, BYTES).unwrap();
    assert_eq!(kernel.asked.borrow().len(), asked, "nothing is opened anew");
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_measured(&rows, processors > 1);
    let coherent = rows.iter().find(|row| row.variant == "coherent lane");
    assert!(coherent.is_none(), "reads of a region are far");
}

/// Each host has its own memory, and its own driver.
#[test]
fn a_bridge_is_measured_while_the_other_host_answers() {
    let model = Model::new(BYTES as u64);
    let [asking, answering] = [0, 1].map(|side| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        model.serve(theirs);
        std::thread::spawn(move || {
            let parts = attach(ours, Setup::of(side, BYTES)).unwrap();
            let window = NtbWindow::open(parts, Duration::from_secs(60)).unwrap();
            let window: &'static dyn Window = Box::leak(Box::new(window));
            let words = ["ntb:0000:17:00.0", "--overwrite"];
            // Its own number counts, not the usual one of who asks or answers.
            let of = |usual| super::side(&args(&words), window, usual);
            match side {
                0 => hosts::ask(&of(1), true, BYTES).map(Ok),
                _ => hosts::answer(&of(0)).map(Err),
            }
        })
    });
    let rows = asking.join().unwrap().unwrap().unwrap();
    let answered = answering.join().unwrap().unwrap().unwrap_err();
    assert_measured(&rows, true);
    assert!(answered > 1000, "{answered} messages");
    let variants: BTreeSet<_> = rows
        .iter()
        .filter(|row| row.kind == "one_way")
        .map(|row| row.variant.as_str())
        .collect();
    assert_eq!(variants, BTreeSet::from(["bare window", "posted lane"]));
}
