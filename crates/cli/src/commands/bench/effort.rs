//! What every bench of programs takes: how much to measure, and how to print it.

/// How much to measure, and how to print it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Effort {
    /// Measure more briefly: less than 30 s in all
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line instead of the table
    #[arg(long)]
    pub json: bool,
    /// How many rounds to take the median of, instead of as many as the bench finds right
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    repeats: Option<u8>,
}

impl Effort {
    /// The one for a thorough measurement, or the one for a brief one.
    pub fn choose<T>(self, thorough: T, quick: T) -> T {
        if self.quick { quick } else { thorough }
    }

    /// How many rounds: what the person says, or one of these.
    pub fn rounds(self, thorough: u8, quick: u8) -> u8 {
        let usual = self.choose(thorough, quick);
        self.repeats.unwrap_or(usual)
    }
}
