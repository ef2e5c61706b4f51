//! Which CPU a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread cannot be placed as asked.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There are not two CPUs to choose.
    #[error("this process may use {0} only")]
    TooFew(usize),
    /// The system refused.
    #[error("cannot pin a thread to CPU {cpu}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// The system's answer.
        source: io::Error,
    },
}

/// The first CPU that this process may use, and the next one that is not the same core's other
/// thread, if there is one.
///
/// # Errors
/// [`PlaceError::TooFew`].
pub fn two_cpus() -> Result<(usize, usize), PlaceError> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let [first, rest @ ..] = cpus.as_slice() else {
        return Err(PlaceError::TooFew(0));
    };
    let siblings = siblings(*first);
    let other_core = rest.iter().find(|cpu| !siblings.contains(cpu));
    let second = other_core.or(rest.first()).ok_or(PlaceError::TooFew(1))?;
    Ok((*first, *second))
}

/// The CPUs on the same core, from a list such as `0,64` or `0-1`; empty when the system does not say.
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Keeps the calling thread, and those that it will start, on one CPU.
///
/// # Errors
/// [`PlaceError::Pin`].
pub fn pin(cpu: usize) -> Result<(), PlaceError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| PlaceError::Pin {
        cpu,
        source: errno.into(),
    })
}
