//! Running a bench as a person does, and taking its lines.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use crosslane_benchkit::Process;

/// No bench takes so long; only a hang does.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A bench that the page has a section for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// crosslane bench sockets
    Sockets,
    /// crosslane bench wait
    Wait,
    /// crosslane bench connections
    Connections,
    /// crosslane bench peers
    Peers,
    /// crosslane bench breakdown
    Breakdown,
    /// crosslane bench files
    Files,
    /// crosslane bench stores
    Stores,
}

/// Those of these benches that the page has no section for.
pub fn without_section(benches: &[&str]) -> Vec<String> {
    let has_none = |bench: &&&str| Bench::ALL.iter().all(|known| known.name() != **bench);
    let without = benches.iter().filter(has_none);
    without.map(ToString::to_string).collect()
}

impl Bench {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 7] = [
        Self::Sockets,
        Self::Breakdown,
        Self::Wait,
        Self::Connections,
        Self::Peers,
        Self::Files,
        Self::Stores,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Wait => "wait",
            Self::Connections => "connections",
            Self::Peers => "peers",
            Self::Breakdown => "breakdown",
            Self::Files => "files",
            Self::Stores => "stores",
        }
    }

    /// Whether it needs what is not there everywhere: another build, other people's servers.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::Breakdown | Self::Files | Self::Stores)
    }

    /// Runs it and returns its JSON lines. Cases that failed are in them and do not end the report.
    pub fn measure(self, quick: bool, repeats: Option<u8>) -> anyhow::Result<String> {
        let program = std::env::current_exe().context("cannot find this executable")?;
        let mut command = Command::new(program);
        command.args(["bench", self.name(), "--json"]);
        if self == Self::Sockets {
            command.arg("--cdf");
        }
        if quick {
            command.arg("--quick");
        }
        if let Some(repeats) = repeats {
            command.args(["--repeats", &repeats.to_string()]);
        }
        let name = format!("bench {}", self.name());
        let exit = Process::spawn(&name, &mut command)?.end(PATIENCE)?;
        ensure!(
            !exit.stdout.is_empty(),
            "{name} printed nothing ({}): {}",
            exit.status,
            exit.stderr
        );
        Ok(exit.stdout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_that_the_page_leaves_out_are_known() {
        assert_eq!(
            without_section(&["api", "sockets", "window"]),
            ["api", "window"]
        );
    }
}
