//! TCP or Crosslane.

use std::fmt;
use std::process::Command;

use crosslane_benchkit::plain;

use super::programs::Programs;

/// What connections go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// TCP over the loopback device, or between hosts where there are two
    Tcp,
    /// TCP under `crosslane run`
    Crosslane,
}

impl Over {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Crosslane];

    /// The ordinary program over it.
    pub fn sockbench(self, programs: &Programs) -> Command {
        match self {
            Self::Tcp => programs.plain(),
            Self::Crosslane => programs.accelerated(&[]),
        }
    }

    /// Another program over it.
    pub fn program(self, programs: &Programs, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let command = match self {
            Self::Tcp => plain(program),
            Self::Crosslane => programs.crosslane.run(program),
        };
        programs.there(command)
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Crosslane => "crosslane",
        })
    }
}
