//! Charts as inline SVG. They are as wide as a phone, so that text keeps its size there; on wider
//! screens several stand side by side. Colours come from the page's style.

use crosslane_benchkit::show::without_zeros;
use crosslane_benchkit::stats::{median, range};
use maud::{Markup, html};

use crate::ratio;
use crate::scale::LogScale;

pub(crate) const WIDTH: f64 = 360.0;
pub(crate) const MARGIN: f64 = 12.0;
/// The axis' labels stand in this strip above the rows.
const AXIS: f64 = 22.0;
const ROW: f64 = 34.0;
/// From the top of a row to the base of its text, and to the middle of its mark.
const TEXT: f64 = 13.0;
const MARK: f64 = 23.0;
const THICKNESS: f64 = 10.0;

/// A bar from 1 to a ratio.
pub struct Bar {
    /// What is compared.
    pub label: String,
    /// How many times better it is.
    pub ratio: f64,
    /// Whether the figure means what it says.
    pub is_accelerated: bool,
}

/// A metric on both sides.
pub struct Pair {
    /// What was measured.
    pub label: String,
    /// Over TCP.
    pub tcp: Spread,
    /// Under Crosslane.
    pub crosslane: Spread,
}

/// The rounds of one side.
pub struct Spread {
    /// Their median.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// None of no rounds.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let (low, high) = range(values)?;
        Some(Self {
            median: median(values)?,
            low,
            high,
        })
    }
}

/// Ratios as bars that begin at 1.
#[must_use]
pub fn bars(title: &str, bars: &[Bar]) -> Markup {
    let values = bars.iter().map(|bar| bar.ratio).chain([1.0]);
    let scale = LogScale::holding(values, MARGIN, WIDTH - MARGIN);
    let row = |bar: &Bar, top: f64| {
        let (from, to) = (scale.at(1.0), scale.at(bar.ratio));
        let class = if bar.is_accelerated && bar.ratio >= 1.0 {
            "crosslane"
        } else {
            "bad"
        };
        html! {
            (texts(&bar.label, &ratio(bar.ratio), top))
            rect class=(class) x=(from.min(to)) y=(top + MARK - THICKNESS / 2.0) width=((to - from).abs())
                height=(THICKNESS) rx="2" {}
        }
    };
    let rows = stack(bars, row);
    frame(
        title,
        bars.len(),
        &scale,
        ratio,
        &html! {
            line.one x1=(scale.at(1.0)) x2=(scale.at(1.0)) y1=(AXIS) y2=(height(bars.len())) {}
            (rows)
        },
    )
}

/// Both sides' medians as dots, each with the range of its rounds, written as `show` writes them.
#[must_use]
pub fn pairs(title: &str, pairs: &[Pair], show: impl Fn(f64) -> String) -> Markup {
    let ends = |pair: &Pair| {
        [
            pair.tcp.low,
            pair.tcp.high,
            pair.crosslane.low,
            pair.crosslane.high,
        ]
    };
    let scale = LogScale::holding(pairs.iter().flat_map(ends), MARGIN, WIDTH - MARGIN);
    let row = |pair: &Pair, top: f64| {
        let [tcp, crosslane] = [&pair.tcp, &pair.crosslane].map(|side| show(side.median));
        html! {
            (texts(&pair.label, &format!("{tcp} → {crosslane}"), top))
            line.link x1=(scale.at(pair.tcp.median)) x2=(scale.at(pair.crosslane.median)) y1=(top + MARK)
                y2=(top + MARK) {}
            (dot("tcp", &pair.tcp, &scale, top))
            (dot("crosslane", &pair.crosslane, &scale, top))
        }
    };
    let rows = stack(pairs, row);
    frame(title, pairs.len(), &scale, &show, &rows)
}

fn dot(class: &str, spread: &Spread, scale: &LogScale, top: f64) -> Markup {
    let (low, high) = (scale.at(spread.low), scale.at(spread.high));
    html! {
        rect class={ (class) " range" } x=(low) y=(top + MARK - 2.0) width=(high - low) height="4" {}
        circle class=(class) cx=(scale.at(spread.median)) cy=(top + MARK) r="5" {}
    }
}

fn stack<T>(items: &[T], row: impl Fn(&T, f64) -> Markup) -> Markup {
    let tops = std::iter::successors(Some(AXIS), |top| Some(top + ROW));
    html! {
        @for (item, top) in items.iter().zip(tops) { (row(item, top)) }
    }
}

fn texts(label: &str, value: &str, top: f64) -> Markup {
    html! {
        text.label x=(MARGIN) y=(top + TEXT) { (label) }
        text.value x=(WIDTH - MARGIN) y=(top + TEXT) { (value) }
    }
}

fn height(rows: usize) -> f64 {
    (0..rows).fold(AXIS, |height, _| height + ROW) + MARGIN
}

/// Title and axis around the rows; nothing where there is no row.
fn frame(
    title: &str,
    rows: usize,
    scale: &LogScale,
    show: impl Fn(f64) -> String,
    content: &Markup,
) -> Markup {
    let height = height(rows);
    html! {
        @if rows > 0 {
            figure {
                figcaption { (title) }
                svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(title) {
                    @for tick in scale.ticks() {
                        line.grid x1=(scale.at(tick)) x2=(scale.at(tick)) y1=(AXIS - 4.0) y2=(height) {}
                        text.tick x=(scale.at(tick)) y=(AXIS - 9.0) { (without_zeros(&show(tick))) }
                    }
                    (content)
                }
            }
        }
    }
}
