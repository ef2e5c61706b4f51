//! The section of `bench breakdown`.

use crosslane_benchkit::show;
use crosslane_page::shares::{self, Whole};
use crosslane_page::{dash, nanoseconds};
use maud::{Markup, html};

use super::page::{accelerated, table};
use super::rows::{Data, Row};

const BENCH: &str = "breakdown";

/// Names on the page and in the JSON, in the order in which a message passes them.
const STAGES: [(&str, &str); 8] = [
    ("call", "call_ns"),
    ("lookup", "lookup_ns"),
    ("copy in", "copy_in_ns"),
    ("publish", "publish_ns"),
    ("transfer", "transfer_ns"),
    ("poll", "poll_ns"),
    ("copy out", "copy_out_ns"),
    ("return", "return_ns"),
];
const OTHERS: [(&str, &str); 4] = [
    ("rest", "rest_ns"),
    ("one way", "whole_ns"),
    ("normal library", "plain_ns"),
    ("send returns", "send_returns_ns"),
];

/// The section; nothing where the bench was not run.
pub fn section(data: &Data) -> Markup {
    if data.of(BENCH).next().is_none() {
        return Markup::default();
    }
    let names = STAGES.map(|(name, _)| name);
    html! {
        section {
            h2 { "Where the time of a message goes" }
            p {
                "From the call that sends to the return of the call that receives, on two processors, by looks at the counter in "
                "a traced build of the same code. The rest is what the stages do not add up to."
            }
            (counters(data))
            div.charts { (shares::bars("One way, by stage", &names, &wholes(data), nanoseconds)) }
            (figures(data))
        }
    }
}

/// Whether moments on two processors could be compared.
fn counters(data: &Data) -> Markup {
    let clocks: Vec<_> = data
        .runs
        .iter()
        .filter_map(|run| run.clocks.as_ref())
        .collect();
    html! {
        @for clocks in &clocks {
            p.note {
                "The other processor\u{2019}s counter is " (nanoseconds(clocks.offset_ns)) " ahead, give or take "
                (nanoseconds(clocks.within_ns)) ". A look at it takes " (nanoseconds(clocks.look_ns)) ", and each stage has one."
            }
        }
    }
}

fn wholes(data: &Data) -> Vec<Whole> {
    let whole = |row: &Row| {
        Some(Whole {
            label: size(row),
            value: nanoseconds(row.figure("whole_ns")?),
            parts: STAGES
                .iter()
                .filter_map(|(_, name)| row.figure(name))
                .collect(),
        })
    };
    data.of(BENCH).filter_map(whole).collect()
}

fn size(row: &Row) -> String {
    row.key.bytes.map_or_else(dash, show::bytes)
}

fn figures(data: &Data) -> Markup {
    let columns = || STAGES.into_iter().chain(OTHERS);
    let row = |row: &Row| {
        let figure = |(_, name)| row.figure(name).map_or_else(dash, nanoseconds);
        let mut cells = vec![size(row)];
        cells.extend(columns().map(figure));
        cells.push(accelerated(row));
        cells
    };
    let mut header = vec!["message"];
    header.extend(columns().map(|(name, _)| name));
    header.push("accelerated");
    table(&header, 1, &data.of(BENCH).map(row).collect::<Vec<_>>())
}
