//! `crosslane window hold`.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use crosslane_monitor::rack::window::ensure_fit;
use crosslane_window::backend::{Place, held_bridge};
use crosslane_window::discover::Roots;
use crosslane_window::ntb::hold::{State, hold};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::teller::Teller;
use crate::output;
use crate::signals::readable_after;

/// Arguments of `crosslane window hold`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The bridge, such as ntb:0000:17:00.0; ntb:0000:17:00.0/4 is another of its regions
    place: String,
    /// File in tmpfs that the other host is to write, made if it is not there: --window of `crosslane rack add`
    #[arg(long, value_name = "PATH")]
    memory: PathBuf,
    /// How long that is, a power of two; by default the region's size, at most 64 MiB. It stays pinned
    #[arg(long, value_name = "BYTES")]
    bytes: Option<u64>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Example, as root:
      crosslane window hold ntb:0000:17:00.0 --memory /dev/shm/for-alpha &
      crosslane rack add beta --address 10.0.0.2 --fingerprint sha256:... \\
          --window /dev/shm/for-alpha --window-bytes 67108864 \\
          --beyond /sys/bus/pci/devices/0000:17:00.0/resource2_wc

On the other host the same, with a file of its own. The command tells what --beyond is, and then, a line
each, that the bridge is open (and how many bytes a window may have at most), closed (and why), or ending.
After the link was down nothing is let in for two seconds, so that connections go back to TCP.

Signals:
  SIGTERM, SIGINT and SIGHUP end it: nothing is let in any more, and two seconds later, when programs have
  left the window, the bridge is let go.

Exit status:
  0 when it was told to stop; 1 if the bridge cannot be opened, is gone or does not do as it is told, the
  file was replaced or cut short, or the other host has another version of Crosslane.

Never run on hardware.";

/// What is said, one a line.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Line<'a> {
    Taken {
        bridge: &'a str,
        memory: &'a Path,
        bytes: u64,
        beyond: &'a Path,
    },
    Open {
        bytes: u64,
        link: String,
    },
    Closed {
        why: String,
    },
    Ending,
}

impl Line<'_> {
    fn text(&self, is_json: bool) -> String {
        match is_json {
            true => serde_json::to_string(self).map_or_else(|_| String::new(), |text| text + "\n"),
            false => self.for_people(),
        }
    }

    fn for_people(&self) -> String {
        match self {
            Line::Taken {
                bridge,
                memory,
                bytes,
                beyond,
            } => format!(
                "{bridge}: {bytes} bytes of {} are lent; the way to the other host is {}\n",
                memory.display(),
                beyond.display()
            ),
            Line::Open { bytes, link } => {
                format!("open: {link}, windows of {bytes} bytes at most\n")
            }
            Line::Closed { why } => format!("closed: {why}\n"),
            Line::Ending => "ending\n".to_owned(),
        }
    }
}

/// Hold the bridge until told to stop.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Place::Ntb { address, bar } = Place::of(&args.place) else {
        bail!(
            "{}: this is no bridge; name one as ntb:ADDRESS, of those that `crosslane window probe` lists",
            args.place
        );
    };
    let path = std::path::absolute(&args.memory)?;
    ensure_fit(&path, false)?;
    let stop = match is_ignored(SIGHUP) {
        true => readable_after(&[SIGTERM, SIGINT])?,
        false => readable_after(&[SIGTERM, SIGINT, SIGHUP])?,
    };
    let (held, beyond) = held_bridge(&address, bar, &Roots::system(), (&path, args.bytes))?;
    // A bridge is held whether anybody reads this or not.
    let teller = Teller::start(|line| {
        let _ = output::print(line);
    })?;
    let say = |line: &Line<'_>| teller.say(line.text(args.json));
    say(&Line::Taken {
        bridge: &address,
        memory: &path,
        bytes: held.memory.bytes(),
        beyond: &beyond,
    });
    let mut tell = |state: State<'_>| {
        let line = match state {
            State::Open(met, link) => Line::Open {
                bytes: met.bytes,
                link: link.to_string(),
            },
            State::Closed(why) => Line::Closed {
                why: why.to_string(),
            },
            State::Ending => Line::Ending,
        };
        say(&line);
    };
    hold(held, stop.as_fd(), &mut tell)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether who started this has it ignore a signal, as nohup does with SIGHUP.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}
