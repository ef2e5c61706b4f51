//! The registry: named cases, and random histories compared with a model.

mod histories;
mod loans;
mod named;
mod support;
