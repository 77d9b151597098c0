//! What is fuzzed, as modules of this crate: so nothing has to be public for it, and Python is not linked.

#![allow(dead_code)]

#[path = "../../src/canonical.rs"]
mod canonical;
#[path = "../../src/columnar/mod.rs"]
pub mod columnar;
#[path = "../../src/encode.rs"]
mod encode;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/fieldmask.rs"]
mod fieldmask;
#[path = "../../src/fields.rs"]
mod fields;
#[path = "../../src/json.rs"]
mod json;
#[path = "../../src/kept.rs"]
mod kept;
#[path = "../../src/lanes.rs"]
mod lanes;
#[path = "../../src/moments.rs"]
mod moments;
#[path = "../../src/notation.rs"]
mod notation;
#[path = "../../src/proofs.rs"]
pub mod proofs;
#[path = "../../src/records.rs"]
mod records;
#[path = "../../src/rewrite.rs"]
mod rewrite;
#[path = "../../src/types.rs"]
mod types;
