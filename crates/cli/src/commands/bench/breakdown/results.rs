//! What was measured of each size, and the table of it.

use std::fmt;

use crosslane_benchkit::show;
use crosslane_benchkit::stats::midmean;
use serde::Serialize;

use super::super::rounds::{self, Proof, Rounds};
use super::path::{STAGES, Steps};

/// A size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Of each message.
    pub bytes: u64,
}

/// One round, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    #[serde(skip)]
    stages: [f64; STAGES.len()],
    #[serde(rename = "whole_ns")]
    whole: f64,
    #[serde(rename = "send_returns_ns")]
    send_returns: f64,
    #[serde(rename = "plain_ns")]
    plain: f64,
}

/// All measurements, in the order of the plan.
pub struct Results(pub Rounds<Key, Figures>);

type Cell = rounds::Cell<Key, Figures>;

/// One line of the JSON output.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    case: &'static str,
    bytes: u64,
    transport: &'static str,
    #[serde(flatten)]
    medians: Option<Medians>,
    #[serde(flatten)]
    proof: Proof,
}

/// The medians of a cell, one way.
#[derive(Clone, Copy, Debug, Serialize)]
struct Medians {
    call_ns: f64,
    lookup_ns: f64,
    copy_in_ns: f64,
    publish_ns: f64,
    transfer_ns: f64,
    poll_ns: f64,
    copy_out_ns: f64,
    return_ns: f64,
    /// What the eight above do not add up to.
    rest_ns: f64,
    /// With the traced library.
    whole_ns: f64,
    /// With the normal one: half of a round trip.
    plain_ns: f64,
    /// From publishing to the return of the send.
    send_returns_ns: f64,
}

impl Figures {
    /// Of so many round trips with the traced library, and of one way's ticks with the normal one.
    pub fn of(steps: &[Steps], plain: &[f64], ticks_per_us: f64) -> Self {
        let ns = |ticks: &[f64]| midmean(ticks).unwrap_or(0.0) / ticks_per_us * 1e3;
        let middle =
            |figure: &dyn Fn(&Steps) -> f64| ns(&steps.iter().map(figure).collect::<Vec<_>>());
        Self {
            stages: core::array::from_fn(|stage| middle(&|steps| steps.stages[stage])),
            whole: middle(&|steps| steps.whole),
            send_returns: middle(&|steps| steps.send_returns),
            plain: ns(plain),
        }
    }
}

impl Results {
    /// A line for each size.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| Row {
            bench: "breakdown",
            case: "oneway",
            bytes: cell.key.bytes,
            transport: "crosslane",
            medians: medians(cell),
            proof: cell.proof(),
        };
        self.0.cells().iter().map(row).collect()
    }

    /// A column for each size.
    pub fn table(&self) -> String {
        let cells = self.0.cells();
        let mut header = vec!["stage".to_owned()];
        header.extend(
            cells
                .iter()
                .map(|cell| show::bytes(cell.key.bytes) + cell.mark()),
        );
        let columns: Vec<_> = cells.iter().map(medians).collect();
        let row = |name: &str, figure: &dyn Fn(&Medians) -> f64| {
            let shown = |medians: &Option<Medians>| {
                let shown = medians.as_ref().map(|own| format!("{:.1} ns", figure(own)));
                shown.unwrap_or_else(|| "-".to_owned())
            };
            let cells = columns.iter().map(shown);
            [name.to_owned()].into_iter().chain(cells).collect()
        };
        let stages = STAGES.iter().enumerate();
        let mut rows: Vec<Vec<String>> = stages
            .map(|(stage, name)| row(name, &|medians| medians.stages()[stage]))
            .collect();
        rows.push(row("rest", &|medians| medians.rest_ns));
        rows.push(row("one way", &|medians| medians.whole_ns));
        rows.push(row("with the normal library", &|medians| medians.plain_ns));
        rows.push(row("send returns", &|medians| medians.send_returns_ns));
        show::table(1, header, rows)
    }
}

impl Medians {
    fn stages(&self) -> [f64; STAGES.len()] {
        [
            self.call_ns,
            self.lookup_ns,
            self.copy_in_ns,
            self.publish_ns,
            self.transfer_ns,
            self.poll_ns,
            self.copy_out_ns,
            self.return_ns,
        ]
    }
}

fn medians(cell: &Cell) -> Option<Medians> {
    let tenths = |value: f64| (value * 10.0).round() / 10.0;
    let value = |figure: &dyn Fn(&Figures) -> f64| {
        let median = cell.median(|figures| Some(figure(figures)));
        median.map(tenths)
    };
    let stage = |index: usize| value(&|figures| figures.stages[index]);
    let whole_ns = value(&|figures| figures.whole)?;
    let mut medians = Medians {
        call_ns: stage(0)?,
        lookup_ns: stage(1)?,
        copy_in_ns: stage(2)?,
        publish_ns: stage(3)?,
        transfer_ns: stage(4)?,
        poll_ns: stage(5)?,
        copy_out_ns: stage(6)?,
        return_ns: stage(7)?,
        rest_ns: 0.0,
        whole_ns,
        plain_ns: value(&|figures| figures.plain)?,
        send_returns_ns: value(&|figures| figures.send_returns)?,
    };
    medians.rest_ns = tenths(whole_ns - medians.stages().iter().sum::<f64>());
    Some(medians)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show::bytes(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::rounds::Measured;

    #[test]
    fn a_row_has_every_stage_and_what_they_do_not_add_up_to() {
        let key = Key { bytes: 64 };
        let mut rounds = Rounds::new(&[key]);
        let steps = Steps {
            stages: [20.0; 8],
            whole: 166.0,
            send_returns: 30.0,
        };
        let figures = Figures::of(&[steps], &[140.0], 2000.0);
        let verdict = None;
        rounds.add(key, Ok(Measured { figures, verdict }));
        let results = Results(rounds);
        assert_eq!(
            serde_json::to_string(&results.rows()[0]).expect("a row is JSON"),
            r#"{"bench":"breakdown","case":"oneway","bytes":64,"transport":"crosslane","call_ns":10.0,"lookup_ns":10.0,"copy_in_ns":10.0,"publish_ns":10.0,"transfer_ns":10.0,"poll_ns":10.0,"copy_out_ns":10.0,"return_ns":10.0,"rest_ns":3.0,"whole_ns":83.0,"plain_ns":70.0,"send_returns_ns":15.0,"ranges":{"plain_ns":[70.0,70.0],"send_returns_ns":[15.0,15.0],"whole_ns":[83.0,83.0]}}"#
        );
        assert!(results.table().contains("send returns"));
    }
}
