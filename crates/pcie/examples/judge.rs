//! Judges every measured row and prints one line per group.
fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for row in crosslane_pcie::judge::rows() {
        let key = format!(
            "{} {} {} {:?} {:?} {} {}",
            row.host,
            u8::from(row.iommu),
            row.bench.name(),
            row.cache,
            row.pattern,
            row.window_bytes,
            row.size_bytes
        );
        if !key.contains(&filter) {
            continue;
        }
        let j = crosslane_pcie::judge::judge(&row, 8000).unwrap();
        println!(
            "{key} {} {:.2} {:+.1} {}",
            row.measured,
            j.predicted,
            j.error_percent,
            if row.fitted { "FIT" } else { "" }
        );
    }
}
