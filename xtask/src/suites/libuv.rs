//! libuv's own tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::setup::{CMAKE, DPKG_SOURCE, Program};

use super::side::{Ended, Job};
use super::source;
use super::suite::{Extent, Place, Prepared, Suite};
use super::tap;
use super::verdict::Verdicts;

/// Debian's source package `libuv1`, built here: Debian installs the library without its tests.
pub struct Libuv;

const PACKAGE: &str = "libuv1";
const RUNNER: &str = "uv_run_tests";
/// Each test has a limit of its own, of five seconds and more.
const LIMIT: Duration = Duration::from_secs(1200);

impl Suite for Libuv {
    fn name(&self) -> &'static str {
        "libuv"
    }

    fn needs(&self) -> &'static [Program] {
        &[CMAKE, DPKG_SOURCE]
    }

    fn version(&self) -> anyhow::Result<String> {
        let folder = super::folder().join(self.name());
        let tree = source::tree(&folder).context("libuv has not been fetched")?;
        let name = tree.file_name().unwrap_or_default().to_string_lossy();
        Ok(format!("libuv {}", name.trim_start_matches("libuv1-")))
    }

    fn prepare(&self, folder: &Path, _: Option<&Path>) -> anyhow::Result<Prepared> {
        let tree = source::fetch(PACKAGE, folder)?;
        let build = build_of(folder);
        if build.join(RUNNER).is_file() {
            return Ok(Prepared::Ready);
        }
        let arguments = ["-DCMAKE_BUILD_TYPE=Release", "-DLIBUV_BUILD_BENCH=OFF"];
        cmake(
            Command::new(CMAKE.name)
                .args(arguments)
                .arg("-S")
                .args([&tree])
                .arg("-B")
                .arg(&build),
        )?;
        cmake(
            Command::new(CMAKE.name)
                .arg("--build")
                .arg(&build)
                .args(["--target", RUNNER]),
        )?;
        Ok(Prepared::Ready)
    }

    /// No core: it has to be compiled, and `cargo xtask test` has no time for that.
    fn has(&self, extent: Extent) -> bool {
        extent == Extent::Whole
    }

    fn parts(&self, _: &Path, _: Extent) -> anyhow::Result<Vec<String>> {
        Ok(vec!["tests".to_owned()])
    }

    fn uses_unix(&self) -> bool {
        true
    }

    fn job(&self, part: &str, place: &Place) -> anyhow::Result<Job> {
        // The tests read files of the tree by relative names.
        let tree = source::tree(place.suite).context("libuv has not been fetched")?;
        Ok(Job {
            name: part.into(),
            // Root may run it, too, if it says so.
            words: ["env", "UV_RUN_AS_ROOT=1"]
                .into_iter()
                .map(OsString::from)
                .chain([build_of(place.suite).join(RUNNER).into()])
                .collect(),
            folder: tree,
            limit: LIMIT,
        })
    }

    fn read(&self, _: &str, _: &Place, ended: &Ended) -> anyhow::Result<Verdicts> {
        let log = std::fs::read(&ended.log)?;
        let mut verdicts = Verdicts::default();
        for (name, verdict) in String::from_utf8_lossy(&log).lines().filter_map(tap::line) {
            verdicts.add(name, verdict);
        }
        Ok(verdicts)
    }
}

fn build_of(folder: &Path) -> PathBuf {
    folder.join("build")
}

fn cmake(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().context("cannot start cmake")?;
    ensure!(
        output.status.success(),
        "cannot build libuv: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
