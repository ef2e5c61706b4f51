//! Was acceleration on? What `crosslane run --explain=json` has told of each end of a part's connections, held against what
//! the monitor of the run has counted meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, ensure};
use crosslane_benchkit::End;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An end that has carried as much as makes the library ask for a ring at once has lived long enough for one.
const LONG_LIVED_BYTES: u64 = 256 * 1024;

/// An end that closed for one of these reasons, having carried less, ended before it could be upgraded.
const SHORT_LIVED: [&str; 3] = ["too-young", "half-closed", SWITCHING];
const SWITCHING: &str = "switching";
/// The other end of one that ended so early waited for it in vain.
const WAITED: &str = "no-peer";

/// What the name of an AF_UNIX end begins with.
const UNIX: &str = "unix:";

/// Whose other end travelled in rings both ways until it was closed did so, too: what is said then is that end.
const ENDING: [&str; 3] = ["peer-asked", "half-closed", SWITCHING];

/// What a monitor has counted up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    ends: u64,
    paired: u64,
}

/// What was told of a part's ends.
#[derive(Clone, Debug, Default)]
pub struct Told {
    ends: Vec<End>,
    left_out: u64,
}

/// Ends of connections by what became of them; a connection inside the suite has two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceleration {
    /// All of which something is known.
    pub ends: u64,
    /// Those of connections that ended before both sides had taken part in an upgrade.
    pub short_lived: u64,
    /// Those that travelled in rings to their end.
    pub accelerated: u64,
    /// Those of them over AF_UNIX.
    #[serde(default)]
    pub unix: u64,
    /// Pairs of ends that were given rings.
    pub paired: u64,
    /// Those that were not, although they lived long enough, by reason.
    pub others: BTreeMap<String, u64>,
    /// Those of which nothing is known but their number; rows of earlier runs do not say it.
    #[serde(default)]
    pub left_out: u64,
    /// What cannot be, and yet was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impossible: Vec<String>,
}

/// What became of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate<'a> {
    Accelerated,
    ShortLived,
    Other(&'a str),
}

impl Counts {
    /// Understand what `crosslane stats --json` says.
    pub fn of(stats: &Value) -> anyhow::Result<Self> {
        let count = |value: &Value, name| {
            let found = value[name].as_u64();
            found.with_context(|| format!("crosslane stats does not count {name}"))
        };
        Ok(Self {
            ends: count(stats, "connections")?,
            paired: count(&stats["monitor"], "paired")?,
        })
    }

    /// What has been counted since `before`. `None` if it was more then.
    fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            ends: self.ends.checked_sub(before.ends)?,
            paired: self.paired.checked_sub(before.paired)?,
        })
    }
}

impl Told {
    /// Read what was told; nothing where the part was ended before it could be told.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        match text.is_empty() {
            true => Ok(Self::default()),
            false => Self::parse(&text).with_context(|| path.display().to_string()),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines: Vec<&str> = text.lines().collect();
        let last = lines.pop().context("nothing was told")?;
        let summary: Value = serde_json::from_str(last)?;
        let left_out = summary["left_out"].as_u64().context("no summary")?;
        let ends: Vec<End> = lines
            .into_iter()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let all = ends.len() as u64 + left_out;
        ensure!(
            summary["ends"] == all,
            "{all} ends are told of, {} in the summary",
            summary["ends"]
        );
        Ok(Self { ends, left_out })
    }
}

impl Acceleration {
    /// Of a part that was run between two looks at the counters.
    pub fn of(told: &Told, before: Counts, after: Counts) -> Self {
        let mut found = Self {
            ends: told.ends.len() as u64,
            left_out: told.left_out,
            ..Self::default()
        };
        for (end, fate) in told.ends.iter().zip(fates(&told.ends)) {
            match fate {
                Fate::Accelerated => {
                    found.accelerated += 1;
                    found.unix += u64::from(end.local.starts_with(UNIX));
                }
                Fate::ShortLived => found.short_lived += 1,
                Fate::Other(reason) => *found.others.entry(reason.to_owned()).or_default() += 1,
            }
        }
        match after.since(before) {
            Some(counts) => found.compare(counts),
            None => found
                .impossible
                .push(format!("{before:?} was counted before {after:?}")),
        }
        found
    }

    /// Hold what was told against what was counted, which knows all ends, and nothing of their fates.
    fn compare(&mut self, counts: Counts) {
        self.paired = counts.paired;
        let told = self.ends + self.left_out;
        match counts.ends.checked_sub(told) {
            // Ends of processes that outlived the telling, or of which none was told at all.
            Some(more) => self.left_out += more,
            None => self.impossible.push(format!(
                "{told} ends are told of, {} were counted",
                counts.ends
            )),
        }
        if self.accelerated > 2 * self.paired {
            self.impossible.push(format!(
                "{} ends were accelerated, of {} pairs that were given rings",
                self.accelerated, self.paired
            ));
        }
    }

    /// Of all parts.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut sum, part| {
            sum.ends += part.ends;
            sum.short_lived += part.short_lived;
            sum.accelerated += part.accelerated;
            sum.unix += part.unix;
            sum.paired += part.paired;
            sum.left_out += part.left_out;
            for (reason, count) in &part.others {
                *sum.others.entry(reason.clone()).or_default() += count;
            }
            sum
        })
    }

    /// Ends of connections that lived long enough to be upgraded.
    pub fn long_lived(&self) -> u64 {
        self.accelerated + self.others.values().sum::<u64>()
    }

    /// Whether there were ends, and nothing was told of any.
    pub fn is_unknown(&self) -> bool {
        self.ends == 0 && self.left_out > 0
    }

    /// Whether any travelled in rings: by what was told of them, and by the monitor's own count.
    pub fn is_proven(&self) -> bool {
        self.accelerated > 0 && self.paired > 0
    }

    /// As [`Self::is_proven`], of AF_UNIX.
    pub fn is_proven_over_unix(&self) -> bool {
        self.unix > 0 && self.is_proven()
    }

    /// The share of these that were accelerated, in percent.
    pub fn percent(&self) -> u64 {
        match self.long_lived() {
            0 => 0,
            long_lived => self.accelerated * 100 / long_lived,
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let others: Vec<_> = self
            .others
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let left_out = match self.left_out {
            0 => String::new(),
            left_out => format!("; {left_out} ends more, of which nothing is known"),
        };
        let unix = match self.unix {
            0 => String::new(),
            unix => format!(", {unix} over AF_UNIX"),
        };
        format!(
            "{} ends of connections, {} of them long-lived, {} of these accelerated ({} %{unix}); others: {}{left_out}",
            self.ends,
            self.long_lived(),
            self.accelerated,
            self.percent(),
            if others.is_empty() {
                "none".into()
            } else {
                others.join(", ")
            }
        )
    }
}

/// What became of each end.
fn fates(ends: &[End]) -> Vec<Fate<'_>> {
    let mut fates: Vec<_> = ends.iter().map(fate).collect();
    let is_ending = |fate: &Fate| ENDING.iter().any(|reason| *fate == Fate::Other(reason));
    share(ends, &mut fates, Fate::Accelerated, is_ending);
    share(ends, &mut fates, Fate::ShortLived, |fate| {
        *fate == Fate::Other(WAITED)
    });
    fates
}

/// Ends whose fate `depends` on that of the other end have this one where the other has. Names come again, so each is the
/// other end of one at most.
fn share<'a>(
    ends: &[End],
    fates: &mut [Fate<'a>],
    this: Fate<'a>,
    depends: impl Fn(&Fate<'a>) -> bool,
) {
    let such = |fates: &[Fate<'a>]| -> Vec<_> {
        let all = ends.iter().zip(fates).filter(|(_, fate)| **fate == this);
        all.map(|(end, _)| end).collect()
    };
    // By the name of the end itself and, where it knows it, of its peer.
    let mut others: HashMap<[&str; 2], usize> = HashMap::new();
    for end in such(fates) {
        *others.entry([&end.local, &end.peer]).or_default() += 1;
    }
    for end in such(fates) {
        take(&mut others, [&end.peer, &end.local]);
    }
    for (end, fate) in ends.iter().zip(fates).filter(|(_, fate)| depends(fate)) {
        if take(&mut others, [&end.peer, &end.local]) || take(&mut others, [&end.peer, ""]) {
            *fate = this;
        }
    }
}

/// Whether there is one more of these names, which is used up.
fn take<'a>(counts: &mut HashMap<[&'a str; 2], usize>, names: [&'a str; 2]) -> bool {
    match counts.get_mut(&names) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

fn fate(end: &End) -> Fate<'_> {
    let ring = end.ring_bytes_sent + end.ring_bytes_received;
    let tcp = end.tcp_bytes_sent + end.tcp_bytes_received;
    match end.reason.as_deref() {
        None => Fate::Accelerated,
        // A direction that never sends never switches.
        Some(SWITCHING) if ring > tcp => Fate::Accelerated,
        Some(reason) if SHORT_LIVED.contains(&reason) && ring + tcp < LONG_LIVED_BYTES => {
            Fate::ShortLived
        }
        Some(reason) => Fate::Other(reason),
    }
}

#[cfg(test)]
mod tests;
