//! NUMA nodes: where a thread runs, and where its memory is.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

/// Where Linux shows its nodes; nowhere, where the kernel knows of none.
const NODES: &str = "/sys/devices/system/node";

/// A node that a thread cannot be bound to.
#[derive(Debug, Error)]
pub enum NodeError {
    /// There is none of this number.
    #[error("there is no NUMA node {node}: this machine has {online}")]
    None {
        /// Which node.
        node: u32,
        /// The nodes that there are.
        online: String,
    },
    /// Others may run there.
    #[error("this process may use none of the processors of NUMA node {node}, which are {cpus}")]
    Barred {
        /// Which node.
        node: u32,
        /// Its processors.
        cpus: String,
    },
    /// The kernel refused.
    #[error("cannot bind this thread's {what} to NUMA node {node}: {cause}")]
    Refused {
        /// Which node.
        node: u32,
        /// Memory or processors.
        what: &'static str,
        /// Why not.
        cause: std::io::Error,
    },
}

/// Nodes as the kernel lists them: `0-1`. Kernels without NUMA list none, and have one.
pub(crate) fn online() -> String {
    let listed = std::fs::read_to_string(Path::new(NODES).join("online"));
    listed.map_or_else(|_| "0".to_owned(), |nodes| nodes.trim().to_owned())
}

/// The bit of a node, as the kernel's calls for memory want it; none for a number beyond all nodes.
pub(crate) fn mask(node: u32) -> Option<[u64; 16]> {
    let mut mask = [0; 16];
    *mask.get_mut(node as usize / 64)? = 1 << (node % 64);
    Some(mask)
}

/// Let the calling thread, and those that it starts from now on, run on a node's processors and take its memory there. A
/// node without processors (memory alone, as CXL may be) gives only that. Returns the processors, as the kernel lists them.
///
/// # Errors
/// [`NodeError`] if there is no such node, or it may not be used.
pub fn bind_thread(node: u32) -> Result<String, NodeError> {
    let none = || NodeError::None {
        node,
        online: online(),
    };
    if node == 0 && !Path::new(NODES).exists() {
        return Ok(String::new());
    }
    let cpus = std::fs::read_to_string(Path::new(NODES).join(format!("node{node}/cpulist")));
    let cpus = cpus.map_err(|_| none())?.trim().to_owned();
    let mask = mask(node).ok_or_else(none)?;
    if !cpus.is_empty() {
        run_on(node, &cpus)?;
    }
    // SAFETY: set_mempolicy(2) reads `maxnode` bits at `mask`, which has that many, and changes only where the kernel
    // finds pages for this thread from now on.
    let result = unsafe {
        let (how, bits) = (libc::MPOL_BIND, mask.len() * 64);
        libc::syscall(libc::SYS_set_mempolicy, how, mask.as_ptr(), bits)
    };
    if result != 0 {
        return Err(NodeError::Refused {
            node,
            what: "memory",
            cause: std::io::Error::last_os_error(),
        });
    }
    Ok(cpus)
}

fn run_on(node: u32, cpus: &str) -> Result<(), NodeError> {
    let refused = |errno: rustix::io::Errno| NodeError::Refused {
        node,
        what: "processors",
        cause: errno.into(),
    };
    let allowed = sched_getaffinity(None).map_err(refused)?;
    let mut chosen = CpuSet::new();
    let of_both = numbers(cpus).filter(|cpu| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu));
    of_both.for_each(|cpu| chosen.set(cpu));
    if chosen.count() == 0 {
        return Err(NodeError::Barred {
            node,
            cpus: cpus.to_owned(),
        });
    }
    sched_setaffinity(None, &chosen).map_err(refused)
}

/// The numbers in a list such as `0-3,8`.
fn numbers(list: &str) -> impl Iterator<Item = usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(numbers("0-3,8").collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(numbers("").count(), 0);
    }

    #[test]
    fn a_thread_is_bound_to_a_node_that_exists_and_to_no_other() {
        let before = sched_getaffinity(None).unwrap();
        let missing = bind_thread(1000).unwrap_err().to_string();
        let words = "there is no NUMA node 1000: this machine has ";
        assert!(missing.starts_with(words), "{missing}");
        assert_eq!(
            sched_getaffinity(None).unwrap(),
            before,
            "nothing is changed"
        );
        let cpus = bind_thread(0).unwrap();
        let after = sched_getaffinity(None).unwrap();
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| after.is_set(*cpu)) {
            assert!(cpus.is_empty() || numbers(&cpus).any(|of_node| of_node == cpu));
            assert!(before.is_set(cpu));
        }
        if Path::new(NODES).exists() {
            let policy = std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap_or_default();
            let bound = policy.lines().filter(|line| line.contains(" bind:0"));
            assert!(policy.is_empty() || bound.count() > 0, "{policy}");
        }
    }

    #[test]
    fn a_thread_runs_on_those_processors_that_it_may_use_and_on_no_others() {
        let thread = std::thread::spawn(|| {
            let allowed = || {
                let set = sched_getaffinity(None).unwrap();
                let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
                cpus.collect::<Vec<_>>()
            };
            let last = *allowed().last().unwrap();
            let barred = run_on(7, "1000-1003").unwrap_err().to_string();
            run_on(7, &format!("{last},1000-1003")).unwrap();
            (barred, allowed(), last)
        });
        let (said, after, last) = thread.join().unwrap();
        let words = "none of the processors of NUMA node 7, which are 1000-1003";
        assert!(said.contains(words), "{said}");
        assert_eq!(after, [last]);
    }
}
