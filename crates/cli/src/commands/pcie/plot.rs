//! Line plots as SVG, with nothing but text: one place for scales, ticks and colours.

use std::fmt::Write as _;

/// How an axis maps values.
#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of two.
    Log2,
    /// By powers of ten.
    Log10,
}

/// One line.
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// Draw dots instead of a line: measurements.
    pub dots: bool,
    /// Draw it dashed: references.
    pub dashed: bool,
    /// Its colour's number, if not its own: a measurement takes its prediction's.
    pub colour: Option<usize>,
}

impl Series {
    /// A solid line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            dots: false,
            dashed: false,
            colour: None,
        }
    }

    /// The same in the colour of this number.
    pub fn coloured(self, colour: usize) -> Self {
        Self {
            colour: Some(colour),
            ..self
        }
    }

    /// The same as dots.
    pub fn dotted(self) -> Self {
        Self { dots: true, ..self }
    }

    /// The same as a dashed line.
    pub fn reference(self) -> Self {
        Self {
            dashed: true,
            ..self
        }
    }
}

/// A plot.
pub struct Plot {
    /// Title.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Scale of the x axis.
    pub x_scale: Scale,
    /// What to draw.
    pub series: Vec<Series>,
    /// The top of the y axis, where the data alone should not decide.
    pub y_max: Option<f64>,
}

/// Little more than a phone is wide, so that text keeps its size there.
const WIDTH: f64 = 560.0;
/// Of the plot; the legend comes below.
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 56.0;
const FONT: f64 = 14.0;
const LEGEND_ROW: f64 = 20.0;
/// From a legend's line to its name, and a name to the next line.
const LEGEND_NAME: f64 = 24.0;
const LEGEND_GAP: f64 = 16.0;
/// Width of a character by the size of the font, of a wide one: what fits then fits everywhere.
const WIDE: f64 = 0.62;
const WIDE_BOLD: f64 = 0.7;
/// Okabe and Ito's colours, which colour-blind readers can tell apart, with a violet and a brown. A page
/// replaces them, by their classes, at night.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c564b",
];
/// References are grey, and told apart by their dashes.
const REFERENCE: &str = "#777777";
const DASHES: [&str; 4] = ["2 3", "5 4", "10 4", "10 3 2 3"];

impl Plot {
    /// The plot as a self-contained SVG document.
    pub fn svg(&self) -> String {
        let frame = Frame::of(self);
        let title_px = font_px(&self.title, WIDTH - 24.0, 16.0, WIDE_BOLD);
        let (per_row, _) = legend_columns(self);
        #[allow(clippy::cast_precision_loss)]
        let height = HEIGHT + LEGEND_ROW * (self.series.len().div_ceil(per_row) as f64) + 8.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\">\n<title>{0}</title>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text class=\"ink\" x=\"12\" y=\"20\" font-size=\"{title_px:.1}\" font-weight=\"600\" fill=\"#222\">{0}</text>\n",
            escape(&self.title)
        );
        self.axes(&frame, &mut svg);
        let mut references = 0;
        for (index, series) in self.series.iter().enumerate() {
            let look = if series.dashed {
                references += 1;
                Look {
                    class: "ref".to_owned(),
                    colour: REFERENCE,
                    dash: DASHES[(references - 1) % DASHES.len()],
                }
            } else {
                let colour = series.colour.unwrap_or(index) % COLOURS.len();
                Look {
                    class: format!("c{colour}"),
                    colour: COLOURS[colour],
                    dash: "",
                }
            };
            draw(series, &look, legend_place(self, index), &frame, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, frame: &Frame, svg: &mut String) {
        let (right, bottom) = (RIGHT, HEIGHT - BOTTOM);
        for tick in frame.y_ticks() {
            let y = frame.y(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e3e3e3\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                label(tick)
            );
        }
        for tick in frame.x_ticks() {
            let x = frame.x(tick);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#999\"/>\
                 <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                bottom + 5.0,
                bottom + 20.0,
                label(tick)
            );
        }
        let middle = f64::midpoint(TOP, bottom);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#999\"/>\n\
             <text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222\">{}</text>\n\
             <text class=\"ink\" transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 16.0,
            escape(&self.x_label),
            escape(&self.y_label)
        );
    }
}

/// How a series is drawn: `class` is for pages with colours of their own.
struct Look {
    class: String,
    colour: &'static str,
    dash: &'static str,
}

/// The size, of at most `most`, at which a text fits into a width.
fn font_px(text: &str, width: f64, most: f64, wide: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let characters = text.chars().count().max(1) as f64;
    (width / (wide * characters)).min(most)
}

fn draw(
    series: &Series,
    look: &Look,
    (legend_x, legend_y): (f64, f64),
    frame: &Frame,
    svg: &mut String,
) {
    let Look {
        class,
        colour,
        dash,
    } = look;
    let name = escape(&series.name);
    if series.dots {
        let _ = writeln!(
            svg,
            "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{colour}\"/>",
            legend_x + 9.0,
            legend_y
        );
        for &(x, y) in series.points.iter().filter(|p| frame.shows(**p)) {
            let _ = writeln!(
                svg,
                "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.8\" fill=\"{colour}\"><title>{name}: {} at {}</title></circle>",
                frame.x(x),
                frame.y(y),
                label(y),
                label(x)
            );
        }
    } else {
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        let points: Vec<String> = series
            .points
            .iter()
            .filter(|p| frame.shows(**p))
            .map(|&(x, y)| format!("{:.1},{:.1}", frame.x(x), frame.y(y)))
            .collect();
        let _ = writeln!(
            svg,
            "<line class=\"line {class}\" x1=\"{legend_x:.1}\" x2=\"{:.1}\" y1=\"{legend_y:.1}\" y2=\"{legend_y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
             <polyline class=\"line {class}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash} points=\"{}\"><title>{name}</title></polyline>",
            legend_x + 18.0,
            points.join(" ")
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{name}</text>",
        legend_x + LEGEND_NAME,
        legend_y + 5.0
    );
}

/// How many names are in a row of the legend, and how far apart they begin.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn legend_columns(plot: &Plot) -> (usize, f64) {
    let longest = plot.series.iter().map(|s| s.name.chars().count()).max();
    let width = LEGEND_NAME + FONT * WIDE * longest.unwrap_or(0) as f64 + LEGEND_GAP;
    let columns = ((WIDTH - 2.0 * 12.0 + LEGEND_GAP) / width).floor().max(1.0);
    (columns as usize, width)
}

#[allow(clippy::cast_precision_loss)]
fn legend_place(plot: &Plot, index: usize) -> (f64, f64) {
    let (columns, width) = legend_columns(plot);
    let (row, column) = (index / columns, index % columns);
    (
        12.0 + width * column as f64,
        HEIGHT + 8.0 + LEGEND_ROW * row as f64,
    )
}

struct Frame {
    x: (f64, f64),
    y_max: f64,
    x_scale: Scale,
}

impl Frame {
    fn of(plot: &Plot) -> Self {
        let points = || plot.series.iter().flat_map(|s| &s.points);
        let low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
        let top = points().map(|p| p.1).fold(0.0, f64::max);
        let (low, high) = if low.is_finite() && high > low {
            (low, high)
        } else {
            (1.0, 2.0)
        };
        let y_max = plot
            .y_max
            .unwrap_or(if top > 0.0 { top * 1.05 } else { 1.0 });
        Self {
            x: (low, high),
            y_max,
            x_scale: plot.x_scale,
        }
    }

    fn shows(&self, (x, y): (f64, f64)) -> bool {
        x >= self.x.0 && x <= self.x.1 && (0.0..=self.y_max).contains(&y)
    }

    fn scaled(&self, x: f64) -> f64 {
        match self.x_scale {
            Scale::Linear => x,
            Scale::Log2 => x.max(f64::MIN_POSITIVE).log2(),
            Scale::Log10 => x.max(f64::MIN_POSITIVE).log10(),
        }
    }

    fn x(&self, x: f64) -> f64 {
        let (low, high) = (self.scaled(self.x.0), self.scaled(self.x.1));
        LEFT + (self.scaled(x) - low) / (high - low) * (RIGHT - LEFT)
    }

    fn y(&self, y: f64) -> f64 {
        let bottom = HEIGHT - BOTTOM;
        bottom - y / self.y_max * (bottom - TOP)
    }

    fn y_ticks(&self) -> Vec<f64> {
        even_ticks(0.0, self.y_max)
    }

    fn x_ticks(&self) -> Vec<f64> {
        let base: f64 = match self.x_scale {
            Scale::Linear => return even_ticks(self.x.0, self.x.1),
            Scale::Log2 => 2.0,
            Scale::Log10 => 10.0,
        };
        let (low, high) = (self.scaled(self.x.0).ceil(), self.scaled(self.x.1));
        let step = ((high - low) / 8.0).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut power = low;
        while power <= high + 1e-9 {
            ticks.push(base.powf(power));
            power += step;
        }
        ticks
    }
}

/// About six round numbers between two others.
fn even_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .iter()
        .map(|m| m * power)
        .find(|s| *s >= rough)
        .unwrap_or(rough);
    let mut ticks = Vec::new();
    let mut tick = (low / step).ceil() * step;
    while tick <= high + step * 1e-9 {
        ticks.push(tick);
        tick += step;
    }
    ticks
}

/// A number as an axis shows it: binary sizes by their unit, others as they are.
fn label(value: f64) -> String {
    for (unit, size) in [
        ("G", 1024.0 * 1024.0 * 1024.0),
        ("M", 1024.0 * 1024.0),
        ("K", 1024.0),
    ] {
        if value >= size && (value / size).fract() == 0.0 {
            return format!("{}{unit}", value / size);
        }
    }
    let rounded = (value * 1000.0).round() / 1000.0;
    format!("{rounded}")
}

/// Text inside an SVG document.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_titles_and_names_have_room() {
        let name = "sequential non-temporal store";
        let lines = ["read", name, "40G Ethernet", "100G Ethernet"].map(|name| {
            let line = Series::line(name, vec![(64.0, 30.0), (4096.0, 50.0)]);
            if name.contains("Ethernet") {
                line.reference()
            } else {
                line
            }
        });
        let title =
            "gen6 x16: 1024.00 Gb/s raw, 941.55 Gb/s for TLPs, each way (MPS 4096 B, MRRS 4096 B)";
        let plot = Plot {
            title: title.to_owned(),
            x_label: String::new(),
            y_label: String::new(),
            x_scale: Scale::Linear,
            series: lines.into(),
            y_max: None,
        };
        let wide = |text: &str, px: f64, of: f64| text.len() as f64 * px * of;
        let title_px = font_px(title, WIDTH - 24.0, 16.0, WIDE_BOLD);
        assert!(wide(title, title_px, WIDE_BOLD) <= WIDTH - 23.9);
        for index in 0..plot.series.len() {
            let (x, y) = legend_place(&plot, index);
            let end = x + LEGEND_NAME + wide(&plot.series[index].name, FONT, WIDE);
            assert!(end <= WIDTH && y > HEIGHT, "{end} {y}");
        }
        let svg = plot.svg();
        assert!(
            svg.contains("stroke-dasharray=\"2 3\"") && svg.contains("stroke-dasharray=\"5 4\"")
        );
    }

    #[test]
    fn a_plot_names_its_series_and_escapes() {
        let plot = Plot {
            title: "a < b".to_owned(),
            x_label: "size (B)".to_owned(),
            y_label: "Gb/s".to_owned(),
            x_scale: Scale::Log2,
            series: vec![Series::line("read", vec![(64.0, 30.0), (4096.0, 50.0)])],
            y_max: None,
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && svg.contains(">read<") && svg.contains(">4K<"));
        assert_eq!(
            even_ticks(0.0, 60.0),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
        );
    }
}
