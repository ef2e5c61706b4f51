//! `demo.html`: one file that needs no other, for a phone or a desk, by day or by night.

use crosslane_benchkit::stats::median;
use crosslane_page::chart::{self, Bar, Pair};
use crosslane_page::{dash, document, ratio};
use maud::{Markup, html};

use super::comparison::{Comparison, Series};
use super::lane::Side;
use super::workload::Metric;
use super::{RESOLUTION, Report};

/// The page.
pub fn page(report: &Report) -> Markup {
    let body = html! {
        (heading(report))
        main {
            (complaints(report))
            section.charts {
                (ratios(report))
                (throughput(report))
                (latency(report, Metric::P50Us, "Latency, median"))
                (latency(report, Metric::P99Us, "Latency, 99th percentile"))
            }
            (all_figures(report))
            (machine(report))
            (method(report))
        }
    };
    document("Crosslane demo", &body)
}

fn heading(report: &Report) -> Markup {
    html! {
        header {
            h1 { "The same programs, over TCP and under Crosslane" }
            p {
                "Real, unmodified Redis, memcached, sockperf and iperf3 on one machine, first over TCP loopback, then under "
                code { "crosslane run" } ", in turn, " (report.rounds_in_words()) "."
            }
            p.key {
                span.dot.tcp {} "TCP" span.dot.crosslane {} "Crosslane"
            }
        }
    }
}

fn complaints(report: &Report) -> Markup {
    let complaints: Vec<_> = report
        .workloads
        .iter()
        .filter_map(Comparison::complaint)
        .collect();
    crosslane_page::complaints(&complaints)
}

/// The first series of each workload is the one that its client is run for.
fn ratios(report: &Report) -> Markup {
    let bar = |comparison: &Comparison| {
        let series = comparison.series.first()?;
        Some(Bar {
            label: comparison.description.clone(),
            ratio: series.ratio()?,
            is_accelerated: comparison.is_accelerated(),
        })
    };
    let bars: Vec<_> = report.workloads.iter().filter_map(bar).collect();
    chart::bars(
        "Times better than TCP: Redis, memcached and iperf3 throughput, sockperf median latency",
        &bars,
    )
}

fn throughput(report: &Report) -> Markup {
    pairs(
        report,
        Metric::Rps,
        "Requests per second, Redis and memcached",
    )
}

fn latency(report: &Report, metric: Metric, title: &str) -> Markup {
    pairs(report, metric, title)
}

fn pairs(report: &Report, metric: Metric, title: &str) -> Markup {
    let pair = |comparison: &Comparison| {
        let series = comparison
            .series
            .iter()
            .find(|series| series.metric == metric)?;
        Some(Pair {
            label: comparison.description.clone(),
            tcp: chart::Spread::of(&series.tcp)?,
            crosslane: chart::Spread::of(&series.crosslane)?,
        })
    };
    let pairs: Vec<_> = report.workloads.iter().filter_map(pair).collect();
    chart::pairs(title, &pairs, |value| shown(metric, value))
}

fn all_figures(report: &Report) -> Markup {
    html! {
        section {
            h2 { "All figures" }
            div.scrolls { table {
                thead { tr {
                    th { "workload" } th { "metric" } th.number { "TCP" } th.number { "Crosslane" } th.number { "ratio" }
                    th { "accelerated" }
                } }
                tbody {
                    @for comparison in &report.workloads { @for series in &comparison.series {
                        (figure_row(comparison, series))
                    } }
                }
            } }
            p.note { "Medians; ratios above 1 are better, for latencies too. " (RESOLUTION) }
        }
    }
}

fn figure_row(comparison: &Comparison, series: &Series) -> Markup {
    let value =
        |side| median(series.values(side)).map_or_else(dash, |value| shown(series.metric, value));
    html! {
        tr {
            td { (comparison.description) }
            td { (series.metric.title()) }
            td.number { (value(Side::Tcp)) }
            td.number { (value(Side::Crosslane)) }
            td.number { (series.ratio().map_or_else(dash, ratio)) }
            td { @if comparison.is_accelerated() { "yes" } @else { strong { "no" } } }
        }
    }
}

fn machine(report: &Report) -> Markup {
    let programs: Vec<_> = report
        .programs
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let further = [("Programs", programs.join(", "))];
    html! {
        section {
            h2 { "The machine" }
            (crosslane_page::machine(&report.machine, &further))
        }
    }
}

fn method(report: &Report) -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            p {
                "Each workload ran for " (report.seconds_per_round) " s over TCP and then for as long under Crosslane, and "
                "this was done for " (report.rounds_in_words()) "; a dot is the median and the bar around it reaches from the "
                "worst to the best round. Both sides use the same binaries, the same options and a server of their own. "
                "Whether a workload was accelerated was read from " code { "crosslane ss" } " while it ran. Absolute numbers "
                "are this machine's; the ratios are what to look at, and they are drawn on logarithmic axes."
            }
        }
    }
}

/// A page can have the signs that a terminal may lack.
fn shown(metric: Metric, value: f64) -> String {
    metric.show(value).replace(" us", " µs")
}

#[cfg(test)]
mod tests;
