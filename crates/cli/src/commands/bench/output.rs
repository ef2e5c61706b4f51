//! What all benches print in the same way: progress, the heading, lines of JSON, complaints.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crosslane_benchkit::{Machine, Took, stats};
use serde::Serialize;

use crate::output::note;

/// What a person must know beside the table, a line each.
pub fn as_notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

/// Overwrites one line on a terminal; elsewhere a bench of seconds needs no progress.
pub fn show_progress(line: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Progress that cannot be shown is no reason to stop measuring.
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    }
}

/// The first line of a table: where and when, and how long it has taken.
pub fn heading(machine: &Machine) -> String {
    let Machine {
        cpu,
        cores,
        kernel,
        date,
        commit,
        took_s,
        ..
    } = machine;
    let commit = commit.as_deref().unwrap_or("unknown");
    let took = took(*took_s);
    format!("{cpu}, {cores} CPUs, {kernel}; commit {commit}, {date}{took}\n")
}

/// What a bench has taken, for the end of a heading.
pub fn took(time: Took) -> String {
    let seconds = time.seconds();
    seconds.map_or_else(String::new, |seconds| format!("; in {seconds:.1} s"))
}

/// The preamble and the rows, an object a line.
pub fn json(preamble: &impl Serialize, rows: &[impl Serialize]) -> anyhow::Result<String> {
    let first = serde_json::to_string(preamble)?;
    Ok(first + "\n" + &crate::output::json_lines(rows)?)
}

/// Prints what was measured, and on standard error what must be known of it. The status says
/// whether everything could be measured, as what it should be.
pub fn finish(text: &str, complaints: &[String], complete: bool) -> anyhow::Result<ExitCode> {
    crate::output::print(text)?;
    complaints.iter().for_each(|complaint| note(complaint));
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A count or a time in nanoseconds as a number; exact far beyond what any bench counts.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn number(value: u64) -> f64 {
    value as f64
}

/// A figure as it is written to a file: whole, with four digits that mean something.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of minutes at most, sizes of gigabytes at most"
)]
pub fn whole(value: f64) -> u64 {
    stats::significant(value, 4).max(0.0).round() as u64
}
