//! Whether the kernel makes the loader ignore LD_PRELOAD, because the program will run with
//! rights that its caller does not have (AT_SECURE, see ld.so(8)).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::Cause;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The privilege in the way, if there is one.
pub fn judge(path: &Path) -> io::Result<Option<Cause>> {
    let found = path.metadata()?;
    let (user, group) = (geteuid(), getegid());
    if found.mode() & SETUID != 0 && found.uid() != user.as_raw() {
        return Ok(Some(Cause::Setuid));
    }
    let is_setgid = found.mode() & SETGID != 0 && found.mode() & GROUP_EXECUTE != 0;
    if is_setgid && found.gid() != group.as_raw() {
        return Ok(Some(Cause::Setgid));
    }
    // Root has all capabilities anyway, so they make nothing more secure for it.
    if !user.is_root() && has_capabilities(path) {
        return Ok(Some(Cause::Capabilities));
    }
    Ok(None)
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0; 64];
    let found = getxattr(path, "security.capability", &mut value);
    matches!(found, Ok(bytes) if bytes > 0) || found == Err(Errno::RANGE)
}
