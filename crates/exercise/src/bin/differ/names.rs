//! Which handles of a program name the same thing, as the lines of a trace show it.

use std::collections::{BTreeSet, VecDeque};

/// Which handles name one descriptor, or have at some time.
#[derive(Default)]
pub struct Names {
    classes: Vec<BTreeSet<String>>,
    /// The first names of the ends of connections.
    pairs: Vec<[String; 2]>,
    /// Passed, and not taken yet.
    passed: VecDeque<String>,
}

impl Names {
    /// Takes note of `@0 dup h1 h2 => 5`, or `@0 pass h1` and then `@1 take h2`.
    pub fn note(&mut self, words: &[&str]) {
        match words {
            [_, "dup" | "dup2" | "dup3" | "dupfd", one, other, ..] => self.join(one, other),
            ["pair", one, other, ..] => {
                let ends =
                    [one, other].map(|end| end.split(':').nth(1).unwrap_or_default().to_owned());
                self.pairs.push(ends);
            }
            [_, "pass", one, ..] => self.passed.push_back((*one).to_owned()),
            [_, "take", other, ..] => {
                if let Some(one) = self.passed.pop_front() {
                    self.join(&one, other);
                }
            }
            _ => {}
        }
    }

    fn join(&mut self, one: &str, other: &str) {
        let has_either = |class: &BTreeSet<String>| class.contains(one) || class.contains(other);
        let (joined, others): (Vec<_>, Vec<_>) = self.classes.drain(..).partition(has_either);
        let mut class: BTreeSet<String> = joined.into_iter().flatten().collect();
        class.extend([one.to_owned(), other.to_owned()]);
        self.classes = others;
        self.classes.push(class);
    }

    pub fn are_one(&self, one: &str, other: &str) -> bool {
        let has_both = |class: &BTreeSet<String>| class.contains(one) && class.contains(other);
        one == other || self.classes.iter().any(has_both)
    }

    /// Whether what is sent by `from` may come to who receives by `to`.
    pub fn may_reach(&self, from: &str, to: &str) -> bool {
        let mut is_known = false;
        for [one, other] in &self.pairs {
            for (near, far) in [(one, other), (other, one)] {
                if self.are_one(from, near) {
                    is_known = true;
                    if self.are_one(to, far) {
                        return true;
                    }
                }
            }
        }
        !is_known
    }
}
