//! Arguments that several subcommands share, and how their values are written.

use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail, ensure};
use crosslane_pcie::model::config::{
    COMPLETION_BOUNDARIES, ConfigError, MAX_TRANSFER_BYTES, PAYLOAD_SIZES, WIDTHS, check_transfer,
};
use crosslane_pcie::model::{AddressWidth, Generation, LinkConfig, LinkSpec};
use crosslane_pcie::profile;

/// The most sizes that one command takes.
const MAX_SIZES: usize = 65_536;

/// The link and its settings.
#[derive(clap::Args, Clone)]
pub struct LinkArgs {
    /// PCIe generation, 1 to 7
    #[arg(long = "gen", default_value = "3", value_name = "N", value_parser = Generation::from_str, allow_hyphen_values = true)]
    generation: Generation,
    /// Lanes: 1, 2, 4, 8, 16 or 32
    #[arg(long, default_value = "8", value_name = "N", value_parser = lanes, allow_hyphen_values = true)]
    lanes: u32,
    /// Maximum payload size: 128, 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value = "256", value_name = "BYTES", value_parser = payload, allow_hyphen_values = true)]
    mps: u32,
    /// Maximum read request size: 128 to 4096, not below --mps [default: 512, or --mps if larger]
    #[arg(long, value_name = "BYTES", value_parser = request, allow_hyphen_values = true)]
    mrrs: Option<u32>,
    /// Read completion boundary: 64, 128, 256 or 512
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = boundary, allow_hyphen_values = true)]
    rcb: u32,
    /// Address width: 32 or 64
    #[arg(long, default_value = "64", value_name = "BITS", value_parser = address, allow_hyphen_values = true)]
    addr: u32,
    /// End-to-end CRC on every packet
    #[arg(long)]
    ecrc: bool,
    /// Completions are cut at the read completion boundary, as older root complexes do
    #[arg(long)]
    split_at_rcb: bool,
}

/// What of a machine's link is to be different.
#[derive(clap::Args, Clone)]
pub struct LinkChanges {
    /// PCIe generation, 1 to 7 [default: the machine's]
    #[arg(long = "gen", value_name = "N", value_parser = Generation::from_str, allow_hyphen_values = true)]
    generation: Option<Generation>,
    /// Lanes: 1, 2, 4, 8, 16 or 32 [default: the machine's]
    #[arg(long, value_name = "N", value_parser = lanes, allow_hyphen_values = true)]
    lanes: Option<u32>,
    /// Maximum payload size, 128 to 4096 [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = payload, allow_hyphen_values = true)]
    mps: Option<u32>,
    /// Maximum read request size, 128 to 4096 [default: the machine's, or --mps if larger]
    #[arg(long, value_name = "BYTES", value_parser = request, allow_hyphen_values = true)]
    mrrs: Option<u32>,
    /// Read completion boundary: 64, 128, 256 or 512 [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = boundary, allow_hyphen_values = true)]
    rcb: Option<u32>,
    /// Address width: 32 or 64 [default: the machine's]
    #[arg(long, value_name = "BITS", value_parser = address, allow_hyphen_values = true)]
    addr: Option<u32>,
    /// End-to-end CRC on every packet
    #[arg(long)]
    ecrc: bool,
    /// Completions are cut at the read completion boundary, as older root complexes do
    #[arg(long)]
    split_at_rcb: bool,
}

impl LinkChanges {
    /// Makes them; the simulation checks the result.
    pub fn apply(&self, link: &mut profile::Link) {
        if let Some(generation) = self.generation {
            link.generation = generation.number();
        }
        let mrrs = self.mrrs.or(self.mps.map(|mps| mps.max(link.mrrs_bytes)));
        for (value, field) in [
            (self.lanes, &mut link.lanes),
            (self.mps, &mut link.mps_bytes),
            (mrrs, &mut link.mrrs_bytes),
            (self.rcb, &mut link.rcb_bytes),
            (self.addr, &mut link.address_bits),
        ] {
            *field = value.unwrap_or(*field);
        }
        link.ecrc |= self.ecrc;
        link.split_at_rcb |= self.split_at_rcb;
    }
}

fn lanes(text: &str) -> anyhow::Result<u32> {
    let digits = text.trim_start_matches(['x', 'X']);
    let lanes = digits.parse().map_err(|_| {
        anyhow!("{text:?} is no number of lanes: --lanes takes 1, 2, 4, 8, 16 or 32")
    })?;
    one_of(&WIDTHS, lanes, ConfigError::Lanes)
}

/// The value, if it is on the list.
fn one_of(legal: &[u32], value: u32, error: fn(u32) -> ConfigError) -> anyhow::Result<u32> {
    ensure!(legal.contains(&value), error(value));
    Ok(value)
}

fn payload(text: &str) -> anyhow::Result<u32> {
    let legal = "--mps takes 128, 256, 512, 1024, 2048 or 4096";
    let bytes = register(text, "maximum payload size", legal)?;
    one_of(&PAYLOAD_SIZES, bytes, ConfigError::Mps)
}

fn request(text: &str) -> anyhow::Result<u32> {
    let legal = "--mrrs takes 128, 256, 512, 1024, 2048 or 4096";
    let bytes = register(text, "maximum read request size", legal)?;
    one_of(&PAYLOAD_SIZES, bytes, ConfigError::Mrrs)
}

fn boundary(text: &str) -> anyhow::Result<u32> {
    let legal = "--rcb takes 64, 128, 256 or 512";
    let bytes = register(text, "read completion boundary", legal)?;
    one_of(&COMPLETION_BOUNDARIES, bytes, ConfigError::Rcb)
}

/// A size that a register holds.
fn register(text: &str, what: &str, legal: &str) -> anyhow::Result<u32> {
    let bytes = parse_bytes(text).ok().and_then(|n| u32::try_from(n).ok());
    bytes.ok_or_else(|| anyhow!("{what} {text:?} is no size: {legal} bytes"))
}

fn address(text: &str) -> anyhow::Result<u32> {
    let bits = text
        .parse()
        .map_err(|_| anyhow!("{text:?} is no address width: --addr takes 32 or 64"))?;
    one_of(&[32, 64], bits, ConfigError::Address)
}

impl LinkArgs {
    /// The checked link.
    pub fn config(&self) -> anyhow::Result<LinkConfig> {
        let spec = LinkSpec {
            generation: self.generation,
            lanes: self.lanes,
            mps_bytes: self.mps,
            mrrs_bytes: self
                .mrrs
                .unwrap_or_else(|| self.mps.max(LinkSpec::default().mrrs_bytes)),
            rcb_bytes: self.rcb,
            address: AddressWidth::from_bits(self.addr)?,
            ecrc: self.ecrc,
            split_at_rcb: self.split_at_rcb,
        };
        Ok(LinkConfig::new(spec)?)
    }
}

/// Transfer sizes: `64`, `1-1500`, `64-1500:4` or a list of these with commas.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(pub Vec<u32>);

impl FromStr for Sizes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let step: usize = step.parse().ok().filter(|s| *s > 0).with_context(|| {
                format!("step {step:?} in {part:?}: a range is FIRST-LAST or FIRST-LAST:STEP, STEP from 1")
            })?;
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (transfer(first)?, transfer(last)?);
            if first > last {
                bail!("range {part:?} runs backwards: write the smaller size first");
            }
            sizes.extend((first..=last).step_by(step).take(MAX_SIZES + 1));
            if sizes.len() > MAX_SIZES {
                bail!(
                    "{text:?} names more than {MAX_SIZES} sizes: widen the step, as in 1-1000000:64"
                );
            }
        }
        Ok(Self(sizes))
    }
}

/// The bytes of one transfer.
pub fn transfer(text: &str) -> anyhow::Result<u32> {
    let legal = format!("1 to {MAX_TRANSFER_BYTES} bytes");
    let bytes = parse_bytes(text).map_err(|error| anyhow!("{error:#}; legal is {legal}"))?;
    let bytes =
        u32::try_from(bytes).map_err(|_| anyhow!("transfer size {text} is outside {legal}"))?;
    Ok(check_transfer(bytes)?)
}

/// A number of bytes: `8192`, `8K`, `64M`, `1G`, with or without `iB`.
pub fn parse_bytes(text: &str) -> anyhow::Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => bail!(
            "unit {other:?} in {text:?} is unknown: sizes end in nothing, K, M or G (powers of 1024)"
        ),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| anyhow!("{text:?} is not a number of bytes: write 8192, 8K, 64M or 1G"))?;
    number
        .checked_shl(shift)
        .filter(|n| n >> shift == number)
        .with_context(|| format!("{text} is too large"))
}

/// Legal line rates.
const RATES: &str = "1M to 100T";

/// A line rate: `40`, `100G`, `2.5G`, `1T`; in Gb/s.
pub fn parse_rate(text: &str) -> anyhow::Result<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "g" | "gb/s" | "gbps" => 1.0,
        "m" | "mb/s" | "mbps" => 1e-3,
        "t" | "tb/s" | "tbps" => 1e3,
        other => {
            bail!(
                "unit {other:?} in {text:?} is unknown: rates end in M, G or T (bits per second), and are {RATES}"
            )
        }
    };
    let number: f64 = digits.parse().map_err(|_| {
        anyhow!("{text:?} is not a rate: write 40G, 100G or 1.6T, and no other than {RATES}")
    })?;
    let gbps = number * factor;
    ensure!(
        (1e-3..=1e5).contains(&gbps),
        "rate {text} is outside {RATES}"
    );
    Ok(gbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u32> {
        text.parse::<Sizes>().unwrap().0
    }

    fn refused(text: &str) -> String {
        format!("{:#}", text.parse::<Sizes>().unwrap_err())
    }

    #[test]
    fn sizes_are_lists_of_ranges() {
        assert_eq!(sizes("64"), [64]);
        assert_eq!(sizes("1-3,8,1K"), [1, 2, 3, 8, 1024]);
        assert_eq!(sizes("64-256:64"), [64, 128, 192, 256]);
    }

    #[test]
    fn bad_sizes_say_what_is_wrong() {
        assert!(refused("0").contains("outside 1 to"));
        assert!(refused("9-1").contains("backwards"));
        assert!(refused("1-9:0").contains("STEP from 1"));
        assert!(refused("-").contains("not a number"));
        assert!(refused("1-16M").contains("more than"));
        assert!(refused("5X").contains("unit \"x\""));
    }

    #[test]
    fn rates_and_bytes() {
        assert!((parse_rate("1.6T").unwrap() - 1600.0).abs() < 1e-9);
        assert_eq!(parse_bytes("64MiB").unwrap(), 64 << 20);
        assert!(parse_rate("0").is_err());
        assert!(parse_bytes("99999999999G").is_err());
    }
}
