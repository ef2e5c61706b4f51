//! Programs of many kinds, as people run them: their own servers and clients, with every byte
//! compared.

mod faults;
mod fetch;
mod filter;
mod go;
mod handlers;
mod haproxy;
mod java;
mod libc;
mod mariadb;
mod node;
mod own_names;
mod postgres;
mod python;
mod rsync;
mod ssh;

use std::path::{Path, PathBuf};

use crosslane_testkit::Host;
use sha2::{Digest, Sha256};

/// A program in C, made in the host's folder.
fn compiled(host: &Host, name: &str, source: &str) -> PathBuf {
    let source = host.file(&format!("{name}.c"), source);
    let program = host.folder().join(name);
    let compile = host.plain("cc").arg("-o").arg(&program).arg(&source);
    let _compiled = compile.run();
    program
}

/// Bytes that do not repeat, different for each `seed`.
fn body(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    };
    (0..length).map(byte).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn sha256_of(path: &Path) -> String {
    let bytes = std::fs::read(path);
    sha256(&bytes.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}
