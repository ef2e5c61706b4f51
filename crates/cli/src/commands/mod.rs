//! One module per subcommand: an `Args` struct for clap and a `run` function.

pub mod bench;
pub mod check;
pub mod man;
pub mod monitor;
pub mod pcie;
pub mod rack;
pub mod report;
pub mod run;
pub mod ss;
pub mod stats;
pub mod window;
