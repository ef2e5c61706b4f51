//! What `crosslane --version` says, and how the build finds the commit.

#[allow(dead_code, reason = "its main is cargo's")]
#[path = "../build.rs"]
mod build;

use std::fs;
use std::path::Path;
use std::process::Command;

use build::commit_of;

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn commit(root: &Path) -> Option<String> {
    commit_of(root).0
}

#[test]
fn it_names_the_version_the_commit_and_the_protocols() {
    let output = Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .arg("--version")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let protocols = format!(
        "protocol {}, rack {})\n",
        crosslane_ctl::ABI_VERSION,
        crosslane_monitor::rack::message::RACK_VERSION
    );
    let rest = said
        .strip_prefix(concat!("crosslane ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(&protocols))
        .unwrap_or_else(|| panic!("{said}"));
    match commit(&root) {
        None => assert_eq!(rest, ""),
        // Another one where somebody commits meanwhile.
        Some(now) => assert!(
            rest.len() == now.len() + 2 && rest.ends_with(", "),
            "{said}"
        ),
    }
}

#[test]
fn a_tarball_has_no_commit_and_nothing_to_be_watched() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(commit_of(root.path()), (None, Vec::new()));
    write(&root.path().join(".git"), "of something else");
    assert_eq!(commit(root.path()), None);
}

#[test]
fn a_branch_is_found_in_its_file_or_among_the_packed_ones() {
    let root = tempfile::tempdir().unwrap();
    let git = root.path().join(".git");
    write(&git.join("HEAD"), "ref: refs/heads/main\n");
    assert_eq!(commit(root.path()), None, "before the first commit");
    let packed = format!("# pack-refs with: peeled\n{HASH} refs/heads/main\n");
    write(&git.join("packed-refs"), &packed);
    assert_eq!(commit(root.path()).as_deref(), Some("0123456"));
    write(
        &git.join("refs/heads/main"),
        &format!("fedcba9{}\n", &HASH[7..]),
    );
    assert_eq!(commit(root.path()).as_deref(), Some("fedcba9"));
}

#[test]
fn a_commit_that_is_checked_out_needs_no_branch() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join(".git/HEAD"), &format!("{HASH}\n"));
    assert_eq!(commit(root.path()).as_deref(), Some("0123456"));
}

#[test]
fn a_work_tree_has_its_own_head_and_everybodys_branches() {
    let root = tempfile::tempdir().unwrap();
    let (main, tree) = (root.path().join("main"), root.path().join("tree"));
    let own = main.join(".git/worktrees/tree");
    write(&main.join(".git/refs/heads/topic"), &format!("{HASH}\n"));
    write(&own.join("HEAD"), "ref: refs/heads/topic\n");
    write(&own.join("commondir"), "../..\n");
    write(&own.join("logs/HEAD"), "one line for each commit\n");
    write(&tree.join(".git"), &format!("gitdir: {}\n", own.display()));
    let (commit, read) = commit_of(&tree);
    assert_eq!(commit.as_deref(), Some("0123456"));
    assert!(read.contains(&own.join("logs/HEAD")), "{read:?}");
    assert!(read.iter().all(|path| path.is_file()), "{read:?}");
}
