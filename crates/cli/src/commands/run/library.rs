//! Which library is preloaded, and by which words in LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::examine::is_shared_library;

/// The library's name, wherever it is.
const NAME: &str = "libcrosslane.so";

/// What the name of GCC's address sanitizer begins with. It ends the program if another library comes before it.
const FIRST_OF_ALL: &[u8] = b"libasan.so";

/// Where the library is: beside this command, in its installation, or where we are told.
pub fn find() -> anyhow::Result<PathBuf> {
    let told = std::env::var_os("CROSSLANE_LIBRARY").filter(|path| !path.is_empty());
    if let Some(path) = told.map(PathBuf::from) {
        ensure!(
            path.is_file(),
            "CROSSLANE_LIBRARY names {}, which is no file",
            path.display()
        );
        check(&path).context("CROSSLANE_LIBRARY")?;
        return Ok(std::path::absolute(path)?);
    }
    let own = std::env::current_exe().context("cannot find the crosslane command itself")?;
    let beside = own.with_file_name(NAME);
    let prefix = own.parent().and_then(Path::parent);
    let installed = prefix.map(|prefix| prefix.join("lib/crosslane").join(NAME));
    for path in [Some(beside), installed].into_iter().flatten() {
        if path.is_file() {
            check(&path)?;
            return Ok(path);
        }
    }
    bail!(
        "{NAME} is neither beside {} nor in ../lib/crosslane; name it in CROSSLANE_LIBRARY",
        own.display()
    )
}

/// The loader would only complain of another file, and run the program without it.
fn check(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let file = File::open(path).map_err(|error| {
        anyhow!("cannot read {name}: {error}; make it readable: chmod a+r {name}")
    })?;
    ensure!(
        is_shared_library(file),
        "{name} is no shared library for this machine, or not whole; build or install it again, or \
         name another {NAME} in CROSSLANE_LIBRARY"
    );
    let is_for_data = statvfs(path).is_ok_and(|on| on.f_flag.contains(StatVfsMountFlags::NOEXEC));
    ensure!(
        !is_for_data,
        "{name} is on a file system from which nothing may be run (noexec); copy it to another, and \
         name it in CROSSLANE_LIBRARY"
    );
    Ok(())
}

/// LD_PRELOAD with our library first, but for the address sanitizer, and no other build of it: two would count each connection twice.
pub fn preload(library: &Path) -> anyhow::Result<OsString> {
    let path = match is_musl_installed() {
        true => for_glibc_only(library),
        false => library.as_os_str().to_owned(),
    };
    ensure!(
        !path.as_bytes().iter().any(is_separator),
        "the loader cannot preload {}: its path has a space or a colon; copy it to one without, and \
         name that in CROSSLANE_LIBRARY",
        library.display()
    );
    let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    Ok(before(path, &others))
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b' ' | b':')
}

/// The library's path before the words of an LD_PRELOAD, without those that name it or another build.
fn before(path: OsString, others: &OsStr) -> OsString {
    let is_other = |word: &&OsStr| {
        let is_ours = *word == path || Path::new(word).file_name() == Some(OsStr::new(NAME));
        !word.is_empty() && !is_ours
    };
    let words = others.as_bytes().split(is_separator).map(OsStr::from_bytes);
    let (first, last): (Vec<_>, Vec<_>) = words.filter(is_other).partition(|word| {
        let name = Path::new(word).file_name();
        name.is_some_and(|name| name.as_bytes().starts_with(FIRST_OF_ALL))
    });
    [first, vec![path.as_os_str()], last]
        .concat()
        .join(OsStr::new(":"))
}

/// musl's loader, too, obeys LD_PRELOAD, and a program does not start if what it loads needs glibc.
fn is_musl_installed() -> bool {
    let names = std::fs::read_dir("/lib").into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name())
        .any(|name| name.as_encoded_bytes().starts_with(b"ld-musl-"))
}

/// The path in a form that means something to glibc's loader alone: it puts the name of a library
/// directory for `$LIB` (ld.so(8)), which is then left again upwards. musl's looks for a directory
/// of that very name and passes over what is not there.
fn for_glibc_only(library: &Path) -> OsString {
    let mut path = OsString::from("/$LIB");
    path.push("/..".repeat(LIB_DEPTH));
    path.push(library);
    path
}

/// More than `$LIB` has parts; above the root is the root.
const LIB_DEPTH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_no_other_build_behind_it() {
        let value = |others: &str| before("/new/libcrosslane.so".into(), others.as_ref());
        assert_eq!(value(""), "/new/libcrosslane.so");
        assert_eq!(value("/a.so /b.so"), "/new/libcrosslane.so:/a.so:/b.so");
        assert_eq!(
            value("/a.so:/$LIB/../old/libcrosslane.so:/new/libcrosslane.so"),
            "/new/libcrosslane.so:/a.so"
        );
        assert_eq!(
            value("/a.so:/lib/libasan.so.8"),
            "/lib/libasan.so.8:/new/libcrosslane.so:/a.so"
        );
    }
}
