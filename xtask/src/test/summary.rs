//! What a person reads at the end.

use std::time::Duration;

use super::step::Outcome;

/// The outcomes of all steps, in order.
#[derive(Default)]
pub struct Summary {
    steps: Vec<(&'static str, Outcome)>,
}

impl Summary {
    pub fn add(&mut self, name: &'static str, outcome: Outcome) {
        self.steps.push((name, outcome));
    }

    /// Whether nothing failed and something passed.
    pub fn is_success(&self) -> bool {
        self.total(|outcome| outcome.failed) == 0 && self.total(|outcome| outcome.passed) > 0
    }

    /// Print a line for each step, what failed or was skipped below it, and the closing line.
    pub fn print(&self) {
        println!("\nsummary");
        for (name, outcome) in &self.steps {
            println!("{}", line(name, outcome));
            outcome
                .notes
                .iter()
                .for_each(|note| println!("      {note}"));
        }
        let took: Duration = self.steps.iter().map(|(_, outcome)| outcome.took).sum();
        println!(
            "  in {} min {} s\n",
            took.as_secs() / 60,
            took.as_secs() % 60
        );
        println!("{}", self.closing_line());
    }

    fn closing_line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.total(|outcome| outcome.passed),
            self.total(|outcome| outcome.failed),
            self.total(|outcome| outcome.skipped),
        )
    }

    fn total(&self, number: impl Fn(&Outcome) -> usize) -> usize {
        self.steps.iter().map(|(_, outcome)| number(outcome)).sum()
    }
}

fn line(name: &str, outcome: &Outcome) -> String {
    let verdict = match (outcome.failed, outcome.skipped, outcome.passed) {
        (0, 0, _) => "ok",
        (0, _, 0) => "SKIPPED",
        (0, _, _) => "ok, with skips",
        _ => "FAILED",
    };
    format!(
        "  {name:<10} {verdict:<8} {:>4} passed {:>3} failed {:>3} skipped {:>7.1} s",
        outcome.passed,
        outcome.failed,
        outcome.skipped,
        outcome.took.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: usize, failed: usize, skipped: usize) -> Outcome {
        Outcome {
            passed,
            failed,
            skipped,
            notes: Vec::new(),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_closing_line_adds_all_steps_up() {
        let mut summary = Summary::default();
        summary.add("a", outcome(2, 0, 1));
        summary.add("b", outcome(3, 1, 0));
        assert_eq!(summary.closing_line(), "5 passed, 1 failed, 1 skipped");
        assert!(!summary.is_success());
    }

    #[test]
    fn nothing_passed_is_no_success() {
        let mut summary = Summary::default();
        assert!(!summary.is_success());
        summary.add("a", Outcome::skipped(3, "nothing there"));
        assert!(!summary.is_success());
        summary.add("b", outcome(1, 0, 0));
        assert!(summary.is_success());
    }
}
