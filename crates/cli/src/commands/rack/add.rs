//! `crosslane rack add`.

use std::fmt::Write as _;
use std::fs::{Metadata, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use crosslane_monitor::rack::config::RackConfig;
use crosslane_monitor::rack::identity::{Fingerprint, Identity};
use crosslane_monitor::rack::window::{ensure, ensure_fit};
use crosslane_window::discover::{Roots, dax};

use super::Place;
use crate::output;

/// Arguments of `crosslane rack add`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,

    /// The other host's name, as its rack.toml says
    host: String,

    /// Where its monitor listens
    #[arg(long, value_name = "IP[:PORT]")]
    address: String,

    /// Where its programs are, if not at that address alone; may be repeated
    #[arg(long, value_name = "IP")]
    programs_at: Vec<IpAddr>,

    /// What `crosslane rack init` has printed there
    #[arg(long)]
    fingerprint: String,

    /// File in tmpfs or hugetlbfs that both hosts share, made by the monitor; or a PCI device's memory that they
    /// share, such as /sys/bus/pci/devices/ADDRESS/resource2 of ivshmem; or, with --coherent, /dev/dax0.0
    #[arg(long, value_name = "PATH")]
    window: Option<PathBuf>,

    /// The other host's memory, which this one can only write, where each host has its own and --window is this
    /// host's: a bridge's region, such as /sys/bus/pci/devices/ADDRESS/resource2_wc; or a file in tmpfs. Experimental:
    /// under stress, with programs that are killed, connections have been seen to stand still
    #[arg(
        long,
        value_name = "PATH",
        requires = "window",
        conflicts_with = "coherent"
    )]
    beyond: Option<PathBuf>,

    /// It is DAX memory, a device or a file, that the hosts keep coherent, as CXL can
    #[arg(long, requires = "window")]
    coherent: bool,

    /// How long that is; by default a device's whole memory, of a file 256 MiB
    #[arg(long, value_name = "BYTES", requires = "window")]
    window_bytes: Option<u64>,
}

/// Length of a window's file, unless said otherwise.
const FILE_BYTES: u64 = 256 << 20;

/// Add to the file, if it is right as a whole then.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let path = std::path::absolute(&args.place.rack)?;
    let before = RackConfig::read(&path)?;
    ensure_others(args, &before)?;
    if let Some(window) = &args.window {
        ensure_there(window, args.coherent)?;
        ensure_memory(window, args.coherent)?;
    }
    if let Some(beyond) = &args.beyond {
        ensure_there(beyond, false)?;
        ensure_memory(beyond, false)?;
    }
    let mut text = std::fs::read_to_string(&path)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&tables(args, &before.name)?);
    let after = RackConfig::parse(&path, &text)?;
    // What is there already is the monitor's to complain about.
    after.windows[before.windows.len()..]
        .iter()
        .try_for_each(ensure)?;
    replace(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    output::print(&format!(
        "{} is in {}; the monitor reads that when it starts, and one that runs at `crosslane rack reload`.\n",
        args.host,
        path.display()
    ))
}

/// Two fingerprints are at hand when a rack is set up, and one is this host's.
fn ensure_others(args: &Args, own: &RackConfig) -> anyhow::Result<()> {
    let own = Identity::read(&own.certificate, &own.key).map(|own| own.fingerprint());
    ensure!(
        own.ok()
            .is_none_or(|own| Fingerprint::parse(&args.fingerprint) != Some(own)),
        "{} is this host's own fingerprint: give what `crosslane rack init` printed on {}",
        args.fingerprint,
        args.host
    );
    Ok(())
}

/// A file that is not there is made later, a device is not, nor is a file of DAX memory.
fn ensure_there(window: &Path, is_coherent: bool) -> anyhow::Result<()> {
    let is_device = window.starts_with("/sys") || window.to_string_lossy().starts_with("/dev/dax");
    ensure!(
        !is_device && !is_coherent || window.exists(),
        "{}: there is no such device memory; `crosslane window probe` lists what this host has",
        window.display()
    );
    Ok(())
}

/// A file that two machines see by network, or that lies on a disk, is no memory that both share.
fn ensure_memory(window: &Path, is_coherent: bool) -> anyhow::Result<()> {
    // A relative path is told of with its line of the configuration.
    if window.is_relative() {
        return Ok(());
    }
    let folder = window.parent().unwrap_or(Path::new("/"));
    let found = folder.metadata();
    found.with_context(|| format!("cannot use the folder {}", folder.display()))?;
    let is_device = kind(window, is_coherent).0 != "file";
    Ok(ensure_fit(window, is_device)?)
}

fn tables(args: &Args, own: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let quoted = |value: &str| format!("{value:?}");
    writeln!(text, "\n[[host]]\nname = {}", quoted(&args.host))?;
    writeln!(text, "address = {}", quoted(&args.address))?;
    if !args.programs_at.is_empty() {
        let all: Vec<String> = args
            .programs_at
            .iter()
            .map(|ip| quoted(&ip.to_string()))
            .collect();
        writeln!(text, "addresses = [{}]", all.join(", "))?;
    }
    writeln!(text, "fingerprint = {}", quoted(&args.fingerprint))?;
    if let Some(window) = &args.window {
        // The same on both hosts.
        let (first, second) = match own < args.host.as_str() {
            true => (own, args.host.as_str()),
            false => (args.host.as_str(), own),
        };
        let name: String = format!("{first}-{second}").chars().take(63).collect();
        writeln!(text, "\n[[window]]\nname = {}", quoted(&name))?;
        let path = window.to_str().context("the window's path is not UTF-8")?;
        let (kind, region) = match &args.beyond {
            Some(beyond) => ("posted", region_bytes(beyond)),
            None => kind(window, args.coherent),
        };
        let bytes = args.window_bytes.or(region).unwrap_or(FILE_BYTES);
        writeln!(text, "kind = \"{kind}\"\npath = {}", quoted(path))?;
        if let Some(beyond) = &args.beyond {
            let path = beyond
                .to_str()
                .context("the path of --beyond is not UTF-8")?;
            writeln!(text, "beyond = {}", quoted(path))?;
        }
        if args.coherent {
            writeln!(text, "coherent = true")?;
        }
        writeln!(text, "bytes = {bytes}")?;
        writeln!(text, "host = {}", quoted(&args.host))?;
    }
    Ok(text)
}

/// What a window is, and how long, if that is not for us to choose.
fn kind(window: &Path, is_coherent: bool) -> (&'static str, Option<u64>) {
    let found = window.metadata().ok();
    let is_device = |found: &Metadata| found.file_type().is_char_device();
    match (region_bytes(window), found) {
        (Some(bytes), _) => ("bar", Some(bytes)),
        (None, Some(found)) if is_device(&found) => {
            ("dax", dax::device_bytes(window, &Roots::system().dax).ok())
        }
        (None, found) if is_coherent => ("dax", found.map(|found| found.len())),
        (None, _) => ("file", None),
    }
}

/// How long the region of a device is; `None` for files that are no device's.
fn region_bytes(window: &Path) -> Option<u64> {
    let real = window.canonicalize().ok()?;
    let is_region = real.starts_with("/sys/devices");
    is_region
        .then(|| real.metadata().ok())
        .flatten()
        .map(|found| found.len())
}

/// Nobody finds half of the file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("toml.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    let mut file = options.open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(new, path)
}
