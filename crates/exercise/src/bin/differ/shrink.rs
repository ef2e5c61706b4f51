//! Makes a program shorter that still shows what it shows.

use crate::program::{Program, Step};

/// The shortest program found for which `shows` holds, which it must for `program`.
pub fn shrink<E>(
    program: &Program,
    mut shows: impl FnMut(&Program) -> Result<bool, E>,
) -> Result<Program, E> {
    let mut best = program.clone();
    loop {
        let before = best.clone();
        remove(&mut best, &mut shows)?;
        simplify(&mut best, &mut shows)?;
        if best == before {
            return Ok(best);
        }
    }
}

/// Take away steps: half of them, a quarter, down to one at a time.
fn remove<E>(
    best: &mut Program,
    shows: &mut impl FnMut(&Program) -> Result<bool, E>,
) -> Result<(), E> {
    let mut size = best.0.len().div_ceil(2);
    while size > 0 {
        // From the end, as what follows the difference is not needed.
        let mut end = best.0.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut shorter = best.clone();
            shorter.0.drain(start..end);
            if shows(&shorter)? {
                *best = shorter;
            }
            end = start;
        }
        size /= 2;
    }
    Ok(())
}

/// Make numbers of bytes and round trips smaller.
fn simplify<E>(
    best: &mut Program,
    shows: &mut impl FnMut(&Program) -> Result<bool, E>,
) -> Result<(), E> {
    for index in 0..best.0.len() {
        for number in 0..counts(&mut best.0[index]).len() {
            for smaller in [0, 1, 10, 100] {
                let mut simpler = best.clone();
                let count = counts(&mut simpler.0[index]).swap_remove(number);
                if *count <= smaller {
                    break;
                }
                *count = smaller;
                if shows(&simpler)? {
                    *best = simpler;
                    break;
                }
            }
        }
    }
    Ok(())
}

fn counts(step: &mut Step) -> Vec<&mut usize> {
    match step {
        Step::Call { call, .. } | Step::Begin { call, .. } => call.counts(),
        Step::Pair { round_trips, .. } => vec![round_trips],
        Step::Transfer { count, .. } => vec![count],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::generate::{Over, generate};

    /// As if writing to a descriptor after its shutdown were wrong.
    fn shows(program: &Program) -> Result<bool, Infallible> {
        let text = program.to_string();
        let shut = text.find("shutdown");
        let close = text.find("close");
        Ok(shut.zip(close).is_some_and(|(shut, close)| shut < close))
    }

    #[test]
    fn a_long_program_becomes_what_matters() {
        let seed = (0..)
            .find(|&seed| shows(&generate(seed, 200, Over::Tcp)).unwrap())
            .unwrap();
        let short = shrink(&generate(seed, 200, Over::Tcp), shows).unwrap();
        assert_eq!(short.0.len(), 2, "{short}");
    }

    #[test]
    fn numbers_become_small() {
        let program = Program::parse("@0 send h1 500 -\n@0 recv h1 90 PEEK").unwrap();
        let short = shrink(&program, |program| {
            Ok::<_, Infallible>(program.to_string().contains("send"))
        });
        assert_eq!(short.unwrap().to_string(), "@0 send h1 0 -\n");
    }
}
