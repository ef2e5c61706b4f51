//! The PCIe model for browsers.
//!
//! The page of `crosslane pcie report` redraws with the same code as the command: this crate compiles
//! `crosslane-pcie`'s model to WebAssembly behind functions of plain numbers, so that the page needs
//! no bindings and no second file. `cargo xtask wasm` builds [`MODEL_WASM`], which is committed: who
//! builds the workspace needs no WebAssembly target. A test runs the committed module in an
//! interpreter and compares it with the native model; docs/decisions/pcie-wasm.md has the reasons.

pub mod api;
#[cfg(target_arch = "wasm32")]
mod exports;

/// The module that the page embeds.
#[cfg(not(target_arch = "wasm32"))]
pub const MODEL_WASM: &[u8] = include_bytes!("../model.wasm");
