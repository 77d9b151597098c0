//! An open columnar file: its columns, and its rows in batches.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use bytes::Bytes;

use super::cells::{Cells, Values};
use super::ipc::ArrowFile;
use super::kind::Kind;
use super::parquet_file::ParquetFile;
use super::{guard, FileError, Source};

/// A column of a file.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// The type's name in Arrow.
    pub type_name: String,
    pub kind: Kind,
    /// Whether the file does not say if the values are texts or bytes.
    pub is_untold: bool,
    /// The length of the decoded values, or the column's share of the file.
    pub bytes: u64,
}

/// A row group or a record batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub number: usize,
    /// Its first row, counted from 0 over the whole file.
    pub start: u64,
    pub rows: u64,
}

/// The arrays of some columns, for some rows that follow each other.
pub type Batch = Vec<ArrayRef>;

pub(crate) fn count_rows(batch: &Batch) -> u64 {
    batch.first().map_or(0, |array| array.len() as u64)
}

pub type Batches = Box<dyn Iterator<Item = Result<Batch, FileError>> + Send>;

/// What the two formats do differently.
pub(crate) trait Reader: Send + Sync {
    fn columns(&self) -> Vec<Column>;
    fn parts(&self) -> Vec<Part>;
    /// Returns the batches of a part, with the columns of these numbers in this order.
    fn read(&self, part: &Part, columns: &[usize]) -> Result<Batches, FileError>;
    /// What a part is called.
    fn part_name(&self) -> &'static str;
}

pub struct File {
    reader: Box<dyn Reader>,
    pub columns: Vec<Column>,
    pub parts: Vec<Part>,
    pub rows: u64,
}

impl File {
    /// Opens a file of this length.
    ///
    /// # Errors
    ///
    /// If the file is damaged or encrypted, or cannot be read.
    pub fn open(source: Arc<dyn Source>, length: u64, is_parquet: bool) -> Result<Self, FileError> {
        let source: Arc<dyn Source> = Arc::new(Bounded { source, length });
        guard(|| {
            let reader: Box<dyn Reader> = if is_parquet {
                Box::new(ParquetFile::open(source, length)?)
            } else {
                Box::new(ArrowFile::open(source, length)?)
            };
            let (columns, parts) = (reader.columns(), reader.parts());
            let rows = parts.last().map_or(0, |part| part.start + part.rows);
            Ok(Self { reader, columns, parts, rows })
        })
    }

    #[must_use]
    pub fn name_part(&self, part: &Part) -> String {
        format!("{} {}", self.reader.part_name(), part.number + 1)
    }

    /// Returns the batches of a part. An error names the part, and the column if there is one that cannot be decoded.
    ///
    /// # Errors
    ///
    /// If the part is damaged, or cannot be read.
    pub fn read(self: &Arc<Self>, part: Part, columns: &[usize]) -> Result<Batches, FileError> {
        let mut batches =
            guard(|| self.reader.read(&part, columns)).map_err(|error| self.place(&part, columns, error))?;
        let (file, columns) = (Arc::clone(self), columns.to_vec());
        let mut left = part.rows;
        Ok(Box::new(std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let found = guard(|| batches.next().transpose()).map_err(|error| file.place(&part, &columns, error));
            Some(found.and_then(|found| {
                let rows = found.as_ref().map_or(0, count_rows);
                if rows == 0 || rows > left {
                    let name = file.name_part(&part);
                    return Err(FileError::Damaged(format!(
                        "{name} has {} rows, and its metadata says {}",
                        part.rows - left + rows,
                        part.rows
                    )));
                }
                left -= rows;
                Ok(found.unwrap_or_default())
            }))
        })))
    }

    /// Returns an error of a part with its place. It looks for the column by decoding each by itself.
    fn place(&self, part: &Part, columns: &[usize], error: FileError) -> FileError {
        let FileError::Damaged(reason) = error else {
            return error;
        };
        let fails = |&&column: &&usize| {
            let whole = guard(|| self.reader.read(part, &[column])?.try_for_each(|batch| batch.map(drop)));
            matches!(whole, Err(FileError::Damaged(_)))
        };
        let column = columns.iter().find(fails);
        let column = column.map_or_else(String::new, |&column| format!(", column \"{}\"", self.columns[column].name));
        FileError::Damaged(format!("{}{column}: {reason}", self.name_part(part)))
    }

    /// Returns whether all values of a column of byte strings, or of lists of them, are UTF-8. None if it has no values.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or cannot be read.
    pub fn holds_texts(self: &Arc<Self>, column: usize) -> Result<Option<bool>, FileError> {
        let (kind, mut count) = (self.columns[column].kind.clone(), 0);
        for part in &self.parts {
            for batch in self.read(*part, &[column])? {
                let batch = batch?;
                let found = guard(|| {
                    let cells = Cells::new(&kind, &batch[0])?;
                    Ok((0..batch[0].len()).try_fold(count, |sum, row| Some(sum + count_texts(&cells, row)?)))
                })?;
                let Some(found) = found else {
                    return Ok(Some(false));
                };
                count = found;
            }
        }
        Ok((count > 0).then_some(true))
    }
}

/// A source of which nothing is read beyond its end, whatever a damaged file says.
struct Bounded {
    source: Arc<dyn Source>,
    length: u64,
}

impl Source for Bounded {
    fn read_at(&self, start: u64, length: usize) -> Option<Bytes> {
        let left = usize::try_from(self.length.saturating_sub(start)).unwrap_or(usize::MAX);
        if left == 0 {
            Some(Bytes::new())
        } else {
            self.source.read_at(start, length.min(left))
        }
    }
}

/// Returns how many texts a value is: one, none if it is null, or those of a list. None if one is not UTF-8.
fn count_texts(cells: &Cells<'_>, row: usize) -> Option<u64> {
    match cells.resolve(row) {
        Some((Cells { values: Values::Bytes(strings), .. }, row)) => {
            std::str::from_utf8(strings.get(row)).is_ok().then_some(1)
        }
        Some((Cells { values: Values::List(items_of, items), .. }, row)) => {
            items_of(row).try_fold(0, |sum, item| Some(sum + count_texts(items, item)?))
        }
        _ => Some(0),
    }
}

/// Returns the kind of texts for one of byte strings, and of lists of texts for lists of these.
#[must_use]
pub fn text_kind(kind: &Kind) -> Option<Kind> {
    match kind {
        Kind::Bytes => Some(Kind::Text),
        Kind::List(item) if **item == Kind::Bytes => Some(Kind::List(Box::new(Kind::Text))),
        _ => None,
    }
}
