//! A monitor of the bench's own.

use crosslane_benchkit::{Crosslane, Folder, Process};

use super::programs::{GRACE, folder};

/// A monitor that serves the programs of some measurements.
pub struct Monitor {
    /// Its process.
    pub process: Process,
    /// The command, with this monitor.
    pub crosslane: Crosslane,
    // Removed after the process has ended.
    directory: Folder,
}

impl Monitor {
    /// Start one and wait until it answers.
    pub fn start(crosslane: &Crosslane) -> anyhow::Result<Self> {
        let directory = folder()?;
        let crosslane = crosslane.clone().with_monitor_in(directory.path());
        let mut command = crosslane.command();
        command.args(["monitor", "--private", "--announce", "--runtime-dir"]);
        let mut process = Process::spawn("monitor", command.arg(directory.path()))?;
        process.next_line(GRACE)?;
        Ok(Self {
            process,
            crosslane,
            directory,
        })
    }

    /// Where programs find it.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}
