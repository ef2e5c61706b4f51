//! Builds what users run, in release mode.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

/// What `crosslane run` needs, and nothing else of the workspace.
const PACKAGES: [&str; 2] = ["crosslane", "crosslane-preload"];

/// Builds with cargo's own progress display, and says where the command is.
pub fn crosslane() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release"])
        .current_dir(crate::workspace_root());
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    ensure!(
        cargo.status().context("cannot start cargo")?.success(),
        "the build failed"
    );
    Ok(target().join("release/crosslane"))
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    let default = || crate::workspace_root().join("target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}
