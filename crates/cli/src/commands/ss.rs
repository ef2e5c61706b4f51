//! `crosslane ss`: every connection, accelerated or the reason why not.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crosslane_benchkit::show;
use crosslane_ctl::reason::Reason;
use crosslane_monitor::client::{ConnectionReport, MonitorClient};

use crate::output;
use crate::private::{self, PATIENCE};
use crate::tuples::Tuples;

/// Arguments of `crosslane ss`.
#[derive(clap::Args)]
#[command(after_long_help = more())]
pub struct Args {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

const STATES: &str = "\
States:
  accelerated  both directions travel in rings
  partly       one direction does; the other has not switched yet, or is back on TCP
  switching    both ends have rings and wait for each other's next call
  tcp          it is on TCP, for the reason given

Not shown are connections of a program with one thread whose last ones were very brief, until they last.
";

const EXAMPLES: &str = "
Fields of an object:
  program, pid, fd                          whose end it is
  local, peer                               names of the socket; empty if they cannot be found out
  state, reason, reason_text, remedy        all but state are null if it is accelerated
  window                                    the window to another host that its rings are in, or null
  ring_bytes_sent, ring_bytes_received      bytes that went through rings
  tcp_bytes_sent, tcp_bytes_received        bytes that went through TCP

Examples:
  Which connections are not accelerated, and why:
      crosslane ss --json | jq -r 'select(.state != \"accelerated\") | [.program, .reason] | @tsv'";

/// What the long help and the manual page say after the options.
fn more() -> String {
    let told = |reason: &&Reason| **reason != Reason::None;
    let reasons: String = Reason::ALL
        .iter()
        .filter(told)
        .map(|reason| {
            let (slug, text, remedy) = (reason.slug(), reason.text(), reason.remedy());
            format!("  {slug:15}{text};\n  {:15}{remedy}\n", "")
        })
        .collect();
    format!("{STATES}\nReasons:\n{reasons}{EXAMPLES}")
}

/// Ask the monitor and print its answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = MonitorClient::connect(&private::current_directory())?;
    let mut connections = client.connections(PATIENCE)?;
    let mut tuples = Tuples::default();
    for connection in &mut connections {
        if connection.local.is_empty()
            && let Some((local, peer)) = tuples.of(connection.pid, connection.fd)
        {
            (connection.local, connection.peer) = (local.to_string(), peer.to_string());
        }
    }
    connections.sort_by(|a, b| {
        let key = |c: &ConnectionReport| (c.program.clone(), c.pid, c.fd);
        key(a).cmp(&key(b))
    });
    output::print(&match args.json {
        true => output::json_lines(&connections)?,
        false => table(&connections),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn table(connections: &[ConnectionReport]) -> String {
    if connections.is_empty() {
        return "No connections. Start both programs with `crosslane run PROGRAM`; they appear \
                here when they open TCP sockets.\n"
            .to_owned();
    }
    let header = [
        "Program",
        "Pid",
        "Fd",
        "Local",
        "Peer",
        "State",
        "Reason",
        "Window",
        "Ring sent",
        "Ring received",
        "TCP sent",
        "TCP received",
    ];
    let rows = connections.iter().map(row).collect();
    let table = show::table(8, header.map(str::to_owned).to_vec(), rows);
    format!("{table}\n{}", explanation(connections))
}

fn row(connection: &ConnectionReport) -> Vec<String> {
    let or_dash = |text: &str| match text {
        "" => "-".to_owned(),
        text => output::printable(text),
    };
    let bytes = [
        connection.ring_bytes_sent,
        connection.ring_bytes_received,
        connection.tcp_bytes_sent,
        connection.tcp_bytes_received,
    ];
    let mut row = vec![
        or_dash(&connection.program),
        connection.pid.to_string(),
        connection.fd.to_string(),
        or_dash(&connection.local),
        or_dash(&connection.peer),
        connection.state.clone(),
        or_dash(connection.reason.as_deref().unwrap_or_default()),
        or_dash(connection.window.as_deref().unwrap_or_default()),
    ];
    row.extend(bytes.map(|bytes| bytes.to_string()));
    row
}

/// What each reason means, said once.
fn explanation(connections: &[ConnectionReport]) -> String {
    let named: BTreeSet<&str> = connections
        .iter()
        .filter_map(|connection| connection.reason.as_deref())
        .collect();
    Reason::ALL
        .iter()
        .filter(|reason| named.contains(reason.slug()))
        .map(|reason| {
            format!(
                "\n{}: {}; {}",
                reason.slug(),
                reason.text(),
                reason.remedy()
            )
        })
        .chain(["\n".to_owned()].into_iter().filter(|_| !named.is_empty()))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn options(command: &clap::Command) -> BTreeSet<String> {
        let own = command.get_arguments().filter_map(clap::Arg::get_long);
        let own = own.map(|name| format!("--{name}"));
        own.chain(command.get_subcommands().flat_map(options))
            .collect()
    }

    #[test]
    fn every_option_that_a_remedy_names_is_there() {
        let known = options(&crate::Cli::command());
        for reason in Reason::ALL {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let words = reason.remedy().split(|c| !is_part(c));
            for option in words.filter(|word| word.starts_with("--")) {
                assert!(known.contains(option), "{reason:?}: {option}");
            }
        }
    }
}
