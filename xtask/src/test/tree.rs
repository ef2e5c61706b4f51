//! Ends a process with all its descendants.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// Kill `pid` and everything that descends from it.
pub fn kill(pid: u32) {
    for pid in with_descendants(pid, &children_by_parent()) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // One that has ended by itself is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn with_descendants(root: u32, children: &HashMap<u32, Vec<u32>>) -> Vec<u32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(children.get(pid).into_iter().flatten());
        next += 1;
    }
    tree
}

fn children_by_parent() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse();
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let (Ok(pid), Some(parent)) = (pid, parent_of(&stat)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// The fourth field of `/proc/PID/stat`; the second may hold spaces and parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let children = HashMap::from([(1, vec![2, 3]), (3, vec![4]), (5, vec![6])]);
        assert_eq!(with_descendants(1, &children), [1, 2, 3, 4]);
    }

    #[test]
    fn a_strange_program_name_does_not_hide_the_parent() {
        assert_eq!(parent_of("12 (a) (b c)) S 7 12 12"), Some(7));
    }

    #[test]
    fn a_grandchild_is_killed_too() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .spawn()
            .unwrap();
        let grandchild = loop {
            if let Some(pids) = children_by_parent().get(&shell.id()) {
                break pids[0];
            }
            std::thread::yield_now();
        };
        kill(shell.id());
        shell.wait().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
    }
}
