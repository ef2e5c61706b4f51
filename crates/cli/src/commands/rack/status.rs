//! `crosslane rack status`.

use anyhow::Context;
use crosslane_benchkit::show;
use crosslane_monitor::client::{HostReport, RackReport, WindowReport};

use crate::output;
use crate::private::{self, PATIENCE};

/// Arguments of `crosslane rack status`.
#[derive(clap::Args)]
#[command(after_long_help = FIELDS)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const FIELDS: &str = "\
States of a window:
  open      connections go over it
  closed    there is no session with the other host, or the trouble that is told
  offered   the other host has been asked to look at it
  probing   the other host has been asked what its programs use of it
  lost      it was open, and is missing or carries nothing; its owner is about to open it anew

Arenas of a window, each shared by one pair of processes, are counted by the host whose name sorts
first: free, used, or quarantined, which were used and may still be mapped by somebody.

Examples:
  Which hosts are not connected, and why:
      crosslane rack status --json | jq -r '.hosts[] | select(.connected | not) | [.name, .trouble] | @tsv'";

/// Ask the monitor and print its answer.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let directory = private::current_directory();
    let rack = super::monitor_in(&directory)?.rack(PATIENCE)?;
    let rack = rack.with_context(|| {
        format!(
            "the monitor in {} is in no rack: start it with --rack FILE (crosslane rack init)",
            directory.display()
        )
    })?;
    output::print(&match args.json {
        true => output::json_lines(&[rack])?,
        false => text(&rack),
    })
}

fn text(rack: &RackReport) -> String {
    let mut head = format!(
        "{} listens on {}, {}\n",
        rack.name, rack.listen, rack.fingerprint
    );
    if let Some(trouble) = &rack.reload_trouble {
        let trouble = output::printable(trouble);
        head += &format!("At the last `crosslane rack reload`: {trouble}\n");
    }
    if rack.hosts.is_empty() {
        return head + "No other hosts: crosslane rack add\n";
    }
    let header = [
        "Host",
        "Address",
        "State",
        "Window",
        "State",
        "Connections",
        "Arenas free",
        "used",
        "quarantined",
    ];
    let rows = rack.hosts.iter().flat_map(rows).collect();
    let table = show::table(5, header.map(str::to_owned).to_vec(), rows);
    let troubles: String = rack.hosts.iter().flat_map(troubles).collect();
    format!("{head}\n{table}\n{troubles}")
}

fn rows(host: &HostReport) -> Vec<Vec<String>> {
    let state = match host.connected_seconds {
        Some(seconds) => format!("connected for {seconds} s"),
        None => "not connected".to_owned(),
    };
    let row = |window: Option<&WindowReport>| {
        let count = |of: fn(&WindowReport) -> Option<usize>| {
            window
                .and_then(of)
                .map_or("-".to_owned(), |n| n.to_string())
        };
        vec![
            host.name.clone(),
            host.address.clone(),
            state.clone(),
            window.map_or("-", |window| &window.name).to_owned(),
            window.map_or("-", |window| &window.state).to_owned(),
            host.connections.to_string(),
            count(|window| window.arenas_free),
            count(|window| window.arenas_used),
            count(|window| window.arenas_quarantined),
        ]
    };
    match host.windows.is_empty() {
        true => vec![row(None)],
        false => host
            .windows
            .iter()
            .map(|window| row(Some(window)))
            .collect(),
    }
}

fn troubles(host: &HostReport) -> Vec<String> {
    let of_host = match (&host.trouble, host.connected) {
        (Some(trouble), false) => {
            Some(format!("\n{}: {}\n", host.name, output::printable(trouble)))
        }
        _ => None,
    };
    let of_windows = host.windows.iter().filter_map(|window| {
        let trouble = window.trouble.as_ref()?;
        Some(format!(
            "\n{}: {}\n",
            window.name,
            output::printable(trouble)
        ))
    });
    of_host.into_iter().chain(of_windows).collect()
}
