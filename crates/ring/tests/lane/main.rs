//! The lane against its reference, against forgers and against a peer that writes over all of it.

mod capacity;
mod corpus;
mod forged;
mod hostile;
mod model;
mod support;
mod threads;
