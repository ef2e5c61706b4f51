//! Tells the command which commit it is built from, where the sources are a checkout of git's. It reads git's files and
//! runs nothing: a tarball has none of them, and git itself may be missing, or refuse the checkout of another user.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Digits that are told of a commit, as git does itself.
const DIGITS: usize = 7;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (commit, read) = commit_of(&root);
    println!("cargo::rerun-if-changed=build.rs");
    for path in read {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!(
        "cargo::rustc-env=CROSSLANE_COMMIT={}",
        commit.unwrap_or_default()
    );
}

/// The commit that is checked out at `root`, and the files by whose change another one would be.
pub fn commit_of(root: &Path) -> (Option<String>, Vec<PathBuf>) {
    let Some(own) = folder_of(root) else {
        return (None, Vec::new());
    };
    // Those of a work tree are its own; branches stand in the folder that all share.
    let shared = match fs::read_to_string(own.join("commondir")) {
        Ok(folder) => own.join(folder.trim()),
        Err(_) => own.clone(),
    };
    let Ok(head) = fs::read_to_string(own.join("HEAD")) else {
        return (None, Vec::new());
    };
    // Every commit, checkout and reset adds a line to the log. Without one it has to be the branch; cargo would run this
    // each time for a file that is not there.
    let branch = head.trim().strip_prefix("ref: ");
    let watched = [
        Some(own.join("HEAD")),
        Some(own.join("logs/HEAD")),
        branch.map(|branch| shared.join(branch)),
        Some(shared.join("packed-refs")),
    ];
    let watched = watched.into_iter().flatten().filter(|path| path.is_file());
    let commit = match branch {
        None => Some(head.trim().to_owned()),
        Some(branch) => fs::read_to_string(shared.join(branch))
            .ok()
            .or_else(|| packed(&shared, branch)),
    };
    let digits = commit.and_then(|commit| Some(commit.trim().get(..DIGITS)?.to_owned()));
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    (digits, watched.collect())
}

/// Git's folder of a checkout; that of a work tree is named in a file.
fn folder_of(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(root.join(text.trim().strip_prefix("gitdir: ")?))
}

/// A branch that has no file of its own.
fn packed(shared: &Path, branch: &str) -> Option<String> {
    let refs = fs::read_to_string(shared.join("packed-refs")).ok()?;
    refs.lines().find_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        (name == branch).then(|| commit.to_owned())
    })
}
