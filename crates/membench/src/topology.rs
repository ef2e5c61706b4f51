//! What the kernel says about caches, and so what a knee may be called.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::knee::Knee;

/// One cache of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// Level, from 1.
    pub level: u32,
    /// Size.
    pub bytes: usize,
}

/// Caches that hold data, smallest first; empty where sysfs does not say.
#[must_use]
pub fn caches(cpu: &Path) -> Vec<Cache> {
    let read = |index: u32, name: &str| {
        fs::read_to_string(cpu.join(format!("cache/index{index}/{name}")))
            .map(|s| s.trim().to_owned())
            .ok()
    };
    let mut caches: Vec<Cache> = (0..8)
        .filter(|&index| read(index, "type").is_some_and(|kind| kind != "Instruction"))
        .filter_map(|index| {
            let size = read(index, "size")?;
            let kib: usize = size.strip_suffix('K')?.parse().ok()?;
            Some(Cache {
                level: read(index, "level")?.parse().ok()?,
                bytes: kib << 10,
            })
        })
        .collect();
    caches.sort_by_key(|cache| cache.bytes);
    caches
}

/// The folder of this CPU.
#[must_use]
pub fn cpu_folder(cpu: usize) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}"))
}

/// A knee of a sweep over lines: what was measured, and beside it what the kernel says is of about that
/// size. A sweep leaves the plateau between a good third of a cache, where it is shared or full of other
/// things, and its whole.
#[must_use]
pub fn name_cache(knee: &Knee, caches: &[Cache]) -> String {
    let window = knee.window_bytes;
    let found = format!("something holds about {}", size(window));
    let by_kernel = |cache: &Cache| {
        format!(
            "the L{} cache, {} by the kernel",
            cache.level,
            size(cache.bytes)
        )
    };
    let close =
        |cache: &&Cache| window <= cache.bytes + cache.bytes / 8 && window >= cache.bytes * 3 / 8;
    if let Some(cache) = caches.iter().find(close) {
        return format!("{found}: {}", by_kernel(cache));
    }
    let inside = caches.iter().find(|cache| window < cache.bytes);
    match inside {
        _ if caches.is_empty() => format!("{found}: the kernel shows no caches"),
        Some(cache) => format!("{found}: a share of {}, or a TLB's reach", by_kernel(cache)),
        None => format!("{found}: beyond every cache; page walks, or memory's own structure"),
    }
}

fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// A knee of a sweep over pages, one line in each, is a TLB of so many entries for pages of this size;
/// or, where the lines alone no longer fit, the first cache.
#[must_use]
pub fn name_tlb(knee: &Knee, page_bytes: usize, caches: &[Cache]) -> String {
    let pages = knee.window_bytes / page_bytes;
    let name = format!(
        "a TLB of about {pages} entries for pages of {}",
        size(page_bytes)
    );
    let lines = pages * crate::kernel::LINE;
    let full = caches
        .iter()
        .find(|cache| lines <= cache.bytes * 5 / 4 && lines * 2 > cache.bytes);
    full.map_or_else(
        || name.clone(),
        |cache| {
            format!(
                "{name}, or the L{} cache, which {pages} lines fill",
                cache.level
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knee(window_bytes: usize) -> Knee {
        Knee {
            window_bytes,
            before_ns: 1.0,
            after_ns: 4.0,
        }
    }

    #[test]
    fn knees_get_names() {
        let caches = [
            Cache {
                level: 1,
                bytes: 32 << 10,
            },
            Cache {
                level: 2,
                bytes: 1 << 20,
            },
        ];
        assert_eq!(
            name_cache(&knee(24 << 10), &caches),
            "something holds about 24 KiB: the L1 cache, 32 KiB by the kernel"
        );
        assert!(name_cache(&knee(24 << 10), &[]).contains("shows no caches"));
        assert!(name_cache(&knee(64 << 20), &caches).contains("beyond every cache"));
        assert!(name_cache(&knee(192 << 10), &caches).contains("a share of the L2 cache"));
        assert_eq!(
            name_tlb(&knee(64 << 12), 4096, &caches),
            "a TLB of about 64 entries for pages of 4 KiB"
        );
        assert_eq!(
            name_tlb(&knee(64 << 21), 2 << 20, &caches),
            "a TLB of about 64 entries for pages of 2 MiB"
        );
        assert!(name_tlb(&knee(512 << 12), 4096, &caches).contains("L1 cache"));
    }

    #[test]
    fn caches_come_from_sysfs() {
        let cpu = std::env::temp_dir().join(format!("crosslane-topology-{}", std::process::id()));
        for (index, kind, level, size) in [
            (0, "Data", 1, "32K"),
            (1, "Instruction", 1, "32K"),
            (2, "Unified", 2, "1024K"),
        ] {
            let folder = cpu.join(format!("cache/index{index}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("type"), format!("{kind}\n")).unwrap();
            fs::write(folder.join("level"), format!("{level}\n")).unwrap();
            fs::write(folder.join("size"), format!("{size}\n")).unwrap();
        }
        let found = caches(&cpu);
        fs::remove_dir_all(&cpu).unwrap();
        assert_eq!(
            found,
            [
                Cache {
                    level: 1,
                    bytes: 32 << 10
                },
                Cache {
                    level: 2,
                    bytes: 1 << 20
                }
            ]
        );
    }
}
