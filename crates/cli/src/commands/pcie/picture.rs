//! The packets of one transfer as SVG: a bar for each, as long as its bytes, cut into its parts.

use std::fmt::Write as _;

use crosslane_pcie::model::explain::{Direction, Leg};
use crosslane_pcie::model::tlp::{Part, overhead_parts};
use crosslane_pcie::model::{LinkConfig, TlpKind};

use super::plot::escape;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 110.0;
const ROW: f64 = 24.0;
const BAR: f64 = 16.0;
const LEGEND_ROW: f64 = 18.0;
const DATA: &str = "data";
/// Okabe and Ito's colours: data in the strongest, what surrounds it in the others.
const COLOURS: [(&str, &str); 9] = [
    (DATA, "#0072b2"),
    ("start token with sequence number", "#999999"),
    ("start symbol", "#999999"),
    ("sequence number", "#bbbbbb"),
    ("end symbol", "#777777"),
    ("LCRC", "#cc79a7"),
    ("address", "#e69f00"),
    ("ECRC", "#f0e442"),
    ("type, class, attributes, length", "#56b4e9"),
];
/// Identifiers of the requester or completer, tag, status: the rest of a header.
const OTHER: &str = "#009e73";

/// A transfer and its packets.
pub type Transfer<'a> = (&'a str, Vec<Leg>);

/// Draws the first packets of each transfer, and says how many are left out.
pub fn draw(link: &LinkConfig, title: &str, transfers: &[Transfer<'_>], shown: usize) -> String {
    let longest = transfers
        .iter()
        .flat_map(|(_, legs)| legs)
        .map(|leg| leg.wire_bytes)
        .max()
        .unwrap_or(1);
    let scale = (WIDTH - LEFT - RIGHT) / f64::from(longest);
    let mut body = String::new();
    let mut y = 44.0;
    for (name, legs) in transfers {
        let _ = writeln!(body, "{}", text(12.0, y, "600", name));
        y += ROW;
        for leg in legs.iter().take(shown) {
            bar(link, leg, y, scale, &mut body);
            y += ROW;
        }
        if legs.len() > shown {
            let rest = format!("and {} more packets", legs.len() - shown);
            let _ = writeln!(body, "{}", text(LEFT, y, "400", &rest));
            y += ROW;
        }
        y += ROW / 2.0;
    }
    let height = legend(link, transfers, y, &mut body);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{0}</title>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"15\" font-weight=\"600\" fill=\"#222\">{0}</text>\n{body}</svg>\n",
        escape(title)
    )
}

fn bar(link: &LinkConfig, leg: &Leg, y: f64, scale: f64, svg: &mut String) {
    let way = if leg.direction == Direction::Up {
        "up"
    } else {
        "down"
    };
    let name = format!("{way} {} at {}", leg.kind.name(), leg.offset_bytes);
    let _ = writeln!(svg, "{}", text(24.0, y, "400", &name));
    let mut x = LEFT;
    for part in parts(link, leg) {
        let width = f64::from(part.bytes) * scale;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{}\" \
             stroke=\"#fff\" stroke-width=\"0.5\"><title>{} B {}</title></rect>",
            y - 12.0,
            colour(part.name),
            part.bytes,
            escape(part.name)
        );
        x += width;
    }
    let bytes = format!("{} B", leg.wire_bytes);
    let _ = writeln!(svg, "{}", text(x + 8.0, y, "400", &bytes));
}

/// A packet's parts in the order of the wire: framing and header, data, then what checks them.
fn parts(link: &LinkConfig, leg: &Leg) -> Vec<Part> {
    let is_last = |part: &Part| matches!(part.name, "LCRC" | "ECRC" | "end symbol");
    let (mut after, mut parts): (Vec<_>, Vec<_>) = overhead_parts(link, leg.kind)
        .into_iter()
        .partition(is_last);
    if leg.kind != TlpKind::MemoryRead {
        parts.push(Part {
            name: DATA,
            bytes: leg.data_bytes,
        });
    }
    after.sort_by_key(|part| {
        ["ECRC", "LCRC", "end symbol"]
            .iter()
            .position(|n| *n == part.name)
    });
    parts.extend(after);
    parts
}

fn legend(link: &LinkConfig, transfers: &[Transfer<'_>], top: f64, svg: &mut String) -> f64 {
    let mut names: Vec<&str> = Vec::new();
    for leg in transfers.iter().flat_map(|(_, legs)| legs) {
        for part in parts(link, leg) {
            if !names.contains(&part.name) {
                names.push(part.name);
            }
        }
    }
    let mut y = top;
    for name in names {
        let _ = writeln!(
            svg,
            "<rect x=\"24\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>{}",
            y - 10.0,
            colour(name),
            text(44.0, y, "400", name)
        );
        y += LEGEND_ROW;
    }
    y
}

fn colour(name: &str) -> &'static str {
    COLOURS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(OTHER, |(_, colour)| colour)
}

fn text(x: f64, y: f64, weight: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-weight=\"{weight}\" fill=\"#222\">{}</text>",
        escape(text)
    )
}

#[cfg(test)]
mod tests {
    use crosslane_pcie::model::explain::legs;
    use crosslane_pcie::model::{LinkConfig, LinkSpec, Mix};

    use super::*;

    #[test]
    fn every_byte_of_every_packet_is_drawn() {
        for (ecrc, mix) in [(false, Mix::Write), (true, Mix::Read)] {
            let link = LinkConfig::new(LinkSpec {
                ecrc,
                ..LinkSpec::default()
            })
            .unwrap();
            for leg in legs(&link, mix, 600) {
                let drawn: u32 = parts(&link, &leg).iter().map(|part| part.bytes).sum();
                assert_eq!(drawn, leg.wire_bytes);
            }
        }
    }

    #[test]
    fn packets_left_out_are_counted() {
        let link = LinkConfig::new(LinkSpec::default()).unwrap();
        let transfers = [("DMA write", legs(&link, Mix::Write, 2560))];
        let svg = draw(&link, "2560 B", &transfers, 4);
        assert!(svg.contains("and 6 more packets"));
        assert_eq!(svg.matches("280 B").count(), 4);
    }
}
