//! `crosslane run --explain`: which connections were accelerated, and of the others why not.

mod groups;

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use crosslane_benchkit::show;
use crosslane_ctl::reason::Reason;
use crosslane_monitor::client::{MonitorClient, RunEnd, RunRest};
use serde::Serialize;

use crate::output;
use crate::private::{self, PATIENCE};
use groups::Group;

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, and a sentence for each reason
    Table,
    /// One JSON object for each end, and one for all
    Json,
}

/// A run that is watched.
pub struct Explanation {
    format: Format,
    to: Option<PathBuf>,
    program: String,
    run: u64,
    /// The monitor remembers for as long as this is open.
    watch: Option<MonitorClient>,
    /// Why the program itself cannot be accelerated.
    obstacle: Option<String>,
}

/// The last line of JSON.
#[derive(Serialize)]
struct Summary<'a> {
    program: &'a str,
    /// Ends of connections.
    ends: u64,
    accelerated: u64,
    /// Those that are open still.
    open: u64,
    /// Those of which nothing is known but their number.
    left_out: u64,
    /// By reason, those that were not accelerated.
    reasons: BTreeMap<&'a str, u64>,
    /// Bytes that were lost in rings.
    stranded_bytes: u64,
    note: Option<&'a str>,
}

impl Explanation {
    /// Have the monitor watch a run that is about to begin.
    pub fn begin(program: String, format: Format, to: Option<PathBuf>) -> Self {
        Self {
            format,
            to,
            program,
            run: RandomState::new().hash_one(std::process::id()).max(1),
            watch: None,
            obstacle: None,
        }
    }

    /// The run's number for the program's environment, in hexadecimal digits.
    pub fn watch(&mut self) -> anyhow::Result<String> {
        let watch = MonitorClient::connect(&private::current_directory())?;
        watch.watch(self.run)?;
        self.watch = Some(watch);
        Ok(format!("{:016x}", self.run))
    }

    /// The program runs without the library, and why.
    pub fn note_obstacle(&mut self, why: String) {
        self.obstacle = Some(why);
    }

    /// Tell what became of the connections, now that the program has ended.
    pub fn tell(&self) -> anyhow::Result<()> {
        let (mut ends, rest) = self.ask()?;
        ends.sort_by(|a, b| {
            let key = |end: &RunEnd| {
                let c = &end.connection;
                (c.program.clone(), c.pid, c.local.clone(), c.peer.clone())
            };
            key(a).cmp(&key(b))
        });
        for end in &mut ends {
            end.ended |= !crosslane_sys::process::is_alive(end.connection.pid);
        }
        let note = self.note(&ends, rest);
        let text = match self.format {
            Format::Table => table(&self.program, &ends, rest, note.as_deref()),
            Format::Json => {
                let summary = summary(&self.program, &ends, rest, note.as_deref());
                output::json_lines(&ends)? + &output::json_lines(&[summary])?
            }
        };
        match &self.to {
            None => std::io::stderr().write_all(text.as_bytes())?,
            Some(path) => File::create(path)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(())
    }

    /// A connection of its own for the question: the monitor hears programs that introduced
    /// themselves earlier, and have ended since, before it.
    fn ask(&self) -> anyhow::Result<(Vec<RunEnd>, RunRest)> {
        if self.watch.is_none() {
            return Ok((
                Vec::new(),
                RunRest {
                    watched: true,
                    left_out: 0,
                },
            ));
        }
        let client = MonitorClient::connect(&private::current_directory())?;
        Ok(client.run(self.run, PATIENCE)?)
    }

    /// What has to be said beside the list.
    fn note(&self, ends: &[RunEnd], rest: RunRest) -> Option<String> {
        if let Some(why) = &self.obstacle {
            return Some(why.clone());
        }
        if !rest.watched {
            let text = "the monitor was started anew meanwhile, so that processes which have ended \
                        are missing here";
            return Some(text.to_owned());
        }
        (ends.is_empty() && rest.left_out == 0).then(|| {
            "it opened no TCP connection through the C library; what programs do that are static, \
             written in Go or setuid is not seen (see crosslane check)"
                .to_owned()
        })
    }
}

const STRANDED: &str = "bytes were left unread in rings, of peers that had ended, when the socket went to a program without \
                        Crosslane or the program into a sandbox: they are lost; start that program under Crosslane, \
                        as the same user, or set CROSSLANE_DISABLE=1";

fn is_accelerated(end: &RunEnd) -> bool {
    end.connection.reason.is_none()
}

fn count(ends: &[RunEnd], of: impl Fn(&RunEnd) -> bool) -> u64 {
    ends.iter().filter(|end| of(end)).count() as u64
}

fn reasons(ends: &[RunEnd]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for reason in ends
        .iter()
        .filter_map(|end| end.connection.reason.as_deref())
    {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

fn summary<'a>(
    program: &'a str,
    ends: &'a [RunEnd],
    rest: RunRest,
    note: Option<&'a str>,
) -> Summary<'a> {
    Summary {
        program,
        ends: ends.len() as u64 + rest.left_out,
        accelerated: count(ends, is_accelerated),
        open: count(ends, |end| !end.ended),
        left_out: rest.left_out,
        reasons: reasons(ends),
        stranded_bytes: ends.iter().map(|end| end.stranded_bytes).sum(),
        note,
    }
}

/// Everything for people.
fn table(program: &str, ends: &[RunEnd], rest: RunRest, note: Option<&str>) -> String {
    let whole = summary(program, ends, rest, note);
    let mut text = format!(
        "crosslane: {program}: {} of {} ends of connections were accelerated",
        whole.accelerated,
        ends.len(),
    );
    if whole.open > 0 {
        text.push_str(&format!("; {} are open still", whole.open));
    }
    if whole.left_out > 0 {
        let more = "more were not remembered one by one; crosslane stats counts them, too";
        text.push_str(&format!("; {} {more}", whole.left_out));
    }
    text.push('\n');
    if let Some(note) = note {
        text.push_str(&format!("  {note}\n"));
    }
    if !ends.is_empty() {
        let rows = groups::of(ends).iter().map(Group::row).collect();
        let header = groups::HEADER.map(str::to_owned).to_vec();
        text.push_str(&format!("{}\n", show::table(groups::WORDS, header, rows)));
    }
    for reason in Reason::ALL {
        if let Some(count) = whole.reasons.get(reason.slug()) {
            let (slug, why, remedy) = (reason.slug(), reason.text(), reason.remedy());
            text.push_str(&format!("  {slug} ({count}): {why}; {remedy}\n"));
        }
    }
    if whole.stranded_bytes > 0 {
        text.push_str(&format!("  {} {STRANDED}\n", whole.stranded_bytes));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use crosslane_monitor::client::ConnectionReport;

    use super::*;

    pub fn end(pid: u32, local: &str, peer: &str, reason: Option<Reason>) -> RunEnd {
        RunEnd {
            connection: ConnectionReport {
                program: "wrk".into(),
                pid,
                fd: 3,
                local: local.into(),
                peer: peer.into(),
                state: reason.map_or("accelerated", |_| "tcp").into(),
                reason: reason.map(|reason| reason.slug().into()),
                reason_text: reason.map(|reason| reason.text().into()),
                remedy: reason.map(|reason| reason.remedy().into()),
                window: None,
                ring_bytes_sent: 10,
                ring_bytes_received: 20,
                tcp_bytes_sent: 1,
                tcp_bytes_received: 2,
            },
            ended: true,
            stranded_bytes: 0,
        }
    }

    #[test]
    fn bytes_that_are_lost_are_told_of_once() {
        let lost = |bytes| RunEnd {
            stranded_bytes: bytes,
            ..end(1, "a:1", "b:80", Some(Reason::Passed))
        };
        let rest = RunRest {
            watched: true,
            left_out: 0,
        };
        let text = table("wrk", &[lost(3), lost(0), lost(40)], rest, None);
        assert_eq!(
            text.matches("43 bytes were left unread").count(),
            1,
            "{text}"
        );
        let text = table("wrk", &[lost(0)], rest, None);
        assert!(!text.contains("left unread"), "{text}");
    }

    #[test]
    fn every_reason_is_told_once_with_what_would_change_it() {
        let ends = [
            end(1, "a:1", "b:80", None),
            end(1, "a:2", "b:80", Some(Reason::NoPeer)),
            end(1, "a:3", "b:80", Some(Reason::NoPeer)),
        ];
        let text = table(
            "wrk",
            &ends,
            RunRest {
                watched: true,
                left_out: 7,
            },
            None,
        );
        assert!(text.starts_with("crosslane: wrk: 1 of 3 ends of connections were accelerated"));
        assert!(text.contains("7 more were not remembered"), "{text}");
        assert_eq!(text.matches(Reason::NoPeer.remedy()).count(), 1, "{text}");
        assert!(text.contains("no-peer (2): "), "{text}");
    }

    #[test]
    fn the_summary_counts_what_was_left_out() {
        let ends = [end(1, "a:1", "b:80", None)];
        let whole = summary(
            "x",
            &ends,
            RunRest {
                watched: true,
                left_out: 4,
            },
            None,
        );
        assert_eq!((whole.ends, whole.accelerated, whole.open), (5, 1, 0));
    }
}
