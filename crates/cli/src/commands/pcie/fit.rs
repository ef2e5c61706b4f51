//! `crosslane pcie fit`: a machine's profile out of its measurements.

use std::path::PathBuf;

use anyhow::Context as _;
use crosslane_pcie::fit::fit;
use crosslane_pcie::profile::{Device, Host};

use super::output::emit;

/// Arguments of `crosslane pcie fit`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder with the machine's pcie-bench .dat files
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// The same, measured with translation on
    #[arg(long, value_name = "FOLDER")]
    iommu_data: Option<PathBuf>,
    /// Name of the profile
    #[arg(long, default_value = "fitted")]
    name: String,
    /// Profile that gives what the files cannot show
    #[arg(long, default_value = "e5-2630v4", value_name = "PROFILE")]
    base: String,
    /// Device that measured: nfp-6000, ideal, or a JSON profile
    #[arg(long, default_value = "nfp-6000", value_name = "PROFILE")]
    device: String,
}

/// Print the profile as JSON, and where each number comes from on standard error.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let base = Host::load(&args.base).context("--base")?;
    let fit = fit(
        &args.name,
        &base,
        &Device::load(&args.device)?,
        &args.data,
        args.iommu_data.as_deref(),
    )?;
    for note in &fit.notes {
        crate::output::note(note);
    }
    emit(&format!("{}\n", serde_json::to_string_pretty(&fit.host)?))
}
