//! `crosslane rack add`.

use std::fmt::Write as _;
use std::fs::{Metadata, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use crosslane_monitor::rack::config::RackConfig;
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

    /// File in tmpfs that both hosts share, made by the monitor; or a PCI device's memory that they
    /// share, such as /sys/bus/pci/devices/ADDRESS/resource2 of ivshmem; or, with --coherent, /dev/dax0.0
    #[arg(long, value_name = "PATH")]
    window: Option<PathBuf>,

    /// It is DAX memory, a device or a file, that the hosts keep coherent, as CXL can
    #[arg(long, requires = "window")]
    coherent: bool,

    /// How long that is; by default a device's whole memory, of a file 256 MiB
    #[arg(long, value_name = "BYTES")]
    window_bytes: Option<u64>,
}

/// Length of a window's file, unless said otherwise.
const FILE_BYTES: u64 = 256 << 20;

/// Add to the file, if it is right as a whole then.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let path = std::path::absolute(&args.place.rack)?;
    let before = RackConfig::read(&path)?;
    let mut text = std::fs::read_to_string(&path)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&tables(args, &before.name)?);
    RackConfig::parse(&path, &text)?;
    replace(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    output::print(&format!(
        "{} is in {}; the monitor reads that when it starts.\n",
        args.host,
        path.display()
    ))
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
        let (kind, region) = kind(window, args.coherent);
        let bytes = args.window_bytes.or(region).unwrap_or(FILE_BYTES);
        writeln!(text, "kind = \"{kind}\"\npath = {}", quoted(path))?;
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
