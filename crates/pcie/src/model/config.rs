//! A link and its device's settings, checked once.

use serde::Serialize;
use thiserror::Error;

/// Payload and read request sizes that the Device Control register can express.
pub const PAYLOAD_SIZES: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];
/// Read completion boundaries: root complexes use 64 or 128; bridges and the public model allow more.
pub const COMPLETION_BOUNDARIES: [u32; 4] = [64, 128, 256, 512];
/// Link widths with published latency limits.
pub const WIDTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// A setting outside what the specification or this model knows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Generation outside 1 to 7.
    #[error("PCIe generation {0} is unknown: --gen takes 1 to 7")]
    Generation(String),
    /// Lanes outside the list.
    #[error("{0} lanes do not exist: --lanes takes 1, 2, 4, 8, 16 or 32")]
    Lanes(u32),
    /// Maximum payload size outside the list.
    #[error(
        "maximum payload size {0} is not legal: --mps takes 128, 256, 512, 1024, 2048 or 4096 bytes"
    )]
    Mps(u32),
    /// Maximum read request size outside the list.
    #[error(
        "maximum read request size {0} is not legal: --mrrs takes 128, 256, 512, 1024, 2048 or 4096 bytes"
    )]
    Mrrs(u32),
    /// Read completion boundary outside the list.
    #[error("read completion boundary {0} is not legal: --rcb takes 64, 128, 256 or 512 bytes")]
    Rcb(u32),
    /// A completion would never be filled.
    #[error(
        "maximum payload size {mps} is above the maximum read request size {mrrs}: no completion could fill it; \
         legal here: --mps 128 to {mrrs}, or --mrrs {mps} to 4096"
    )]
    MpsAboveMrrs {
        /// Maximum payload size asked for.
        mps: u32,
        /// Maximum read request size asked for.
        mrrs: u32,
    },
    /// Completions could not be split at the boundary.
    #[error(
        "read completion boundary {rcb} is above the maximum payload size {mps}: legal here: --rcb 64 to {mps}"
    )]
    RcbAboveMps {
        /// Boundary asked for.
        rcb: u32,
        /// Maximum payload size asked for.
        mps: u32,
    },
    /// Addresses other than 32 or 64 bits.
    #[error("{0}-bit addresses do not exist: --addr takes 32 or 64")]
    Address(u32),
    /// A transfer of nothing or more than the model takes.
    #[error("transfer size {0} is outside 1 to {max} bytes", max = MAX_TRANSFER_BYTES)]
    Transfer(u32),
}

/// The largest transfer that the model takes: 16 MiB.
pub const MAX_TRANSFER_BYTES: u32 = 16 << 20;

/// Checks a transfer size.
///
/// # Errors
/// [`ConfigError::Transfer`] for zero or more than [`MAX_TRANSFER_BYTES`].
pub fn check_transfer(bytes: u32) -> Result<u32, ConfigError> {
    if (1..=MAX_TRANSFER_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(ConfigError::Transfer(bytes))
    }
}

/// PCI Express generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u32")]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b.
    Gen1,
    /// 5 GT/s, 8b/10b.
    Gen2,
    /// 8 GT/s, 128b/130b.
    Gen3,
    /// 16 GT/s, 128b/130b.
    Gen4,
    /// 32 GT/s, 128b/130b.
    Gen5,
    /// 64 GT/s, flits.
    Gen6,
    /// 128 GT/s, flits.
    Gen7,
}

impl Generation {
    /// All generations, oldest first.
    pub const ALL: [Self; 7] = [
        Self::Gen1,
        Self::Gen2,
        Self::Gen3,
        Self::Gen4,
        Self::Gen5,
        Self::Gen6,
        Self::Gen7,
    ];

    /// The generation with this number.
    ///
    /// # Errors
    /// [`ConfigError::Generation`] outside 1 to 7.
    pub fn from_number(number: u32) -> Result<Self, ConfigError> {
        let known = usize::try_from(number)
            .ok()
            .and_then(|n| n.checked_sub(1))
            .and_then(|i| Self::ALL.get(i));
        known
            .copied()
            .ok_or_else(|| ConfigError::Generation(number.to_string()))
    }

    /// 1 to 7.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// Transfers per second and lane, in 10^9.
    #[must_use]
    pub fn gigatransfers_per_s(self) -> f64 {
        [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0][self as usize]
    }

    /// Whether the link carries 256-byte flits (and its TLPs no framing of their own).
    #[must_use]
    pub fn is_flit(self) -> bool {
        self >= Self::Gen6
    }

    /// Share of transferred bits that the line code leaves: 8b/10b, 128b/130b, or all (PAM4, 1b/1b).
    #[must_use]
    pub fn coding(self) -> f64 {
        match self {
            Self::Gen1 | Self::Gen2 => 8.0 / 10.0,
            Self::Gen3 | Self::Gen4 | Self::Gen5 => 128.0 / 130.0,
            Self::Gen6 | Self::Gen7 => 1.0,
        }
    }
}

impl From<Generation> for u32 {
    fn from(generation: Generation) -> Self {
        generation.number()
    }
}

impl std::str::FromStr for Generation {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let digits = text.strip_prefix("gen").unwrap_or(text);
        let number = digits
            .parse()
            .map_err(|_| ConfigError::Generation(text.to_owned()))?;
        Self::from_number(number)
    }
}

/// Width of addresses in request headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AddressWidth {
    /// Three-doubleword headers.
    Bits32,
    /// Four-doubleword headers.
    Bits64,
}

impl AddressWidth {
    /// The width with this many bits.
    ///
    /// # Errors
    /// [`ConfigError::Address`] unless 32 or 64.
    pub fn from_bits(bits: u32) -> Result<Self, ConfigError> {
        match bits {
            32 => Ok(Self::Bits32),
            64 => Ok(Self::Bits64),
            other => Err(ConfigError::Address(other)),
        }
    }
}

/// What a caller asks for, unchecked. `LinkSpec::default()` is the published evaluation's link:
/// generation 3, 8 lanes, MPS 256, MRRS 512, RCB 64, 64-bit addresses, no ECRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    /// Generation.
    pub generation: Generation,
    /// Lanes.
    pub lanes: u32,
    /// Maximum payload size.
    pub mps_bytes: u32,
    /// Maximum read request size.
    pub mrrs_bytes: u32,
    /// Read completion boundary.
    pub rcb_bytes: u32,
    /// Address width.
    pub address: AddressWidth,
    /// End-to-end CRC on every TLP.
    pub ecrc: bool,
    /// Completions are cut at the boundary instead of at MPS, as older root complexes do.
    pub split_at_rcb: bool,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            generation: Generation::Gen3,
            lanes: 8,
            mps_bytes: 256,
            mrrs_bytes: 512,
            rcb_bytes: 64,
            address: AddressWidth::Bits64,
            ecrc: false,
            split_at_rcb: false,
        }
    }
}

/// A checked [`LinkSpec`]: holding one proves that every field and their relations are legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkConfig(LinkSpec);

impl LinkConfig {
    /// Checks a specification.
    ///
    /// # Errors
    /// The first [`ConfigError`] found, in the order of the fields.
    pub fn new(spec: LinkSpec) -> Result<Self, ConfigError> {
        if !WIDTHS.contains(&spec.lanes) {
            return Err(ConfigError::Lanes(spec.lanes));
        }
        if !PAYLOAD_SIZES.contains(&spec.mps_bytes) {
            return Err(ConfigError::Mps(spec.mps_bytes));
        }
        if !PAYLOAD_SIZES.contains(&spec.mrrs_bytes) {
            return Err(ConfigError::Mrrs(spec.mrrs_bytes));
        }
        if !COMPLETION_BOUNDARIES.contains(&spec.rcb_bytes) {
            return Err(ConfigError::Rcb(spec.rcb_bytes));
        }
        if spec.mps_bytes > spec.mrrs_bytes {
            return Err(ConfigError::MpsAboveMrrs {
                mps: spec.mps_bytes,
                mrrs: spec.mrrs_bytes,
            });
        }
        if spec.rcb_bytes > spec.mps_bytes {
            return Err(ConfigError::RcbAboveMps {
                rcb: spec.rcb_bytes,
                mps: spec.mps_bytes,
            });
        }
        Ok(Self(spec))
    }

    /// The checked fields.
    #[must_use]
    pub fn spec(&self) -> &LinkSpec {
        &self.0
    }

    /// The largest payload of one completion.
    #[must_use]
    pub fn completion_bytes(&self) -> u32 {
        if self.0.split_at_rcb {
            self.0.rcb_bytes
        } else {
            self.0.mps_bytes
        }
    }

    /// For example `gen3 x8`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("gen{} x{}", self.0.generation.number(), self.0.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(change: impl FnOnce(&mut LinkSpec)) -> String {
        let mut spec = LinkSpec::default();
        change(&mut spec);
        LinkConfig::new(spec).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_value_and_the_legal_range() {
        assert!(rejected(|s| s.lanes = 3).contains("3 lanes"));
        assert!(rejected(|s| s.mps_bytes = 300).contains("128, 256, 512"));
        assert!(rejected(|s| s.mrrs_bytes = 0).contains("size 0"));
        assert!(rejected(|s| s.mps_bytes = 1024).contains("--mps 128 to 512"));
        assert!(rejected(|s| s.rcb_bytes = 512).contains("--rcb 64 to 256"));
        assert!(
            "gen8"
                .parse::<Generation>()
                .unwrap_err()
                .to_string()
                .contains("1 to 7")
        );
        assert!(check_transfer(0).is_err());
    }

    #[test]
    fn generations_round_trip() {
        for generation in Generation::ALL {
            assert_eq!(Generation::from_number(generation.number()), Ok(generation));
        }
        assert!(Generation::from_number(0).is_err());
    }
}
