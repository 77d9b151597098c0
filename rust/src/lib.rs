//! The part of penstock that works on bytes. It finds where records end, writes the fields of records for COPY, writes
//! columns as rows, and reads the footer of a Parquet file.
//!
//! Only `python.rs` uses `PyO3`. The other files are plain Rust.

mod canonical;
pub mod changes;
pub mod columnar;
pub mod doubts;
pub mod encode;
pub mod error;
pub mod escape;
pub mod fieldmask;
pub mod fields;
pub mod json;
pub mod json_lines;
pub mod kept;
pub mod lanes;
mod moments;
pub mod notation;
pub mod plain;
#[cfg(test)]
mod proofs;
mod python;
mod python_columnar;
pub mod records;
pub mod rewrite;
pub mod sample;
pub mod types;
