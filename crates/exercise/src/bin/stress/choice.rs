//! Which of all planned connections a client opens, to narrow a failure down.

use clap::ValueEnum;

use crate::plan::{Plan, Shape};

/// Options of the client that the whole run passes on to it.
#[derive(clap::Args, Clone, Copy)]
pub struct Choice {
    /// Begin with the group of the connection with this number
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Open only connections of this shape
    #[arg(long)]
    shape: Option<Shape>,
    /// Open only connections that nobody breaks off
    #[arg(long)]
    unbroken: bool,
    /// Groups of connections at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub groups: usize,
}

impl Choice {
    /// Whether a connection with this plan is to be opened.
    pub fn includes(&self, plan: &Plan) -> bool {
        self.shape.is_none_or(|shape| shape == plan.shape)
            && !(self.unbroken && plan.ending.breaker().is_some())
    }

    /// The same from another number on.
    pub fn beginning_with(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// The same as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--first={}", self.first),
            format!("--groups={}", self.groups),
        ];
        let shape = self.shape.as_ref().and_then(Shape::to_possible_value);
        words.extend(shape.map(|shape| format!("--shape={}", shape.get_name())));
        words.extend(self.unbroken.then(|| "--unbroken".into()));
        words
    }
}
