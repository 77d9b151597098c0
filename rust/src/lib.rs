//! The part of penstock that works on bytes. It finds where records end, writes the fields of records for COPY, and reads
//! columnar files.
//!
//! Only `python.rs`, `python_columnar.rs` and `stream.rs` use `PyO3`. The other files are plain Rust.

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
mod stream;
pub mod types;
