//! Memory of processes and of the kernel, as `/proc` tells it.

use anyhow::{Context, anyhow};

/// Memory of some processes, each page counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Private memory: heap, stacks, changed data.
    pub private_bytes: u64,
    /// Memory that is shared by design: rings, tables.
    pub shared_bytes: u64,
}

impl Memory {
    /// The memory of one process. Of a shared page it has its proportional part, so that the sum
    /// over all processes that map it is the page.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("cannot understand {path}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let of = |name| kib(text, name).ok_or_else(|| anyhow!("it has no line {name}"));
        Ok(Self {
            private_bytes: of("Pss_Anon")?,
            shared_bytes: of("Pss_Shmem")?,
        })
    }

    /// Both together.
    pub fn sum(self, other: Self) -> Self {
        Self {
            private_bytes: self.private_bytes + other.private_bytes,
            shared_bytes: self.shared_bytes + other.shared_bytes,
        }
    }
}

/// Memory that the kernel keeps for itself in slabs and page tables, on the whole machine.
pub fn kernel_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let of = |name| kib(&text, name).with_context(|| format!("/proc/meminfo has no line {name}"));
    Ok(of("Slab")? + of("PageTables")?)
}

/// The value of a line `Name:   12 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_shared_memory_are_told_apart() {
        let text = "5581-7ffe ---p 00000000 00:00 0      [rollup]\nPss:     245 kB\n\
                    Pss_Anon:     112 kB\nPss_File:     133 kB\nPss_Shmem:      8 kB\n";
        let expected = Memory {
            private_bytes: 112 << 10,
            shared_bytes: 8 << 10,
        };
        assert_eq!(Memory::parse(text).expect("complete"), expected);
        let error = Memory::parse("Pss:  1 kB\n").expect_err("too old a kernel");
        assert!(error.to_string().contains("Pss_Anon"), "{error}");
    }

    #[test]
    fn this_process_has_memory_and_so_has_the_kernel() {
        let memory = Memory::of(std::process::id()).expect("it is ours");
        assert!(memory.private_bytes > 0);
        assert!(kernel_bytes().expect("Linux tells") > 0);
    }
}
