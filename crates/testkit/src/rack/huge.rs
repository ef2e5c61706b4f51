//! A hugetlbfs for windows: pages that the kernel keeps for it while a test runs.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use super::network::{PREFIX, is_left_over};
use crate::skipped;

/// Bytes of each of its pages.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// How many the kernel keeps, whoever uses them.
const KEPT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Mounted, with pages of its own, until this is dropped.
pub struct HugePages {
    folder: PathBuf,
    pages: u64,
}

impl HugePages {
    /// A file system with room for so many bytes; `None`, which is told, where the kernel has no pages for it.
    pub fn mount(bytes: u64) -> Option<Self> {
        sweep();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pages = bytes / HUGE_PAGE_BYTES;
        // The number of pages is in the name, so that they can be given back where the test cannot.
        let name = format!("{PREFIX}{}-{number}-huge-{pages}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("the system's folder for temporary files is writable");
        let mounted = keep(pages).and_then(|()| {
            let huge = Self { folder, pages };
            // Those of this file system are nobody else's.
            let options = format!("pagesize=2M,size={bytes},min_size={bytes},mode=700");
            let command = ["-t", "hugetlbfs", "-o", &options, "none"];
            let status = run(Command::new("mount").args(command).arg(&huge.folder));
            status.then_some(huge)
        });
        if mounted.is_none() {
            skipped(&format!(
                "windows of large pages: the kernel does not keep {pages} of 2 MiB, or mounts no hugetlbfs"
            ));
        }
        mounted
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        clean(&self.folder, self.pages);
    }
}

/// Take away what test programs have left that were killed before they could.
fn sweep() {
    let folder = std::env::temp_dir();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().filter(|name| is_left_over(name));
        let pages = name.and_then(|name| name.split_once("-huge-")?.1.parse().ok());
        if let Some(pages) = pages {
            clean(&entry.path(), pages);
        }
    }
}

/// Unmount it, and give the pages back.
fn clean(folder: &Path, pages: u64) {
    run(Command::new("umount").arg("--lazy").arg(folder));
    // Who removes it gives its pages back, once.
    if std::fs::remove_dir(folder).is_ok() {
        let _ = change(|kept| kept.saturating_sub(pages));
    }
}

/// Have the kernel keep so many more.
fn keep(pages: u64) -> Option<()> {
    let (before, after) = change(|kept| kept + pages)?;
    let is_kept = after >= before + pages;
    if !is_kept {
        let _ = change(|kept| kept.saturating_sub(after.saturating_sub(before)));
    }
    is_kept.then_some(())
}

/// Change how many pages the kernel keeps, while no other test does. Returns what they were and are.
fn change(to: impl FnOnce(u64) -> u64) -> Option<(u64, u64)> {
    let lock = File::open(KEPT).ok()?;
    flock(&lock, FlockOperation::LockExclusive).ok()?;
    let before = kept()?;
    let mut file = File::options().write(true).open(KEPT).ok()?;
    file.write_all(to(before).to_string().as_bytes()).ok()?;
    Some((before, kept()?))
}

fn kept() -> Option<u64> {
    let mut text = String::new();
    File::open(KEPT).ok()?.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn run(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
