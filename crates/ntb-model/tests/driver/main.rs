//! The driver of NTBs against the model of the device: what it does when all is well (in two processes),
//! and what it says when something is not.

mod failures;
mod hold;
mod hosts;
mod processes;
mod translation;
