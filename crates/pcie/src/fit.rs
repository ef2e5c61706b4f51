//! A host profile out of a machine's pcie-bench files.
//!
//! Each parameter is solved for in closed form from the rows that show it alone; docs/pcie.md derives
//! the formulas. What the files cannot show (how reads are split, power management) stays as in the
//! profile that the fit starts from, and the notes say so.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::data::{DataError, Measurement, read_measurements};
use crate::model::Mix;
use crate::model::bandwidth::{raw_gbps, transfer_bytes};
use crate::model::config::ConfigError;
use crate::model::latency::{self, read_terms, total_ns};
use crate::profile::{Device, Host, ProfileError};

/// A fit that cannot be made.
#[derive(Debug, Error)]
pub enum FitError {
    /// A file cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A link cannot exist.
    #[error(transparent)]
    Link(#[from] ConfigError),
    /// Numbers that no machine of this kind has, or folders that were given for one another.
    #[error("{}: {what} is {value:.3}, but should be {legal}: {remedy}", folder.display())]
    Implausible {
        /// The folder.
        folder: PathBuf,
        /// What was computed.
        what: &'static str,
        /// What came out.
        value: f64,
        /// What could have.
        legal: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The profile that came out cannot be simulated.
    #[error("the fit is no profile: {0}")]
    Profile(#[from] ProfileError),
    /// The row that a parameter needs is missing.
    #[error("{}: no {test} row with cache {cache}, {size} B in a window of {window} B, which {parameter} is fitted on", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// Test.
        test: &'static str,
        /// Cache state.
        cache: &'static str,
        /// Size.
        size: u32,
        /// Window.
        window: u64,
        /// What it is for.
        parameter: &'static str,
    },
}

/// A fitted host and what was not fitted.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The profile.
    pub host: Host,
    /// One line per parameter: the value, and the rows it comes from.
    pub notes: Vec<String>,
}

struct Rows {
    folder: PathBuf,
    rows: Vec<Measurement>,
}

const FILES: [&str; 7] = [
    "lat_dma_details.dat",
    "lat_dma_sweep_rd_rnd_64.dat",
    "lat_dma_sizes.dat",
    "bw_dma_sz_sweep.dat",
    "bw_dma_win_sweep_rd_rnd_64.dat",
    "bw_dma_win_sweep_wr_rnd_64.dat",
    "bw_dma_win_sweep_rd_rnd_512.dat",
];

impl Rows {
    fn load(folder: &Path) -> Result<Self, FitError> {
        let mut rows = Vec::new();
        for file in FILES {
            rows.extend(read_measurements(&folder.join(file))?);
        }
        Ok(Self {
            folder: folder.to_owned(),
            rows,
        })
    }

    /// The value, unless it is outside these bounds.
    fn plausible(
        &self,
        (what, value): (&'static str, f64),
        bounds: std::ops::RangeInclusive<f64>,
        legal: &'static str,
        remedy: &'static str,
    ) -> Result<f64, FitError> {
        if bounds.contains(&value) {
            return Ok(value);
        }
        Err(FitError::Implausible {
            folder: self.folder.clone(),
            what,
            value,
            legal,
            remedy,
        })
    }

    fn find(
        &self,
        (test, cache): (&'static str, &'static str),
        window: u64,
        size: u32,
        parameter: &'static str,
    ) -> Result<f64, FitError> {
        let wanted = |row: &&Measurement| {
            row.test == test
                && row.cache == cache
                && row.window_bytes == window
                && row.size_bytes == size
        };
        let random_first = self
            .rows
            .iter()
            .filter(wanted)
            .max_by_key(|row| row.pattern == "Rand");
        random_first
            .map(|row| row.mean)
            .ok_or_else(|| FitError::Missing {
                folder: self.folder.clone(),
                test,
                cache,
                size,
                window,
                parameter,
            })
    }

    /// (window, mean) of a sweep, by window.
    fn sweep(&self, test: &str, cache: &str, size: u32) -> Vec<(u64, f64)> {
        let mut points: Vec<_> = self
            .rows
            .iter()
            .filter(|r| {
                r.test == test && r.cache == cache && r.size_bytes == size && r.pattern == "Rand"
            })
            .map(|r| (r.window_bytes, r.mean))
            .collect();
        points.sort_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        points
    }
}

const SMALL: u64 = 8192;
const LARGE: u64 = 64 << 20;
const READ: (&str, &str) = ("LAT_DMA_RD", "HWarm");
const COLD: (&str, &str) = ("LAT_DMA_RD", "Cold");

/// A page walk is at least one access to a cache; measurements of the same kind differ by less.
const LEAST_WALK_NS: f64 = 20.0;

/// Fits a host on the files in `plain` and, measured with translation, in `translated`.
///
/// # Errors
/// [`FitError`] if a file does not parse or lacks a row.
pub fn fit(
    name: &str,
    base: &Host,
    device: &Device,
    plain: &Path,
    translated: Option<&Path>,
) -> Result<Fit, FitError> {
    let rows = Rows::load(plain)?;
    let mut fit = Fit {
        host: Host {
            name: name.to_owned(),
            ..base.clone()
        },
        notes: Vec::new(),
    };
    fit.host.source = format!("fitted on {}", plain.display());
    fit.link(&rows)?;
    fit.memory(&rows, device)?;
    if let Some(folder) = translated {
        fit.translation(&rows, &Rows::load(folder)?)?;
    }
    fit.tail(&rows)?;
    fit.host.check()?;
    fit.notes.push(format!(
        "refresh_ns, refresh_every_ns, read_line_ns, line_by_line_bytes, streams, line_mode_lasts, line_gap_ns, half_pair_gap_ns, completion_bytes, credits, sleep: as in {}",
        base.name
    ));
    Ok(fit)
}

impl Fit {
    fn note(&mut self, parameter: &str, value: f64, unit: &str, from: &str) {
        self.notes
            .push(format!("{parameter} = {value:.3} {unit}: {from}"));
    }

    /// The largest transfers that were measured run at the link's rate.
    fn link(&mut self, rows: &Rows) -> Result<(), FitError> {
        let gbps = rows.find(("BW_DMA_RD", "HWarm"), SMALL, 2048, "link.tlp_share")?;
        let link = self.host.link.config()?;
        let wire = transfer_bytes(&link, Mix::Read, 2048).down / 2048.0;
        self.host.link.tlp_share = rows.plausible(
            (
                "the link's share that 2,048 B reads fill",
                gbps * wire / raw_gbps(&link),
            ),
            0.1..=1.0,
            "0.1 to 1",
            "take a --base with the link that was measured",
        )?;
        self.note(
            "link.tlp_share",
            self.host.link.tlp_share,
            "",
            "BW_RD, 2048 B, warm",
        );
        Ok(())
    }

    fn memory(&mut self, rows: &Rows, device: &Device) -> Result<(), FitError> {
        let warm = rows.find(READ, SMALL, 64, "read_ns")?;
        let cold = rows.find(COLD, SMALL, 64, "cold_ns")?;
        self.host.read_ns = 0.0;
        let link = self.host.link.config()?;
        let rest = total_ns(&read_terms(
            &link,
            device,
            &self.host,
            &latency::Path::default(),
            64,
        ));
        self.host.read_ns = rows.plausible(
            ("what 64 B reads leave to the host, in ns,", warm - rest),
            0.0..=1e9,
            "0 or more",
            "the device, the link or the wake-ups of --base alone take longer",
        )?;
        self.note(
            "read_ns",
            self.host.read_ns,
            "ns",
            "LAT_RD, 64 B, warm, 8 KiB, less the other terms",
        );
        self.host.cold_ns = (cold - warm - self.host.mean_refresh_ns()).max(0.0);
        self.note(
            "cold_ns",
            self.host.cold_ns,
            "ns",
            "LAT_RD, 64 B, cold less warm, less the mean wait for a refresh",
        );
        // Of a warm window larger than the cache, the share that is still warm is cache / window.
        let share = |mean: f64| ((cold - mean) / (cold - warm)).clamp(0.0, 1.0);
        let sweep = rows.sweep("LAT_DMA_RD", "HWarm", 64);
        let partly = sweep
            .iter()
            .filter(|(_, mean)| (0.1..0.9).contains(&share(*mean)));
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let sizes: Vec<u64> = partly
            .map(|(window, mean)| (*window as f64 * share(*mean)) as u64)
            .collect();
        if let Some(&largest) = sizes.iter().max() {
            self.host.llc_bytes = largest;
            self.host.ddio_bytes = largest / 10;
            self.notes.push(format!(
                "llc_bytes = {largest}: LAT_RD, 64 B, warm, where windows begin to miss"
            ));
        }
        Ok(())
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    fn translation(&mut self, plain: &Rows, translated: &Rows) -> Result<(), FitError> {
        let more = translated.find(COLD, LARGE, 64, "iommu.walk_ns")?
            - plain.find(COLD, LARGE, 64, "iommu.walk_ns")?;
        let walk = translated.plausible(
            ("what translation adds to 64 B reads in 64 MiB, in ns,", more),
            LEAST_WALK_NS..=1e9,
            "20 or more",
            "--data takes measurements without translation, --iommu-data the same machine's with it",
        )?;
        self.host.iommu.walk_ns = walk;
        self.note(
            "iommu.walk_ns",
            walk,
            "ns",
            "LAT_RD, 64 B, cold, 64 MiB, translated less not",
        );
        let page = self.host.iommu.page_bytes;
        let warm = translated.find(READ, SMALL, 64, "iommu.walker_entries")?;
        let miss = (translated.find(READ, 1 << 20, 64, "iommu.walker_entries")? - warm) / walk;
        let pages = (1 << 20) / page;
        self.host.iommu.walker_entries = ((1.0 - miss).clamp(0.01, 1.0) * pages as f64) as usize;
        self.note(
            "iommu.walker_entries",
            self.host.iommu.walker_entries as f64,
            "",
            "LAT_RD, 64 B, warm, 1 MiB",
        );
        let sweep = translated.sweep("BW_DMA_RD", "HWarm", 64);
        let top = sweep.iter().map(|p| p.1).fold(0.0, f64::max);
        if let Some(knee) = sweep.iter().take_while(|p| p.1 > 0.9 * top).last() {
            self.host.iommu.entries = usize::try_from(knee.0 / page).unwrap_or(1).max(1);
            self.note(
                "iommu.entries",
                self.host.iommu.entries as f64,
                "",
                "BW_RD, 64 B: the last window before the knee",
            );
        }
        let slot = |gbps: f64| 64.0 * 8.0 / gbps;
        let read_slot =
            slot(translated.find(("BW_DMA_RD", "HWarm"), LARGE, 64, "iommu.read_walk_slot_ns")?);
        let write_slot = slot(translated.find(
            ("BW_DMA_WR", "HWarm"),
            LARGE,
            64,
            "iommu.write_walk_slot_ns",
        )?);
        (
            self.host.iommu.read_walk_slot_ns,
            self.host.iommu.write_walk_slot_ns,
        ) = (read_slot, write_slot);
        self.note(
            "iommu.read_walk_slot_ns",
            read_slot,
            "ns",
            "BW_RD, 64 B, 64 MiB",
        );
        self.note(
            "iommu.write_walk_slot_ns",
            write_slot,
            "ns",
            "BW_WR, 64 B, 64 MiB",
        );
        Ok(())
    }

    /// Whether means are far above medians, which these formulas do not model.
    fn tail(&mut self, rows: &Rows) -> Result<(), FitError> {
        let mean = rows.find(READ, SMALL, 64, "sleep")?;
        let median = rows
            .rows
            .iter()
            .find(|r| {
                r.test == READ.0
                    && r.cache == READ.1
                    && r.window_bytes == SMALL
                    && r.size_bytes == 64
            })
            .map_or(mean, |row| row.median);
        if mean > 1.5 * median {
            self.notes.push(format!(
                "sleep: the mean of 64 B reads ({mean:.0} ns) is far above their median ({median:.0} ns): this machine \
                 sleeps between transactions, and read_ns is not to be trusted; start from e3-1226v3 by hand"
            ));
        }
        Ok(())
    }
}
