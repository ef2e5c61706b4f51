//! What holding a bridge asks of the kernel, of any device that vfio-pci has: that a file's memory can be lent to it, and that
//! programs can map its region by sysfs meanwhile. It says in a line each what the kernel does.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::Parser;
use crosslane_window::backend::{BarWindow, SystemKernel, VfioDevice, WindowError};
use crosslane_window::discover::{Roots, pci};
use crosslane_window::ntb::hold::HeldMemory;

/// Memory space and bus master.
const COMMAND: u16 = 2 | 4;
const BYTES: u64 = 1 << 20;
/// Where a bridge would find it, too.
const ADDRESS: u64 = 1 << 32;

/// Lend a file to a device, and map its region.
#[derive(Parser)]
struct Args {
    /// The device
    address: String,
    /// Its region
    bar: u32,
    /// The file that is lent
    memory: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let folder = Roots::system().pci.join(&args.address);
    let memory = HeldMemory::open(&args.memory, BYTES)?;
    let open = VfioDevice::open(&SystemKernel, &pci::device(&folder)?, COMMAND)?;
    open.lend(&SystemKernel, &memory.map()?, ADDRESS)?;
    println!("lent");
    // Enabled by now.
    let device = pci::device(&folder)?;
    let say = |when: &str, mapped: Result<(), WindowError>| match mapped {
        Ok(()) => println!("{when}: sysfs maps it"),
        Err(error) => println!("{when}: {error}"),
    };
    say("left alone", BarWindow::try_open(&device, args.bar));
    let _mapping = open.map(&SystemKernel, args.bar)?;
    say("mapped by VFIO", BarWindow::try_open(&device, args.bar));
    Ok(())
}
