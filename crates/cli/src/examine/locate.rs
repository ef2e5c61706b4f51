//! Which file a name means, and which interpreter runs a script.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// As many interpreters of interpreters as the kernel follows.
const DEPTH: usize = 5;

/// Bytes of a script's first line that the kernel looks at.
const LINE_BYTES: u64 = 256;

/// The ELF file, or whatever is no script, behind `program`; scripts on the way are listed.
pub fn locate(program: &OsStr, scripts: &mut Vec<PathBuf>) -> io::Result<PathBuf> {
    let mut path = find(program)?;
    for _ in 0..DEPTH {
        let Some(interpreter) = interpreter(&path)? else {
            return Ok(path);
        };
        scripts.push(path);
        path = find(&interpreter)?;
    }
    Err(io::Error::other("its interpreters are scripts without end"))
}

/// As a shell finds it: by the PATH unless the name has a slash.
fn find(program: &OsStr) -> io::Result<PathBuf> {
    let not_found = || {
        let message = format!("{} is not found on the PATH", program.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    };
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let search = std::env::var_os("PATH").ok_or_else(not_found)?;
    std::env::split_paths(&search)
        .map(|directory| directory.join(program))
        .find(|path| is_executable(path))
        .ok_or_else(not_found)
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The program that runs this file, if it is a script.
fn interpreter(path: &Path) -> io::Result<Option<OsString>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut head = Vec::new();
    File::open(path)?.take(LINE_BYTES).read_to_end(&mut head)?;
    Ok(interpreter_in(&head))
}

/// The interpreter that a first line names; `env` is seen through.
fn interpreter_in(head: &[u8]) -> Option<OsString> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_env = Path::new(OsStr::from_bytes(first)).file_name() == Some(OsStr::new("env"));
    let named = match is_env {
        true => words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?,
        false => first,
    };
    Some(OsString::from_vec(named.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_name_interpreters() {
        let named = |line: &[u8]| interpreter_in(line).map(|name| name.into_string().unwrap());
        assert_eq!(named(b"#!/bin/sh\nexit"), Some("/bin/sh".into()));
        assert_eq!(named(b"#! /bin/sh -e\n"), Some("/bin/sh".into()));
        assert_eq!(named(b"#!/usr/bin/env python3\n"), Some("python3".into()));
        assert_eq!(
            named(b"#!/usr/bin/env -S A=1 perl -w\n"),
            Some("perl".into())
        );
        assert_eq!(named(b"#!\n"), None);
        assert_eq!(named(b"#!/usr/bin/env\n"), None);
        assert_eq!(named(b"\x7fELF"), None);
        assert_eq!(named(b""), None);
    }
}
