//! Makes blocks of the rows of a file, as COPY takes them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::binary::{self, Reason, Wire};
use super::cells::Cells;
use super::file::{count_rows, Batch, Batches, File, Part};
use super::kind::Kind;
use super::text::{self, Target};
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

/// How much longer than `block_bytes` a block may be before its buffer grows.
const SLACK_BYTES: usize = 4_096;

/// Reads ranges of rows of a file, and writes them in blocks.
pub struct Rows {
    file: Arc<File>,
    sent: Vec<Sent>,
    form: Form,
    /// The rows that are left, in ascending ranges that do not overlap.
    ranges: VecDeque<(u64, u64)>,
    /// A block ends with the row that makes it this long.
    block_bytes: usize,
    parts: VecDeque<Part>,
    open: Option<(Part, Batches)>,
    /// The batch that is being written, and its first row in the file.
    batch: Option<(u64, Batch)>,
    /// The block that follows a block that ended at a fault.
    held: Option<Block>,
}

impl Rows {
    #[must_use]
    pub fn new(file: Arc<File>, sent: Vec<Sent>, form: Form, ranges: Vec<(u64, u64)>, block_bytes: usize) -> Self {
        let parts = file.parts.iter().copied().collect();
        let ranges = ranges.into_iter().filter(|(start, end)| start < end).collect();
        Self { file, sent, form, ranges, block_bytes, parts, open: None, batch: None, held: None }
    }

    /// Returns the next block, None behind the last one.
    ///
    /// # Errors
    ///
    /// If the file is damaged or cannot be read, or has a value that cannot be sent.
    pub fn next_block(&mut self) -> Result<Option<Block>, RowError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let mut block: Option<Block> = None;
        loop {
            let Some(&(start, end)) = self.ranges.front() else {
                return Ok(block);
            };
            // A block has rows of one part and of one range, and its rows follow each other.
            if block.as_ref().is_some_and(|block| block.end != start) {
                return Ok(block);
            }
            let Some((part, first, rows)) = self.seek(start, block.is_some())? else {
                return Ok(block);
            };
            let last = end.min(first + rows);
            let name = self.file.name_part(&part);
            let block_now = block.get_or_insert_with(|| Block {
                data: Vec::with_capacity(self.block_bytes + SLACK_BYTES),
                start,
                end: start,
                part: name,
                fault: None,
            });
            let stopped = self.write(block_now, first, last)?;
            let reached = block_now.end + u64::from(stopped.is_some());
            if reached == end {
                self.ranges.pop_front();
            } else if let Some(range) = self.ranges.front_mut() {
                range.0 = reached;
            }
            if let Some(fault) = stopped {
                if block_now.data.is_empty() {
                    return Ok(Some(fault));
                }
                self.held = Some(fault);
                return Ok(block);
            }
            if reached == end || block_now.data.len() >= self.block_bytes {
                return Ok(block);
            }
        }
    }

    /// Finds the batch that has a row. Returns its part, its first row and its length. If `stays` is set, None if the
    /// row is in a part that is not open.
    fn seek(&mut self, row: u64, stays: bool) -> Result<Option<(Part, u64, u64)>, RowError> {
        loop {
            if let (Some((part, _)), Some((first, batch))) = (&self.open, &self.batch) {
                let rows = count_rows(batch);
                if row < first + rows {
                    return Ok(Some((*part, *first, rows)));
                }
            }
            let next = self.batch.take().map(|(first, batch)| first + count_rows(&batch));
            if let Some((part, batches)) = &mut self.open {
                let first = next.unwrap_or(part.start);
                if row < part.start + part.rows {
                    if let Some(batch) = batches.next() {
                        self.batch = Some((first, batch?));
                        continue;
                    }
                }
                self.open = None;
            }
            if stays {
                return Ok(None);
            }
            let part = self.parts.pop_front().ok_or_else(|| FileError::damaged("it has fewer rows than before"))?;
            if row < part.start + part.rows {
                let columns: Vec<_> = self.sent.iter().map(|sent| sent.column).collect();
                self.open = Some((part, self.file.read(part, &columns)?));
            }
        }
    }

    /// Appends rows to a block until it is long enough, or up to `last`. Returns the row that stopped it by a fault.
    fn write(&self, block: &mut Block, first: u64, last: u64) -> Result<Option<Block>, RowError> {
        let Some((_, batch)) = &self.batch else {
            return Ok(None);
        };
        let found = guard(|| {
            let cells = self.sent.iter().zip(batch).map(|(sent, array)| Cells::new(&sent.kind, array));
            let cells = cells.collect::<Result<Vec<_>, _>>()?;
            Ok(self.write_rows(block, &cells, first, last))
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
            let refuse = |column: usize, reason, value: Vec<u8>| {
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
                    }
                }
                Form::Text { rejects } => {
                    let mut fault = None;
                    for (column, (cells, sent)) in cells.iter().zip(&self.sent).enumerate() {
                        let at = out.len();
                        if let Some(reason) = text::write_field(cells, row, sent.target, *rejects, out) {
                            if !rejects {
                                return Err(refuse(column, reason, out.split_off(at)));
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
