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

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Okabe and Ito's colours, which colour-blind readers can tell apart.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444",
];

impl Plot {
    /// The plot as a self-contained SVG document.
    pub fn svg(&self) -> String {
        let frame = Frame::of(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\" font-weight=\"600\" fill=\"#222\">{}</text>\n",
            escape(&self.title),
            escape(&self.title)
        );
        self.axes(&frame, &mut svg);
        for (index, series) in self.series.iter().enumerate() {
            draw(
                series,
                COLOURS[series.colour.unwrap_or(index) % COLOURS.len()],
                index,
                &frame,
                &mut svg,
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, frame: &Frame, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in frame.y_ticks() {
            let y = frame.y(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e3e3e3\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                label(tick)
            );
        }
        for tick in frame.x_ticks() {
            let x = frame.x(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#999\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                label(tick)
            );
        }
        let middle = f64::midpoint(TOP, bottom);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#999\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222\">{}</text>\n\
             <text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            escape(&self.x_label),
            escape(&self.y_label)
        );
    }
}

fn draw(series: &Series, colour: &str, index: usize, frame: &Frame, svg: &mut String) {
    #[allow(clippy::cast_precision_loss)]
    let legend_y = TOP + 10.0 + 18.0 * index as f64;
    let legend_x = WIDTH - RIGHT + 14.0;
    let name = escape(&series.name);
    if series.dots {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{colour}\"/>",
            legend_x + 9.0,
            legend_y
        );
        for &(x, y) in series.points.iter().filter(|p| frame.shows(**p)) {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.8\" fill=\"{colour}\"><title>{name}: {} at {}</title></circle>",
                frame.x(x),
                frame.y(y),
                label(y),
                label(x)
            );
        }
    } else {
        let dash = if series.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let points: Vec<String> = series
            .points
            .iter()
            .filter(|p| frame.shows(**p))
            .map(|&(x, y)| format!("{:.1},{:.1}", frame.x(x), frame.y(y)))
            .collect();
        let _ = writeln!(
            svg,
            "<line x1=\"{legend_x:.1}\" x2=\"{:.1}\" y1=\"{legend_y:.1}\" y2=\"{legend_y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
             <polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash} points=\"{}\"><title>{name}</title></polyline>",
            legend_x + 18.0,
            points.join(" ")
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{name}</text>",
        legend_x + 24.0,
        legend_y + 4.0
    );
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
        LEFT + (self.scaled(x) - low) / (high - low) * (WIDTH - RIGHT - LEFT)
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
