//! The page's plots.

use crosslane_pcie::judge::Judged;
use crosslane_pcie::model::bandwidth::rate;
use crosslane_pcie::model::nic::{self, Reading};
use crosslane_pcie::model::{Ethernet, LinkConfig, Mix};
use crosslane_pcie::profile::{Host, nfp6000};
use crosslane_pcie::sim::bench::{Bench, Latencies, Outcome, Pattern, Run};
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

/// A plot, and in a sentence how far its predictions are off.
pub struct Figure {
    /// What is drawn.
    pub plot: Plot,
    /// The errors.
    pub errors: String,
}

/// "NAME: mean 1.0 %, worst 2.0 % of 15"; empty without points.
fn error_of(name: &str, errors: impl Iterator<Item = f64>) -> String {
    let (count, sum, worst) = errors.fold((0_u32, 0.0, 0.0_f64), |(n, sum, worst), error| {
        (n + 1, sum + error.abs(), worst.max(error.abs()))
    });
    if count == 0 {
        return String::new();
    }
    let mean = sum / f64::from(count);
    format!("{name}: mean error {mean:.1} %, worst {worst:.1} %, {count} points")
}

fn sentence(parts: &[String]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("; ")
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

fn errors(judged: &[Judged], select: impl Fn(&Judged) -> bool) -> impl Iterator<Item = f64> {
    judged
        .iter()
        .filter(move |j| select(j))
        .map(|j| j.error_percent)
}

/// LAT_RD and LAT_WRRD by size, per machine.
pub fn latency(judged: &[Judged]) -> Vec<Figure> {
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
            let plot = Plot {
                title: format!("median latency, {machine}"),
                x_label: "transfer (B)".to_owned(),
                y_label: "ns".to_owned(),
                x_scale: Scale::Linear,
                series,
                y_max: None,
            };
            let errors = sentence(&[
                error_of("read", errors(judged, of(Bench::LatRd))),
                error_of("write-read", errors(judged, of(Bench::LatWrrd))),
            ]);
            Figure { plot, errors }
        })
        .collect()
}

/// Bandwidth of random reads by window, with and without translation.
#[allow(clippy::cast_precision_loss)]
pub fn translation(judged: &[Judged]) -> Vec<Figure> {
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
            let plot = Plot {
                title: format!("{size} B reads"),
                x_label: "window (B)".to_owned(),
                y_label: "Gb/s".to_owned(),
                x_scale: Scale::Log2,
                series,
                y_max: Some(60.0),
            };
            let errors = sentence(&[
                error_of("plain", errors(judged, of(false))),
                error_of("translated", errors(judged, of(true))),
            ]);
            Figure { plot, errors }
        })
        .into()
}

/// Predicted against measured bandwidth.
pub fn scatter(judged: &[Judged]) -> Vec<Figure> {
    let of = |name: &'static str| {
        move |j: &Judged| {
            let is_latency = matches!(j.row.bench, Bench::LatRd | Bench::LatWrrd);
            j.row.host == name && !j.row.fitted && !is_latency
        }
    };
    let machine = |name: &'static str| {
        let rows = judged.iter().filter(|j| of(name)(j));
        Series::line(name, rows.map(|j| (j.row.measured, j.predicted)).collect()).dotted()
    };
    let mut series: Vec<Series> = MACHINES.iter().map(|name| machine(name)).collect();
    series.push(Series::line("equal", vec![(0.0, 0.0), (60.0, 60.0)]).reference());
    let plot = Plot {
        title: "bandwidth, rows not fitted".to_owned(),
        x_label: "measured (Gb/s)".to_owned(),
        y_label: "predicted (Gb/s)".to_owned(),
        x_scale: Scale::Linear,
        series,
        y_max: Some(60.0),
    };
    let errors = sentence(&MACHINES.map(|name| error_of(name, errors(judged, of(name)))));
    vec![Figure { plot, errors }]
}

/// A published distribution of 64 B reads from the warm 8 KiB window: median, p99 and p99.9.
const PUBLISHED: [(&str, [f64; 3]); 3] = [
    ("e5-2630v4", [560.0, 573.0, 587.0]),
    ("e5-2637v3", [600.0, 613.0, 627.0]),
    ("e3-1226v3", [1213.0, 5773.0, 2_014_787.0]),
];
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// Distributions of 64 B reads: all of the E5, and of the E3 on a logarithmic scale.
pub fn distributions(transfers: u32) -> anyhow::Result<Vec<Figure>> {
    let warm = PUBLISHED
        .map(|(host, _)| reads(host, CacheState::HostWarm, transfers))
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?;
    let cold = reads("e5-2630v4", CacheState::Cold, transfers)?;
    let simulated = |index: usize| Series::line(PUBLISHED[index].0, warm[index].cdf());
    let measured = |index: usize, colour| {
        let (host, quantiles) = PUBLISHED[index];
        let points = quantiles.into_iter().zip(SHARES).collect();
        Series::line(format!("{host} measured"), points)
            .dotted()
            .coloured(colour)
    };
    let quantile_errors = |index: usize| {
        let (host, quantiles) = PUBLISHED[index];
        let errors = quantiles
            .into_iter()
            .zip(SHARES)
            .map(|(ns, share)| (warm[index].quantile_ns(share) / ns - 1.0) * 100.0);
        let each: Vec<String> = errors.map(|error| format!("{error:+.1} %")).collect();
        format!("{host}: p50, p99, p99.9 off by {}", each.join(", "))
    };
    let e5 = vec![
        simulated(0),
        simulated(1),
        Series::line("e5-2630v4 cold", cold.cdf()),
        measured(0, 0),
        measured(1, 1),
    ];
    let e3 = vec![simulated(0), simulated(2), measured(0, 0), measured(2, 1)];
    Ok(vec![
        Figure {
            plot: distribution("Xeon E5", Scale::Linear, e5),
            errors: sentence(&[quantile_errors(0), quantile_errors(1)]),
        },
        Figure {
            plot: distribution("Xeon E3 beside it", Scale::Log10, e3),
            errors: quantile_errors(2),
        },
    ])
}

fn reads(host: &str, cache: CacheState, transfers: u32) -> anyhow::Result<Latencies> {
    let mut run = Run {
        transfers,
        ..Run::default()
    };
    run.options.cache = cache;
    match run.execute(&Host::load(host)?, &nfp6000())?.outcome {
        Outcome::Latency(latencies) => Ok(latencies),
        Outcome::Bandwidth { .. } => anyhow::bail!("{host}: a latency benchmark gave a bandwidth"),
    }
}

fn distribution(title: &str, x_scale: Scale, series: Vec<Series>) -> Plot {
    Plot {
        title: title.to_owned(),
        x_label: "latency (ns)".to_owned(),
        y_label: "share of reads".to_owned(),
        x_scale,
        series,
        y_max: Some(1.0),
    }
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
