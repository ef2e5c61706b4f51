//! nginx' own tests, against the installed nginx.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::geteuid;

use crate::setup::{
    GIT, MEMCACHED, NGINX, NGINX_GEOIP, NGINX_IMAGE_FILTER, NGINX_MAIL, NGINX_PERL, NGINX_STREAM,
    NGINX_STREAM_GEOIP, NGINX_XSLT, PERL, PERL_FCGI, PERL_MEMCACHED, PERL_SCGI, PERL_SSL,
    PERL_WEBSOCKET, Program,
};

use super::side::{Ended, Job};
use super::suite::{Extent, Place, Prepared, Suite};
use super::tap;
use super::verdict::{Verdict, Verdicts};

/// The collection that nginx' developers test with: one Perl script for each thing, some 500 of them.
pub struct Nginx;

/// Debian has no package of it.
const REPOSITORY: &str = "https://github.com/nginx/nginx-tests";
/// Of the month after Debian's nginx (1.22.1): later ones ask for directives that it has not, for HTTP/2 most of all.
const COMMIT: &str = "c5461662a959c3672b04998095544d0cea7e32d0";

/// Scripts whose names begin alike are one part, from so many on. The others are one.
const LEAST_ALIKE: usize = 5;
const OTHERS: &str = "others";

const MODULES: &str = "/usr/lib/nginx/modules";

/// Runs the scripts one by one, with a limit for each, and says where each begins and ends.
const RUNNER: &str = r#"for script; do
    echo "== begin $script"
    timeout --kill-after=10 180 perl "$script"
    echo "== end $?"
done"#;
const BEGIN: &str = "== begin ";
const END: &str = "== end ";

const LIMIT: Duration = Duration::from_secs(2400);

impl Suite for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    /// Every configuration loads all modules that Debian's nginx has been built for.
    fn needs(&self) -> &'static [Program] {
        &[
            GIT,
            MEMCACHED,
            NGINX,
            NGINX_GEOIP,
            NGINX_IMAGE_FILTER,
            NGINX_MAIL,
            NGINX_PERL,
            NGINX_STREAM,
            NGINX_STREAM_GEOIP,
            NGINX_XSLT,
            PERL,
            PERL_FCGI,
            PERL_MEMCACHED,
            PERL_SCGI,
            PERL_SSL,
            PERL_WEBSOCKET,
        ]
    }

    fn version(&self) -> anyhow::Result<String> {
        let output = Command::new(NGINX.name).arg("-v").output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let version = said
            .trim()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let tree = tree(&super::folder().join(self.name()));
        // A copy without history lies in a folder of ours, which has one.
        let repository = tree.join(".git");
        let commit = git(Command::new("git").arg("--git-dir").arg(repository).args([
            "rev-parse",
            "--short",
            "HEAD",
        ]));
        let commit = commit.unwrap_or_else(|_| "an unknown commit".to_owned());
        Ok(format!("nginx {version} (tests of {commit})"))
    }

    fn prepare(&self, folder: &Path, source: Option<&Path>) -> anyhow::Result<Prepared> {
        let tree = tree(folder);
        if source.is_none() && is_collection(&tree) {
            return Ok(Prepared::Ready);
        }
        // What is there stays until something else is.
        let part = tree.with_extension("part");
        remove(&part)?;
        match source {
            Some(source) if is_collection(source) => copy(source, &part)?,
            Some(source) => clone(source.as_os_str().to_owned(), &part)?,
            None => {
                if let Err(error) = clone(REPOSITORY.into(), &part) {
                    let remedy = "name a copy of it with --source";
                    return Ok(Prepared::Unavailable(format!("{error:#}; {remedy}")));
                }
            }
        }
        remove(&tree)?;
        std::fs::rename(&part, &tree)?;
        Ok(Prepared::Ready)
    }

    /// No core: it takes too long.
    fn has(&self, extent: Extent) -> bool {
        extent == Extent::Whole
    }

    fn is_patient(&self) -> bool {
        true
    }

    fn parts(&self, folder: &Path, _: Extent) -> anyhow::Result<Vec<String>> {
        Ok(scripts(folder)?.into_keys().collect())
    }

    fn job(&self, part: &str, place: &Place) -> anyhow::Result<Job> {
        let mut scripts = scripts(place.suite)?;
        let mut scripts = scripts.remove(part).context("no such part")?;
        scripts.retain(|script| {
            !place
                .exclusions
                .iter()
                .any(|excluded| excluded.test == *script)
        });
        let mut words: Vec<OsString> = vec!["env".into()];
        words.push(format!("TEST_NGINX_BINARY={}", NGINX.name).into());
        words.push(format!("TEST_NGINX_MODULES={MODULES}").into());
        if geteuid().is_root() {
            // Its workers are to read what the scripts have written, and to be of the monitor's user.
            words.push("TEST_NGINX_GLOBALS=user root;".into());
        }
        words.extend(["sh", "-c", RUNNER, "sh"].map(OsString::from));
        words.extend(scripts.into_iter().map(OsString::from));
        Ok(Job {
            name: part.into(),
            words,
            folder: tree(place.suite),
            limit: LIMIT,
        })
    }

    fn read(&self, _: &str, _: &Place, ended: &Ended) -> anyhow::Result<Verdicts> {
        let log = std::fs::read(&ended.log)?;
        Ok(read(&String::from_utf8_lossy(&log)))
    }
}

/// What the scripts have said.
fn read(log: &str) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let mut script = "";
    for line in log.lines() {
        if let Some(name) = line.strip_prefix(BEGIN) {
            script = name;
        } else if let Some(status) = line.strip_prefix(END) {
            let verdict = match status {
                "0" => Verdict::Passed,
                _ => Verdict::Failed,
            };
            verdicts.add(&format!("{script}: ends with 0"), verdict);
        } else if line.starts_with("1..0 # SKIP") {
            verdicts.add(&format!("{script}: all"), Verdict::Skipped);
        } else if let Some((name, verdict)) = tap::line(line) {
            verdicts.add(&format!("{script}: {name}"), verdict);
        }
    }
    verdicts
}

/// The scripts of each part.
fn scripts(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let tree = tree(folder);
    let entries = std::fs::read_dir(&tree).with_context(|| tree.display().to_string())?;
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let scripts: Vec<String> = names.filter(|name| name.ends_with(".t")).collect();
    ensure!(!scripts.is_empty(), "{} has no tests", tree.display());
    Ok(parts(scripts))
}

fn parts(mut scripts: Vec<String>) -> BTreeMap<String, Vec<String>> {
    scripts.sort_unstable();
    let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for script in scripts {
        let subject = script.split(['_', '.']).next().unwrap_or_default();
        alike.entry(subject.to_owned()).or_default().push(script);
    }
    let (mut parts, few): (BTreeMap<_, _>, BTreeMap<_, _>) = alike
        .into_iter()
        .partition(|(_, scripts)| scripts.len() >= LEAST_ALIKE);
    let others: Vec<String> = few.into_values().flatten().collect();
    if !others.is_empty() {
        parts.insert(OTHERS.to_owned(), others);
    }
    parts
}

fn tree(folder: &Path) -> PathBuf {
    folder.join("source")
}

/// Remove a folder, if it is there.
fn remove(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn is_collection(tree: &Path) -> bool {
    tree.join("lib/Test/Nginx.pm").is_file()
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp")
        .args(["--archive", "--no-target-directory"])
        .args([from, to])
        .status()?;
    ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}

/// The commit that we know, out of a repository.
fn clone(from: OsString, to: &Path) -> anyhow::Result<()> {
    let whole = to.with_extension("part");
    if whole.exists() {
        std::fs::remove_dir_all(&whole)?;
    }
    let patience = [
        "-c",
        "http.lowSpeedLimit=1000",
        "-c",
        "http.lowSpeedTime=30",
    ];
    let mut clone = Command::new("git");
    clone
        .args(patience)
        .args(["clone", "--quiet", "--no-checkout"])
        .arg(from)
        .arg(&whole);
    git(&mut clone)?;
    git(Command::new("git")
        .arg("-C")
        .arg(&whole)
        .args(["checkout", "--quiet", COMMIT]))?;
    ensure!(is_collection(&whole), "{COMMIT} has no tests of nginx");
    Ok(std::fs::rename(&whole, to)?)
}

/// What git says.
fn git(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .context("cannot start git")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "git: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::verdict;

    #[test]
    fn scripts_of_a_subject_are_a_part() {
        let names = [
            "h2_a.t", "h2_b.t", "h2.t", "h2_c.t", "h2_d.t", "h3_a.t", "access.t",
        ];
        let parts = parts(names.map(str::to_owned).to_vec());
        let sizes: Vec<_> = parts
            .iter()
            .map(|(part, of)| (part.as_str(), of.len()))
            .collect();
        assert_eq!(sizes, [("h2", 5), ("others", 2)]);
    }

    #[test]
    fn what_scripts_say_is_theirs() {
        let log = "== begin a.t\n1..2\nok 1 - get\nnot ok 2\n#   Failed test at a.t line 7.\n== end 1\n\
                   == begin b.t\n1..0 # SKIP no perl available\n== end 0\n";
        let found = read(log);
        let names: Vec<_> = verdict::names([&found]).into_iter().collect();
        let expected = [
            "a.t: 2",
            "a.t: ends with 0",
            "a.t: get",
            "b.t: all",
            "b.t: ends with 0",
        ];
        assert_eq!(names, expected);
    }
}
