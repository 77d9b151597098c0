//! The byte work of penstock: where records end, how fields are written again, columns as rows, and the footer of a
//! Parquet file.
//!
//! `python.rs` is the only file that names `PyO3`; the others are plain Rust.

pub mod arrow;
mod canonical;
pub mod changes;
pub mod doubts;
pub mod encode;
pub mod error;
pub mod escape;
pub mod fieldmask;
pub mod fields;
pub mod footer;
pub mod json;
pub mod json_lines;
pub mod kept;
pub mod lanes;
#[cfg(test)]
mod proofs;
mod python;
pub mod records;
pub mod rewrite;
pub mod sample;
pub mod types;
