//! Curves, and points with names, in a plane of two logarithmic axes.

use crosslane_benchkit::show::without_zeros;
use maud::{Markup, html};

use crate::chart::{MARGIN, WIDTH};
use crate::scale::LogScale;

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
const RIGHT_EDGE: f64 = WIDTH - MARGIN;
const BOTTOM_EDGE: f64 = HEIGHT - BOTTOM;
/// What a tick's label takes beside the next one, and one name above the next one.
const TICK_WIDTH: f64 = 44.0;
const NAME_HEIGHT: f64 = 13.0;

/// What the axes mean.
pub struct Axes<'a> {
    /// The chart's title.
    pub title: &'a str,
    /// What is to the right.
    pub x_label: &'a str,
    /// What is up.
    pub y_label: &'a str,
    /// How a value to the right is written.
    pub show_x: fn(f64) -> String,
    /// How a value up is written.
    pub show_y: fn(f64) -> String,
}

/// Points that belong together, by x. Values must be positive.
pub struct Curve {
    /// What it is.
    pub label: String,
    /// Whose colour it has, a class of the style.
    pub class: &'static str,
    /// Drawn dashed: a second figure of the same thing.
    pub dashed: bool,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// A point with a name. Values must be positive.
pub struct Spot {
    /// What it is.
    pub label: String,
    /// Whose colour it has.
    pub class: &'static str,
    /// Where it is.
    pub x: f64,
    /// Where it is.
    pub y: f64,
    /// How far a second figure is above it.
    pub up_to: Option<f64>,
    /// Drawn full, as one of the best, or hollow.
    pub is_full: bool,
}

/// A chart of curves; nothing where there is no point.
#[must_use]
pub fn curves(axes: &Axes, curves: &[Curve]) -> Markup {
    let points: Vec<_> = curves.iter().flat_map(|curve| &curve.points).collect();
    if points.is_empty() {
        return Markup::default();
    }
    let plane = Plane::holding(points.iter().copied().copied());
    let mut xs: Vec<_> = points.iter().map(|point| point.0).collect();
    xs.sort_by(f64::total_cmp);
    let ticks = apart(&xs, &plane.x);
    let content = html! {
        @for curve in curves {
            polyline class={ "curve " (curve.class) } stroke-dasharray=[curve.dashed.then_some("5 4")]
                points=(path(&plane, &curve.points)) {}
            @for &(x, y) in &curve.points {
                circle class=(curve.class) cx=(at(&plane.x, x)) cy=(at(&plane.y, y)) r="3" {
                    title { (curve.label) ": " ((axes.show_y)(y)) ", " ((axes.show_x)(x)) }
                }
            }
        }
    };
    figure(axes, &plane, &ticks, &legend(curves), &content)
}

/// A chart of points with names; nothing where there is none.
#[must_use]
pub fn spots(axes: &Axes, spots: &[Spot]) -> Markup {
    if spots.is_empty() {
        return Markup::default();
    }
    let ends = |spot: &Spot| [(spot.x, spot.y), (spot.x, spot.up_to.unwrap_or(spot.y))];
    let plane = Plane::holding(spots.iter().flat_map(ends));
    let ticks = plane.x.ticks();
    let content = html! {
        @for spot in spots {
            @if let Some(up_to) = spot.up_to {
                line class={ "reach " (spot.class) } x1=(at(&plane.x, spot.x)) x2=(at(&plane.x, spot.x))
                    y1=(at(&plane.y, spot.y)) y2=(at(&plane.y, up_to)) {}
            }
            circle class={ (spot.class) @if !spot.is_full { " hollow" } } cx=(at(&plane.x, spot.x))
                cy=(at(&plane.y, spot.y)) r="5" {
                title { (spot.label) ": " ((axes.show_y)(spot.y)) ", " ((axes.show_x)(spot.x)) }
            }
        }
        @for name in names(&plane, spots) {
            text.name x=(name.x) y=(name.y) text-anchor=(name.anchor) { (name.label) }
        }
    };
    figure(axes, &plane, &ticks, &Markup::default(), &content)
}

/// The axes of a chart.
struct Plane {
    x: LogScale,
    y: LogScale,
}

impl Plane {
    fn holding(points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let (xs, ys) = (
            points.clone().map(|point| point.0),
            points.map(|point| point.1),
        );
        Self {
            x: LogScale::holding(xs, LEFT, RIGHT_EDGE),
            y: LogScale::holding(ys, BOTTOM_EDGE, TOP),
        }
    }
}

/// A position to a tenth of a pixel, which is finer than anybody sees.
fn at(scale: &LogScale, value: f64) -> f64 {
    (scale.at(value) * 10.0).round() / 10.0
}

fn path(plane: &Plane, points: &[(f64, f64)]) -> String {
    let point = |&(x, y): &(f64, f64)| format!("{},{}", at(&plane.x, x), at(&plane.y, y));
    points.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// Those of `sorted` values that can be labelled without touching each other.
fn apart(sorted: &[f64], scale: &LogScale) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for &value in sorted {
        let fits = |last: &f64| scale.at(value) - scale.at(*last) >= TICK_WIDTH;
        if kept.last().is_none_or(fits) {
            kept.push(value);
        }
    }
    kept
}

fn legend(curves: &[Curve]) -> Markup {
    html! {
        ul.legend {
            @for curve in curves {
                li { span class={ "swatch " (curve.class) @if curve.dashed { " dashed" } } {} (curve.label) }
            }
        }
    }
}

/// A point's name and where it stands.
struct Name<'a> {
    label: &'a str,
    x: f64,
    y: f64,
    anchor: &'static str,
}

/// Names beside their points, towards the middle; each below the last one that it would cover.
fn names<'a>(plane: &Plane, spots: &'a [Spot]) -> Vec<Name<'a>> {
    let mut names: Vec<_> = spots
        .iter()
        .map(|spot| {
            let (x, y) = (at(&plane.x, spot.x), at(&plane.y, spot.y) + 4.0);
            let is_left = x < f64::midpoint(LEFT, RIGHT_EDGE);
            let (x, anchor) = if is_left {
                (x + 9.0, "start")
            } else {
                (x - 9.0, "end")
            };
            let label = spot.label.as_str();
            Name {
                label,
                x,
                y,
                anchor,
            }
        })
        .collect();
    names.sort_by(|one, other| one.y.total_cmp(&other.y));
    for index in 1..names.len() {
        let (above, below) = names.split_at_mut(index);
        let Some(name) = below.first_mut() else { break };
        let mut covering = above.iter().filter(|other| other.anchor == name.anchor);
        if let Some(lowest) = covering.next_back() {
            name.y = name.y.max(lowest.y + NAME_HEIGHT);
        }
    }
    names
}

fn figure(
    axes: &Axes,
    plane: &Plane,
    x_ticks: &[f64],
    legend: &Markup,
    content: &Markup,
) -> Markup {
    let middle = (
        f64::midpoint(LEFT, RIGHT_EDGE),
        f64::midpoint(TOP, BOTTOM_EDGE),
    );
    html! {
        figure {
            figcaption { (axes.title) }
            (legend)
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(axes.title) {
                @for tick in plane.y.ticks() {
                    line.grid x1=(LEFT) x2=(RIGHT_EDGE) y1=(at(&plane.y, tick)) y2=(at(&plane.y, tick)) {}
                    text.tick.left x=(LEFT - 6.0) y=(at(&plane.y, tick) + 4.0) { (without_zeros(&(axes.show_y)(tick))) }
                }
                @for &tick in x_ticks {
                    line.grid x1=(at(&plane.x, tick)) x2=(at(&plane.x, tick)) y1=(TOP) y2=(BOTTOM_EDGE) {}
                    text.tick x=(at(&plane.x, tick)) y=(BOTTOM_EDGE + 15.0) { (without_zeros(&(axes.show_x)(tick))) }
                }
                (content)
                text.axis x=(middle.0) y=(HEIGHT - 6.0) { (axes.x_label) }
                text.axis transform=(format!("translate(11 {}) rotate(-90)", middle.1)) { (axes.y_label) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes<'static> = Axes {
        title: "Latency",
        x_label: "size",
        y_label: "time",
        show_x: |value| format!("{value} B"),
        show_y: |value| format!("{value} ns"),
    };

    fn spot(label: &str, x: f64, y: f64) -> Spot {
        Spot {
            label: label.into(),
            class: "tcp",
            x,
            y,
            up_to: Some(10.0 * y),
            is_full: true,
        }
    }

    #[test]
    fn curves_have_a_line_a_dot_for_each_point_and_a_legend() {
        let curve = |label: &str, dashed| Curve {
            label: label.into(),
            class: "tcp",
            dashed,
            points: vec![(8.0, 100.0), (64.0, 200.0), (4096.0, 1000.0)],
        };
        let svg = curves(&AXES, &[curve("median", false), curve("p99", true)]).into_string();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        for expected in [
            "Latency",
            "4096 B",
            "p99: 200 ns, 64 B",
            "swatch tcp dashed",
        ] {
            assert!(svg.contains(expected), "{expected} is missing in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn without_points_there_is_no_chart() {
        assert_eq!(curves(&AXES, &[]).into_string(), "");
        assert_eq!(spots(&AXES, &[]).into_string(), "");
    }

    #[test]
    fn names_of_points_in_one_place_do_not_cover_each_other() {
        let spots = [
            spot("a", 0.1, 10.0),
            spot("b", 0.1, 10.0),
            spot("c", 0.1, 10.1),
            spot("d", 1.0, 10.0),
        ];
        let plane = Plane::holding(spots.iter().map(|spot| (spot.x, spot.y)));
        let names = names(&plane, &spots);
        let mut left: Vec<_> = names
            .iter()
            .filter(|name| name.anchor == "start")
            .map(|name| name.y)
            .collect();
        left.sort_by(f64::total_cmp);
        assert_eq!(left.len(), 3);
        assert!(
            left.windows(2).all(|pair| pair[1] - pair[0] >= NAME_HEIGHT),
            "{left:?}"
        );
    }

    #[test]
    fn ticks_that_would_touch_are_left_out() {
        let scale = LogScale::holding([8.0, 65536.0].into_iter(), LEFT, RIGHT_EDGE);
        let kept = apart(&[8.0, 56.0, 64.0, 256.0, 1024.0, 65536.0], &scale);
        assert!(
            kept.contains(&8.0) && kept.contains(&65536.0) && kept.len() < 6,
            "{kept:?}"
        );
    }
}
