//! The published files themselves, where they are at hand.
//!
//! They are looked for in `$CROSSLANE_DATA`, then beside the workspace in `../shared/data`.

use std::path::{Path, PathBuf};

use crosslane_pcie::data::read_calc;
use crosslane_pcie::fit::fit;
use crosslane_pcie::model::bandwidth::rate;
use crosslane_pcie::model::{Ethernet, LinkConfig, Mix};
use crosslane_pcie::profile::{Host, nfp6000};

const BROADWELL: &str = "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0";

fn folder(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("CROSSLANE_DATA").map_or(beside, PathBuf::from);
    let folder = data.join("pcie-bench").join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no published measurements in {} (set CROSSLANE_DATA)",
        folder.display()
    );
    None
}

#[test]
fn every_row_of_the_published_model() {
    let Some(folder) = folder(BROADWELL) else {
        return;
    };
    let link = LinkConfig::default();
    let port = Ethernet { line_gbps: 40.0 };
    let rows = read_calc(&folder.join("bw_calc.dat")).unwrap();
    assert!(rows.len() >= 1500, "{} rows", rows.len());
    for row in rows {
        let [write, read, both] =
            [Mix::Write, Mix::Read, Mix::ReadWrite].map(|m| rate(&link, m, row.bytes));
        let ours = [
            format!("{:.2}", write.gbps),
            format!("{:.1}", write.per_s),
            format!("{:.2}", read.gbps),
            format!("{:.1}", read.per_s),
            format!("{:.2}", both.gbps),
            format!("{:.1}", both.per_s),
            format!("{:.2}", port.gbps(row.bytes)),
            // The file prints frames per second cut to whole ones.
            format!("{:.0}", port.frames_per_s(row.bytes).floor()),
        ];
        assert_eq!(ours, row.printed, "{} bytes", row.bytes);
    }
}

#[test]
fn fitting_gives_the_ready_profile_again() {
    let (Some(plain), Some(translated)) = (
        folder(BROADWELL),
        folder(&format!("{BROADWELL}-iommu-nosp")),
    ) else {
        return;
    };
    let ready = Host::load("e5-2630v4").unwrap();
    let fit = fit("again", &ready, &nfp6000(), &plain, Some(&translated)).unwrap();
    let near = |a: f64, b: f64, share: f64| {
        assert!((a / b - 1.0).abs() < share, "{a} and {b}: {:#?}", fit.notes)
    };
    near(fit.host.read_ns, ready.read_ns, 0.03);
    near(fit.host.cold_ns, ready.cold_ns, 0.05);
    near(fit.host.link.tlp_share, ready.link.tlp_share, 0.02);
    near(fit.host.iommu.walk_ns, ready.iommu.walk_ns, 0.03);
    near(
        fit.host.iommu.read_walk_slot_ns,
        ready.iommu.read_walk_slot_ns,
        0.1,
    );
    assert_eq!(fit.host.iommu.entries, 64);
    assert!(
        (105..130).contains(&fit.host.iommu.walker_entries),
        "{}",
        fit.host.iommu.walker_entries
    );
    assert!(
        (24 << 20..26 << 20).contains(&fit.host.llc_bytes),
        "{}",
        fit.host.llc_bytes
    );
    fit.host.check().unwrap();
}

#[test]
fn folders_given_for_one_another_are_named() {
    let (Some(plain), Some(translated)) = (
        folder(BROADWELL),
        folder(&format!("{BROADWELL}-iommu-nosp")),
    ) else {
        return;
    };
    let ready = Host::load("e5-2630v4").unwrap();
    for (data, iommu_data) in [(&plain, &plain), (&translated, &plain)] {
        let error = fit("wrong", &ready, &nfp6000(), data, Some(iommu_data)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("--iommu-data the same machine's with it"),
            "{error}"
        );
    }
}
