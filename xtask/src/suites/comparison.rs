//! Runs a suite on all its sides and compares them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::acceleration::{Acceleration, Counts, Told};
use super::exclusions::{self, Exclusion};
use super::report::{self, Row};
use super::side::{End, Ended, Mode, Side};
use super::suite::{Extent, Place, Prepared, Suite};
use super::verdict::{self, Difference, Tally, Verdicts};

/// What is kept of a side beside its logs.
const KEPT: &str = "side.json";

/// What is to be compared, of any suite.
pub struct Bench {
    pub crosslane: PathBuf,
    pub modes: Vec<Mode>,
    pub extent: Extent,
    /// Only these parts; empty for all.
    pub parts: Vec<String>,
    /// Run nothing, but read what the last run has left.
    pub reread: bool,
    /// From which Crosslane is built.
    pub commit: String,
    /// Where to take a suite from that is fetched from its authors.
    pub source: Option<PathBuf>,
}

/// What has come of a suite.
pub enum Compared {
    Rows(Vec<Row>),
    /// It was not run, and why.
    Skipped(String),
}

/// A suite under way.
struct Course<'a> {
    bench: &'a Bench,
    suite: &'a dyn Suite,
    folder: PathBuf,
    parts: Vec<String>,
    exclusions: Vec<Exclusion>,
}

/// What one side has found.
struct Found {
    mode: Mode,
    parts: BTreeMap<String, Part>,
    /// By part.
    accelerations: BTreeMap<String, Acceleration>,
    took: Duration,
    build: Build,
}

/// What is kept of a side. Earlier ones are arrays, which end with the ends.
#[derive(Serialize, Deserialize)]
struct Kept {
    accelerations: BTreeMap<String, Acceleration>,
    took: Duration,
    /// By part.
    ends: BTreeMap<String, End>,
    #[serde(default)]
    build: Option<Build>,
}

/// What was run, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Build {
    commit: String,
    date: String,
}

/// What became of a part.
struct Part {
    /// Of its tests, and of itself.
    verdicts: Verdicts,
    /// Whether it has told of any test.
    has_results: bool,
    end: End,
}

impl Bench {
    /// Run the suite natively and in all modes, and say how they differ.
    pub fn compare(&self, suite: &dyn Suite) -> anyhow::Result<Compared> {
        let folder = super::folder().join(suite.name());
        std::fs::create_dir_all(&folder)?;
        println!("{}: preparing in {}", suite.name(), folder.display());
        if let Prepared::Unavailable(why) = suite.prepare(&folder, self.source.as_deref())? {
            return Ok(Compared::Skipped(format!("{}: {why}", suite.name())));
        }
        let course = Course {
            bench: self,
            suite,
            parts: self.parts_of(suite, &folder)?,
            exclusions: exclusions_of(suite)?,
            folder,
        };
        course.rows().map(Compared::Rows)
    }

    fn parts_of(&self, suite: &dyn Suite, folder: &Path) -> anyhow::Result<Vec<String>> {
        let mut parts = suite.parts(folder, self.extent)?;
        if !self.parts.is_empty() {
            parts.retain(|part| self.parts.contains(part));
        }
        ensure!(!parts.is_empty(), "{} has no such part", suite.name());
        Ok(parts)
    }
}

fn exclusions_of(suite: &dyn Suite) -> anyhow::Result<Vec<Exclusion>> {
    let names: Vec<_> = super::ALL.iter().map(|suite| suite.name()).collect();
    let mut exclusions = exclusions::read(&names)?;
    exclusions.retain(|exclusion| exclusion.suite == suite.name());
    Ok(exclusions)
}

/// Parts that say nothing are the same on all sides, and nothing has been tested.
fn without_results(found: &Found) -> Vec<String> {
    let parts = found.parts.iter();
    let empty = parts.filter(|(_, part)| !part.has_results);
    empty.map(|(name, _)| name.clone()).collect()
}

impl Course<'_> {
    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let mut sides = self.run_all(&self.modes()?)?;
        let natively = sides.remove(0);
        let mut repeated = BTreeMap::new();
        for side in &sides {
            self.repeat_where_different(&natively, side, &mut repeated)?;
        }
        sides
            .into_iter()
            .map(|side| self.row(&natively, &repeated, side))
            .collect()
    }

    /// Natively first, and in those modes that are asked for in which the suite's programs differ.
    fn modes(&self) -> anyhow::Result<Vec<Mode>> {
        let modes = self.bench.modes.iter().copied();
        let differs = |mode: &Mode| *mode != Mode::Unix || self.suite.uses_unix();
        let modes: Vec<_> = modes.filter(differs).collect();
        let name = self.suite.name();
        ensure!(
            !modes.is_empty(),
            "{name} has no connections over AF_UNIX: choose among default, eager"
        );
        Ok([&[Mode::Native], &modes[..]].concat())
    }

    /// All sides, at once if the suite bears it.
    fn run_all(&self, modes: &[Mode]) -> anyhow::Result<Vec<Found>> {
        if !self.suite.is_patient() {
            return modes.iter().map(|mode| self.run_side(*mode)).collect();
        }
        std::thread::scope(|scope| {
            let start = |mode: &Mode| {
                let mode = *mode;
                scope.spawn(move || self.run_side(mode))
            };
            let threads: Vec<_> = modes.iter().map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a side does not panic"))
                .collect()
        })
    }

    fn run_side(&self, mode: Mode) -> anyhow::Result<Found> {
        if self.bench.reread {
            return self.reread_side(mode);
        }
        let start = Instant::now();
        let place = self.place(mode.name())?;
        let side = Side::open(mode, &self.bench.crosslane, &place.side)?;
        let (mut parts, mut accelerations) = (BTreeMap::new(), BTreeMap::new());
        let mut before = Counts::default();
        for part in &self.parts {
            let (found, told) = self.run_part(&side, part, &place)?;
            parts.insert(part.clone(), found);
            if let Some(counts) = side.counts()? {
                let of_part = Acceleration::of(&Told::read(&told)?, before, counts);
                accelerations.insert(part.clone(), of_part);
                before = counts;
            }
        }
        let took = start.elapsed();
        let ends = parts.iter().map(|(part, found)| (part.clone(), found.end));
        let build = Build {
            commit: self.bench.commit.clone(),
            date: report::today()?,
        };
        let kept = Kept {
            accelerations: accelerations.clone(),
            took,
            ends: ends.collect(),
            build: Some(build.clone()),
        };
        std::fs::write(place.side.join(KEPT), serde_json::to_string(&kept)?)?;
        Ok(Found {
            mode,
            parts,
            accelerations,
            took,
            build,
        })
    }

    /// What a run has left.
    fn reread_side(&self, mode: Mode) -> anyhow::Result<Found> {
        let place = self.place_of(mode.name());
        let path = place.side.join(KEPT);
        let kept = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let kept: Kept = serde_json::from_str(&kept)?;
        let mut parts = BTreeMap::new();
        for part in &self.parts {
            let name = self.suite.job(part, &place)?.name;
            let log = place.side.join(format!("{name}.log"));
            let end = *kept
                .ends
                .get(part)
                .context("the last run had no such part")?;
            let ended = Ended {
                log,
                told: PathBuf::new(),
                end,
                took: Duration::ZERO,
            };
            let found = self.read(part, &place, &ended)?;
            parts.insert(part.clone(), found);
        }
        let build = match kept.build {
            Some(build) => build,
            None => self.build_of(mode, kept.took, &path)?,
        };
        Ok(Found {
            mode,
            parts,
            accelerations: kept.accelerations,
            took: kept.took,
            build,
        })
    }

    /// What was run, where the side itself does not say it: a recorded row of as many seconds is of that run.
    fn build_of(&self, mode: Mode, took: Duration, kept: &Path) -> anyhow::Result<Build> {
        let is_it = |row: &Row| {
            let of_suite = row.suite == self.suite.name() && row.mode == mode;
            of_suite && row.seconds == took.as_secs()
        };
        Ok(match report::kept()?.into_iter().find(is_it) {
            Some(Row { commit, date, .. }) => Build { commit, date },
            None => Build {
                commit: String::new(),
                date: report::day_of(kept)?,
            },
        })
    }

    fn place(&self, name: &str) -> anyhow::Result<Place<'_>> {
        let place = self.place_of(name);
        // Nothing of an earlier run may be taken for this one's.
        if place.side.exists() {
            std::fs::remove_dir_all(&place.side)?;
        }
        std::fs::create_dir_all(&place.side)?;
        self.suite.furnish(&place)?;
        Ok(place)
    }

    fn place_of(&self, name: &str) -> Place<'_> {
        Place {
            suite: &self.folder,
            side: self.folder.join(name),
            exclusions: &self.exclusions,
        }
    }

    /// Run it; where it is told what became of its connections.
    fn run_part(&self, side: &Side, part: &str, place: &Place) -> anyhow::Result<(Part, PathBuf)> {
        let ended = side.run(&self.suite.job(part, place)?)?;
        let how = match ended.end {
            End::Good => "",
            End::Bad => ", not with 0",
            End::Killed => ", killed by a signal",
            End::Late => ", past its limit",
        };
        println!(
            "{} {part} {}: {:.1} s{how}",
            self.suite.name(),
            side.mode.name(),
            ended.took.as_secs_f64()
        );
        Ok((self.read(part, place, &ended)?, ended.told))
    }

    fn read(&self, part: &str, place: &Place, ended: &Ended) -> anyhow::Result<Part> {
        let verdicts = self.suite.read(part, place, ended);
        let verdicts = verdicts.with_context(|| ended.log.display().to_string())?;
        let is_excluded = |name: &str| self.exclusions.iter().any(|e| e.test == name);
        let mut verdicts = verdicts.without(is_excluded);
        let has_results = !verdicts.is_empty();
        verdicts.add_end(part, ended.end);
        Ok(Part {
            verdicts,
            has_results,
            end: ended.end,
        })
    }

    /// Run the parts that differ natively once more, to know which of their tests vary natively.
    fn repeat_where_different(
        &self,
        natively: &Found,
        side: &Found,
        repeated: &mut BTreeMap<String, Verdicts>,
    ) -> anyhow::Result<()> {
        let parts = side.parts.iter().filter(|_| !self.bench.reread);
        for (part, found) in parts {
            let native = natively.parts.get(part).map(|part| part.verdicts.clone());
            let native = native.unwrap_or_default();
            let differences = verdict::differences(&[native], &found.verdicts);
            if repeated.contains_key(part) || differences.is_empty() {
                continue;
            }
            let place = self.place("again")?;
            let again = Side::open(Mode::Native, &self.bench.crosslane, &place.side)?;
            let (again, _) = self.run_part(&again, part, &place)?;
            repeated.insert(part.clone(), again.verdicts);
        }
        Ok(())
    }

    fn row(
        &self,
        natively: &Found,
        repeated: &BTreeMap<String, Verdicts>,
        side: Found,
    ) -> anyhow::Result<Row> {
        let mut tests = 0;
        let mut different: Vec<Difference> = Vec::new();
        for (part, Part { verdicts, .. }) in &side.parts {
            let native = natively.parts.get(part).map(|part| &part.verdicts);
            let native = [native, repeated.get(part)];
            let native: Vec<_> = native.into_iter().flatten().cloned().collect();
            tests += verdict::names(native.iter().chain([verdicts])).len();
            different.extend(verdict::differences(&native, verdicts));
        }
        let of_parts = natively.parts.values().map(|part| &part.verdicts);
        Ok(Row {
            suite: self.suite.name().to_owned(),
            version: self.suite.version()?,
            mode: side.mode,
            tests,
            natively: Some(Tally::of(of_parts)),
            different,
            without_results: without_results(natively),
            excluded: self.exclusions.clone(),
            acceleration: Acceleration::sum(side.accelerations.values()),
            accelerations: side.accelerations,
            floors: match side.mode {
                // Pairs within one process stay with the kernel.
                Mode::Unix => Vec::new(),
                _ => self.suite.floors().to_vec(),
            },
            is_whole: self.bench.extent == Extent::Whole && self.bench.parts.is_empty(),
            parts: self.parts.clone(),
            seconds: side.took.as_secs(),
            native_seconds: natively.took.as_secs(),
            date: side.build.date,
            commit: side.build.commit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_runs_have_left_is_read_too() {
        let build = Build {
            commit: "1234567".into(),
            date: "2026-11-29".into(),
        };
        let ends = BTreeMap::from([("a".to_owned(), End::Bad)]);
        let now = Kept {
            accelerations: BTreeMap::new(),
            took: Duration::from_secs(7),
            ends: ends.clone(),
            build: Some(build.clone()),
        };
        let now = serde_json::to_string(&now).unwrap();
        let before = r#"[{}, {"secs": 7, "nanos": 0}, {"a": "bad"}]"#;
        for (text, build) in [(now.as_str(), Some(build)), (before, None)] {
            let kept: Kept = serde_json::from_str(text).unwrap();
            assert_eq!((kept.ends, kept.build), (ends.clone(), build));
            assert_eq!(kept.took, Duration::from_secs(7));
        }
    }
}
