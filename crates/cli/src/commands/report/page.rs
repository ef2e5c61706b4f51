//! The page around the sections.

use crosslane_page::{complaints, document, machine};
use maud::{Markup, html};

use super::rows::{Data, Run};
use super::{breakdown, connections, files, peers, sockets, stores, wait};

/// The page.
pub fn page(data: &Data) -> Markup {
    let body = html! {
        header {
            h1 { "Crosslane beside TCP" }
            p {
                "An ordinary socket program over TCP loopback, and the same program under "
                code { "crosslane run" } ", in turn, on one machine. Whether a figure was accelerated was read from the "
                "running monitor. Ratios within one run are what to look at; numbers are the machine's."
            }
        }
        main {
            (complaints(&data.complaints()))
            (notes(data))
            (sockets::section(data))
            (breakdown::section(data))
            (wait::section(data))
            (connections::section(data))
            (peers::section(data))
            (files::section(data))
            (stores::section(data))
            (runs(data))
        }
    };
    document("Crosslane beside TCP", &body)
}

fn notes(data: &Data) -> Markup {
    let of_runs = data.runs.iter().flat_map(|run| &run.notes);
    let notes: Vec<_> = data.notes.iter().chain(of_runs).collect();
    html! {
        @for note in &notes { p.note { "Note: " (note) } }
    }
}

/// The machine of each run; runs of one bench on one machine say it once.
fn runs(data: &Data) -> Markup {
    let further = |run: &Run| {
        let Run {
            rounds,
            measure_ms,
            messages,
            ..
        } = run;
        let each = match (measure_ms, messages) {
            (Some(time), _) => format!(" of {time} ms each"),
            (None, Some(messages)) => format!(" of {messages} round trips each"),
            (None, None) => String::new(),
        };
        [("Rounds", format!("{rounds}{each}"))]
    };
    html! {
        section {
            h2 { "Where and how" }
            @for run in &data.runs {
                h3 { "crosslane bench " (run.bench) }
                (machine(&run.machine, &further(run)))
            }
        }
    }
}

/// A table of figures: the first `names` columns are words.
pub fn table(header: &[&str], names: usize, rows: &[Vec<String>]) -> Markup {
    html! {
        div.scrolls { table {
            thead { tr {
                @for (index, title) in header.iter().enumerate() {
                    th .number[index >= names] { (title) }
                }
            } }
            tbody {
                @for row in rows { tr {
                    @for (index, text) in row.iter().enumerate() {
                        td .number[index >= names] { (text) }
                    }
                } }
            }
        } }
    }
}

/// The word for a row's proof.
pub fn accelerated(row: &super::rows::Row) -> String {
    match row.accelerated {
        Some(true) => "yes".into(),
        Some(false) => "NO".into(),
        None => String::new(),
    }
}
