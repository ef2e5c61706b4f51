//! What every window must do, whatever it is made of, and which of them are found.
//!
//! Each test of [`conformance`] runs on each window that this machine has: memory always; a real device where
//! `CROSSLANE_TEST_WINDOWS` names some, separated by commas, whose contents are lost. Behind `only:` they are tested alone.

mod conformance;
mod discovery;
mod windows;
