//! One accelerated byte stream: two lanes, the kernel TCP socket under it, switching between them
//! at any byte, and waiting.
//!
//! The application's descriptor is its real TCP socket. Each direction starts on TCP; when both
//! ends have been granted rings, its sender puts a START record into its lane that says how many
//! bytes travelled on TCP, and continues in the lane. The receiver takes TCP up to exactly that
//! count. From then on the direction's TCP carries doorbells only, one byte for each time that a
//! sleeper armed itself. A STOP record, with the count again, brings the direction back.
//!
//! What it is not: it interposes nothing (that is the preload library), pairs nothing (the
//! monitor), and knows no poll sets; it answers for one end at a time.
//!
//! Read [`end`] for where state lives, [`receive`], [`step`] and [`send`] for the data path,
//! [`raw`] for what the kernel moves, [`reserve`] for sends without a copy, [`fill`] for files,
//! [`switch`] for moving between TCP and ring, [`bell`] for the doorbell's rules, [`control`] for the monitor,
//! [`rest`] and [`adopt`] for ends whose sockets go to other processes, [`lost`] for windows that are lost, `doubt` for
//! ends of streams that may come before what stands in a window, `cut_short` for those that come before what is sent
//! again, `posted` for windows that carry writes only.
//!
//! Invariants, each with the place that keeps it:
//! 1. A lane's cursors change under the direction's lock only ([`lock`]).
//! 2. Which bytes on TCP are doorbells follows from an order ([`bell`]): a sender publishes its
//!    total of TCP bytes before each, and says STOP in the lane before data may follow.
//! 3. Before a receiver takes bytes from TCP as data it asks how many there are, then looks for
//!    START ([`step`]).
//! 4. No call sleeps with a lock held; every sleep is in the kernel on the program's own socket. Who closes it under a sleep
//!    sees to it that the sleep goes on with it ([`stay`], [`stir`]).
//! 5. Data before endings: TCP's end or error is reported when the lane is empty ([`ending`]).

pub mod adopt;
mod ahead;
mod asleep;
pub mod bell;
pub mod beside;
#[cfg(test)]
mod both;
pub mod close;
pub mod config;
pub mod control;
mod cut_short;
mod doubt;
mod due;
pub mod end;
pub mod ending;
mod entering;
pub mod family;
pub mod fill;
pub mod gone;
mod heir;
mod holders;
pub mod interrupt;
pub mod kernel_view;
mod lane_cell;
mod ledger;
pub mod lock;
pub mod lost;
mod packet;
pub mod patience;
pub mod peek;
mod pieces;
pub mod place;
mod posted;
pub mod process;
mod put_off;
pub mod raw;
pub mod ready;
pub mod receive;
pub mod register;
mod relief;
pub mod remainder;
pub mod replay;
pub mod reserve;
mod reset;
pub mod rest;
pub mod restart;
pub mod room;
pub mod send;
mod shares;
pub mod short;
mod shown;
pub mod slices;
mod spare;
pub mod standard;
pub mod stay;
pub mod step;
pub mod stir;
pub mod stranded;
mod strict;
pub mod switch;
mod table;
pub mod unconsumed;
mod unheard;
pub mod wait;
pub mod watcher;
pub mod within;
mod worth;
pub mod young;

pub use end::End;
