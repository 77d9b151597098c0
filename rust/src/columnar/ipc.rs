//! Reads Arrow IPC files by record batches.
//!
//! Texts are decoded as byte strings, so that one that is not UTF-8 is an error of its row. Everything else is checked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{root_as_footer, root_as_message, Block, Endianness, Message, MetadataVersion};
use arrow_schema::{Schema, SchemaRef};

use super::cells::{as_bytes, with_leaves};
use super::file::{Batches, Column, Part, Reader};
use super::kind::{find_kind, name_type, Leaf};
use super::{FileError, Source};

const MAGIC: &[u8] = b"ARROW1";
/// How many bytes at the file's end are read first.
const TAIL_BYTES: u64 = 64 * 1024;
/// How many bytes follow the footer: its length, and the magic.
const END_BYTES: u64 = 10;
const CONTINUATION: [u8; 4] = [0xff; 4];
/// How long the compressed buffers of a block may be, decompressed, and how many times as long as before.
const MOST_BLOCK_BYTES: u64 = 4 << 30;
const MOST_RATIO: u64 = 65_536;

pub(crate) struct ArrowFile {
    source: Arc<dyn Source>,
    length: u64,
    /// The types that are decoded.
    schema: SchemaRef,
    columns: Vec<Column>,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
    parts: Vec<Part>,
    /// What has decoded last, with its columns: it has the dictionaries.
    decoder: Mutex<Option<(Vec<usize>, Arc<FileDecoder>)>>,
}

impl ArrowFile {
    pub(crate) fn open(source: Arc<dyn Source>, length: u64) -> Result<Self, FileError> {
        let tail = source.read_at(length.saturating_sub(TAIL_BYTES), to_usize(TAIL_BYTES.min(length)));
        let mut tail = tail.ok_or(FileError::Unread)?;
        let Some((_, end)) = tail.split_last_chunk::<10>().filter(|(_, end)| end.ends_with(MAGIC)) else {
            return Err(FileError::damaged("it does not end with a footer"));
        };
        let bytes = i32::from_le_bytes([end[0], end[1], end[2], end[3]]);
        let bytes = u64::try_from(bytes).ok().filter(|bytes| bytes + END_BYTES <= length);
        let bytes = bytes.ok_or_else(|| FileError::damaged("its footer is longer than the file"))? + END_BYTES;
        if bytes > tail.len() as u64 {
            tail = source.read_at(length - bytes, to_usize(bytes)).ok_or(FileError::Unread)?;
        }
        let start = tail.len().checked_sub(to_usize(bytes)).ok_or_else(|| FileError::damaged("it was cut"))?;
        let footer = root_as_footer(&tail[start..tail.len() - 10]).map_err(FileError::damaged)?;
        let told = footer.schema().ok_or_else(|| FileError::damaged("its footer has no schema"))?;
        if told.endianness() != Endianness::Little {
            return Err(FileError::damaged("its numbers are big-endian, which cannot be loaded"));
        }
        let told = try_fb_to_schema(told).map_err(FileError::damaged)?;
        let list = |blocks: Option<flatbuffers::Vector<'_, Block>>| {
            blocks.map_or_else(Vec::new, |blocks| blocks.iter().copied().collect::<Vec<_>>())
        };
        let fields: Vec<_> = told
            .fields()
            .iter()
            .map(|field| {
                let data_type = with_leaves(field.data_type(), true, &mut as_bytes);
                field.as_ref().clone().with_data_type(data_type)
            })
            .collect();
        let columns = told.fields().iter().map(|field| Column {
            name: field.name().clone(),
            type_name: name_type(field),
            kind: find_kind(field, &mut || Leaf::Plain),
            is_untold: false,
            bytes: length / told.fields().len() as u64,
        });
        let mut file = Self {
            source,
            length,
            schema: Arc::new(Schema::new(fields)),
            columns: columns.collect(),
            version: footer.version(),
            dictionaries: list(footer.dictionaries()),
            batches: list(footer.recordBatches()),
            parts: Vec::new(),
            decoder: Mutex::new(None),
        };
        (file.parts, file.version) = file.count_rows()?;
        Ok(file)
    }

    /// Returns the record batches, and the version of their messages: pyarrow gives the footer a newer one.
    fn count_rows(&self) -> Result<(Vec<Part>, MetadataVersion), FileError> {
        let (mut start, mut parts, mut version) = (0, Vec::new(), self.version);
        for (number, block) in self.batches.iter().enumerate() {
            let head = self.read_bytes(block.offset(), i64::from(block.metaDataLength()))?;
            let message = to_message(&head)?;
            version = if number == 0 { message.version() } else { version };
            let rows = message.header_as_record_batch().map(|batch| batch.length());
            let rows = rows.and_then(|rows| u64::try_from(rows).ok());
            let rows = rows.ok_or_else(|| FileError::Damaged(format!("record batch {} is none", number + 1)))?;
            parts.push(Part { number, start, rows });
            start += rows;
        }
        Ok((parts, version))
    }

    fn read_bytes(&self, start: i64, length: i64) -> Result<bytes::Bytes, FileError> {
        let place = u64::try_from(start).ok().zip(u64::try_from(length).ok());
        let place = place.filter(|(start, length)| start.checked_add(*length).is_some_and(|end| end <= self.length));
        let (start, length) = place.ok_or_else(|| FileError::damaged("a block lies beyond the end of the file"))?;
        let found = self.source.read_at(start, to_usize(length)).ok_or(FileError::Unread)?;
        if (found.len() as u64) < length {
            return Err(FileError::damaged("it is shorter than it was"));
        }
        Ok(found)
    }

    /// Returns the bytes of a block. Its sizes are checked before the decoder takes memory for them.
    fn read_block(&self, block: &Block) -> Result<Buffer, FileError> {
        let head = i64::from(block.metaDataLength());
        let length = head.checked_add(block.bodyLength()).ok_or_else(|| FileError::damaged("a block is too long"))?;
        let bytes = self.read_bytes(block.offset(), length)?;
        let message = to_message(&bytes)?;
        let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
        if let Some(batch) = message.header_as_record_batch().or(dictionary) {
            let body = bytes.slice(to_usize(head.unsigned_abs())..);
            let (is_compressed, mut left) = (batch.compression().is_some(), MOST_BLOCK_BYTES);
            for buffer in batch.buffers().iter().flatten() {
                let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
                let place = place.and_then(|(start, length)| Some(start..start.checked_add(length)?));
                let stored = place.and_then(|place| body.get(place));
                let stored = stored.ok_or_else(|| FileError::damaged("a buffer lies beyond the end of its block"))?;
                if let Some(first) = stored.first_chunk::<8>().filter(|_| is_compressed) {
                    // -1 says that the buffer is not compressed.
                    let length = u64::try_from(i64::from_le_bytes(*first)).unwrap_or(0);
                    if length > left.min(MOST_RATIO * stored.len() as u64) {
                        return Err(FileError::damaged(
                            "compressed buffers have impossible lengths, or more than 4 GiB",
                        ));
                    }
                    left -= length;
                }
            }
        }
        Ok(Buffer::from(bytes))
    }

    fn find_decoder(&self, columns: &[usize]) -> Result<Arc<FileDecoder>, FileError> {
        let mut kept = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, decoder)) = kept.as_ref().filter(|(other, _)| other == columns) {
            return Ok(decoder.clone());
        }
        let mut decoder = FileDecoder::new(self.schema.clone(), self.version).with_projection(columns.to_vec());
        let mut seen = HashSet::new();
        for block in &self.dictionaries {
            let bytes = self.read_block(block)?;
            let found = to_message(&bytes)?.header_as_dictionary_batch();
            if found.is_some_and(|found| !found.isDelta() && !seen.insert(found.id())) {
                return Err(FileError::damaged("a dictionary is replaced by another one, which cannot be loaded"));
            }
            decoder.read_dictionary(block, &bytes).map_err(FileError::damaged)?;
        }
        let decoder = Arc::new(decoder);
        *kept = Some((columns.to_vec(), decoder.clone()));
        Ok(decoder)
    }
}

fn to_message(block: &[u8]) -> Result<Message<'_>, FileError> {
    // Before version 0.15 of the format, no continuation came before the length.
    let start = if block.starts_with(&CONTINUATION) { 8 } else { 4 };
    root_as_message(block.get(start..).unwrap_or_default()).map_err(FileError::damaged)
}

fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

impl Reader for ArrowFile {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }

    fn read(&self, part: &Part, columns: &[usize]) -> Result<Batches, FileError> {
        if part.rows == 0 {
            return Ok(Box::new(std::iter::empty()));
        }
        let block = &self.batches[part.number];
        let bytes = self.read_block(block)?;
        let batch = self.find_decoder(columns)?.read_record_batch(block, &bytes).map_err(FileError::damaged)?;
        let batch = batch.ok_or_else(|| FileError::damaged("it is no record batch"))?;
        Ok(Box::new(std::iter::once(Ok(batch.columns().to_vec()))))
    }

    fn part_name(&self) -> &'static str {
        "record batch"
    }
}
