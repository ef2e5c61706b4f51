//! A model of two of Intel's non-transparent bridges, back to back, for tests of their driver: there is no
//! such hardware here. It is what the driver was written against, and no more: what is known of the device
//! is known from Linux's driver, so where that is silent the model is an assumption, too.
//!
//! [`device`] is the model: registers with their widths and reserved bits, translations with their limits,
//! scratchpads, doorbells, the link. It moves no bytes and makes no system call. [`serve`] gives it to
//! two hosts, which may be processes; [`attach`] is a host's end. A store into the region of one host is
//! a store into the memory of the other: the host's mapping of the region is made to lead there, page
//! by page, just as far as the registers say.
//!
//! Numbers of registers are written down here again, and not taken from the driver.

#![forbid(unsafe_code)]

pub mod attach;
pub mod device;
mod message;
pub mod serve;
