//! `crosslane rack reload`.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use crosslane_monitor::client::RackReport;
use rustix::process::{Pid, Signal, kill_process};

use crate::output;
use crate::private::{self, PATIENCE};

/// Arguments of `crosslane rack reload`.
#[derive(clap::Args)]
pub struct Args {}

/// How often the monitor is asked whether it has.
const NAP: Duration = Duration::from_millis(10);

/// Send the signal, and wait until it has been obeyed.
pub(super) fn run(_: &Args) -> anyhow::Result<()> {
    let directory = private::current_directory();
    let client = super::monitor_in(&directory)?;
    let ask = || -> anyhow::Result<RackReport> {
        client.rack(PATIENCE)?.with_context(|| {
            format!(
                "the monitor in {} is in no rack: start it with --rack FILE (crosslane rack init)",
                directory.display()
            )
        })
    };
    let before = ask()?.reloads;
    let pid = client.counters(PATIENCE)?.monitor.pid;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.context("the monitor does not know its own number")?;
    kill_process(process, Signal::HUP).map_err(|error| {
        anyhow!("cannot tell the monitor, process {pid}: {error}; run this as the monitor's user or root")
    })?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = ask()?;
        if now.reloads != before {
            return tell(&now);
        }
        ensure!(Instant::now() < deadline, "the monitor does not answer");
        std::thread::sleep(NAP);
    }
}

fn tell(rack: &RackReport) -> anyhow::Result<()> {
    if let Some(trouble) = &rack.reload_trouble {
        let lines: Vec<String> = trouble.lines().map(output::printable).collect();
        bail!("{}", lines.join("\n"));
    }
    let windows = rack.hosts.iter().map(|host| host.windows.len());
    output::print(&format!(
        "The monitor has read it: {} other hosts, {} windows\n",
        rack.hosts.len(),
        windows.sum::<usize>()
    ))
}
