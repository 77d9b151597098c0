//! Writes records of csv, text and tsv as rows of COPY's binary format, if the server would make the same values of the
//! text.
//!
//! A block is encoded as a whole or not at all. An encoder of a type accepts only forms of text that mean the same with
//! any settings, and names the input function that it must equal (src/backend/utils/adt). The type's modifier, such as
//! a length, is left to the receive function, which applies it as the input function does. A block with any other form
//! of a value is sent as text.

use memchr::{memchr, memchr_iter};

use crate::canonical::{is_plain, Decimal, Input, ShortDecimal};
use crate::columnar::binary::{pack_numeric, write_numeric, MOST_GROUPS, NUMERIC_NEGATIVE};
use crate::fieldmask::{find_ends, Ends, Rule, Shape};
use crate::fields::{Format, LineEnd};
use crate::kept::ColumnType;
use crate::lanes::{with_widest, Lanes, Work};

/// Longer blocks are sent as text, because the buffers would keep their size. A block is longer only if one record is
/// longer than the reader's buffers.
const MOST_BYTES: usize = 4 << 20;
/// How many bytes follow the input and the output, so that a fixed number of bytes can be read and written at any
/// place.
const SLACK: usize = 64;
/// Texts up to this length are copied as if they had this length, because a fixed number of bytes is copied faster.
const SHORT: usize = 32;
/// A value takes at most its bytes in the text and this many more: for its length, and for the head of a numeric.
const ROOM: usize = 24;

/// The length of a timestamp without decimals.
const SECONDS: usize = "2026-01-31 23:59:59".len();

/// Numbers with up to this many digits always fit 128 bits.
const LONG_DIGITS: usize = 38;

/// The types that have an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Bool,
    Date,
    Timestamp,
    Timestamptz,
    Uuid,
    /// text, character varying and character. Their receive functions check the encoding and the length as their input
    /// functions do.
    Text,
}

impl Kind {
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "numeric" => Self::Numeric,
            "bool" => Self::Bool,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::Timestamptz,
            "uuid" => Self::Uuid,
            "text" => Self::Text,
            _ => return None,
        })
    }
}

/// Why a block must be sent as text: the rule, and the first record and column, from 0, that it refuses. The column is
/// None if the rule is about the whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declined {
    pub record: usize,
    pub column: Option<usize>,
    pub rule: Rule,
}

impl From<Rule> for Declined {
    fn from(rule: Rule) -> Self {
        Self { record: 0, column: None, rule }
    }
}

/// Buffers that one thread uses again for each block.
#[derive(Default)]
pub struct Buffers {
    input: Vec<u8>,
    ends: Ends,
    output: Vec<u8>,
}

/// Encodes blocks of one form for columns of known types.
pub struct Encoder {
    shape: Shape,
    null: Vec<u8>,
    /// Each column's kind, and its type, which says whether the column changes values.
    columns: Vec<(Kind, ColumnType)>,
}

impl Encoder {
    #[must_use]
    pub fn new(shape: Shape, null: Vec<u8>, kinds: Vec<Kind>) -> Self {
        Self { shape, null, columns: kinds.into_iter().map(|kind| (kind, ColumnType::Other)).collect() }
    }

    /// Returns the encoder with a new rule: it declines blocks with values that columns of these types do not keep.
    #[must_use]
    pub fn keeping(mut self, types: Vec<ColumnType>) -> Self {
        for (column, kept) in self.columns.iter_mut().zip(types) {
            column.1 = kept;
        }
        self
    }

    /// Returns the rows of a block of whole records, and how many rows there are.
    ///
    /// # Errors
    ///
    /// The block must be sent as text.
    pub fn encode<'b>(
        &self,
        runs: &[&[u8]],
        line_end: LineEnd,
        buffers: &'b mut Buffers,
    ) -> Result<(&'b [u8], usize), Declined> {
        let Buffers { input, ends, output } = buffers;
        let length = runs.iter().map(|run| run.len()).sum::<usize>();
        if length > MOST_BYTES {
            return Err(Rule::Length.into());
        }
        input.clear();
        for run in runs {
            input.extend_from_slice(run);
        }
        find_ends(Shape { line_end, ..self.shape }, input, ends)?;
        input.extend_from_slice(&[0; SLACK]);
        let room = length + (ROOM + 2) * ends.as_slice().len() + SLACK;
        if output.len() < room {
            output.resize(room, 0);
        }
        let rows = Rows { encoder: self, input, length };
        let has_returns = line_end == LineEnd::CrLf;
        let written = with_widest(Writing { rows, ends, has_returns, output })?;
        let in_null = memchr_iter(b'\\', &self.null).count();
        if self.shape.format == Format::Text && ends.backslashes != written.nulls * in_null {
            return Err(Rule::Escape.into());
        }
        Ok((&output[..written.end], written.records))
    }
}

/// Returns for each column how many values are not null, and how many bytes these values have.
#[must_use]
pub fn measure(mut rows: &[u8], columns: usize) -> Vec<(u64, u64)> {
    let mut widths = vec![(0, 0); columns];
    while let Some((_, mut rest)) = rows.split_first_chunk::<2>() {
        for (values, bytes) in &mut widths {
            let Some((length, behind)) = rest.split_first_chunk::<4>() else { return widths };
            rest = behind;
            if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
                *values += 1;
                *bytes += length as u64;
                rest = &rest[length.min(rest.len())..];
            }
        }
        rows = rest;
    }
    widths
}

/// What was written: where the rows end in the output, and how many records and nulls were written.
#[derive(Default)]
struct Written {
    end: usize,
    records: usize,
    nulls: usize,
}

/// Writes rows. A method that writes a field returns the place of the next field, or None if the value is not
/// canonical. The place is an argument and not a field of this struct: the processor would have to wait for a place in
/// memory before it could begin the next field.
struct Rows<'a> {
    encoder: &'a Encoder,
    /// The block, and `SLACK` bytes that are NUL.
    input: &'a [u8],
    length: usize,
}

/// Writes the rows with the instructions that processors with wide lanes have, such as those that count zeros. This
/// takes 4 % less CPU.
struct Writing<'a> {
    rows: Rows<'a>,
    ends: &'a Ends,
    has_returns: bool,
    output: &'a mut [u8],
}

impl Work for Writing<'_> {
    type Output = Result<Written, Declined>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        self.rows.write_all(self.ends, self.has_returns, self.output)
    }
}

impl Rows<'_> {
    #[inline(always)]
    fn write_all(&self, ends: &Ends, has_returns: bool, out: &mut [u8]) -> Result<Written, Declined> {
        let Encoder { shape, null, columns: kinds } = self.encoder;
        let quote = match shape.format {
            Format::Csv { quote, .. } if ends.has_quotes => Some(quote),
            _ => None,
        };
        let columns = kinds.len();
        let places = ends.as_slice();
        // Each group of `columns` fields must end a record. If there are as many groups as records, no other field ends
        // a record.
        if ends.records * columns != places.len() {
            return Err(self.find_ragged(places));
        }
        #[allow(clippy::cast_possible_truncation)] // a table has at most 1,600 columns
        let head = (columns as u16).to_be_bytes();
        let (mut start, mut written) = (0, Written::default());
        for fields in places.chunks_exact(columns) {
            let last = fields[columns - 1] as usize;
            // A last record without a line end is followed by a NUL, which counts as its end.
            if self.input[last] == shape.delimiter {
                return Err(self.find_ragged(places));
            }
            let last_stop = if has_returns && last < self.length { last - 1 } else { last };
            let mut at = put(out, written.end, head);
            for (column, (&(kind, kept), &end)) in kinds.iter().zip(fields).enumerate() {
                let end = end as usize;
                let stop = if end == last { last_stop } else { end };
                let next = if quote.is_some_and(|quote| self.input[start] == quote) && stop > start {
                    self.write_quoted((kind, kept), start + 1, stop - 1, out, at)
                } else if stop - start == null.len() && (null.is_empty() || self.input[start..stop] == null[..]) {
                    written.nulls += 1;
                    Some(put(out, at, (-1_i32).to_be_bytes()))
                } else {
                    self.write_value((kind, kept), start, stop, out, at)
                };
                let value = || Declined { record: written.records, column: Some(column), rule: Rule::Value };
                at = next.ok_or_else(value)?;
                start = end + 1;
            }
            written.end = at;
            written.records += 1;
        }
        Ok(written)
    }

    /// Finds the first field that ends a record too early, or that should end a record and does not.
    #[cold]
    fn find_ragged(&self, places: &[u32]) -> Declined {
        let columns = self.encoder.columns.len();
        let is_wrong = |(at, &end): (usize, &u32)| {
            (self.input[end as usize] == self.encoder.shape.delimiter) == (at % columns == columns - 1)
        };
        let at = places.iter().enumerate().position(is_wrong).unwrap_or(places.len());
        Declined { record: at / columns, column: Some(at % columns), rule: Rule::FieldCount }
    }

    /// Writes the text between quotes, with each doubled quote written once.
    fn write_quoted(
        &self,
        column: (Kind, ColumnType),
        start: usize,
        end: usize,
        out: &mut [u8],
        at: usize,
    ) -> Option<usize> {
        let Format::Csv { quote, .. } = self.encoder.shape.format else { return None };
        if column.0 != Kind::Text || memchr(quote, &self.input[start..end]).is_none() {
            return self.write_value(column, start, end, out, at);
        }
        // A type with a length may cut blanks at the end, which is found in text alone.
        if column.1 != ColumnType::Other && self.input[end - 1] == b' ' {
            return None;
        }
        let (mut from, mut to) = (start, at + 4);
        while let Some(offset) = memchr(quote, &self.input[from..end]) {
            to = self.copy(from, from + offset + 1, out, to);
            from += offset + 2;
        }
        to = self.copy(from, end, out, to);
        #[allow(clippy::cast_possible_truncation)] // a block is at most MOST_BYTES long
        put(out, at, ((to - at - 4) as u32).to_be_bytes());
        Some(to)
    }

    #[inline(always)]
    fn write_value(
        &self,
        (kind, kept): (Kind, ColumnType),
        start: usize,
        end: usize,
        out: &mut [u8],
        at: usize,
    ) -> Option<usize> {
        let input = Input(self.input);
        let keeps = |is_plain: bool| is_plain || kept == ColumnType::Other || self.keeps(kept, start, end);
        Some(match kind {
            Kind::Text => {
                if !keeps(end == start || self.input[end - 1] != b' ') {
                    return None;
                }
                #[allow(clippy::cast_possible_truncation)] // a block is at most MOST_BYTES long
                let at = put(out, at, ((end - start) as u32).to_be_bytes());
                self.copy(start, end, out, at)
            }
            Kind::Int2 | Kind::Int4 | Kind::Int8 => {
                let value = input.integer(start, end)?;
                if !keeps(self.begins_plain(start, end)) {
                    return None;
                }
                match kind {
                    Kind::Int2 => put_value(out, at, i16::try_from(value).ok()?.to_be_bytes()),
                    Kind::Int4 => put_value(out, at, i32::try_from(value).ok()?.to_be_bytes()),
                    _ => put_value(out, at, value.to_be_bytes()),
                }
            }
            Kind::Float4 => {
                if !keeps(false) {
                    return None;
                }
                put_value(out, at, input.float4(start, end)?.to_be_bytes())
            }
            Kind::Float8 => {
                let (value, is_kept) = input.float8(start, end)?;
                if !keeps(is_kept && self.begins_plain(start, end)) {
                    return None;
                }
                put_value(out, at, value.to_be_bytes())
            }
            Kind::Numeric => return self.write_numeric(kept, start, end, out, at),
            Kind::Bool => match &self.input[start..end] {
                b"t" => put_value(out, at, [1]),
                b"f" => put_value(out, at, [0]),
                _ => return None,
            },
            Kind::Date => put_value(out, at, input.date(start, end)?.to_be_bytes()),
            Kind::Timestamp => {
                if !keeps(end - start == SECONDS) {
                    return None;
                }
                put_value(out, at, input.timestamp(start, end)?.to_be_bytes())
            }
            Kind::Timestamptz => {
                let stop = end.checked_sub(3).filter(|&stop| stop > start && self.input[stop..end] == *b"+00")?;
                if !keeps(stop - start == SECONDS) {
                    return None;
                }
                put_value(out, at, input.timestamp(start, stop)?.to_be_bytes())
            }
            Kind::Uuid => put_value(out, at, input.uuid(start, end)?),
        })
    }

    #[inline(always)]
    fn write_numeric(&self, kept: ColumnType, start: usize, end: usize, out: &mut [u8], at: usize) -> Option<usize> {
        let input = Input(self.input);
        let most = match kept {
            ColumnType::Numeric { scale } => usize::try_from(scale).unwrap_or(0),
            _ => usize::MAX,
        };
        let keeps = |scale: usize| {
            kept == ColumnType::Other
                || (scale <= most && self.begins_plain(start, end))
                || self.keeps(kept, start, end)
        };
        if let Some(decimal) = input.short_decimal(start, end) {
            return keeps(decimal.scale).then(|| put_numeric(&decimal, out, at));
        }
        if let Some(decimal) = input.decimal(start, end) {
            return keeps(decimal.scale).then(|| put_wide_numeric(decimal, out, at));
        }
        // Neither of the two forms fits, so the scale is unknown.
        if keeps(usize::MAX) {
            put_long_numeric(&self.input[start..end], out, at)
        } else {
            None
        }
    }

    /// Returns whether a number in a form of `canonical.rs` begins neither with a leading zero nor with the sign of a
    /// zero, so that nothing of its beginning is lost.
    #[allow(clippy::needless_bitwise_bool)] // without branches: first digits cannot be foretold
    #[inline(always)]
    fn begins_plain(&self, start: usize, end: usize) -> bool {
        let (first, second) = (self.input[start], self.input[start + 1]);
        let has_zero = (first == b'0') & (second != b'.') & (end - start > 1);
        !(has_zero | ((first == b'-') & (second == b'0')))
    }

    #[inline(never)]
    fn keeps(&self, kept: ColumnType, start: usize, end: usize) -> bool {
        kept.keeps_canonical(&self.input[start..end])
    }

    #[inline(always)]
    fn copy(&self, start: usize, end: usize, out: &mut [u8], at: usize) -> usize {
        let length = end - start;
        if length <= SHORT {
            // A fixed number of bytes is copied by a few instructions. The next value overwrites the bytes after the
            // text.
            out[at..at + SHORT].copy_from_slice(&self.input[start..start + SHORT]);
        } else {
            out[at..at + length].copy_from_slice(&self.input[start..end]);
        }
        at + length
    }
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) -> usize {
    out[at..at + N].copy_from_slice(&bytes);
    at + N
}

/// Writes a value with its length.
#[inline(always)]
fn put_value<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) -> usize {
    let place = &mut out[at..at + 4 + N];
    #[allow(clippy::cast_possible_truncation)] // 16 at most
    place[..4].copy_from_slice(&(N as u32).to_be_bytes());
    place[4..].copy_from_slice(&bytes);
    at + 4 + N
}

/// Writes the same as `numeric_in` (numeric.c) and `pack_numeric`, with all groups in one word.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // there are four groups
fn put_numeric(&ShortDecimal { is_negative, groups, scale }: &ShortDecimal, out: &mut [u8], at: usize) -> usize {
    let count = 4 - groups.leading_zeros() / 16;
    let used = count.saturating_sub(groups.trailing_zeros() / 16);
    let weight = if count > 0 { count as i16 - 3 } else { 0 };
    let sign = if is_negative && groups > 0 { NUMERIC_NEGATIVE } else { 0 };
    let head = u64::from(used) << 48 | u64::from(weight.cast_unsigned()) << 32 | u64::from(sign) << 16 | scale as u64;
    let place = &mut out[at..at + 20];
    place[..4].copy_from_slice(&(8 + 2 * used).to_be_bytes());
    place[4..12].copy_from_slice(&head.to_be_bytes());
    place[12..].copy_from_slice(&groups.wrapping_shl(64 - 16 * count).to_be_bytes());
    at + 12 + 2 * used as usize
}

#[allow(clippy::cast_possible_truncation)] // below 10,000
fn put_wide_numeric(Decimal { is_negative, whole, part, scale }: Decimal, out: &mut [u8], at: usize) -> usize {
    let mut groups = [0_u16; MOST_GROUPS];
    let mut count = scale.div_ceil(4);
    let mut left = u128::from(part) * [1, 1_000, 100, 10][scale % 4];
    for group in &mut groups[..count] {
        *group = (left % 10_000) as u16;
        left /= 10_000;
    }
    let mut left = whole;
    while left > 0 {
        groups[count] = (left % 10_000) as u16;
        left /= 10_000;
        count += 1;
    }
    while count > 0 && groups[count - 1] == 0 {
        count -= 1;
    }
    at + pack_numeric(&groups[..count], scale, is_negative && count > 0, &mut out[at..])
}

#[cold]
fn put_long_numeric(text: &[u8], out: &mut [u8], at: usize) -> Option<usize> {
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = memchr(b'.', digits);
    if !is_plain(digits) || digits.len() - usize::from(point.is_some()) > LONG_DIGITS {
        return None;
    }
    let scale = point.map_or(0, |point| digits.len() - point - 1);
    let numbers = digits.iter().filter(|byte| byte.is_ascii_digit());
    let size = numbers.fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    let mut bytes = Vec::new();
    #[allow(clippy::cast_possible_truncation)] // LONG_DIGITS at most
    write_numeric(if is_negative { -size } else { size }, scale as u32, &mut bytes);
    out[at..at + bytes.len()].copy_from_slice(&bytes);
    Some(at + bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldReader;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };

    fn encoder(format: Format, null: &str, kinds: &[Kind]) -> Encoder {
        let shape = Shape { format, delimiter: b',', line_end: LineEnd::Lf };
        Encoder::new(shape, null.as_bytes().to_vec(), kinds.to_vec())
    }

    fn encode(format: Format, null: &str, kinds: &[Kind], block: &str) -> Result<Vec<u8>, Declined> {
        let mut buffers = Buffers::default();
        let encoder = encoder(format, null, kinds);
        encoder.encode(&[block.as_bytes()], LineEnd::Lf, &mut buffers).map(|(rows, _)| rows.to_vec())
    }

    /// Returns the bytes of one value. None if its block is declined.
    fn value(kind: Kind, text: &str) -> Option<Vec<u8>> {
        let rows = encode(CSV, "NULL", &[kind], &format!("{text}\n"));
        rows.ok().map(|rows| rows[6..].to_vec())
    }

    fn refused(kind: Kind, texts: &[&str]) {
        for text in texts {
            assert_eq!(value(kind, text), None, "{kind:?} {text}");
        }
    }

    #[test]
    fn integers_are_digits_within_the_range() {
        for number in [0, 7, -1, 12_345_678, 123_456_789, -1_234_567_890_123_456, i64::MAX, i64::MIN, i64::MAX / 10] {
            assert_eq!(value(Kind::Int8, &number.to_string()), Some(number.to_be_bytes().to_vec()), "{number}");
        }
        assert_eq!(value(Kind::Int4, "-2147483648"), Some(vec![128, 0, 0, 0]));
        assert_eq!(value(Kind::Int2, "007"), Some(vec![0, 7]));
        refused(Kind::Int2, &["32768", "-32769"]);
        refused(Kind::Int4, &["2147483648", "1:", "1/", "", "-"]);
        let others = ["+1", " 1", "1 ", "1_000", "0x1", "0o1", "0b1", "9223372036854775808", "--1", "1.0", "1e3"];
        refused(Kind::Int8, &others);
        refused(Kind::Int8, &["99999999999999999999", "12345678a", "a2345678123456789", "1234567890123456\u{e9}"]);
    }

    #[test]
    fn numerics_are_digits_around_a_point() {
        let parts = |text: &str| {
            value(Kind::Numeric, text)
                .map(|bytes| bytes.chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect::<Vec<_>>())
        };
        // ndigits, weight, sign, dscale, digits
        for (text, expected) in [
            ("0", vec![0, 0, 0, 0]),
            ("-0.00", vec![0, 0, 0, 2]),
            ("123456.78", vec![3, 1, 0, 2, 12, 3456, 7800]),
            ("-0.00000001", vec![1, -2, 0x4000, 8, 1]),
            ("10000", vec![1, 1, 0, 0, 1]),
            ("0001.50", vec![2, 0, 0, 2, 1, 5000]),
            ("9999999999999999", vec![4, 3, 0, 0, 9999, 9999, 9999, 9999]),
            ("0.1234567890123456", vec![4, -1, 0, 16, 1234, 5678, 9012, 3456]),
            ("-12345678901234567890.12345", vec![7, 4, 0x4000, 5, 1234, 5678, 9012, 3456, 7890, 1234, 5000]),
            ("9.0000000000000000000000000000000000001", vec![11, 0, 0, 37, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000]),
        ] {
            assert_eq!(parts(text), Some(expected), "{text}");
        }
        refused(
            Kind::Numeric,
            &["1e3", "NaN", "inf", "+1", ".5", "5.", "1_0", "0x1", " 1", "1..2", "1.2.3", "-", "-.5"],
        );
        refused(Kind::Numeric, &["12345678x", "1.5x", "-1.5x", "0.12345678x", "12345678x1"]);
        refused(Kind::Numeric, &["123456789.", ".123456789", "1.234567.89", "123456789012345.67e1", "12345678:"]);
        refused(Kind::Numeric, &["1".repeat(39).as_str(), "1.00000000000000000000000000000000000000"]);
    }

    #[test]
    fn blocks_with_values_that_are_not_kept_are_declined() {
        let declines = |kind: Kind, kept: ColumnType, text: &str| {
            let encoder = encoder(CSV, "", &[kind]).keeping(vec![kept]);
            encoder.encode(&[format!("{text}\n").as_bytes()], LineEnd::Lf, &mut Buffers::default()).is_err()
        };
        let numeric = ColumnType::Numeric { scale: 2 };
        for (kind, kept, text, is_declined) in [
            (Kind::Int4, ColumnType::Integer, "007", true),
            (Kind::Int4, ColumnType::Integer, "\"07\"", true),
            (Kind::Int4, ColumnType::Integer, "-0", true),
            (Kind::Int4, ColumnType::Integer, "-70", false),
            (Kind::Numeric, numeric, "1.005", true),
            (Kind::Numeric, numeric, "-0.00", true),
            (Kind::Numeric, numeric, "-0.05", false),
            (Kind::Numeric, numeric, "1.500", false),
            (Kind::Float8, ColumnType::Float8, "0.12345678901234567", true),
            (Kind::Float8, ColumnType::Float8, "-73.982154846191406", false),
            (Kind::Float8, ColumnType::Float8, "0.10000000000000001", false),
            (Kind::Float8, ColumnType::Float8, "007.25", true),
            (Kind::Float4, ColumnType::Float4, "1.23456789", true),
            (Kind::Timestamp, ColumnType::Timestamp { decimals: 0 }, "2026-01-31 10:00:00.5", true),
            (Kind::Text, ColumnType::Varchar { length: 2 }, "ab ", true),
            (Kind::Text, ColumnType::Varchar { length: 2 }, "ab", false),
        ] {
            assert_eq!(declines(kind, kept, text), is_declined, "{kind:?} {text}");
        }
    }

    #[test]
    fn floats_are_the_nearest_to_their_text() {
        for text in ["0", "-0", "1.5", "0.1", "-123456.789", "1e300", "5e-290", "0.30000000000000004", "0e9", "1E+2"] {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(value(Kind::Float8, text), Some(expected.to_be_bytes().to_vec()), "{text}");
        }
        for text in ["0.1", "16777217", "1.00000017881393432617187499", "3.4e36", "33554435", "-7.5"] {
            let expected: f32 = text.parse().unwrap();
            assert_eq!(value(Kind::Float4, text), Some(expected.to_be_bytes().to_vec()), "{text}");
        }
        let others = ["NaN", "inf", "Infinity", "-inf", ".5", "5.", "+1", " 1", "0x1", "1e", "1e+", "1e12345", "1f"];
        refused(Kind::Float8, &others);
        refused(Kind::Float4, &others);
        refused(Kind::Float8, &["1e301", "1e-291", "1e-400", "0.0000000000000000000000000000000001e-290"]);
        refused(Kind::Float4, &["1e38", "1e-36", "1e-50"]);
    }

    #[test]
    #[allow(clippy::cast_possible_truncation)] // noise below 32
    fn numbers_of_any_digits_are_those_that_are_parsed() {
        let mut seed = 5_u64;
        let mut noise = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut checked = 0;
        for _ in 0..200_000 {
            let sign = ["", "-"][noise(2) as usize];
            // The doubles next to 2^53 and above. Half of these numbers lie in the middle between two doubles.
            let whole = match noise(4) {
                0 => (1 << (53 + noise(10))) + noise(9),
                digits => (noise(1 << 31) << 31 | noise(1 << 31)) % 10_u64.pow(digits as u32 * 6),
            };
            let scale = noise(20) as usize;
            let part = (noise(1 << 31) << 31 | noise(1 << 31)) % 10_u64.pow(scale.min(18) as u32);
            let text = if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part:0scale$}") };
            let expected: f64 = text.parse().unwrap();
            assert_eq!(value(Kind::Float8, &text), Some(expected.to_be_bytes().to_vec()), "{text}");
            let digits = text.replace('.', "");
            if digits.trim_start_matches('-').len() <= LONG_DIGITS {
                let mut expected = Vec::new();
                write_numeric(digits.parse().unwrap(), u32::try_from(scale).unwrap(), &mut expected);
                assert_eq!(value(Kind::Numeric, &text), Some(expected[4..].to_vec()), "{text}");
                checked += 1;
            }
        }
        assert!(checked > 100_000, "{checked}");
    }

    #[test]
    fn days_are_numbered_without_gaps() {
        let mut expected = -730_119;
        for year in 1..=9999 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            if !(3..1599).contains(&year) && !(2401..9998).contains(&year) {
                let days = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
                let all = (1..=12).zip(days).flat_map(|(month, days)| (1..=days).map(move |day| (month, day)));
                let lines: Vec<_> = all.map(|(month, day)| format!("{year:04}-{month:02}-{day:02}\n")).collect();
                let rows = encode(CSV, "", &[Kind::Date], &lines.concat()).unwrap();
                let numbers = rows.chunks(10).map(|row| i32::from_be_bytes(row[6..].try_into().unwrap()));
                assert!(numbers.eq(expected..expected + if is_leap { 366 } else { 365 }), "{year}");
            }
            expected += if is_leap { 366 } else { 365 };
        }
    }

    #[test]
    fn days_and_times_are_those_of_the_calendar() {
        let day = |text: &str| value(Kind::Date, text).map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap()));
        for (text, expected) in [
            ("2000-01-01", 0),
            ("1999-12-31", -1),
            ("2000-02-29", 59),
            ("2000-03-01", 60),
            ("0001-01-01", -730_119),
            ("9999-12-31", 2_921_939),
        ] {
            assert_eq!(day(text), Some(expected), "{text}");
        }
        refused(Kind::Date, &["2026-02-29", "1900-02-29", "2026-13-01", "2026-00-10", "2026-04-31", "2026-01-00"]);
        refused(
            Kind::Date,
            &["0000-01-01", "10000-01-01", "2026-1-1", "01-02-2026", "2026/01/01", "infinity", "today"],
        );
        refused(Kind::Date, &["2026-01-01 BC", "20260101", "2026-01-0:", "2026-01-:1", "202a-01-01"]);
        let time = |text: &str| value(Kind::Timestamp, text).map(|bytes| i64::from_be_bytes(bytes.try_into().unwrap()));
        assert_eq!(time("2000-01-01 00:00:00"), Some(0));
        assert_eq!(time("2000-01-02 23:59:59.999999"), Some(172_799_999_999));
        assert_eq!(time("1999-12-31 23:59:59.5"), Some(-500_000));
        let utc = value(Kind::Timestamptz, "2000-01-01 00:00:01.05+00");
        assert_eq!(utc, Some(1_050_000_i64.to_be_bytes().to_vec()));
        let others = [
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01 24:00:00",
            "2026-01-01 00:60:00",
            "2026-01-01 00:00:60",
            "2026-01-01 00:00",
            "2026-01-01 00:00:00.",
            "2026-01-01 00:00:00.1234567",
            "2026-01-01 00:00:00 BC",
            "infinity",
            "-infinity",
            "now",
            "epoch",
            "2026/01/01 00:00:00",
            "2026-01-01 00:00:00+01",
            "2026-01-01 00:00:00Z",
            "2026-01-01 00:00:00-00",
            "2026-01-01 00:00:00+00:00",
            "2026-01-01 00:00:00 +00",
        ];
        refused(Kind::Timestamp, &others);
        refused(Kind::Timestamptz, &others);
        refused(Kind::Timestamp, &["2026-01-01 00:00:00+00"]);
        refused(Kind::Timestamptz, &["2026-01-01 00:00:00", "+00"]);
    }

    #[test]
    fn uuids_and_booleans_have_one_form() {
        let expected: Vec<u8> = (0..16).map(|at| at * 17).collect();
        for text in ["00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"] {
            assert_eq!(value(Kind::Uuid, text), Some(expected.clone()));
        }
        let tail = "0112233-4455-6677-8899-aabbccddeeff";
        for byte in 1..=127_u8 {
            let text = format!("{}{tail}", byte as char);
            assert_eq!(value(Kind::Uuid, &text).is_some(), byte.is_ascii_hexdigit(), "{text}");
        }
        refused(Kind::Uuid, &["00112233445566778899aabbccddeeff", "{00112233-4455-6677-8899-aabbccddeeff}"]);
        refused(Kind::Uuid, &["0011-2233-4455-6677-8899-aabb-ccdd-eeff", "0\u{e9}112233-4455-6677-8899-abbccddeeff"]);
        assert_eq!((value(Kind::Bool, "t"), value(Kind::Bool, "f")), (Some(vec![1]), Some(vec![0])));
        refused(Kind::Bool, &["true", "false", "T", "1", "0", "yes", "on"]);
    }

    #[test]
    fn nulls_are_unquoted_and_quotes_are_taken_off() {
        let rows = encode(CSV, "", &[Kind::Text, Kind::Int2], "\"\",\n\"a\"\"b,\"\"\",\"3\"\n").unwrap();
        let expected = b"\0\x02\0\0\0\0\xff\xff\xff\xff\0\x02\0\0\0\x05a\"b,\"\0\0\0\x02\0\x03";
        assert_eq!(rows, expected);
        assert_eq!(encode(Format::Text, "\\N", &[Kind::Text], "\\N\n").unwrap(), b"\0\x01\xff\xff\xff\xff");
        assert_eq!(encode(Format::Tsv, "\\N", &[Kind::Text], "\\n\n").unwrap(), b"\0\x01\0\0\0\x02\\n");
        assert_eq!(encode(CSV, "", &[Kind::Text], "\n").unwrap(), b"\0\x01\xff\xff\xff\xff");
        assert_eq!(measure(&rows, 2), [(2, 5), (1, 2)]);
    }

    #[test]
    fn what_declines_a_block_is_named_with_its_place() {
        let two = [Kind::Int4, Kind::Text];
        for (format, block, record, column, rule) in [
            (CSV, "1,a\n2\n", 1, Some(0), Rule::FieldCount),
            (CSV, "1,a\n2,b,c\n", 1, Some(1), Rule::FieldCount),
            (CSV, "1,a\nx,b\n", 1, Some(0), Rule::Value),
            (CSV, "1,a\0\n", 0, None, Rule::Encoding),
            (Format::Text, "1,a\\tb\n", 0, None, Rule::Escape),
            (Format::Text, "1,\\N\n\\N,\\.\n", 0, None, Rule::Escape),
        ] {
            let declined = encode(format, "\\N", &two, block).unwrap_err();
            assert_eq!(declined, Declined { record, column, rule }, "{block:?}");
        }
        let latin: &[&[u8]] = &[b"1,\xe9\n"];
        let refused = encoder(CSV, "", &two).encode(latin, LineEnd::Lf, &mut Buffers::default()).unwrap_err();
        assert_eq!(refused.rule, Rule::Encoding);
    }

    /// Returns the expected rows, made field by field by the reader that accepts any block. None if a value has another
    /// form, or a record another number of fields.
    fn model(encoder: &Encoder, null: &[u8], block: &[u8]) -> Option<Vec<u8>> {
        let reader = FieldReader::new(encoder.shape.format, b',', block, LineEnd::Lf);
        let (mut start, mut fields, mut rows) = (0, Vec::new(), Vec::new());
        while start < block.len() {
            start = reader.read_record(start, &mut fields)?;
            if fields.len() != encoder.columns.len() || !fields.iter().all(|field| reader.is_regular(field)) {
                return None;
            }
            rows.extend_from_slice(&[0, u8::try_from(fields.len()).unwrap()]);
            for (field, (kind, _)) in fields.iter().zip(&encoder.columns) {
                let is_quoted = field.is_special && encoder.shape.format == CSV;
                if !is_quoted && &block[field.start..field.end] == null {
                    rows.extend_from_slice(&[255; 4]);
                    continue;
                }
                let value = reader.value(field);
                let bytes = match kind {
                    Kind::Text => value.to_vec(),
                    Kind::Int4 => {
                        let text = std::str::from_utf8(&value).ok().filter(|text| !text.starts_with('+'))?;
                        text.parse::<i32>().ok()?.to_be_bytes().to_vec()
                    }
                    _ => return None,
                };
                rows.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
                rows.extend_from_slice(&bytes);
            }
        }
        Some(rows)
    }

    #[test]
    fn noise_is_encoded_as_the_reader_reads_it_or_declined() {
        let alphabet: [&[u8]; 14] = [
            b"1,a\n",
            b"-20,bc\n",
            b"3,\"d,e\"\n",
            b"4,\"f\ng\"\n",
            b"\"5\",\"h\"\"i\"\n",
            b"6,\n",
            b",j\n",
            b"7,\"\"\n",
            b"8,\xc3\xa9\n",
            b"2147483648,k\n",
            b"9,\\N\n",
            b"x",
            b",",
            b"\"",
        ];
        let mut seed = 3_u64;
        let mut noise = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let mut buffers = Buffers::default();
        let (mut taken, mut declined) = (0, 0);
        for round in 0..20_000 {
            // Every second block has only valid records.
            let kinds = if round % 2 == 0 { 9 } else { alphabet.len() };
            let block: Vec<u8> = (0..=noise(30)).flat_map(|_| alphabet[noise(kinds)].to_vec()).collect();
            for (format, null) in [(CSV, ""), (CSV, "\\N"), (Format::Tsv, "\\N")] {
                let encoder = encoder(format, null, &[Kind::Int4, Kind::Text]);
                let middle = noise(block.len());
                let runs = [&block[..middle], &block[middle..]];
                let Ok((rows, _)) = encoder.encode(&runs, LineEnd::Lf, &mut buffers) else {
                    declined += 1;
                    continue;
                };
                taken += 1;
                assert_eq!(Some(rows), model(&encoder, null.as_bytes(), &block).as_deref(), "{format:?} {block:?}");
            }
        }
        assert!(taken > 5_000 && declined > 5_000, "{taken} {declined}");
    }
}
