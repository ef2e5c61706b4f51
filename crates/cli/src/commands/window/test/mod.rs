//! `crosslane window test`.

mod checks;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::builder::RangedU64ValueParser;
use crosslane_monitor::rack::window::MAGIC;
use crosslane_window::backend::{Place, Window, half_bytes, lasting_halves, open, open_bridge};
use crosslane_window::discover::Roots;
use serde::{Deserialize, Serialize};

use crate::commands::pcie::output::OutputArgs;
use crate::commands::window::meet::Session;

/// Arguments of `crosslane window test`.
#[derive(clap::Args)]
pub struct Args {
    /// A file in memory, a PCI device such as 0000:00:05.0, vfio:0000:00:05.0, ntb:0000:17:00.0, or /dev/dax0.0
    place: String,
    /// Play this side only; the other host plays the other one. A bridge knows its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..2))]
    side: Option<u8>,
    /// Seconds for each of the checks that go on for some time
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// Seconds to wait for the other side
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// Bytes of each half that are written and read in full
    #[arg(long, default_value_t = 16 << 20, value_name = "BYTES", value_parser = RangedU64ValueParser::<usize>::new().range(8..))]
    bytes: usize,
    /// Confirm that what is in DAX memory, or in the window of a rack, may be destroyed
    #[arg(long)]
    overwrite: bool,
    /// Hosts keep DAX memory coherent: do not flush
    #[arg(long)]
    coherent: bool,
    #[command(flatten)]
    output: OutputArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    let is_sensible = (0.01..=3600.0).contains(&seconds);
    is_sensible
        .then_some(seconds)
        .ok_or_else(|| "0.01 to 3600".to_owned())
}

/// What one check found on one side.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    bench: String,
    check: String,
    side: u8,
    ok: bool,
    /// Words, rounds or bytes that were checked.
    count: u64,
    /// What was measured on the way, in ns.
    ns: Option<f64>,
    /// What such windows declare of that, an order of magnitude.
    declared_ns: Option<u32>,
    /// What failed, or what the count counts.
    note: String,
}

/// Test, and print what came of it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let window = open_place(args)?;
    ensure!(
        args.overwrite || !window.keeps_data(),
        "{}: what is in this memory would be destroyed; --overwrite confirms that it may be",
        args.place
    );
    // As all windows of lanes, it stays mapped as long as the process lives.
    let window: &'static dyn Window = Box::leak(window);
    ensure!(
        args.overwrite || !is_of_a_rack(window),
        "{}: this is the window of a rack; if a monitor uses it (see `crosslane rack status`), its connections would \
         break; --overwrite confirms that they may",
        args.place
    );
    let (half, least) = (half_bytes(window), checks::LEAST_BYTES);
    ensure!(
        half >= least,
        "{}: {half} bytes at each side are too few to be tested; {least} at least",
        args.place
    );
    let side = side(args, window)?;
    let other = match side {
        None => Some(start_other(args)?),
        Some(_) => None,
    };
    let title = format!(
        "{}: {}, {} KiB at each side",
        args.place,
        window.description(),
        half >> 10
    );
    let mut rows = play(args, window, side.unwrap_or(0))?;
    if let Some(other) = other {
        let output = other
            .wait_with_output()
            .context("the process of the other side")?;
        let lines = String::from_utf8(output.stdout)?;
        for line in lines.lines() {
            rows.push(serde_json::from_str(line).context("what the other side printed")?);
        }
    }
    args.output.print(&title, &rows, 1)?;
    Ok(match rows.iter().all(|row| row.ok) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Whether a monitor has laid it out.
fn is_of_a_rack(window: &'static dyn Window) -> bool {
    let mut first = [0; MAGIC.len()];
    lasting_halves(window, 0).0.take_bytes(0, &mut first);
    first == MAGIC
}

fn open_place(args: &Args) -> anyhow::Result<Box<dyn Window>> {
    let roots = Roots::system();
    let patience = Duration::from_secs(args.patience);
    Ok(match Place::of(&args.place) {
        Place::Ntb { address, bar } => Box::new(open_bridge(&address, bar, &roots, patience)?),
        place => open(&place, &roots, args.coherent)?,
    })
}

/// The side to play, or `None` for both.
fn side(args: &Args, window: &dyn Window) -> anyhow::Result<Option<u8>> {
    let own = window.side();
    if let (Some(own), Some(asked)) = (own, args.side) {
        ensure!(
            own == asked,
            "{}: this host is side {own} of the bridge, not {asked}; leave out --side",
            args.place
        );
    }
    Ok(own.or(args.side))
}

fn start_other(args: &Args) -> anyhow::Result<std::process::Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["window", "test", "--side", "1", "--json"]);
    command.arg("--seconds").arg(args.seconds.to_string());
    command.arg("--patience").arg(args.patience.to_string());
    command.arg("--bytes").arg(args.bytes.to_string());
    let flags = [
        (args.overwrite, "--overwrite"),
        (args.coherent, "--coherent"),
    ];
    command.args(
        flags
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, flag)| flag),
    );
    command.arg("--").arg(&args.place).stdout(Stdio::piped());
    command.spawn().context("cannot start the other side")
}

fn play(args: &Args, window: &'static dyn Window, side: u8) -> anyhow::Result<Vec<Row>> {
    let patience = Duration::from_secs(args.patience);
    let remedy = format!("`crosslane window test --side {}`", 1 - side);
    let mut session = Session::meet(side, window, patience, &remedy)?;
    let time = Duration::from_secs_f64(args.seconds);
    let mut rows = checks::all(&mut session, time, args.bytes)?;
    let declared = window.traits().posted_latency_ns;
    for row in rows.iter_mut().filter(|row| row.ns.is_some()) {
        row.declared_ns = Some(declared);
    }
    Ok(rows)
}
