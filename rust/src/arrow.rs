//! Writes columns in Arrow's memory layout as rows of COPY's binary format.
//!
//! A column consists of little-endian buffers that begin at its first row. One buffer has the values. If values can
//! have any length, another buffer has 32-bit offsets. A third buffer has a bit for each row that says whether the row
//! has a value. Values are written as the receive functions of their types read them (`src/backend/utils/adt`). A value
//! that its type cannot store is refused.

use thiserror::Error;

/// The days from 1970-01-01, where Arrow begins to count, to 2000-01-01, where `PostgreSQL` begins to count.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_SECONDS: i64 = 10_957 * 86_400;
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// The ranges that `IS_VALID_DATE` and `IS_VALID_TIMESTAMP` accept (`src/include/datatype/timestamp.h`). The infinities
/// are outside of these ranges.
const FIRST_DATE: i32 = -2_451_545;
const END_DATE: i32 = 2_145_031_949;
const FIRST_TIMESTAMP: i64 = -211_813_488_000_000_000;
const END_TIMESTAMP: i64 = 9_223_371_331_200_000_000;

/// The length in bytes of the longest value with a fixed length, a uuid.
const WIDEST: usize = 16;

pub(crate) const NUMERIC_NEGATIVE: u16 = 0x4000;
/// How many decimal digits one digit of `numeric` has, and the base of these digits (`NBASE`).
const GROUP: u32 = 4;
const BASE: u128 = 10_000;
/// The most groups of digits. A 128-bit number has 39 decimal digits, and its last group may be filled up with zeros.
pub(crate) const MOST_GROUPS: usize = 11;

/// A value that its type cannot store, with its row and column, counted from 0.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ValueError {
    pub row: usize,
    pub column: usize,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    #[error("the value is out of range for type {0}")]
    OutOfRange(&'static str),
    #[error("PostgreSQL has no nanoseconds")]
    Nanoseconds,
    #[error("the time is not one of a day")]
    NotOfADay,
    #[error("a text has the character NUL, which PostgreSQL cannot store")]
    Nul,
    #[error("the value is too long")]
    TooLong,
}

/// The unit of times. A time in nanoseconds must be a whole number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Unit {
    /// Returns a count of this unit in microseconds after `epoch`, which is in seconds. None if the microseconds do not
    /// fit 64 bits.
    fn to_microseconds(self, count: i64, epoch: i64) -> Result<Option<i64>, Reason> {
        let scaled = |per_second: i64| count.checked_sub(epoch * per_second)?.checked_mul(1_000_000 / per_second);
        match self {
            Self::Second => Ok(scaled(1)),
            Self::Millisecond => Ok(scaled(1_000)),
            Self::Microsecond => Ok(scaled(1_000_000)),
            Self::Nanosecond if count % 1_000 == 0 => Ok((count / 1_000).checked_sub(epoch * 1_000_000)),
            Self::Nanosecond => Err(Reason::Nanoseconds),
        }
    }
}

/// The form of a column's values in Arrow, and the type that they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed integers of `width` bytes.
    Int {
        width: usize,
        to: Integer,
    },
    Float4,
    Float8,
    Bool,
    Date,
    Timestamp(Unit),
    /// Times of day: how many units have passed since midnight, in `width` bytes.
    Time {
        width: usize,
        unit: Unit,
    },
    /// 128-bit integers, each of which is to be divided by ten to the power of `scale`.
    Numeric {
        scale: u32,
    },
    Uuid,
    Bytes,
    Text,
    Jsonb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    Two,
    Four,
    Eight,
}

impl Kind {
    /// Returns how many bytes a value takes in Arrow's buffer. None for bits, and for values of any length.
    fn width(self) -> Option<usize> {
        match self {
            Self::Int { width, .. } | Self::Time { width, .. } => Some(width),
            Self::Float4 | Self::Date => Some(4),
            Self::Float8 | Self::Timestamp(_) => Some(8),
            Self::Numeric { .. } | Self::Uuid => Some(16),
            Self::Bool | Self::Bytes | Self::Text | Self::Jsonb => None,
        }
    }
}

/// The buffers of a column. `bit` is the index of the first row's bit in the first byte of `valid`. For booleans it is
/// also the index in the first byte of `values`.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    pub kind: Kind,
    pub values: &'a [u8],
    pub offsets: Option<&'a [u8]>,
    pub valid: Option<&'a [u8]>,
    pub bit: usize,
}

impl<'a> Column<'a> {
    /// Returns whether the buffers are long enough for this number of rows.
    #[must_use]
    pub fn holds(&self, rows: usize) -> bool {
        let bits = (self.bit + rows).div_ceil(8);
        let has_values = match (self.kind.width(), self.offsets) {
            (Some(width), _) => self.values.len() >= width * rows,
            (None, Some(offsets)) => offsets.len() >= 4 * (rows + 1),
            (None, None) => self.kind == Kind::Bool && self.values.len() >= bits,
        };
        has_values && self.valid.is_none_or(|valid| valid.len() >= bits)
    }

    fn bit_at(&self, bits: &[u8], row: usize) -> bool {
        let at = self.bit + row;
        bits[at / 8] >> (at % 8) & 1 == 1
    }

    fn is_null(&self, row: usize) -> bool {
        self.valid.is_some_and(|valid| !self.bit_at(valid, row))
    }

    fn fixed<const N: usize>(&self, row: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.values[row * N..(row + 1) * N]);
        bytes
    }

    fn int(&self, row: usize, width: usize) -> i64 {
        match width {
            1 => i64::from(i8::from_le_bytes(self.fixed(row))),
            2 => i64::from(i16::from_le_bytes(self.fixed(row))),
            4 => i64::from(i32::from_le_bytes(self.fixed(row))),
            _ => i64::from_le_bytes(self.fixed(row)),
        }
    }

    /// Returns the bytes of a value of any length. Offsets count from the beginning of Arrow's own buffer, and `values`
    /// begins at the first offset.
    fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        let offsets = self.offsets?;
        let at = |index: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&offsets[4 * index..4 * index + 4]);
            usize::try_from(i32::from_le_bytes(bytes)).ok()
        };
        let first = at(0)?;
        self.values.get(at(row)?.checked_sub(first)?..at(row + 1)?.checked_sub(first)?)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        match self.kind {
            Kind::Int { width, to } => write_int(self.int(row, width), to, out)?,
            Kind::Float4 => {
                let value = f32::from_le_bytes(self.fixed(row));
                put(out, if value.is_nan() { f32::NAN } else { value }.to_be_bytes());
            }
            Kind::Float8 => {
                let value = f64::from_le_bytes(self.fixed(row));
                put(out, if value.is_nan() { f64::NAN } else { value }.to_be_bytes());
            }
            Kind::Bool => put(out, [u8::from(self.bit_at(self.values, row))]),
            Kind::Date => {
                let day = i32::from_le_bytes(self.fixed(row)).checked_sub(EPOCH_DAYS);
                let day = day.filter(|day| (FIRST_DATE..END_DATE).contains(day));
                put(out, day.ok_or(Reason::OutOfRange("date"))?.to_be_bytes());
            }
            Kind::Timestamp(unit) => {
                let time = unit.to_microseconds(self.int(row, 8), EPOCH_SECONDS)?;
                let time = time.filter(|time| (FIRST_TIMESTAMP..END_TIMESTAMP).contains(time));
                put(out, time.ok_or(Reason::OutOfRange("timestamp"))?.to_be_bytes());
            }
            Kind::Time { width, unit } => {
                let time = unit.to_microseconds(self.int(row, width), 0)?;
                let time = time.filter(|time| (0..DAY_MICROSECONDS).contains(time));
                put(out, time.ok_or(Reason::NotOfADay)?.to_be_bytes());
            }
            Kind::Numeric { scale } => write_numeric(i128::from_le_bytes(self.fixed(row)), scale, out),
            Kind::Uuid => put::<16>(out, self.fixed(row)),
            Kind::Bytes | Kind::Text | Kind::Jsonb => {
                let value = self.bytes(row).ok_or(Reason::TooLong)?;
                let version: &[u8] = if self.kind == Kind::Jsonb { &[1] } else { &[] };
                let length = i32::try_from(value.len() + version.len()).map_err(|_| Reason::TooLong)?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(version);
                out.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// Returns the first row whose text has a NUL. First, all values are searched at once, because hardly any column
    /// has a NUL.
    fn find_nul(&self, rows: usize) -> Option<usize> {
        if matches!(self.kind, Kind::Text | Kind::Jsonb) && memchr::memchr(0, self.values).is_some() {
            return (0..rows).find(|&row| {
                !self.is_null(row) && self.bytes(row).is_some_and(|value| memchr::memchr(0, value).is_some())
            });
        }
        None
    }
}

/// Returns the rows in COPY's binary format, without its header and trailer.
///
/// # Errors
///
/// The first value that its type cannot store.
pub fn encode(columns: &[Column<'_>], rows: usize) -> Result<Vec<u8>, ValueError> {
    for (column, each) in columns.iter().enumerate() {
        if let Some(row) = each.find_nul(rows) {
            return Err(ValueError { row, column, reason: Reason::Nul });
        }
    }
    let mut out = Vec::with_capacity(rows * (2 + columns.iter().map(room).sum::<usize>()) + sum_lengths(columns));
    let count = i16::try_from(columns.len()).unwrap_or(i16::MAX).to_be_bytes();
    for row in 0..rows {
        out.extend_from_slice(&count);
        for (index, column) in columns.iter().enumerate() {
            if column.is_null(row) {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
            } else {
                column.write(row, &mut out).map_err(|reason| ValueError { row, column: index, reason })?;
            }
        }
    }
    Ok(out)
}

/// Returns the most bytes that a value and its length take. For values of any length, the value's own bytes do not
/// count.
fn room(column: &Column<'_>) -> usize {
    match column.kind {
        Kind::Numeric { .. } => 4 + 8 + 2 * MOST_GROUPS,
        Kind::Bool => 5,
        kind => 5 + kind.width().unwrap_or(0).max(8),
    }
}

fn sum_lengths(columns: &[Column<'_>]) -> usize {
    columns.iter().filter(|column| column.offsets.is_some()).map(|column| column.values.len()).sum()
}

/// Writes a value after its length. Both are appended by one call, because most of the time is spent in appending.
fn put<const N: usize>(out: &mut Vec<u8>, value: [u8; N]) {
    let mut bytes = [0; 4 + WIDEST];
    #[allow(clippy::cast_possible_truncation)] // N is WIDEST at most
    let length = N as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes[4..4 + N].copy_from_slice(&value);
    out.extend_from_slice(&bytes[..4 + N]);
}

fn write_int(value: i64, to: Integer, out: &mut Vec<u8>) -> Result<(), Reason> {
    match to {
        Integer::Two => put(out, i16::try_from(value).map_err(|_| Reason::OutOfRange("smallint"))?.to_be_bytes()),
        Integer::Four => put(out, i32::try_from(value).map_err(|_| Reason::OutOfRange("integer"))?.to_be_bytes()),
        Integer::Eight => put(out, value.to_be_bytes()),
    }
    Ok(())
}

/// Writes a number as `numeric_recv` reads it: groups of four decimal digits, aligned at the decimal point, the highest
/// first.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // groups are below 10,000, and there are few
pub(crate) fn write_numeric(value: i128, scale: u32, out: &mut Vec<u8>) {
    let mut groups = [0_u16; MOST_GROUPS];
    let mut count = 0;
    let mut left = value.unsigned_abs();
    let partial = scale % GROUP;
    if partial > 0 {
        let part = 10_u128.pow(partial);
        groups[0] = ((left % part) * 10_u128.pow(GROUP - partial)) as u16;
        left /= part;
        count = 1;
    }
    // Use 64-bit division as soon as the rest fits 64 bits, which is true for most values at once. It is several times
    // as fast as 128-bit division.
    while left > u128::from(u64::MAX) {
        groups[count] = (left % BASE) as u16;
        left /= BASE;
        count += 1;
    }
    let mut rest = left as u64;
    while rest > 0 {
        groups[count] = (rest % BASE as u64) as u16;
        rest /= BASE as u64;
        count += 1;
    }
    while count > 0 && groups[count - 1] == 0 {
        count -= 1;
    }
    let mut bytes = [0; 12 + 2 * MOST_GROUPS];
    let length = pack_numeric(&groups[..count], scale as usize, value < 0, &mut bytes);
    out.extend_from_slice(&bytes[..length]);
}

/// Writes a numeric after its length, and returns how many bytes both take. The lowest of `groups` is the first.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // there are few groups
pub(crate) fn pack_numeric(groups: &[u16], scale: usize, is_negative: bool, out: &mut [u8]) -> usize {
    let count = groups.len();
    let first = groups.iter().position(|&group| group != 0).unwrap_or(count);
    let used = &groups[first..];
    let weight = if used.is_empty() { 0 } else { count as i16 - 1 - scale.div_ceil(GROUP as usize) as i16 };
    let length = 12 + 2 * used.len();
    let bytes = &mut out[..length];
    bytes[..4].copy_from_slice(&(length as u32 - 4).to_be_bytes());
    bytes[4..6].copy_from_slice(&(used.len() as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&weight.to_be_bytes());
    bytes[8..10].copy_from_slice(&if is_negative { NUMERIC_NEGATIVE } else { 0 }.to_be_bytes());
    bytes[10..12].copy_from_slice(&(scale as u16).to_be_bytes());
    for (at, group) in bytes[12..].chunks_exact_mut(2).zip(used.iter().rev()) {
        at.copy_from_slice(&group.to_be_bytes());
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: Kind, values: &[u8]) -> Column<'_> {
        Column { kind, values, offsets: None, valid: None, bit: 0 }
    }

    fn numeric(value: i128, scale: u32) -> Vec<i16> {
        let mut out = Vec::new();
        write_numeric(value, scale, &mut out);
        out[4..].chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn numerics_are_groups_around_the_decimal_point() {
        // Each result is ndigits, weight, sign, dscale and the digits.
        assert_eq!(numeric(0, 2), [0, 0, 0, 2]);
        assert_eq!(numeric(12_345_678, 2), [3, 1, 0, 2, 12, 3456, 7800]);
        assert_eq!(numeric(-1, 8), [1, -2, 0x4000, 8, 1]);
        assert_eq!(numeric(10_000, 0), [1, 1, 0, 0, 1]);
        assert_eq!(numeric(100, 2), [1, 0, 0, 2, 1]);
        assert_eq!(numeric(i128::MAX, 38)[..4], [11, 0, 0, 38]);
        assert_eq!(numeric(i128::MIN, 1)[..4], [11, 9, 0x4000, 1]);
    }

    #[test]
    fn nulls_and_bits_begin_anywhere_in_a_byte() {
        let bools = Column { valid: Some(&[0b1010_0000]), bit: 5, ..column(Kind::Bool, &[0b0010_0000]) };
        let rows = encode(&[bools], 3).unwrap();
        assert_eq!(rows, [0, 1, 0, 0, 0, 1, 1, 0, 1, 255, 255, 255, 255, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn values_of_any_length_are_those_between_their_offsets() {
        let offsets: Vec<u8> = [7_i32, 8, 8, 10].iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let text = Column { offsets: Some(&offsets), ..column(Kind::Jsonb, b"abc") };
        let rows = encode(&[text], 3).unwrap();
        assert_eq!(rows, b"\0\x01\0\0\0\x02\x01a\0\x01\0\0\0\x01\x01\0\x01\0\0\0\x03\x01bc");
    }

    #[test]
    fn what_a_type_does_not_hold_is_refused_with_its_place() {
        let refused = |kind, values: &[u8]| encode(&[column(kind, values)], 1).unwrap_err().reason;
        let int = Kind::Int { width: 4, to: Integer::Two };
        assert_eq!(refused(int, &32_768_i32.to_le_bytes()), Reason::OutOfRange("smallint"));
        for day in [i32::MIN, i32::MIN + EPOCH_DAYS, i32::MAX, FIRST_DATE + EPOCH_DAYS - 1] {
            assert_eq!(refused(Kind::Date, &day.to_le_bytes()), Reason::OutOfRange("date"));
        }
        let epoch = EPOCH_SECONDS * 1_000_000;
        for time in [i64::MIN, i64::MIN + epoch, FIRST_TIMESTAMP + epoch - 1] {
            let kind = Kind::Timestamp(Unit::Microsecond);
            assert_eq!(refused(kind, &time.to_le_bytes()), Reason::OutOfRange("timestamp"));
        }
        assert_eq!(refused(Kind::Timestamp(Unit::Nanosecond), &1_i64.to_le_bytes()), Reason::Nanoseconds);
        assert_eq!(refused(Kind::Timestamp(Unit::Second), &i64::MAX.to_le_bytes()), Reason::OutOfRange("timestamp"));
        let time = Kind::Time { width: 4, unit: Unit::Second };
        assert_eq!(refused(time, &86_400_i32.to_le_bytes()), Reason::NotOfADay);
        let offsets: Vec<u8> = [0_i32, 1, 3].iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let text = Column { offsets: Some(&offsets), ..column(Kind::Text, b"ab\0") };
        assert_eq!(encode(&[text], 2), Err(ValueError { row: 1, column: 0, reason: Reason::Nul }));
    }

    #[test]
    fn buffers_that_are_too_short_are_noticed() {
        let ints = column(Kind::Float8, &[0; 15]);
        assert!(ints.holds(1) && !ints.holds(2));
        assert!(!column(Kind::Text, b"abc").holds(1));
        assert!(!Column { valid: Some(&[0]), bit: 1, ..column(Kind::Bool, &[0, 0]) }.holds(8));
    }
}
