//! Which pages a mapping has, out of what the kernel shows of it.

const HUGE: usize = 2 << 20;

/// The page size of the mapping at an address, from the text of `/proc/self/smaps`: none if it has pages of
/// several sizes, or none that are counted, as a device's memory.
pub(crate) fn page_bytes(smaps: &str, address: usize) -> Option<usize> {
    let mut lines = smaps
        .lines()
        .skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
    lines.next()?;
    let fields: Vec<(&str, usize)> = lines
        .take_while(|line| range(line).is_none())
        .filter_map(field)
        .collect();
    let of = |name: &str| fields.iter().find(|f| f.0 == name).map_or(0, |f| f.1);
    let kernel = of("KernelPageSize");
    if kernel > 4096 {
        return Some(kernel);
    }
    let resident = of("Rss");
    let huge = of("AnonHugePages") + of("ShmemPmdMapped") + of("FilePmdMapped");
    match (resident, huge) {
        (0, _) => None,
        (_, 0) => Some(kernel).filter(|bytes| *bytes > 0),
        _ => (huge >= resident).then_some(HUGE),
    }
}

/// `7f00-7f10 rw-p ...`
fn range(line: &str) -> Option<std::ops::Range<usize>> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    Some(hex(from)?..hex(to)?)
}

/// `Rss:   8 kB`, in bytes.
fn field(line: &str) -> Option<(&str, usize)> {
    let (name, rest) = line.split_once(':')?;
    let kib: usize = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((name, kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Mapping, Pages};

    #[test]
    fn pages_are_told_apart() {
        let shown = |kernel: usize, rss: usize, huge: usize| {
            format!(
                "1000-2000 rw-p 0 00:00 0 \nRss: 4 kB\nKernelPageSize: 64 kB\n\
                 200000-800000 rw-p 0 00:00 0\nSize: 6144 kB\nKernelPageSize: {kernel} kB\nRss: {rss} kB\n\
                 AnonHugePages: {huge} kB\nVmFlags: rd wr\n800000-900000 rw-p 0 00:00 0\nAnonHugePages: 2048 kB\n"
            )
        };
        let at = 0x20_0000;
        assert_eq!(page_bytes(&shown(4, 6144, 0), at), Some(4096));
        assert_eq!(page_bytes(&shown(4, 6144, 6144), at), Some(HUGE));
        assert_eq!(page_bytes(&shown(4, 6144, 2048), at), None, "some of each");
        assert_eq!(page_bytes(&shown(4, 0, 0), at), None, "a device's memory");
        assert_eq!(page_bytes(&shown(2048, 0, 0), at), Some(HUGE), "hugetlbfs");
        assert_eq!(
            page_bytes(&shown(4, 6144, 0), 0x10),
            None,
            "no such mapping"
        );
    }

    #[test]
    fn small_pages_are_small() {
        let mapping = Mapping::anonymous(1 << 16, Pages::Small).unwrap();
        crate::kernel::store(&mapping, 0, 1);
        assert_eq!(mapping.page_bytes(), Some(4096));
    }
}
