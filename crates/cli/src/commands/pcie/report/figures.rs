//! The page's plots.

use crosslane_pcie::judge::Judged;
use crosslane_pcie::model::bandwidth::rate;
use crosslane_pcie::model::nic::{self, Reading};
use crosslane_pcie::model::{Ethernet, LinkConfig, Mix};
use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Outcome, Pattern, Run};
use crosslane_pcie::sim::cache::CacheState;

use super::super::plot::{Plot, Scale, Series};

use super::super::bench::Findings;

/// Bandwidth of a link by size, with Ethernet and the NIC designs; the script draws the same again.
pub fn bandwidth(link: &LinkConfig) -> Plot {
    let sizes = || (64..=1518_u32).step_by(2);
    let line = |name: &str, value: &dyn Fn(u32) -> f64| {
        Series::line(
            name,
            sizes()
                .map(|bytes| (f64::from(bytes), value(bytes)))
                .collect(),
        )
    };
    let mut series = vec![
        line("write", &|bytes| rate(link, Mix::Write, bytes).gbps),
        line("read", &|bytes| rate(link, Mix::Read, bytes).gbps),
        line("read and write", &|bytes| {
            rate(link, Mix::ReadWrite, bytes).gbps
        }),
    ];
    for design in nic::ALL {
        let name = format!("NIC: {}", design.name);
        let gbps = |bytes| {
            design
                .rate(link, bytes, Reading::Corrected)
                .bidirectional_gbps
        };
        series.push(line(&name, &gbps));
    }
    for line_gbps in [40.0, 100.0, 200.0, 400.0] {
        let gbps = |bytes| Ethernet { line_gbps }.gbps(bytes);
        series.push(line(&format!("{line_gbps}G Ethernet"), &gbps).reference());
    }
    let top = rate(link, Mix::Read, 1518).gbps * 1.15;
    Plot {
        title: format!("{}: payload each way", link.name()),
        x_label: "transfer or frame (B)".to_owned(),
        y_label: "Gb/s".to_owned(),
        x_scale: Scale::Linear,
        series,
        y_max: Some(top),
    }
}

const MACHINES: [&str; 3] = ["e5-2630v4", "e5-2637v3", "e3-1226v3"];

/// A measured and a predicted series of the rows that `select` picks, by `x`.
fn pair(
    judged: &[Judged],
    (name, colour): (&str, usize),
    select: impl Fn(&Judged) -> bool,
    x: impl Fn(&Judged) -> f64,
) -> [Series; 2] {
    let mut rows: Vec<&Judged> = judged.iter().filter(|j| select(j)).collect();
    rows.sort_by(|a, b| x(a).total_cmp(&x(b)));
    let points = |y: fn(&Judged) -> f64| rows.iter().map(|j| (x(j), y(j))).collect();
    [
        Series::line(format!("{name} simulated"), points(|j| j.predicted)).coloured(colour),
        Series::line(format!("{name} measured"), points(|j| j.row.measured))
            .dotted()
            .coloured(colour),
    ]
}

/// LAT_RD and LAT_WRRD by size, per machine.
pub fn latency(judged: &[Judged]) -> Vec<Plot> {
    MACHINES
        .iter()
        .map(|machine| {
            let of = |bench: Bench| {
                move |j: &Judged| {
                    let row = &j.row;
                    row.host == *machine
                        && row.bench == bench
                        && !row.iommu
                        && row.window_bytes == 8192
                        && row.pattern == Pattern::Sequential
                        && row.cache == CacheState::HostWarm
                }
            };
            let size = |j: &Judged| f64::from(j.row.size_bytes);
            let mut series = Vec::from(pair(judged, ("read", 0), of(Bench::LatRd), size));
            series.extend(pair(judged, ("write-read", 1), of(Bench::LatWrrd), size));
            Plot {
                title: format!("median latency, {machine}"),
                x_label: "transfer (B)".to_owned(),
                y_label: "ns".to_owned(),
                x_scale: Scale::Linear,
                series,
                y_max: None,
            }
        })
        .collect()
}

/// Bandwidth of random reads by window, with and without translation.
#[allow(clippy::cast_precision_loss)]
pub fn translation(judged: &[Judged]) -> Vec<Plot> {
    [64, 128, 256, 512]
        .map(|size| {
            let of = |iommu: bool| {
                move |j: &Judged| {
                    let row = &j.row;
                    row.host == "e5-2630v4"
                        && row.bench == Bench::BwRd
                        && row.iommu == iommu
                        && row.size_bytes == size
                        && row.cache == CacheState::HostWarm
                }
            };
            let window = |j: &Judged| j.row.window_bytes as f64;
            let mut series = Vec::from(pair(judged, ("plain", 0), of(false), window));
            series.extend(pair(judged, ("translated", 1), of(true), window));
            Plot {
                title: format!("{size} B reads"),
                x_label: "window (B)".to_owned(),
                y_label: "Gb/s".to_owned(),
                x_scale: Scale::Log2,
                series,
                y_max: Some(60.0),
            }
        })
        .into()
}

/// Predicted against measured bandwidth.
pub fn scatter(judged: &[Judged]) -> Vec<Plot> {
    let machine = |name: &str| {
        let rows = judged.iter().filter(|j| {
            j.row.host == name
                && !j.row.fitted
                && !matches!(j.row.bench, Bench::LatRd | Bench::LatWrrd)
        });
        Series::line(name, rows.map(|j| (j.row.measured, j.predicted)).collect()).dotted()
    };
    let mut series: Vec<Series> = MACHINES.iter().map(|name| machine(name)).collect();
    series.push(Series::line("equal", vec![(0.0, 0.0), (60.0, 60.0)]).reference());
    vec![Plot {
        title: "bandwidth, rows not fitted".to_owned(),
        x_label: "measured (Gb/s)".to_owned(),
        y_label: "predicted (Gb/s)".to_owned(),
        x_scale: Scale::Linear,
        series,
        y_max: Some(60.0),
    }]
}

/// Distributions of 64 B reads: all of the E5, and of the E3 on a logarithmic scale.
pub fn distributions(transfers: u32) -> anyhow::Result<Vec<Plot>> {
    let series = |host: &str, cache: CacheState, name: &str| -> anyhow::Result<Series> {
        let mut run = Run {
            transfers,
            ..Run::default()
        };
        run.options.cache = cache;
        match run.execute(&Host::load(host)?, &nfp6000())?.outcome {
            Outcome::Latency(latencies) => Ok(Series::line(name, latencies.cdf())),
            Outcome::Bandwidth { .. } => {
                anyhow::bail!("{host}: a latency benchmark gave a bandwidth")
            }
        }
    };
    let plot = |title: &str, x_scale, series| Plot {
        title: title.to_owned(),
        x_label: "latency (ns)".to_owned(),
        y_label: "share of reads".to_owned(),
        x_scale,
        series,
        y_max: Some(1.0),
    };
    // Median, p99 and p99.9 as published for the warm 8 KiB window.
    let measured = |name: &str, [p50, p99, p999]: [f64; 3], colour| {
        let points = vec![(p50, 0.5), (p99, 0.99), (p999, 0.999)];
        Series::line(name, points).dotted().coloured(colour)
    };
    let broadwell = || measured("2630v4 measured", [560.0, 573.0, 587.0], 0);
    let e5 = vec![
        series("e5-2630v4", CacheState::HostWarm, "2630v4 warm")?,
        series("e5-2637v3", CacheState::HostWarm, "2637v3 warm")?,
        series("e5-2630v4", CacheState::Cold, "2630v4 cold")?,
        broadwell(),
        measured("2637v3 measured", [600.0, 613.0, 627.0], 1),
    ];
    let e3 = vec![
        series("e5-2630v4", CacheState::HostWarm, "e5-2630v4")?,
        series("e3-1226v3", CacheState::HostWarm, "e3-1226v3")?,
        broadwell(),
        measured("e3-1226v3 measured", [1213.0, 5773.0, 2_014_787.0], 1),
    ];
    Ok(vec![
        plot("Xeon E5", Scale::Linear, e5),
        plot("Xeon E3 beside it", Scale::Log10, e3),
    ])
}

/// Streams of this machine by window.
#[allow(clippy::cast_precision_loss)]
pub fn streams(machine: &Findings) -> Plot {
    let kinds = ["load", "store", "non-temporal store"].map(|kind| format!("sequential {kind}"));
    let series = kinds.map(|kind| {
        let mine = machine
            .points
            .iter()
            .filter(|p| p.bench == "stream" && p.variant == kind);
        let points = mine
            .filter_map(|p| p.gbps.map(|gbps| (p.window_bytes as f64, gbps)))
            .collect();
        Series::line(kind, points)
    });
    Plot {
        title: "streams on this machine".to_owned(),
        x_label: "window (B)".to_owned(),
        y_label: "Gb/s".to_owned(),
        x_scale: Scale::Log2,
        series: series.into(),
        y_max: None,
    }
}

/// How latencies of random loads on this machine are distributed, up to the 99.9th percentile.
#[allow(clippy::cast_precision_loss)]
pub fn loads(machine: &Findings) -> Plot {
    let series = machine.distributions.iter().map(|(window_bytes, sorted)| {
        let shown = sorted.len() - sorted.len() / 1000;
        let step = (shown / 400).max(1);
        let points = (0..shown).step_by(step);
        let points = points.map(|i| (sorted[i], (i + 1) as f64 / sorted.len() as f64));
        Series::line(format!("{} KiB", window_bytes >> 10), points.collect())
    });
    Plot {
        title: "distribution of random loads on this machine".to_owned(),
        x_label: "per load, means of 64 (ns)".to_owned(),
        y_label: "share".to_owned(),
        x_scale: Scale::Log10,
        series: series.collect(),
        y_max: Some(1.0),
    }
}
