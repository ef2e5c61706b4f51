//! `cargo xtask fuzz-posix`: random programs of socket calls on the kernel alone and under
//! Crosslane, compared for as long as there is time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use crosslane_benchkit::{Folder, Process, stop_children_on_signals};
use serde::{Deserialize, Serialize};

/// What is run, and nothing else of the workspace.
const PACKAGES: [&str; 3] = ["crosslane", "crosslane-preload", "crosslane-exercise"];
/// The variable that tells programs where the monitor's socket is.
const RUNTIME_DIR: &str = "CROSSLANE_RUNTIME_DIR";
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `cargo xtask fuzz-posix`.
#[derive(clap::Args)]
pub struct Args {
    /// Begin no program after so many minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Compare the program of this seed only
    #[arg(long, conflicts_with_all = ["minutes", "program"])]
    seed: Option<u64>,
    /// Compare this program only; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "minutes")]
    program: Vec<PathBuf>,
    /// Begin with this seed instead of one made of the time
    #[arg(long)]
    first: Option<u64>,
    /// Have connections of AF_UNIX in programs, instead of TCP
    #[arg(long)]
    unix: bool,
    /// Play so many programs at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Play also what is known to differ
    #[arg(long)]
    known: bool,
    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

/// What the comparison found, and what Crosslane did meanwhile.
#[derive(Deserialize, Serialize)]
struct Report {
    programs: u64,
    steps: u64,
    left_out: BTreeMap<String, u64>,
    unsteady: u64,
    repeats: u64,
    seconds: u64,
    differences: Vec<Found>,
    #[serde(default)]
    first_seed: u64,
    #[serde(default)]
    upgrades: u64,
    /// Of all bytes that programs under Crosslane sent, those that went through rings.
    #[serde(default)]
    ring_share: f64,
}

#[derive(Deserialize, Serialize)]
struct Found {
    origin: String,
    under: String,
    native: String,
    other: String,
    seen: u64,
    runs: u64,
    program: String,
    #[serde(default)]
    replay: String,
}

/// Run what `args` ask for; fails when something differs or nothing was accelerated.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stop_children_on_signals()?;
    let folder = build()?;
    let runtime_dir = Folder::new("crosslane-fuzz-")?;
    let crosslane = folder.join("crosslane");
    let monitor = start_monitor(&crosslane, runtime_dir.path())?;
    let mut report = hunt(args, &folder, runtime_dir.path())?;
    let stats = stats(&crosslane, runtime_dir.path())?;
    monitor.stop()?;
    report.upgrades = count(&stats, "upgrades");
    report.ring_share = ring_share(&stats);
    for found in &mut report.differences {
        found.replay = keep(found, args.unix)?;
    }
    print(&report, args.json)?;
    let is_good = report.differences.is_empty() && report.steps > 0 && report.upgrades > 0;
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn build() -> anyhow::Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release"])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .current_dir(crate::workspace_root())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the build failed");
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| crate::workspace_root().join("target"), PathBuf::from);
    Ok(target.join("release"))
}

fn start_monitor(crosslane: &Path, runtime_dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(crosslane);
    command.arg("monitor").arg("--runtime-dir").arg(runtime_dir);
    let monitor = Process::spawn("crosslane monitor", &mut command)?;
    let deadline = Instant::now() + PATIENCE;
    while !runtime_dir.join("monitor.sock").exists() {
        ensure!(
            Instant::now() < deadline,
            "the monitor does not make its socket"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(monitor)
}

/// Let the differ compare, and read what it found. Its progress goes to standard error.
fn hunt(args: &Args, folder: &Path, runtime_dir: &Path) -> anyhow::Result<Report> {
    let unix = if args.unix { " --unix" } else { "" };
    let run = format!("{} run{unix}", folder.join("crosslane").display());
    let mut differ = Command::new(folder.join("crosslane-differ"));
    differ
        .args(["hunt", "--json", "--under", &format!("{run} --")])
        .args(["--under", &format!("{run} --eager 1-65535 --")])
        .args(["--under", &format!("env CROSSLANE_CHAOS=5 {run} --")])
        .args(["--jobs", &args.jobs.to_string()])
        .env(RUNTIME_DIR, runtime_dir)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if args.known {
        differ.arg("--known");
    }
    if args.unix {
        differ.arg("--unix");
    }
    let first = args.first.map_or_else(seed_of_time, Ok)?;
    if let Some(seed) = args.seed {
        differ.arg("--seed").arg(seed.to_string());
    } else if args.program.is_empty() {
        let seconds = args.minutes * 60;
        differ.args([
            "--first",
            &first.to_string(),
            "--seconds",
            &seconds.to_string(),
        ]);
    } else {
        differ.args(&args.program);
    }
    let output = differ.output().context("cannot start crosslane-differ")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.is_empty() {
        bail!(
            "crosslane-differ ended with {} and said nothing",
            output.status
        );
    }
    let mut report: Report = serde_json::from_str(&text).context("crosslane-differ's report")?;
    report.first_seed = args.seed.unwrap_or(first);
    Ok(report)
}

/// Different programs in each run; the report says which.
fn seed_of_time() -> anyhow::Result<u64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(since.as_secs() * 1000)
}

fn stats(crosslane: &Path, runtime_dir: &Path) -> anyhow::Result<serde_json::Value> {
    let mut command = Command::new(crosslane);
    command
        .args(["stats", "--json"])
        .env(RUNTIME_DIR, runtime_dir);
    let exit = Process::spawn("crosslane stats", &mut command)?.finish(PATIENCE)?;
    serde_json::from_str(&exit.stdout).context("the answer of crosslane stats")
}

fn count(stats: &serde_json::Value, name: &str) -> u64 {
    stats
        .get(name)
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share needs no more than 53 bits"
)]
fn ring_share(stats: &serde_json::Value) -> f64 {
    let (ring, tcp) = (
        count(stats, "ring_bytes_sent"),
        count(stats, "tcp_bytes_sent"),
    );
    ring as f64 / (ring + tcp).max(1) as f64
}

/// Write the program of a difference to a file, and tell how to play it again.
fn keep(found: &Found, unix: bool) -> anyhow::Result<String> {
    let folder = crate::workspace_root().join("target/fuzz-posix");
    std::fs::create_dir_all(&folder)?;
    let name: String = found
        .origin
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let path = folder.join(format!("{name}.program"));
    let remark = format!("# natively {}\n# other    {}\n", found.native, found.other);
    std::fs::write(&path, remark + &found.program)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!(
        "cargo xtask fuzz-posix {}--program {}",
        if unix { "--unix " } else { "" },
        path.display()
    ))
}

fn print(report: &Report, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(report)?);
        return Ok(());
    }
    for found in &report.differences {
        let Found {
            origin,
            under,
            native,
            other,
            seen,
            runs,
            program,
            replay,
        } = found;
        println!("{origin}, {seen} of {runs} runs by {under:?}:");
        println!("  natively  {native}\n  other     {other}");
        program.lines().for_each(|line| println!("    {line}"));
        println!("  again: {replay}\n");
    }
    for (name, count) in &report.left_out {
        println!("left out as known to differ, {count} times: {name}");
    }
    let Report {
        programs,
        steps,
        unsteady,
        repeats,
        seconds,
        differences,
        first_seed,
        upgrades,
        ring_share,
        ..
    } = report;
    println!(
        "{programs} programs from seed {first_seed} on, {steps} steps, in {seconds} s: {} differ; \
         {repeats} were told edges once more, {unsteady} are unsteady on the kernel alone",
        differences.len()
    );
    println!(
        "accelerated: {upgrades} directions upgraded, {:.0} % of the bytes through rings",
        ring_share * 100.0
    );
    Ok(())
}
