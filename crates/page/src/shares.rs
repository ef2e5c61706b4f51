//! Wholes and what they are made of: a bar of full width for each whole, cut in proportion.

use maud::{Markup, html};

use crate::chart::{MARGIN, WIDTH};

const ROW: f64 = 40.0;
/// From the top of a row to the base of its text, and to its bar.
const TEXT: f64 = 14.0;
const BAR: f64 = 19.0;
const THICKNESS: f64 = 16.0;

/// One whole.
pub struct Whole {
    /// What it is.
    pub label: String,
    /// How much it is, in words.
    pub value: String,
    /// Its parts, in the order of the names; what is below zero is drawn as nothing.
    pub parts: Vec<f64>,
}

/// Bars of parts with these names, each part's amount written as `show` writes it; nothing where
/// there is no whole.
#[must_use]
pub fn bars(title: &str, names: &[&str], wholes: &[Whole], show: fn(f64) -> String) -> Markup {
    let tops = std::iter::successors(Some(0.0), |top| Some(top + ROW));
    let height = wholes.iter().fold(MARGIN, |height, _| height + ROW);
    html! {
        @if !wholes.is_empty() {
            figure {
                figcaption { (title) }
                ul.legend {
                    @for (index, name) in names.iter().enumerate() {
                        li { span class={ "swatch part" (index) } {} (name) }
                    }
                }
                svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(title) {
                    @for (whole, top) in wholes.iter().zip(tops) {
                        text.label x=(MARGIN) y=(top + TEXT) { (whole.label) }
                        text.value x=(WIDTH - MARGIN) y=(top + TEXT) { (whole.value) }
                        @for piece in pieces(&whole.parts) {
                            rect class={ "part" (piece.index) } x=(tenth(piece.from)) y=(top + BAR)
                                width=(tenth(piece.to) - tenth(piece.from)) height=(THICKNESS) {
                                title { (names.get(piece.index).unwrap_or(&"")) ": " (show(whole.parts[piece.index])) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Where a part is drawn.
struct Piece {
    index: usize,
    from: f64,
    to: f64,
}

fn pieces(parts: &[f64]) -> Vec<Piece> {
    let sum: f64 = parts.iter().map(|part| part.max(0.0)).sum();
    let scale = (WIDTH - 2.0 * MARGIN) / sum.max(f64::MIN_POSITIVE);
    let mut from = MARGIN;
    let mut pieces = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let to = from + part.max(0.0) * scale;
        pieces.push(Piece { index, from, to });
        from = to;
    }
    pieces
}

/// To a tenth of a pixel, which is finer than anybody sees.
fn tenth(position: f64) -> f64 {
    (position * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_width_in_proportion() {
        let drawn = pieces(&[1.0, -5.0, 3.0]);
        let widths: Vec<_> = drawn
            .iter()
            .map(|piece| tenth(piece.to - piece.from))
            .collect();
        let width = WIDTH - 2.0 * MARGIN;
        assert_eq!(widths, [width / 4.0, 0.0, width * 3.0 / 4.0]);
        assert!(pieces(&[]).is_empty());
    }
}
