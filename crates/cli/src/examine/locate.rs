//! Which file a name means, and which interpreter runs a script.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// As many interpreters of interpreters as the kernel follows.
const DEPTH: usize = 5;

/// Where execvp(3) looks if there is no PATH.
const WITHOUT_PATH: &str = "/bin:/usr/bin";

/// Bytes of a script's first line that the kernel looks at.
const LINE_BYTES: u64 = 256;

/// The ELF file, or whatever is no script, behind `program`; scripts on the way are listed.
pub fn locate(program: &OsStr, scripts: &mut Vec<PathBuf>) -> io::Result<PathBuf> {
    let mut path = find(program)?;
    for _ in 0..DEPTH {
        let interpreter = match interpreter(&path) {
            // It may be run all the same.
            Err(error) if is_for_running_only(&path, &error) => return Ok(path),
            found => found?,
        };
        let Some(interpreter) = interpreter else {
            return Ok(path);
        };
        scripts.push(path);
        path = find(&interpreter)?;
    }
    Err(io::Error::other("its interpreters are scripts without end"))
}

fn is_for_running_only(path: &Path, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && is_executable(path)
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
    let search = std::env::var_os("PATH").unwrap_or_else(|| WITHOUT_PATH.into());
    std::env::split_paths(&search)
        .map(|directory| directory.join(program))
        .find(|path| is_executable(path))
        .ok_or_else(not_found)
}

/// Whether anybody may execute it.
pub fn is_executable(path: &Path) -> bool {
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
        true => run_by_env(words)?,
        false => first,
    };
    Some(OsString::from_vec(named.to_owned()))
}

/// The program among the arguments of env(1), behind its options and the variables that it sets.
fn run_by_env<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let mut word = words.next()?;
    loop {
        let inner = match word {
            b"--unset" | b"--chdir" | b"--argv0" => words.next().map(|_| None)?,
            _ => match (word.strip_prefix(b"--"), word.strip_prefix(b"-")) {
                (Some(long), _) => long.strip_prefix(b"split-string="),
                (None, Some(letters)) => behind_letters(letters, &mut words),
                _ if word.contains(&b'=') => None,
                _ => return Some(word),
            },
        };
        word = match inner {
            Some(inner) => inner,
            None => words.next()?,
        };
    }
}

/// What is joined to `-S` among these options of one letter, if anything is. The value of another is taken away.
fn behind_letters<'a>(
    letters: &'a [u8],
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Option<&'a [u8]> {
    let is_last = |letter: &u8| matches!(letter, b'u' | b'C' | b'a' | b'S');
    let at = letters.iter().position(is_last)?;
    let rest = letters.get(at + 1..).filter(|rest| !rest.is_empty());
    match (letters.get(at), rest) {
        (Some(b'S'), rest) => rest,
        (_, Some(_)) => None,
        (_, None) => words.next().and(None),
    }
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
        for line in [
            &b"#!/usr/bin/env -S -u A sh -x"[..],
            b"#!/usr/bin/env -S -iuA -C /tmp --unset B --chdir=/ C=1 sh",
            b"#!/usr/bin/env -vSsh -e",
            b"#!/usr/bin/env --split-string=-i sh",
            b"#!/usr/bin/env -S -a name -- sh",
        ] {
            assert_eq!(named(line), Some("sh".into()), "{}", line.escape_ascii());
        }
        assert_eq!(named(b"#!/usr/bin/env -S -u sh"), None);
        assert_eq!(named(b"#!\n"), None);
        assert_eq!(named(b"#!/usr/bin/env\n"), None);
        assert_eq!(named(b"\x7fELF"), None);
        assert_eq!(named(b""), None);
    }
}
