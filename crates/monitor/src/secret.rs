//! What root's private monitor wants to hear from other users: a number in a file that only root can
//! read, which `crosslane run` puts into the environment of what it runs.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Name of the file in the runtime directory.
const FILE_NAME: &str = "monitor.secret";

/// The secret of the monitor in this directory; `None` if it has none, or none that we may know.
pub fn of(directory: &Path) -> Option<u64> {
    read(&directory.join(FILE_NAME)).ok()
}

/// The secret for a monitor in this directory: that of the monitor before it, because programs of
/// its time still run, or a new one.
///
/// # Errors
/// The kernel's, when the file cannot be used.
pub fn keep_in(directory: &Path) -> io::Result<u64> {
    let path = directory.join(FILE_NAME);
    match read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => create(&path),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            std::fs::remove_file(&path)?;
            create(&path)
        }
        found => found,
    }
}

/// A number that nobody can guess.
///
/// # Errors
/// The kernel's.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn create(path: &Path) -> io::Result<u64> {
    let secret = random()?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    write!(file, "{secret:016x}")?;
    Ok(secret)
}

fn read(path: &Path) -> io::Result<u64> {
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(no_follow).open(path)?;
    let found = file.metadata()?;
    let ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    match u64::from_str_radix(&text, 16) {
        Ok(secret) if ours => Ok(secret),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_kept_for_the_next_monitor() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(of(directory.path()), None);
        let secret = keep_in(directory.path()).unwrap();
        assert_eq!(keep_in(directory.path()).unwrap(), secret);
        assert_eq!(of(directory.path()), Some(secret));
    }

    #[test]
    fn a_secret_that_others_may_know_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let before = keep_in(directory.path()).unwrap();
        let path = directory.path().join(FILE_NAME);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(of(directory.path()), None);
        assert_ne!(keep_in(directory.path()).unwrap(), before);
        std::fs::write(&path, "no number").unwrap();
        assert_ne!(keep_in(directory.path()).unwrap(), before);
    }
}
