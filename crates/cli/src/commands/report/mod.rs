//! `crosslane report`: what the benches measured, as one self-contained page.

mod breakdown;
mod connections;
mod files;
mod measure;
mod page;
mod peers;
mod rows;
mod sockets;
mod stores;
mod wait;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use crosslane_benchkit::stop_benches_on_signals;
use rows::Data;

use crate::output::note;

/// Arguments of `crosslane report`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Results of `crosslane bench ... --json` to read instead of measuring
    #[arg(conflicts_with_all = ["quick", "benches", "repeats", "keep"])]
    files: Vec<PathBuf>,
    /// Measure briefly: each bench less than 30 s
    #[arg(long)]
    quick: bool,
    /// How many rounds each bench takes the median of
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    repeats: Option<u8>,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = measure::Bench::ALL)]
    benches: Vec<measure::Bench>,
    /// Also keep the results as JSON lines, a file for each bench, in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The page
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
The page needs no other file and runs no script. Several runs of a bench become their medians, if they are
of the same machine, commit, hosts and placement.

Examples:
  Measure everything briefly:
      crosslane report --quick

  Measure everything, and keep the results:
      mkdir results
      crosslane report --keep results --out results/report.html

  From results that are there:
      crosslane report docs/benchmarks/full/*.jsonl

Exit status:
  0 when the page was written; 1 if not, or if something on it is not as it should be: a case that
  failed, or one that was not accelerated. The page then says so first.";

/// Measure or read, and write the page.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    crate::output::check_writable(&args.out)?;
    let kept = args.keep.as_ref().map(|folder| folder.join("bench.jsonl"));
    kept.iter()
        .try_for_each(|file| crate::output::check_writable(file))?;
    let mut data = Data::default();
    if args.files.is_empty() {
        stop_benches_on_signals()?;
        for bench in &args.benches {
            note(&format!("crosslane bench {} ...", bench.name()));
            let text = match bench.measure(args.quick, args.repeats) {
                Err(error) if bench.is_optional() => {
                    data.notes.push(format!("{error:#}"));
                    note(&format!("note: {error:#}"));
                    continue;
                }
                measured => measured?,
            };
            if let Some(folder) = &args.keep {
                write(&folder.join(format!("{}.jsonl", bench.name())), &text)?;
            }
            data.add(&text, &format!("the output of bench {}", bench.name()))?;
        }
    }
    for file in &args.files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        data.add(&text, &name)?;
    }
    let mut data = data.merged()?;
    let unknown = measure::without_section(&data.benches());
    for bench in &unknown {
        data.notes
            .push(format!("the page has no section for bench {bench}"));
    }
    let of_unknown = |row: &rows::Row| unknown.contains(&row.key.bench);
    if data.rows.iter().all(of_unknown) {
        let why = data.notes.iter().map(|note| format!("; {note}"));
        bail!(
            "there is nothing to report: no row of any bench{}",
            why.collect::<String>()
        );
    }
    write(&args.out, &page::page(&data).into_string())?;
    crate::output::print(&format!("{}\n", args.out.display()))?;
    let complaints = data.complaints();
    unknown
        .iter()
        .for_each(|bench| note(&format!("note: the page has no section for bench {bench}")));
    complaints.iter().for_each(|complaint| note(complaint));
    Ok(if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
