//! Pages of results: one HTML file that needs no other and runs no script, for a phone or a desk,
//! by day or by night.
//!
//! [`document`] is the frame of a page, [`chart`] has bars and pairs of dots, [`lines`] has
//! curves and points in a plane, [`shares`] has wholes cut into parts, and [`machine`] says where results come from. Colours are the
//! style's, which follows the reader's setting; charts name what they show and leave the colour
//! to it.
#![forbid(unsafe_code)]

pub mod chart;
pub mod lines;
mod scale;
pub mod shares;

use crosslane_benchkit::{Machine, show};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// A whole page.
#[must_use]
pub fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
}

/// What must be known before anything else; nothing where there is nothing.
#[must_use]
pub fn complaints(complaints: &[String]) -> Markup {
    html! {
        @if !complaints.is_empty() {
            section.complaints {
                h2 { "Not as it should be" }
                ul { @for complaint in complaints { li { (complaint) } } }
            }
        }
    }
}

/// The machine, with further facts by the caller between its own.
#[must_use]
pub fn machine(machine: &Machine, further: &[(&str, String)]) -> Markup {
    let commit = machine.commit.clone();
    let facts = [
        (
            "Processor",
            format!("{}, {} CPUs", machine.cpu, machine.cores),
        ),
        ("Memory", format!("{} GiB", machine.memory_gib)),
        ("Kernel", machine.kernel.clone()),
        ("System", machine.os.clone()),
        (
            "TCP congestion control",
            machine.tcp_congestion_control.clone(),
        ),
        (
            "Crosslane",
            commit.unwrap_or_else(|| "unknown commit".into()),
        ),
        ("Command", machine.command.clone()),
        ("Date", machine.date.clone()),
    ];
    html! {
        dl {
            @for (name, value) in facts.iter().chain(further) { dt { (name) } dd { (value) } }
        }
    }
}

/// How many times better, with the sign that a page can have and a terminal may lack.
#[must_use]
pub fn ratio(value: f64) -> String {
    show::ratio(value).replace('x', "×")
}

/// A time, likewise.
#[must_use]
pub fn nanoseconds(value: f64) -> String {
    show::nanoseconds(value).replace(" us", " µs")
}

/// What stands where there is no figure.
#[must_use]
pub fn dash() -> String {
    "–".into()
}
