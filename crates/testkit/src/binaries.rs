//! Finds what the workspace builds, in release mode, as users run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The built file `name`. It is as old as the last `cargo build --release --workspace`, with
/// `--lib --bins --examples` for examples.
///
/// # Panics
/// When it has not been built.
pub fn binary(name: &str) -> PathBuf {
    let path = target_folder().join("release").join(name);
    assert!(
        path.is_file(),
        "{} has not been built: run `cargo build --release --workspace --lib --bins --examples`",
        path.display()
    );
    path
}

/// Another package's integration test as a program, built with all of the workspace's, as the step of the unit tests does.
///
/// # Panics
/// When it cannot be built.
pub fn test_binary(package: &str, test: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["test", "--no-run", "--quiet", "--message-format", "json"]);
    build.args(["--workspace", "--exclude", "crosslane-testkit"]);
    build.args(["--test", test, "--target-dir"]);
    let built = build.arg(target_folder()).output().expect("cargo starts");
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{test} of {package}: {complaint}");
    let told = String::from_utf8_lossy(&built.stdout).into_owned();
    let messages = told
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut executables = messages.filter_map(|message| {
        let id = message["package_id"].as_str()?;
        let is_it = id.contains(package) && message["target"]["name"] == test;
        let executable = message["executable"].as_str()?;
        is_it.then(|| PathBuf::from(executable))
    });
    executables.next().expect("cargo names what it has built")
}

/// The folder that cargo builds into: a test lies in `target/PROFILE/deps`.
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a file");
    test.ancestors()
        .nth(3)
        .map(Path::to_owned)
        .expect("a test lies in target/PROFILE/deps")
}
