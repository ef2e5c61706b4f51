//! What a suite has to tell: where it comes from, its parts, and how to read their results.

use std::path::{Path, PathBuf};

use crate::setup::Program;

use super::exclusions::Exclusion;
use super::floor::Floor;
use super::side::{Ended, Job};
use super::verdict::Verdicts;

/// Somebody else's test suite.
pub trait Suite: Sync {
    fn name(&self) -> &'static str;

    /// What must be installed.
    fn needs(&self) -> &'static [Program];

    /// What it and the programs under test are, with versions.
    fn version(&self) -> anyhow::Result<String>;

    /// Whether it has anything of this extent; every suite is there as a whole.
    fn has(&self, _extent: Extent) -> bool {
        true
    }

    /// Fetch and build it, once for all sides; `folder` is its own and is kept between runs. `source` is where to take
    /// it from, if somebody has said so.
    fn prepare(&self, _folder: &Path, _source: Option<&Path>) -> anyhow::Result<Prepared> {
        Ok(Prepared::Ready)
    }

    /// Its parts, each a process and a log: all of them, or those of the core.
    fn parts(&self, folder: &Path, extent: Extent) -> anyhow::Result<Vec<String>>;

    /// What share of its connections has to be accelerated, in every mode.
    fn floors(&self) -> &'static [Floor] {
        &[]
    }

    /// Whether its programs talk over AF_UNIX, too, by connections that are worth rings.
    fn uses_unix(&self) -> bool {
        false
    }

    /// Prepare a side's own folder.
    fn furnish(&self, _place: &Place) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether its tests bear that other sides run on the same processors.
    fn is_patient(&self) -> bool {
        false
    }

    /// How to run a part. `place` is where to.
    fn job(&self, part: &str, place: &Place) -> anyhow::Result<Job>;

    /// What became of the tests of a part.
    fn read(&self, part: &str, place: &Place, ended: &Ended) -> anyhow::Result<Verdicts>;
}

/// Whether a suite can be run.
pub enum Prepared {
    Ready,
    /// It is not to be had from here, and why.
    Unavailable(String),
}

/// How much of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What `cargo xtask test` has time for.
    Core,
    Whole,
}

/// Where a part runs.
pub struct Place<'a> {
    /// What `prepare` has made.
    pub suite: &'a Path,
    /// For this side only.
    pub side: PathBuf,
    pub exclusions: &'a [Exclusion],
}
