//! One module per subcommand: an `Args` struct for clap and a `run` function.

pub mod bench;
pub mod check;
