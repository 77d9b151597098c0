//! Writes the rows of decoded columns in COPY's binary format.
//!
//! Values are written as the receive functions of their types read them (`src/backend/utils/adt`). A value that its type
//! cannot store is refused.

use arrow_schema::TimeUnit;

use super::cells::{Cells, Digits, Strings, Values};
use super::kind::Kind;
use super::text;

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
const MOST_DIGITS: u8 = 38;

pub(crate) const NUMERIC_NEGATIVE: u16 = 0x4000;
/// How many decimal digits one digit of `numeric` has, and the base of these digits (`NBASE`).
const GROUP: u32 = 4;
const BASE: u128 = 10_000;
const TENS: [u64; 4] = [1, 10, 100, 1_000];
/// The most groups of digits. A 128-bit number has 39 decimal digits, and its last group may be filled up with zeros.
pub(crate) const MOST_GROUPS: usize = 11;

/// Why a value cannot be stored.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Reason {
    #[error("the value is out of range for type {0}")]
    OutOfRange(&'static str),
    #[error("PostgreSQL has no nanoseconds")]
    Nanoseconds,
    #[error("the time is not one of a day")]
    NotOfADay,
    #[error("the date is not a day")]
    NotADay,
    #[error("a text has the character NUL, which PostgreSQL cannot store")]
    Nul,
    #[error("a map has a key twice")]
    KeyTwice,
    #[error("a map has a key that is null")]
    NullKey,
    #[error("a JSON text is not valid")]
    NotJson,
    #[error("the value is too long")]
    TooLong,
}

/// The form in which values are sent, if it is not that of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Plain,
    Int2,
    Int4,
    Int8,
    Uuid,
    Text,
    Jsonb,
}

/// Returns how values of a kind are sent to a column of a type. None if a conversion of the server decides what is
/// stored, so that they must be sent as text.
#[must_use]
pub fn choose_wire(kind: &Kind, type_name: &str) -> Option<Wire> {
    let base = without_modifier(type_name);
    let may_be_json = kind.is_nested() || matches!(kind, Kind::Text | Kind::Json);
    match (kind, base.as_str()) {
        (Kind::Null, _) | (Kind::Text | Kind::Json, "text" | "character varying" | "character") => Some(Wire::Text),
        (_, "json") if may_be_json => Some(Wire::Text),
        (_, "jsonb") if may_be_json => Some(Wire::Jsonb),
        (Kind::Uuid | Kind::FixedBytes(16), "uuid") => Some(Wire::Uuid),
        (Kind::Int { bits: 64, is_signed: false }, "smallint" | "integer" | "bigint") => None,
        (Kind::Int { .. }, "smallint") => Some(Wire::Int2),
        (Kind::Int { .. }, "integer") => Some(Wire::Int4),
        (Kind::Int { .. }, "bigint") => Some(Wire::Int8),
        (Kind::Int { .. } | Kind::Decimal { precision: 0..=MOST_DIGITS, scale: 0.. }, "numeric")
        | (Kind::Bytes | Kind::FixedBytes(_), "bytea")
        | (Kind::Bool | Kind::Bool8, "boolean")
        | (Kind::Float { bits: 16 | 32 }, "real")
        | (Kind::Float { bits: 64 }, "double precision")
        | (Kind::Date32 | Kind::Date64, "date")
        | (Kind::Time(_), "time without time zone")
        | (Kind::Timestamp { is_zoned: true, .. }, "timestamp with time zone")
        | (Kind::Timestamp { is_zoned: false, .. } | Kind::Int96, "timestamp without time zone") => Some(Wire::Plain),
        _ => None,
    }
}

/// Returns the name of a type without what stands in parentheses.
pub(crate) fn without_modifier(type_name: &str) -> String {
    match (type_name.find('('), type_name.find(')')) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &type_name[..start], &type_name[end + 1..]),
        _ => type_name.to_owned(),
    }
}

/// Writes a value, or null, after its length.
///
/// # Errors
///
/// If the value's type cannot store it.
#[inline]
pub(crate) fn write(cells: &Cells<'_>, row: usize, wire: Wire, out: &mut Vec<u8>) -> Result<(), Reason> {
    match cells.resolve(row) {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some((cells, row)) => write_value(cells, row, wire, out)?,
    }
    Ok(())
}

#[inline]
fn write_value(cells: &Cells<'_>, row: usize, wire: Wire, out: &mut Vec<u8>) -> Result<(), Reason> {
    match (&cells.values, wire) {
        (Values::Int(values), Wire::Int8) => put(out, values.get(row).to_be_bytes()),
        (Values::Int(values), Wire::Int4) => {
            put(out, i32::try_from(values.get(row)).map_err(|_| Reason::OutOfRange("integer"))?.to_be_bytes());
        }
        (Values::Int(values), Wire::Int2) => {
            put(out, i16::try_from(values.get(row)).map_err(|_| Reason::OutOfRange("smallint"))?.to_be_bytes());
        }
        (Values::Decimal(values, scale), _) => match values.get(row) {
            Digits::Narrow(value) => write_numeric(value, u32::from(scale.unsigned_abs()), out),
            Digits::Wide(_) => return Err(Reason::OutOfRange("numeric")),
        },
        (Values::Int(values), _) => write_numeric(i128::from(values.get(row)), 0, out),
        (Values::Unsigned(values), _) => write_numeric(i128::from(values[row]), 0, out),
        (Values::Text(strings) | Values::Json(strings), _) => write_text(strings, row, wire, out)?,
        (Values::Date(counts, per_day), _) => {
            let count = counts.get(row);
            if count % per_day != 0 {
                return Err(Reason::NotADay);
            }
            write_date(i32::try_from(count / per_day).ok(), out)?;
        }
        (Values::Float64(values), _) => put_float(out, values[row]),
        (Values::Float32(values), _) => put_float4(out, values[row]),
        (Values::Float16(values), _) => put_float4(out, values[row].to_f32()),
        (Values::Timestamp(counts, unit, _), _) => {
            write_timestamp(to_microseconds(*unit, counts.get(row), EPOCH_SECONDS)?, out)?;
        }
        (Values::Int96(values), _) => {
            let (day, nanoseconds) = text::split_int96(values.value(row));
            if nanoseconds % 1_000 != 0 {
                return Err(Reason::Nanoseconds);
            }
            let day = day - i64::from(EPOCH_DAYS);
            write_timestamp(day.checked_mul(DAY_MICROSECONDS).and_then(|at| at.checked_add(nanoseconds / 1_000)), out)?;
        }
        (Values::Time(counts, unit), _) => {
            let time = to_microseconds(*unit, counts.get(row), 0)?;
            let time = time.filter(|time| (0..DAY_MICROSECONDS).contains(time));
            put(out, time.ok_or(Reason::NotOfADay)?.to_be_bytes());
        }
        (Values::Uuid(values), _) => put::<16>(out, values.value(row).try_into().unwrap_or_default()),
        (Values::Bytes(strings), Wire::Uuid) => put::<16>(out, strings.get(row).try_into().unwrap_or_default()),
        (Values::Bytes(strings), _) => put_long(out, strings.get(row), &[])?,
        (Values::Bool(bits), _) => put(out, [u8::from(bits.value(row))]),
        (Values::Bool8(values), _) => put(out, [u8::from(values.get(row) != 0)]),
        _ => {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            if wire == Wire::Jsonb {
                out.push(1);
            }
            text::write_json(cells, row, out).map_or(Ok(()), Err)?;
            let length = i32::try_from(out.len() - start - 4).map_err(|_| Reason::TooLong)?;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

#[inline]
fn write_text(strings: &Strings<'_>, row: usize, wire: Wire, out: &mut Vec<u8>) -> Result<(), Reason> {
    if let (Strings::Views(views), Wire::Text) = (strings, wire) {
        let view = views.views()[row];
        #[allow(clippy::cast_possible_truncation)] // the length comes first
        let length = view as u32;
        if length <= SHORTEST {
            return put_short(view, length, out);
        }
    }
    let value = strings.get(row);
    if memchr::memchr(0, value).is_some() {
        return Err(Reason::Nul);
    }
    // The version of jsonb's format.
    put_long(out, value, if wire == Wire::Jsonb { &[1] } else { &[] })
}

/// The most bytes that a view has itself, behind its length.
const SHORTEST: u32 = 12;

/// Writes a text that its view has itself. A copy of a fixed length is several times as fast as one of any length.
#[inline]
fn put_short(view: u128, length: u32, out: &mut Vec<u8>) -> Result<(), Reason> {
    const ONES: u128 = u128::MAX / 255;
    let bytes = view >> 32 | u128::MAX << (8 * length);
    if bytes.wrapping_sub(ONES) & !bytes & (ONES << 7) != 0 {
        return Err(Reason::Nul);
    }
    let end = out.len() + 4 + length as usize;
    out.extend_from_slice(&(view & u128::MAX << 32 | u128::from(length.swap_bytes())).to_le_bytes());
    out.truncate(end);
    Ok(())
}

fn put_long(out: &mut Vec<u8>, value: &[u8], version: &[u8]) -> Result<(), Reason> {
    let length = i32::try_from(value.len() + version.len()).map_err(|_| Reason::TooLong)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(version);
    out.extend_from_slice(value);
    Ok(())
}

fn put_float(out: &mut Vec<u8>, value: f64) {
    put(out, if value.is_nan() { f64::NAN } else { value }.to_be_bytes());
}

fn put_float4(out: &mut Vec<u8>, value: f32) {
    put(out, if value.is_nan() { f32::NAN } else { value }.to_be_bytes());
}

fn write_date(day: Option<i32>, out: &mut Vec<u8>) -> Result<(), Reason> {
    let day = day.and_then(|day| day.checked_sub(EPOCH_DAYS)).filter(|day| (FIRST_DATE..END_DATE).contains(day));
    put(out, day.ok_or(Reason::OutOfRange("date"))?.to_be_bytes());
    Ok(())
}

fn write_timestamp(microseconds: Option<i64>, out: &mut Vec<u8>) -> Result<(), Reason> {
    let time = microseconds.filter(|time| (FIRST_TIMESTAMP..END_TIMESTAMP).contains(time));
    put(out, time.ok_or(Reason::OutOfRange("timestamp"))?.to_be_bytes());
    Ok(())
}

/// Returns a count of units in microseconds after `epoch`, which is in seconds. None if the microseconds do not fit 64
/// bits. Nanoseconds must be whole microseconds.
fn to_microseconds(unit: TimeUnit, count: i64, epoch: i64) -> Result<Option<i64>, Reason> {
    let scaled = |per_second: i64| count.checked_sub(epoch * per_second)?.checked_mul(1_000_000 / per_second);
    match unit {
        TimeUnit::Second => Ok(scaled(1)),
        TimeUnit::Millisecond => Ok(scaled(1_000)),
        TimeUnit::Microsecond => Ok(scaled(1_000_000)),
        TimeUnit::Nanosecond if count % 1_000 == 0 => Ok((count / 1_000).checked_sub(epoch * 1_000_000)),
        TimeUnit::Nanosecond => Err(Reason::Nanoseconds),
    }
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

/// Writes a number as `numeric_recv` reads it: groups of four decimal digits, aligned at the decimal point, the highest
/// first.
#[allow(clippy::cast_possible_truncation)] // groups are below 10,000
pub(crate) fn write_numeric(value: i128, scale: u32, out: &mut Vec<u8>) {
    let mut groups = [0_u16; MOST_GROUPS];
    let mut count = 0;
    let mut left = value.unsigned_abs();
    let partial = scale % GROUP;
    // Use 64-bit division as soon as the rest fits 64 bits, which is true for most values at once. It is several times
    // as fast as 128-bit division.
    while left > u128::from(u64::MAX) {
        let base = if count == 0 && partial > 0 { 10_u128.pow(partial) } else { BASE };
        groups[count] = (left % base) as u16;
        left /= base;
        count += 1;
    }
    let mut rest = left as u64;
    if count == 0 && partial > 0 && rest > 0 {
        let base = TENS[partial as usize];
        groups[0] = (rest % base) as u16;
        rest /= base;
        count = 1;
    }
    if partial > 0 {
        groups[0] *= TENS[(GROUP - partial) as usize] as u16;
    }
    while rest > 0 {
        groups[count] = (rest % BASE as u64) as u16;
        rest /= BASE as u64;
        count += 1;
    }
    while count > 0 && groups[count - 1] == 0 {
        count -= 1;
    }
    let mut bytes = [0; 12 + 2 * MOST_GROUPS];
    let end = out.len() + pack_numeric(&groups[..count], scale as usize, value < 0, &mut bytes);
    // As above, the length of the copy is fixed.
    out.extend_from_slice(&bytes);
    out.truncate(end);
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
    fn what_a_type_does_not_hold_is_refused() {
        let date = |day| write_date(Some(day), &mut Vec::new());
        for day in [i32::MIN, i32::MIN + EPOCH_DAYS, i32::MAX, FIRST_DATE + EPOCH_DAYS - 1] {
            assert_eq!(date(day), Err(Reason::OutOfRange("date")));
        }
        let timestamp = |unit, count| write_timestamp(to_microseconds(unit, count, EPOCH_SECONDS)?, &mut Vec::new());
        let epoch = EPOCH_SECONDS * 1_000_000;
        for time in [i64::MIN, i64::MIN + epoch, FIRST_TIMESTAMP + epoch - 1] {
            assert_eq!(timestamp(TimeUnit::Microsecond, time), Err(Reason::OutOfRange("timestamp")));
        }
        assert_eq!(timestamp(TimeUnit::Nanosecond, 1), Err(Reason::Nanoseconds));
        assert_eq!(timestamp(TimeUnit::Second, i64::MAX), Err(Reason::OutOfRange("timestamp")));
        assert_eq!(timestamp(TimeUnit::Nanosecond, -1_000), Ok(()));
    }
}
