//! What is measured: round trips and streams of some sizes, and short connections.

use std::fmt;
use std::str::FromStr;

use crosslane_benchkit::show;
use crosslane_sockbench::client;
use crosslane_sockbench::message::checked_size;

/// One case of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What kind of traffic.
    pub kind: client::Case,
    /// The size of each message.
    pub bytes: u64,
}

/// What a person selects: all sizes of a kind, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    kind: client::Case,
    bytes: Option<u64>,
}

/// 56 B are what a line carries besides its header; 64 B need a second line.
const RTT_BYTES: [u64; 7] = [8, 56, 64, 256, 1024, 4096, 65536];
const STREAM_BYTES: [u64; 3] = [64, 4096, 65536];
const CONNECT_BYTES: [u64; 1] = [64];

const KINDS: [(client::Case, &str, &[u64]); 4] = [
    (client::Case::Rtt, "rtt", &RTT_BYTES),
    (client::Case::Stream, "stream", &STREAM_BYTES),
    (client::Case::Connect, "connect", &CONNECT_BYTES),
    (client::Case::Brief, "brief", &CONNECT_BYTES),
];

/// The selected cases in the order of the selectors; all when there is none.
pub fn select(selectors: &[Selector]) -> Vec<Case> {
    let all = KINDS.map(|(kind, ..)| Selector { kind, bytes: None });
    let selectors = if selectors.is_empty() {
        &all
    } else {
        selectors
    };
    let mut cases = Vec::new();
    for case in selectors.iter().flat_map(Selector::cases) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

impl Selector {
    fn cases(&self) -> Vec<Case> {
        let kind = self.kind;
        let sizes = match &self.bytes {
            Some(bytes) => std::slice::from_ref(bytes),
            None => KINDS
                .iter()
                .find(|(other, ..)| *other == kind)
                .map_or(&[][..], |(.., sizes)| sizes),
        };
        sizes.iter().map(|&bytes| Case { kind, bytes }).collect()
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = text
            .split_once(':')
            .map_or((text, None), |(name, size)| (name, Some(size)));
        let known = KINDS.iter().find(|(_, known, _)| *known == name);
        let (kind, ..) = known
            .ok_or_else(|| format!("no case {name:?}; there are rtt, stream, connect and brief"))?;
        let size = |text: &str| {
            let bytes = text
                .parse()
                .map_err(|_| format!("{text:?} is no number of bytes"))?;
            checked_size(bytes)
                .map(|_| bytes)
                .map_err(|error| error.to_string())
        };
        Ok(Self {
            kind: *kind,
            bytes: bytes.map(size).transpose()?,
        })
    }
}

impl Case {
    /// The name of its kind, as in the JSON output.
    pub fn name(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self.kind)
            .map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.requests() {
            Some(_) => f.write_str(self.name()),
            None => write!(f, "{} {}", self.name(), show::bytes(self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(text: &str) -> Vec<String> {
        let selectors: Vec<_> = text
            .split(',')
            .map(|part| part.parse().expect(part))
            .collect();
        select(&selectors).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_kind_selects_all_its_sizes_and_a_size_only_itself() {
        assert_eq!(selected("rtt:64"), ["rtt 64 B"]);
        assert_eq!(
            selected("connect,rtt:512,rtt:512"),
            ["connect", "rtt 512 B"]
        );
        assert_eq!(
            selected("stream"),
            ["stream 64 B", "stream 4 KiB", "stream 64 KiB"]
        );
        assert_eq!(select(&[]).len(), 12);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_what_can() {
        for (text, says) in [
            ("tcp", "rtt, stream"),
            ("rtt:x", "no number"),
            ("rtt:9", "take 8"),
        ] {
            let error = text.parse::<Selector>().expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}
