//! File systems whose files are memory.

use std::io;
use std::path::PathBuf;

use super::Roots;

/// What kind of memory a file system's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages as processes have them.
    Tmpfs,
    /// Huge pages, which must have been reserved.
    Hugetlbfs,
    /// The memory of a device itself.
    FsDax,
}

impl Kind {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Hugetlbfs => "hugetlbfs",
            Self::FsDax => "fsdax",
        }
    }
}

/// A mounted file system in which a file is a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub kind: Kind,
}

/// Mounts that may be written to, the last where several are at one place.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn mounts(roots: &Roots) -> io::Result<Vec<Mount>> {
    let listed = std::fs::read_to_string(&roots.mounts)?;
    let mut mounts: Vec<Mount> = Vec::new();
    for mount in listed.lines().filter_map(mount) {
        mounts.retain(|hidden| hidden.path != mount.path);
        mounts.push(mount);
    }
    Ok(mounts)
}

/// A line of proc_pid_mountinfo(5): after ` - ` come the type, the source, and options.
fn mount(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let (path, options) = (fields.get(4)?, fields.get(5)?);
    let mut words = filesystem.split(' ');
    let (kind, super_options) = (words.next()?, words.nth(1)?);
    let has =
        |options: &str, wanted: &[&str]| options.split(',').any(|option| wanted.contains(&option));
    let kind = match kind {
        "tmpfs" => Kind::Tmpfs,
        "hugetlbfs" => Kind::Hugetlbfs,
        _ if has(super_options, &["dax", "dax=always"]) => Kind::FsDax,
        _ => return None,
    };
    let is_writable = has(options, &["rw"]) && has(super_options, &["rw"]);
    // Blanks and the like are written as \040; what lies in sysfs is a place for other mounts.
    let is_usable = is_writable && !path.contains('\\') && !path.starts_with("/sys/");
    is_usable.then(|| Mount {
        path: path.into(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_mounts() {
        let found =
            |line: &str| mount(line).map(|mount| (mount.path.display().to_string(), mount.kind));
        let shm = "25 1 0:22 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw,inode64";
        assert_eq!(found(shm), Some(("/dev/shm".to_owned(), Kind::Tmpfs)));
        let huge = "26 1 0:23 / /mnt/huge rw - hugetlbfs none rw,pagesize=2M";
        assert_eq!(found(huge), Some(("/mnt/huge".to_owned(), Kind::Hugetlbfs)));
        let dax = "27 1 259:1 / /mnt/pmem rw - ext4 /dev/pmem0 rw,dax=always";
        assert_eq!(found(dax), Some(("/mnt/pmem".to_owned(), Kind::FsDax)));
        for other in [
            "28 1 8:1 / / rw - ext4 /dev/sda1 rw",
            "29 1 0:24 / /ro ro - tmpfs tmpfs rw",
            "30 1 0:25 / /sys ro - tmpfs tmpfs ro",
            "31 1 0:26 / /a\\040b rw - tmpfs tmpfs rw",
            "32 1 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
            "nonsense",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
