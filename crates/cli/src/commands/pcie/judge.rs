//! `crosslane pcie judge`: predictions beside the published measurements.

use anyhow::Context as _;
use crosslane_pcie::judge::{Bound, Judged, bounds, judge, judge_host, rows};
use crosslane_pcie::profile::Host;
use serde::Serialize;

use super::number::whole;
use super::output::{OutputArgs, emit};

/// Arguments of `crosslane pcie judge`.
#[derive(clap::Args)]
pub struct Args {
    /// Only this machine: e5-2630v4, e5-2637v3 or e3-1226v3
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Predict by this profile instead of the machine's own: a name or a JSON profile
    #[arg(long, value_name = "PROFILE", requires = "host")]
    with: Option<String>,
    /// Transfers per row
    #[arg(long, default_value_t = 4000, value_parser = whole(100..=1_000_000_u32), allow_hyphen_values = true)]
    transfers: u32,
    /// What one prediction could reach for each group of rows that the simulator predicts alike
    #[arg(long)]
    bound: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// One group of rows.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// Machine.
    pub host: String,
    /// Benchmark.
    pub bench: &'static str,
    /// With translation.
    pub iommu: bool,
    /// Rows that no parameter was set by.
    pub rows: usize,
    /// Of these, within 5 % (latency) or 7 % (bandwidth).
    pub within: usize,
    /// How many have a value within that limit between the 5th and the 95th percentile of the runs
    /// predicted.
    pub in_range: usize,
    /// How many could be within it, if rows that are predicted alike got the one value that suits most of them.
    pub reachable: usize,
    /// Mean absolute error.
    pub mean_percent: f64,
    /// Largest absolute error.
    pub worst_percent: f64,
}

/// Judge and print; `--json` prints every row, the table sums up.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let with = args.with.as_deref().map(Host::load).transpose();
    let with = with.context("--with")?;
    let judged = all(args.host.as_deref(), with.as_ref(), args.transfers)?;
    if args.bound {
        return print_bounds(args, &bounds(&judged));
    }
    if args.output.is_json() {
        return args.output.print("", &judged, 2);
    }
    args.output.print(
        "rows that no parameter was set by; within 5 % (latency) or 7 % (bandwidth) of the prediction; \
         in_range: of 5th to 95th percentile of the runs predicted",
        &groups(&judged),
        1,
    )?;
    if args.output.is_for_people() {
        emit("--json prints every row\n")
    } else {
        Ok(())
    }
}

fn print_bounds(args: &Args, bounds: &[Bound]) -> anyhow::Result<()> {
    args.output.print(
        "rows that are predicted alike; reachable: within the limit of the best single value; repeat: \
         within it of the row before",
        bounds,
        2,
    )?;
    if !args.output.is_for_people() {
        return Ok(());
    }
    let sum = |of: fn(&Bound) -> usize| bounds.iter().map(of).sum::<usize>();
    emit(&format!(
        "{} rows, {} within the limit, {} reachable; {} of {} repeat\n",
        sum(|b| b.rows),
        sum(|b| b.within),
        sum(|b| b.reachable),
        sum(|b| b.repeat),
        sum(|b| b.rows - 1)
    ))
}

/// Every row judged, by the machine's own profile or another.
pub fn all(host: Option<&str>, with: Option<&Host>, transfers: u32) -> anyhow::Result<Vec<Judged>> {
    let wanted = |name: &str| host.is_none_or(|host| host.eq_ignore_ascii_case(name));
    let judged = rows()
        .iter()
        .filter(|row| wanted(&row.host))
        .map(|row| match with {
            Some(host) => judge_host(host, row, transfers),
            None => judge(row, transfers),
        })
        .collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(
        !judged.is_empty(),
        "no measurements of {:?}: --host takes e5-2630v4, e5-2637v3 or e3-1226v3",
        host.unwrap_or_default()
    );
    Ok(judged)
}

/// Sums up by machine, benchmark and translation.
#[allow(clippy::cast_precision_loss)]
pub fn groups(judged: &[Judged]) -> Vec<Group> {
    let bounds = bounds(judged);
    let mut groups: Vec<Group> = Vec::new();
    for j in judged.iter().filter(|j| !j.row.fitted) {
        let error = j.error_percent.abs();
        let same = |g: &Group| {
            (g.host == j.row.host) && g.bench == j.row.bench.name() && g.iommu == j.row.iommu
        };
        let index = groups.iter().position(same).unwrap_or_else(|| {
            groups.push(empty(j, &bounds));
            groups.len() - 1
        });
        let group = &mut groups[index];
        group.mean_percent =
            (group.mean_percent * group.rows as f64 + error) / (group.rows + 1) as f64;
        group.rows += 1;
        group.within += usize::from(j.is_within());
        group.in_range += usize::from(j.is_in_range());
        group.worst_percent = group.worst_percent.max(error);
    }
    groups
}

/// The group that this row is in, without rows yet.
fn empty(of: &Judged, bounds: &[Bound]) -> Group {
    let row = &of.row;
    let same = |b: &&Bound| (&b.host, b.bench, b.iommu) == (&row.host, row.bench, row.iommu);
    Group {
        host: row.host.clone(),
        bench: row.bench.name(),
        iommu: row.iommu,
        rows: 0,
        within: 0,
        in_range: 0,
        reachable: bounds.iter().filter(same).map(|b| b.reachable).sum(),
        mean_percent: 0.0,
        worst_percent: 0.0,
    }
}
