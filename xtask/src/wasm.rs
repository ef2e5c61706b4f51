//! `cargo xtask wasm`: build the PCIe model for browsers and commit it to the tree.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

use crate::workspace_root;

const TARGET: &str = "wasm32-unknown-unknown";

/// Build `crates/pcie-wasm/model.wasm`.
pub fn run() -> anyhow::Result<ExitCode> {
    let root = workspace_root();
    let built = root
        .join("target")
        .join(TARGET)
        .join("release/crosslane_pcie_wasm.wasm");
    let module = root.join("crates/pcie-wasm/model.wasm");
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args([
            "build",
            "--release",
            "--package",
            "crosslane-pcie-wasm",
            "--target",
            TARGET,
        ])
        .args(["--target-dir", "target"])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "true")
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the module does not build; `rustup target add {TARGET}` adds the target");
    }
    let bytes = std::fs::copy(&built, &module)
        .with_context(|| format!("cannot copy {} to {}", built.display(), module.display()))?;
    println!(
        "{}: {bytes} bytes; `cargo test -p crosslane-pcie-wasm` checks it",
        module.display()
    );
    Ok(ExitCode::SUCCESS)
}
