//! Makes blocks of the rows of a file, as COPY takes them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::binary::{self, Reason, Wire};
use super::cells::Cells;
use super::file::{count_rows, Batch, Batches, File, Part};
use super::kind::Kind;
use super::text::{self, Target, MOST_VALUE_BYTES};
use super::{guard, FileError};

/// How a column is written.
pub struct Sent {
    /// The number of the file's column.
    pub column: usize,
    pub kind: Kind,
    /// What the type of the table's column decides about a text.
    pub target: Target,
}

/// The form of the rows.
pub enum Form {
    Binary(Vec<Wire>),
    Text {
        /// Whether a row that cannot be sent becomes a block with a fault, instead of an error.
        rejects: bool,
    },
}

/// A value that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The row, counted from 0 over the whole file.
    pub row: u64,
    /// The place of the column in those that are sent.
    pub column: usize,
    pub reason: Reason,
    /// The value as a field of COPY text.
    pub value: Vec<u8>,
    pub part: String,
}

/// Some rows that follow each other. A row with a fault, in text, is a block of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub data: Vec<u8>,
    pub start: u64,
    pub end: u64,
    pub part: String,
    pub fault: Option<(usize, Reason)>,
}

#[derive(Debug, thiserror::Error)]
pub enum RowError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}", .0.reason)]
    Value(Box<Fault>),
}

/// How much of a value that is too long is shown.
const SHOWN_BYTES: usize = 100;

/// How much longer than `block_bytes` a block may be before its buffer grows.
const SLACK_BYTES: usize = 4_096;

/// Reads ranges of rows of a file, and writes them in blocks.
pub struct Rows {
    file: Arc<File>,
    sent: Vec<Sent>,
    form: Form,
    /// The rows that are left, in ascending ranges that do not overlap, each within a part.
    left: VecDeque<(Part, u64, u64)>,
    /// A block ends with the row that makes it this long.
    block_bytes: usize,
    open: Option<(Part, Batches)>,
    /// The batch that is being written, and its first row in the file.
    batch: (u64, Batch),
    /// The block that follows a block that ended at a fault.
    held: Option<Block>,
}

impl Rows {
    #[must_use]
    pub fn new(file: Arc<File>, sent: Vec<Sent>, form: Form, ranges: &[(u64, u64)], block_bytes: usize) -> Self {
        let within = |part: &Part, &(start, end): &(u64, u64)| {
            let (start, end) = (start.max(part.start), end.min(part.start + part.rows));
            (start < end).then_some((*part, start, end))
        };
        let left = ranges.iter().flat_map(|range| file.parts.iter().filter_map(|part| within(part, range))).collect();
        Self { file, sent, form, left, block_bytes, open: None, batch: (0, Batch::new()), held: None }
    }

    /// Returns the next block, None behind the last one. A block has rows of one part and of one range.
    ///
    /// # Errors
    ///
    /// If the file is damaged or cannot be read, or has a value that cannot be sent.
    pub fn next_block(&mut self) -> Result<Option<Block>, RowError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let Some((part, start, end)) = self.left.pop_front() else {
            return Ok(None);
        };
        let (data, name) = (Vec::with_capacity(self.block_bytes + SLACK_BYTES), self.file.name_part(&part));
        let mut block = Block { data, start, end: start, part: name, fault: None };
        while block.end < end && block.data.len() < self.block_bytes && self.held.is_none() {
            self.seek(part, block.end)?;
            self.held = self.write(&mut block, end)?;
        }
        let reached = block.end + u64::from(self.held.is_some());
        if reached < end {
            self.left.push_front((part, reached, end));
        }
        Ok(if block.data.is_empty() { self.held.take() } else { Some(block) })
    }

    /// Reads batches of a part up to the one that has a row.
    fn seek(&mut self, part: Part, row: u64) -> Result<(), RowError> {
        let open = self.open.take().filter(|(open, _)| *open == part);
        let mut batches = if let Some((_, batches)) = open {
            batches
        } else {
            self.batch = (part.start, Batch::new());
            let columns: Vec<_> = self.sent.iter().map(|sent| sent.column).collect();
            self.file.read(part, &columns)?
        };
        while row >= self.batch.0 + count_rows(&self.batch.1) {
            let first = self.batch.0 + count_rows(&std::mem::take(&mut self.batch.1));
            let batch = batches.next().ok_or_else(|| FileError::damaged("it has fewer rows than before"))?;
            self.batch = (first, batch?);
        }
        self.open = Some((part, batches));
        Ok(())
    }

    /// Appends rows of the batch to a block until it is long enough, or up to `end`. Returns the row that stopped it by a
    /// fault.
    fn write(&self, block: &mut Block, end: u64) -> Result<Option<Block>, RowError> {
        let (first, batch) = &self.batch;
        let found = guard(|| {
            let cells = self.sent.iter().zip(batch).map(|(sent, array)| {
                let name = &self.file.columns[sent.column].name;
                let place =
                    |error: FileError| FileError::Damaged(format!("{}, column \"{name}\": {error}", block.part));
                Cells::new(&sent.kind, array).map_err(place)
            });
            let cells = cells.collect::<Result<Vec<_>, _>>()?;
            Ok(self.write_rows(block, &cells, *first, end.min(first + count_rows(batch))))
        })?;
        found.map_err(RowError::Value)
    }

    fn write_rows(
        &self,
        block: &mut Block,
        cells: &[Cells<'_>],
        first: u64,
        last: u64,
    ) -> Result<Option<Block>, Box<Fault>> {
        let (out, count) = (&mut block.data, cells.len());
        while block.end < last && out.len() < self.block_bytes {
            let (row, start) = (to_index(block.end - first), out.len());
            let refuse = |column: usize, reason, mut value: Vec<u8>| {
                if reason == Reason::TooLong {
                    value.truncate(SHOWN_BYTES);
                }
                Box::new(Fault { row: block.end, column, reason, value, part: block.part.clone() })
            };
            match &self.form {
                Form::Binary(wires) => {
                    out.extend_from_slice(&i16::try_from(count).unwrap_or(i16::MAX).to_be_bytes());
                    for (column, (cells, wire)) in cells.iter().zip(wires).enumerate() {
                        binary::write(cells, row, *wire, out).map_err(|reason| {
                            let mut value = Vec::new();
                            text::write_field(cells, row, self.sent[column].target, true, &mut value);
                            refuse(column, reason, value)
                        })?;
                        if out.len() - start > MOST_VALUE_BYTES {
                            return Err(refuse(column, Reason::TooLong, Vec::new()));
                        }
                    }
                }
                Form::Text { rejects } => {
                    let mut fault = None;
                    for (column, (cells, sent)) in cells.iter().zip(&self.sent).enumerate() {
                        let at = out.len();
                        let found = text::write_field(cells, row, sent.target, *rejects, out);
                        let is_long = out.len() - start > MOST_VALUE_BYTES;
                        if let Some(reason) = if is_long { Some(Reason::TooLong) } else { found } {
                            if !rejects || is_long {
                                return Err(refuse(column, reason, out.split_off(at)));
                            }
                            if sent.kind.is_nested() {
                                // The server must not accept the line as it is.
                                out.extend_from_slice(format!(" <{reason}>").as_bytes());
                            }
                            fault = fault.or(Some((column, reason)));
                        }
                        out.push(if column + 1 < count { b'\t' } else { b'\n' });
                    }
                    if fault.is_some() {
                        let (data, part) = (out.split_off(start), block.part.clone());
                        return Ok(Some(Block { data, start: block.end, end: block.end + 1, part, fault }));
                    }
                }
            }
            block.end += 1;
        }
        Ok(None)
    }
}

fn to_index(row: u64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}
