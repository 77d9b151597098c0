//! Reads Parquet and Arrow IPC files, column by column, and writes their rows for COPY.
//!
//! `file` has what both formats have in common, and `rows` makes blocks of rows of it. `kind` says which type of
//! `PostgreSQL` has the values of a column, `cells` gives access to the values of a decoded column, and `binary` and
//! `text` write them. Files come from outside, so an error or a panic of a decoder is an error of the file.

pub mod binary;
mod cells;
mod delta;
mod encrypted;
pub mod file;
mod ipc;
pub mod kind;
mod parquet_file;
#[cfg(any(test, fuzzing))]
pub mod proofs;
pub mod rows;
pub mod text;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use bytes::Bytes;
use thiserror::Error;

/// Where a file's bytes come from.
pub trait Source: Send + Sync {
    /// Returns the bytes from `start`, fewer only at the end of the file. None if the source has failed.
    fn read_at(&self, start: u64, length: usize) -> Option<Bytes>;
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FileError {
    #[error("{0}")]
    Damaged(String),
    #[error("the file is encrypted")]
    Encrypted,
    /// The source has failed, and knows why.
    #[error("the file cannot be read")]
    Unread,
}

impl FileError {
    #[allow(clippy::needless_pass_by_value)] // what map_err hands over
    pub(crate) fn damaged(reason: impl std::fmt::Display) -> Self {
        Self::Damaged(reason.to_string())
    }
}

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, and turns a panic in it into an error of the file. Nothing is printed.
///
/// # Errors
///
/// Those of `work`, and panics.
pub fn guard<T>(work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                printing(info);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let found = panic::catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(was_guarded);
    found.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it cannot be decoded");
        Err(FileError::damaged(words))
    })
}
