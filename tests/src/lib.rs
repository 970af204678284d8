//! Checks that more than one of the test programs needs.

pub mod ptx;
