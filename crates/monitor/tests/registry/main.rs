//! The registry: named cases, and random histories compared with a model.

mod between_hosts;
mod histories;
mod loans;
mod named;
mod support;
