//! Reads Parquet files by row groups.
//!
//! Texts are decoded as byte strings, and timestamps of 96 bits as their bytes: the reader is given a schema without the
//! types that it would check or convert. Byte strings are views of the pages, so a dictionary's values are not copied.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_schema::{DataType, Fields, TimeUnit};
use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use parquet::arrow::{parquet_to_arrow_field_levels, parquet_to_arrow_schema, ProjectionMask};
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit as ParquetUnit, Type as PhysicalType};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
    RowGroupMetaData,
};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescriptor, Type, TypePtr};

use super::cells::with_leaves;
use super::delta::count_repeated;
use super::encrypted::{check_footer, read_struct};
use super::file::{self, text_kind, Batches, Column, Part};
use super::kind::{find_kind, name_type, Kind, Leaf};
use super::{FileError, Source};

/// How many bytes at the file's end are read first, in one request to an object store. Most footers are shorter.
const TAIL_BYTES: u64 = 64 * 1024;
/// How many bytes follow the footer: its length, and the magic.
const END_BYTES: usize = 8;

/// The most rows, and the most bytes by the sizes in the footer, that are decoded at a time. With this many rows, the
/// fixed cost of a batch is small for each row.
const BATCH_ROWS: u64 = 16_384;
const BATCH_BYTES: u64 = 4 << 20;
/// The least bytes that a decoded value takes, and the most of one with a fixed length.
const VALUE_BYTES: u64 = 16;
const MOST_WIDTH: i32 = 1 << 20;
/// The most bytes that values in the encoding `DELTA_BYTE_ARRAY` may repeat of those before them, in so many values.
const MOST_REPEATED_BYTES: u64 = 256 << 20;

/// If the columns that are read have at most this size in a row group, compressed, each is read in one piece. Otherwise
/// each is read through a buffer. All buffers together take about this much memory, or the least for each.
const WHOLE_BYTES: u64 = 64 << 20;
/// The most bytes of a dictionary's page that are not in the length of its chunk.
const MOST_UNCOUNTED_BYTES: i64 = 100;

const LEAST_BUFFER_BYTES: u64 = 256 << 10;
const MOST_BUFFER_BYTES: u64 = 16 << 20;

pub(crate) struct ParquetFile {
    source: Arc<dyn Source>,
    metadata: Arc<ParquetMetaData>,
    /// The types that are decoded.
    fields: Fields,
    columns: Vec<Column>,
}

impl ParquetFile {
    pub(crate) fn open(source: Arc<dyn Source>, length: u64) -> Result<Self, FileError> {
        let mut footer = read_footer(&*source, length)?.to_vec();
        if check_footer(&mut footer).ok_or_else(|| FileError::damaged("its footer is damaged"))? {
            return Err(FileError::Encrypted);
        }
        let mut options = ParquetMetaDataOptions::new();
        options.set_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
        options.set_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
        options.set_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let read = |options: &ParquetMetaDataOptions| {
            ParquetMetaDataReader::decode_metadata_with_options(&footer, Some(options)).map_err(FileError::damaged)
        };
        let told = read(&options)?;
        let schema = told.file_metadata().schema_descr();
        options.set_schema(Arc::new(SchemaDescriptor::new(without_logic(schema.root_schema())?)));
        let metadata = Arc::new(read(&options)?);
        check_rows(&metadata)?;
        if schema.columns().iter().any(|leaf| leaf.type_length() > MOST_WIDTH) {
            return Err(FileError::Damaged(format!("a value has a fixed length of more than {MOST_WIDTH} bytes")));
        }
        let arrow = parquet_to_arrow_schema(schema, told.file_metadata().key_value_metadata());
        let arrow = arrow.or_else(|_| parquet_to_arrow_schema(schema, None)).map_err(FileError::damaged)?;
        let mut leaves = schema.columns().iter();
        let fields = arrow.fields().iter().map(|field| {
            let data_type = with_leaves(field.data_type(), false, &mut |leaf| decoded_leaf(leaf, leaves.next()));
            Arc::new(field.as_ref().clone().with_data_type(data_type))
        });
        let fields = fields.collect();
        let mut columns = find_columns(arrow.fields(), schema);
        for group in metadata.row_groups() {
            for (leaf, chunk) in group.columns().iter().enumerate() {
                columns[schema.get_column_root_idx(leaf)].bytes += chunk.uncompressed_size().max(0).unsigned_abs();
            }
        }
        Ok(Self { source, metadata, fields, columns })
    }
}

/// Checks that all parts of the metadata say the same number of rows. Otherwise rows could be left out.
fn check_rows(metadata: &ParquetMetaData) -> Result<(), FileError> {
    let (groups, told) = (metadata.row_groups(), metadata.file_metadata().num_rows());
    let add = |sum: i64, group: &RowGroupMetaData| sum.checked_add(group.num_rows()).filter(|_| group.num_rows() >= 0);
    if groups.iter().try_fold(0, add) != Some(told) {
        return Err(FileError::Damaged(format!("its row groups do not have the {told} rows that its metadata says")));
    }
    for (number, group) in groups.iter().enumerate() {
        let is_flat = |chunk: &&ColumnChunkMetaData| chunk.column_descr().max_rep_level() == 0;
        if group.columns().iter().filter(is_flat).any(|chunk| chunk.num_values() != group.num_rows()) {
            return Err(FileError::Damaged(format!("row group {} has columns of different lengths", number + 1)));
        }
    }
    Ok(())
}

fn read_footer(source: &dyn Source, length: u64) -> Result<Bytes, FileError> {
    let read_tail = |bytes: u64| {
        let bytes = bytes.min(length);
        source.read_at(length - bytes, usize::try_from(bytes).unwrap_or(usize::MAX)).ok_or(FileError::Unread)
    };
    let mut tail = read_tail(TAIL_BYTES)?;
    if tail.ends_with(b"PARE") {
        return Err(FileError::Encrypted);
    }
    let Some((_, end)) = tail.split_last_chunk::<END_BYTES>().filter(|(_, end)| end.ends_with(b"PAR1")) else {
        return Err(FileError::damaged("it does not end with a footer"));
    };
    let bytes = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
    if u64::from(bytes) + END_BYTES as u64 > length {
        return Err(FileError::Damaged(format!("its footer is longer than the file: {bytes} bytes")));
    }
    let bytes = bytes as usize + END_BYTES;
    if bytes > tail.len() {
        tail = read_tail(bytes as u64)?;
    }
    let start = tail.len().checked_sub(bytes).ok_or_else(|| FileError::damaged("it is shorter than it was"))?;
    Ok(tail.slice(start..tail.len() - END_BYTES))
}

/// Returns a schema in which byte strings have no logical type, timestamps of 96 bits are 12 bytes, and integers of 8 and
/// 16 bits have the 32 bits that they are stored in: the decoder would cut off the others.
fn without_logic(root: &Type) -> Result<TypePtr, FileError> {
    let info = root.get_basic_info();
    let changed = if root.is_group() {
        let parts = root.get_fields().iter().map(|part| without_logic(part)).collect::<Result<_, _>>()?;
        let builder = Type::group_type_builder(root.name()).with_fields(parts);
        let builder = if info.has_repetition() { builder.with_repetition(info.repetition()) } else { builder };
        builder
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_id(info.has_id().then(|| info.id()))
            .build()
    } else {
        use ConvertedType::{DECIMAL, INT_16, INT_8, UINT_16, UINT_8};
        let (kind, width) = match (root.get_physical_type(), info.converted_type()) {
            (PhysicalType::BYTE_ARRAY, converted) if converted != DECIMAL => (PhysicalType::BYTE_ARRAY, -1),
            (PhysicalType::INT96, _) => (PhysicalType::FIXED_LEN_BYTE_ARRAY, 12),
            (PhysicalType::INT32, INT_8 | INT_16 | UINT_8 | UINT_16) => (PhysicalType::INT32, -1),
            _ => return Ok(Arc::new(root.clone())),
        };
        Type::primitive_type_builder(root.name(), kind)
            .with_repetition(if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED })
            .with_length(width)
            .with_id(info.has_id().then(|| info.id()))
            .build()
    };
    Ok(Arc::new(changed.map_err(FileError::damaged)?))
}

/// Returns the type in which a leaf is decoded: byte strings as views.
fn decoded_leaf(data_type: &DataType, leaf: Option<&ColumnDescPtr>) -> DataType {
    // The decoder takes byte strings for decimals of 64 bits only if they have a fixed length of at most 8.
    let is_narrow = leaf.is_some_and(|leaf| match leaf.physical_type() {
        PhysicalType::FIXED_LEN_BYTE_ARRAY => leaf.type_length() <= 8,
        physical => physical != PhysicalType::BYTE_ARRAY,
    });
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::LargeBinary | DataType::Binary => {
            DataType::BinaryView
        }
        DataType::Decimal128(precision @ ..=18, scale) if is_narrow => DataType::Decimal64(*precision, *scale),
        other => other.clone(),
    }
}

fn find_columns(fields: &Fields, schema: &SchemaDescriptor) -> Vec<Column> {
    let mut leaves = schema.columns().iter();
    let columns = fields.iter().map(|field| {
        let mut is_untold = false;
        let kind = find_kind(field, &mut || {
            let leaf = leaves.next().map_or(Leaf::Plain, |leaf| find_leaf(leaf));
            is_untold |= leaf == Leaf::Untold;
            leaf
        });
        let is_untold = is_untold && text_kind(&kind).is_some();
        Column { name: field.name().clone(), type_name: name_type(field), kind, is_untold, bytes: 0 }
    });
    columns.collect()
}

/// Returns what the file says about a leaf. Units and scales are those of Parquet's schema: Arrow's schema, which the file
/// may have too, could name others.
fn find_leaf(leaf: &ColumnDescriptor) -> Leaf {
    Leaf::Told(match (leaf.physical_type(), leaf.logical_type_ref(), leaf.converted_type()) {
        (PhysicalType::INT96, ..) => Kind::Int96,
        (_, Some(LogicalType::Uuid), _) => Kind::Uuid,
        (_, Some(LogicalType::Json), _) | (_, None, ConvertedType::JSON) => Kind::Json,
        (_, Some(LogicalType::Enum), _) | (_, None, ConvertedType::ENUM) => Kind::Text,
        (_, Some(LogicalType::Timestamp(told)), _) => {
            let unit = match told.unit {
                ParquetUnit::MILLIS => TimeUnit::Millisecond,
                ParquetUnit::MICROS => TimeUnit::Microsecond,
                ParquetUnit::NANOS => TimeUnit::Nanosecond,
            };
            Kind::Timestamp { unit, is_zoned: told.is_adjusted_to_u_t_c }
        }
        (_, _, ConvertedType::DECIMAL) => match (leaf.type_precision().try_into(), leaf.type_scale().try_into()) {
            (Ok(precision), Ok(scale)) => Kind::Decimal { precision, scale },
            _ => return Leaf::Plain,
        },
        (PhysicalType::BYTE_ARRAY, None, ConvertedType::NONE) => return Leaf::Untold,
        _ => return Leaf::Plain,
    })
}

impl file::Reader for ParquetFile {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn parts(&self) -> Vec<Part> {
        let mut start = 0;
        let groups = self.metadata.row_groups().iter().enumerate();
        groups
            .map(|(number, group)| {
                let part = Part { number, start, rows: group.num_rows().unsigned_abs() };
                start += part.rows;
                part
            })
            .collect()
    }

    fn read(&self, part: &Part, columns: &[usize]) -> Result<Batches, FileError> {
        let group = self.metadata.row_group(part.number);
        let schema = self.metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::roots(schema, columns.iter().copied());
        let leaves: Vec<_> = (0..schema.num_columns()).filter(|&leaf| mask.leaf_included(leaf)).collect();
        let levels = parquet_to_arrow_field_levels(schema, mask, Some(&self.fields)).map_err(FileError::damaged)?;
        let size = group.total_byte_size().max(1).unsigned_abs();
        let width = |&leaf: &usize| u64::try_from(schema.column(leaf).type_length()).unwrap_or(0).max(VALUE_BYTES);
        let width = leaves.iter().map(width).sum::<u64>().max(1);
        let rows = (BATCH_BYTES.saturating_mul(part.rows) / size).min(BATCH_BYTES / width).clamp(1, BATCH_ROWS);
        let buffer = choose_buffer(leaves.iter().map(|&leaf| group.column(leaf)));
        let (source, metadata) = (self.source.clone(), self.metadata.clone());
        let group = OneGroup { source, metadata, number: part.number, buffer };
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &group, rows, None);
        // The columns come in the order of the file.
        let mut order: Vec<_> = (0..columns.len()).collect();
        order.sort_unstable_by_key(|&at| columns[at]);
        let mut places = vec![0; columns.len()];
        for (place, at) in order.into_iter().enumerate() {
            places[at] = place;
        }
        Ok(Box::new(reader.map_err(FileError::damaged)?.map(move |batch| {
            let batch = batch.map_err(FileError::damaged)?;
            Ok(places.iter().map(|&place| batch.column(place).clone()).collect())
        })))
    }

    fn part_name(&self) -> &'static str {
        "row group"
    }
}

/// A row group, as the decoder asks for it.
struct OneGroup {
    source: Arc<dyn Source>,
    metadata: Arc<ParquetMetaData>,
    number: usize,
    /// How many bytes of a column are read at a time.
    buffer: u64,
}

/// Returns how many bytes of each of these chunks are read at a time.
fn choose_buffer<'a>(chunks: impl ExactSizeIterator<Item = &'a ColumnChunkMetaData>) -> u64 {
    let count = chunks.len().max(1) as u64;
    let whole = chunks.fold(0, |sum: u64, chunk| sum.saturating_add(chunk.compressed_size().max(0).unsigned_abs()));
    if whole <= WHOLE_BYTES {
        return u64::MAX;
    }
    (WHOLE_BYTES / count).clamp(LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES)
}

impl OneGroup {
    fn group(&self) -> &RowGroupMetaData {
        self.metadata.row_group(self.number)
    }

    fn rows(&self) -> usize {
        usize::try_from(self.group().num_rows()).unwrap_or(0)
    }
}

impl RowGroups for OneGroup {
    fn num_rows(&self) -> usize {
        self.rows()
    }

    fn column_chunks(&self, index: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let told = self.group().column(index);
        // Some writers state a place of the dictionary that is none, and others do not count the header of its page.
        let dictionary = told.dictionary_page_offset().filter(|at| (1..told.data_page_offset()).contains(at));
        let compressed = told.compressed_size().saturating_add(MOST_UNCOUNTED_BYTES);
        let column = told.clone().into_builder().set_dictionary_page_offset(dictionary);
        let column = &column.set_total_compressed_size(compressed).build()?;
        let (start, length) = column.byte_range();
        let end = start.saturating_add(length);
        let most = told.uncompressed_size().max(0).unsigned_abs().max(WHOLE_BYTES);
        let read = Mutex::new(Buffered { start, bytes: Bytes::new(), header_end: None });
        let chunk = Chunk { source: self.source.clone(), end, buffer: self.buffer, most, read };
        let pages = SerializedPageReader::new(Arc::new(chunk), column, self.rows(), None)?;
        let left = column.num_values().max(0).unsigned_abs();
        let levels = [column.column_descr().max_rep_level(), column.column_descr().max_def_level()];
        Ok(Box::new(OneChunk(Some(Box::new(CheckedPages { pages, left, levels, counted: 0, repeated: 0 })))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.group()))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of the one chunk that a row group has of a column.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}

/// Pages of which is checked, before the decoder takes memory for it, how many values they have, and how many bytes these
/// repeat.
struct CheckedPages {
    pages: SerializedPageReader<Chunk>,
    /// How many values the chunk may still have.
    left: u64,
    levels: [i16; 2],
    /// Values, and what they repeat: of the last ones that may be in one batch.
    counted: u64,
    repeated: u64,
}

impl CheckedPages {
    fn check(&mut self, page: &Page) -> Result<(), &'static str> {
        let count = u64::from(page.num_values());
        if matches!(page, Page::DictionaryPage { .. }) {
            // Each value of a dictionary takes a byte at least.
            let is_whole = count <= page.buffer().len() as u64;
            return if is_whole { Ok(()) } else { Err("a dictionary has fewer values than it says") };
        }
        self.left = self.left.checked_sub(count).ok_or("a page has too many values")?;
        if self.counted >= BATCH_ROWS {
            (self.counted, self.repeated) = (0, 0);
        }
        self.counted += count;
        self.repeated += count_repeated(page, self.levels).ok_or("a page has damaged lengths")?;
        if self.repeated > MOST_REPEATED_BYTES {
            return Err("too many bytes are repeated in the encoding DELTA_BYTE_ARRAY");
        }
        Ok(())
    }
}

impl Iterator for CheckedPages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        if self.left == 0 {
            return Ok(None);
        }
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.check(page)).map_err(|reason| ParquetError::General(reason.into()))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        Ok(self.left == 0 || self.pages.at_record_boundary()?)
    }
}

/// The bytes of a column chunk.
struct Chunk {
    source: Arc<dyn Source>,
    end: u64,
    /// How many bytes are read at a time, at least.
    buffer: u64,
    /// The most bytes of a page, decompressed.
    most: u64,
    read: Mutex<Buffered>,
}

/// The bytes that were read last, and their place in the file.
struct Buffered {
    start: u64,
    bytes: Bytes,
    /// Where a page's header ends whose page has not been read.
    header_end: Option<u64>,
}

impl Chunk {
    /// Returns the bytes from `start`: at least `least`, fewer only at the end of the chunk.
    fn take(&self, start: u64, least: usize) -> io::Result<Bytes> {
        let mut read = self.lock();
        let left = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        if let Some(skipped) = start.checked_sub(read.start).and_then(|skipped| usize::try_from(skipped).ok()) {
            if skipped <= read.bytes.len() && read.bytes.len() - skipped >= least.min(left) {
                return Ok(read.bytes.slice(skipped..));
            }
        }
        let length = least.max(usize::try_from(self.buffer).unwrap_or(usize::MAX)).min(left);
        let found = self.source.read_at(start, length).ok_or_else(|| io::Error::other("unread"))?;
        (read.start, read.bytes) = (start, found.clone());
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Buffered> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.end
    }
}

/// Most headers of pages are shorter than the first, all than the second: they may have the least and greatest value.
const HEADER_BYTES: usize = 64 << 10;
const MOST_HEADER_BYTES: usize = 16 << 20;

/// The header of a page. To read behind its end is an error: the decoder would skip billions of values that are not there.
struct Header(Bytes);

impl Read for Header {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.0.len().min(into.len());
        if length == 0 && !into.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

impl ChunkReader for Chunk {
    type T = Header;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        // The decoder asks for a header also if it has it, and then reads nothing.
        if self.lock().header_end == Some(start) {
            return Ok(Header(Bytes::new()));
        }
        let mut least = HEADER_BYTES;
        loop {
            let found = self.take(start, least)?;
            if let Some(header) = read_struct(&found) {
                if u64::try_from(header.page_bytes).is_ok_and(|bytes| bytes > self.most) {
                    return Err(ParquetError::General("a page is longer than its column".into()));
                }
                let length = found.len() - header.bytes.len();
                self.lock().header_end = Some(start + length as u64);
                return Ok(Header(found.slice(..length)));
            }
            if found.len() < least || found.len() >= MOST_HEADER_BYTES {
                return Ok(Header(Bytes::new()));
            }
            least = 2 * found.len();
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.lock().header_end = None;
        let found = self.take(start, length)?;
        if found.len() < length {
            return Err(ParquetError::EOF(format!("{} bytes of a page are missing", length - found.len())));
        }
        Ok(found.slice(..length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Bytes);

    impl Source for Memory {
        fn read_at(&self, start: u64, length: usize) -> Option<Bytes> {
            let start = usize::try_from(start).ok()?.min(self.0.len());
            Some(self.0.slice(start..start.saturating_add(length).min(self.0.len())))
        }
    }

    /// A chunk with a header, whose page has 1,000 bytes by it and which has a field of so many bytes, and a page.
    fn chunk(field: usize, most: u64) -> (Chunk, u64) {
        let length = u8::try_from(field >> 14).unwrap();
        let header = [&[0x25, 0xd0, 0x0f, 0x18, 0x80, 0x80, length][..], &vec![b'x'; field], &[0]].concat();
        let end = header.len() as u64;
        let source = Arc::new(Memory([header, vec![0; 1_000]].concat().into()));
        let read = Mutex::new(Buffered { start: 0, bytes: Bytes::new(), header_end: None });
        (Chunk { source, end: end + 1_000, buffer: 1, most, read }, end)
    }

    #[test]
    fn header_of_a_page_may_be_long_and_is_read_once() {
        let (chunk, end) = chunk(10 << 14, 1_000);
        let read = |start, length| chunk.get_read(start).unwrap().read_exact(&mut vec![0; length]);
        assert!(read(0, usize::try_from(end).unwrap()).is_ok());
        assert!(read(end, 1).is_err());
        assert_eq!(chunk.get_bytes(end, 1_000).unwrap().len(), 1_000);
    }

    #[test]
    fn page_that_is_longer_than_its_column_is_refused() {
        assert!(chunk(1 << 14, 1_000).0.get_read(0).is_ok());
        assert!(chunk(1 << 14, 999).0.get_read(0).is_err());
    }
}
