//! What can be wrong with a bridge. Each says which, what was found, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::meet::VERSION;

/// A bridge that cannot be used, or whose other side does not answer.
#[derive(Debug, Error)]
pub enum NtbError {
    /// A device that this driver does not know.
    #[error(
        "{address}: device {vendor:04x}:{device:04x} revision {revision:#x} is no bridge that Crosslane drives: \
         8086:347e (Intel, Ice Lake), revision 0x2 to 0xf; `crosslane window probe` lists what there is"
    )]
    OtherDevice {
        /// Which.
        address: String,
        /// What it is.
        vendor: u16,
        /// What it is.
        device: u16,
        /// What it is.
        revision: u8,
    },
    /// Nobody answers at its addresses any more.
    #[error(
        "{address}: the register {register} reads as ones: the device is gone or without power; \
         look at it with lspci, then: echo 1 > /sys/bus/pci/rescan"
    )]
    Removed {
        /// Which.
        address: String,
        /// What was read.
        register: &'static str,
    },
    /// A port that has no other bridge at its other end.
    #[error(
        "{address}: PPD1 is {found:#x}: the port is not set up back to back with another bridge; \
         choose \"NTB to NTB\" for it in the firmware's setup of both hosts"
    )]
    NotBackToBack {
        /// Which.
        address: String,
        /// What was read.
        found: u64,
    },
    /// Memory of a size that the bridge cannot translate to.
    #[error(
        "{address}: {bytes} bytes cannot be lent through BAR {bar}: a power of two from 8192 to {most}, \
         the region's size; the firmware's setup has a larger one"
    )]
    Size {
        /// Which.
        address: String,
        /// Through which region.
        bar: u32,
        /// What was asked for.
        bytes: u64,
        /// The region's size.
        most: u64,
    },
    /// Memory where the bridge cannot translate to.
    #[error(
        "{address}: memory at {at:#x} cannot be lent through BAR {bar}: it must begin at a multiple of \
         {multiple:#x}, the region's size; choose such an address when the IOMMU is told of it"
    )]
    Unaligned {
        /// Which.
        address: String,
        /// Through which region.
        bar: u32,
        /// Where the memory is.
        at: u64,
        /// Where it might be.
        multiple: u64,
    },
    /// A region that this bridge does not translate.
    #[error("{address}: BAR {bar} leads to no other host; BAR 2 and BAR 4 do")]
    NoAperture {
        /// Which.
        address: String,
        /// The region.
        bar: u32,
    },
    /// A register that is not as it was written.
    #[error(
        "{address}: {register} was written {wrote:#x} and reads {read:#x}: another driver may have locked the \
         bridge; unbind it, or reset the device: echo 1 > /sys/bus/pci/devices/{address}/reset"
    )]
    Refused {
        /// Which.
        address: String,
        /// The register.
        register: &'static str,
        /// What should be there.
        wrote: u64,
        /// What is.
        read: u64,
    },
    /// A link that does not come, or is gone.
    #[error(
        "{address}: the link is down (LINK_STATUS {status:#x}, waited {waited:?}); look at the cable, and open \
         the other host's bridge, too, by the same command"
    )]
    LinkDown {
        /// Which.
        address: String,
        /// What was read.
        status: u64,
        /// For how long.
        waited: Duration,
    },
    /// The link is up, and nobody is there.
    #[error(
        "{address}: the link is up, but the other host has not said anything for {waited:?} (its scratchpads: \
         mark {mark:#x}, epoch {epoch:#x}); start Crosslane there"
    )]
    Silent {
        /// Which.
        address: String,
        /// For how long.
        waited: Duration,
        /// What was read.
        mark: u32,
        /// What was read.
        epoch: u32,
    },
    /// Another version at the other host.
    #[error(
        "{address}: the other host speaks version {theirs}, this one {VERSION}; install the same Crosslane on both"
    )]
    Version {
        /// Which.
        address: String,
        /// The other host's.
        theirs: u32,
    },
    /// The other host lends nothing that could be used.
    #[error(
        "{address}: the other host lends {bytes} bytes, which is no power of two of at least {least}; \
         install the same Crosslane on both, and begin anew on both"
    )]
    TheirSize {
        /// Which.
        address: String,
        /// What it says.
        bytes: u64,
        /// The least that is of use.
        least: u64,
    },
    /// The driver at the other host is not the one that we met.
    #[error(
        "{address}: the other host has begun anew (epoch {theirs:#x}, not {met:#x}); open the window again"
    )]
    Restarted {
        /// Which.
        address: String,
        /// Whom we met.
        met: u32,
        /// Who is there.
        theirs: u32,
    },
    /// What was written meanwhile has vanished.
    #[error(
        "{address}: the link was down for a moment, and what was written meanwhile is nowhere; if that happens again, look at \
         the cable"
    )]
    Interrupted {
        /// Which.
        address: String,
    },
    /// A region that programs cannot have beside the driver of its bridge.
    #[error("{}: programs cannot map the way to the other host: {cause}{}", path.display(), region_remedy(cause))]
    Region {
        /// Its file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A file that cannot be what the other host writes.
    #[error("{}: {bytes} bytes of it cannot be lent to the other host: {why}", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// How much of it.
        bytes: u64,
        /// Why not, and what to do.
        why: String,
    },
    /// The kernel refuses.
    #[error(
        "{address}: cannot wait for the bridge's events: {cause}; close some descriptors (`ulimit -n`)"
    )]
    Event {
        /// Which.
        address: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// By which rule the kernel keeps a region in sysfs from programs (docs/decisions/ntb.md).
fn region_remedy(cause: &io::Error) -> &'static str {
    match Errno::from_io_error(cause) {
        Some(Errno::ACCESS) => "; it takes root",
        Some(Errno::PERM) => {
            "; the kernel is locked down (secure boot), which keeps programs from regions in sysfs: switch secure boot off, or \
             leave connections on TCP"
        }
        Some(Errno::INVAL) => {
            "; vfio-pci has claimed it, and a kernel with CONFIG_IO_STRICT_DEVMEM keeps claimed regions from programs: boot \
             with iomem=relaxed"
        }
        _ => "",
    }
}
