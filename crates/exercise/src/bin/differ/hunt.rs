//! Plays many programs both ways, and tells what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::compare::{Difference, Verdict, compare, differs_alike};
use crate::generate::{Over, generate};
use crate::known::KNOWN;
use crate::program::Program;
use crate::shrink::shrink;
use crate::side::Side;

const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Options of a hunt.
#[derive(clap::Args)]
pub struct Arguments {
    /// A command that programs are played by, compared with none; several take turns
    #[arg(long, value_name = "COMMAND", required = true)]
    under: Vec<String>,
    /// Compare these programs by each command, instead of generated ones
    #[arg(value_name = "FILE", conflicts_with_all = ["seed", "seconds"])]
    programs: Vec<PathBuf>,
    /// Begin with this seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many seeds, if time allows
    #[arg(long)]
    seeds: Option<u64>,
    /// Leave out this seed; may be repeated
    #[arg(long, value_name = "SEED")]
    except: Vec<u64>,
    /// Begin no program after so long
    #[arg(long)]
    seconds: Option<u64>,
    /// Compare the program of this seed by each command
    #[arg(long, conflicts_with_all = ["first", "seeds", "seconds"])]
    seed: Option<u64>,
    /// Have connections of AF_UNIX in generated programs, instead of TCP
    #[arg(long)]
    unix: bool,
    /// Steps of a program
    #[arg(long, default_value_t = crate::LENGTH)]
    length: usize,
    /// Play so many programs at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Give up after so many differences
    #[arg(long, default_value_t = 20)]
    enough: usize,
    /// Make a program that differs shorter for so long at most
    #[arg(long, default_value_t = 120)]
    shrink_seconds: u64,
    /// Do not make programs that differ shorter
    #[arg(long)]
    raw: bool,
    /// Play also what is known to differ
    #[arg(long)]
    known: bool,
    /// Fail only for what differs in each of several runs, and for other bytes than were sent; tell of the rest
    #[arg(long)]
    steady: bool,
    /// Print one JSON object at the end instead of words
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn generate(&self, seed: u64) -> Program {
        let over = if self.unix { Over::Unix } else { Over::Tcp };
        generate(seed, self.length, over)
    }
}

/// What a hunt has found.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Programs that were compared.
    programs: u64,
    /// Steps that were made in them, natively once.
    steps: u64,
    /// Steps that were left out because they are known to differ.
    left_out: BTreeMap<&'static str, u64>,
    /// Programs in which the kernel itself does now this and now that.
    unsteady: u64,
    /// Programs that were told edges once more, which epoll(7) allows.
    repeats: u64,
    /// Programs that differed in some of their runs only, when those do not count.
    wavering: u64,
    seconds: u64,
    differences: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    /// The seed or file.
    origin: String,
    under: String,
    #[serde(flatten)]
    difference: Difference,
    /// As short as it could be made.
    program: String,
}

/// What is compared, and by which command.
struct Case {
    origin: String,
    program: Program,
    under: usize,
}

struct Hunt<'a> {
    arguments: &'a Arguments,
    begun: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    report: Mutex<Report>,
}

/// Hunt; fails when something differs.
pub fn run(arguments: &Arguments) -> ExitCode {
    let fixed = match fixed_cases(arguments) {
        Ok(fixed) => fixed,
        Err(error) => {
            eprintln!("crosslane-differ: {error}");
            return ExitCode::FAILURE;
        }
    };
    let hunt = Hunt {
        arguments,
        begun: Instant::now(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        report: Mutex::new(Report::default()),
    };
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| scope.spawn(|| hunt.work(&fixed)))
            .collect();
        let failures = workers
            .into_iter()
            .filter_map(|worker| worker.join().expect("a worker does not panic").err());
        failures.last()
    });
    if let Some(error) = failed {
        eprintln!("crosslane-differ: a player cannot be started: {error}");
        return ExitCode::FAILURE;
    }
    hunt.tell()
}

/// The cases that were named. Empty: cases are generated.
fn fixed_cases(arguments: &Arguments) -> Result<Vec<Case>, String> {
    let mut programs = Vec::new();
    if let Some(seed) = arguments.seed {
        programs.push((format!("seed {seed}"), arguments.generate(seed)));
    }
    for path in &arguments.programs {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let program = Program::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        programs.push((name, program));
    }
    let by_each = |(origin, program): (String, Program)| {
        (0..arguments.under.len()).map(move |under| Case {
            origin: origin.clone(),
            program: program.clone(),
            under,
        })
    };
    Ok(programs.into_iter().flat_map(by_each).collect())
}

impl Hunt<'_> {
    fn work(&self, fixed: &[Case]) -> std::io::Result<()> {
        let Arguments { under, known, .. } = self.arguments;
        let mut native = Side::new("", *known);
        let mut others: Vec<_> = under.iter().map(|under| Side::new(under, *known)).collect();
        let mut reported = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let generated;
            if self
                .arguments
                .except
                .contains(&(self.arguments.first + number))
            {
                continue;
            }
            let case = if fixed.is_empty() {
                let Some(case) = self.generated(number) else {
                    break;
                };
                generated = case;
                &generated
            } else {
                let index = usize::try_from(number).unwrap_or(usize::MAX);
                let Some(case) = fixed.get(index) else { break };
                case
            };
            self.try_case(case, &mut native, &mut others[case.under])?;
            if reported.elapsed() > REPORT_EVERY {
                reported = Instant::now();
                eprintln!("{}", self.progress());
            }
        }
        Ok(())
    }

    fn generated(&self, number: u64) -> Option<Case> {
        let arguments = self.arguments;
        let late = arguments
            .seconds
            .is_some_and(|seconds| self.begun.elapsed() >= Duration::from_secs(seconds));
        if late || arguments.seeds.is_some_and(|seeds| number >= seeds) {
            return None;
        }
        let seed = arguments.first + number;
        let commands = arguments.under.len() as u64;
        Some(Case {
            origin: format!("seed {seed}"),
            program: arguments.generate(seed),
            under: usize::try_from(seed % commands).expect("it is below a usize"),
        })
    }

    fn try_case(&self, case: &Case, native: &mut Side, other: &mut Side) -> std::io::Result<()> {
        let (verdict, tally) = compare(&case.program, native, other)?;
        let (mut found, mut wavering) = (None, 0);
        if let Verdict::Differs(difference) = &verdict
            && self.arguments.steady
            && difference.wavers()
            && !difference.is_of_bytes()
        {
            wavering = 1;
            let Difference {
                native,
                other,
                seen,
                runs,
            } = difference;
            println!(
                "WAVERING: {}, {seen} of {runs} runs: {native} | {other}",
                case.origin
            );
        } else if let Verdict::Differs(difference) = &verdict {
            found = Some(self.found(case, difference.clone(), native, other)?);
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.programs += 1;
        let count = |what| tally.get(what).copied().unwrap_or(0);
        report.steps += count("steps");
        for known in KNOWN {
            *report.left_out.entry(known.name).or_default() += count(known.name);
        }
        report.wavering += wavering;
        report.unsteady += u64::from(verdict == Verdict::Unsteady);
        report.repeats += u64::from(verdict == Verdict::Repeats);
        report.differences.extend(found);
        if report.differences.len() >= self.arguments.enough {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn found(
        &self,
        case: &Case,
        difference: Difference,
        native: &mut Side,
        other: &mut Side,
    ) -> std::io::Result<Found> {
        eprintln!(
            "{} differs: {} | {}",
            case.origin, difference.native, difference.other
        );
        let mut found = Found {
            origin: case.origin.clone(),
            under: self.arguments.under[case.under].clone(),
            difference,
            program: case.program.to_string(),
        };
        if !self.arguments.raw {
            let like = &found.difference;
            let deadline = Instant::now() + Duration::from_secs(self.arguments.shrink_seconds);
            let short = shrink(&case.program, |program| -> std::io::Result<bool> {
                Ok(Instant::now() < deadline && differs_alike(program, like, native, other)?)
            })?;
            if let (Verdict::Differs(difference), _) = compare(&short, native, other)? {
                found.difference = difference;
            }
            found.program = short.to_string();
        }
        eprintln!("{}", found.text());
        Ok(found)
    }

    fn progress(&self) -> String {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.summary(self.begun.elapsed())
    }

    fn tell(self) -> ExitCode {
        let mut report = self
            .report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        report.seconds = self.begun.elapsed().as_secs();
        if self.arguments.json {
            let json = serde_json::to_string(&report).expect("a report is plain data");
            println!("{json}");
        } else {
            for found in &report.differences {
                println!("{}", found.text());
            }
            for known in KNOWN.iter().filter(|_| !self.arguments.known) {
                let count = report.left_out.get(known.name).copied().unwrap_or(0);
                println!("LEFT OUT {count} times: {}: {}", known.name, known.why);
            }
            println!("{}", report.summary(self.begun.elapsed()));
        }
        // Nothing compared proves nothing.
        if report.differences.is_empty() && report.steps > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl Report {
    fn summary(&self, elapsed: Duration) -> String {
        let Self {
            programs,
            steps,
            unsteady,
            repeats,
            wavering,
            differences,
            ..
        } = self;
        format!(
            "{programs} programs with {steps} steps in {} s: {} differ, {wavering} waver, \
             {repeats} were told edges once more, {unsteady} are unsteady on the kernel alone",
            elapsed.as_secs(),
            differences.len()
        )
    }
}

impl Found {
    fn text(&self) -> String {
        let Difference {
            native,
            other,
            seen,
            runs,
        } = &self.difference;
        let indented: String = self
            .program
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        format!(
            "{} by {:?}, {seen} of {runs} runs:\n  natively  {native}\n  other     {other}\n{indented}",
            self.origin, self.under
        )
    }
}
