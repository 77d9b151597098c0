//! Writes values as text, in the form that the input functions of their types read, and as JSON.
//!
//! A value that `PostgreSQL` cannot store exactly is a fault: it is written all the same, so that a message can quote it
//! and a rejected row has it, in a form that only a column of text would accept.

use std::collections::HashSet;
use std::fmt::Debug;
use std::io::Write as _;

use arrow_buffer::i256;
use arrow_schema::TimeUnit;

use super::binary::Reason;
use super::cells::{Cells, Digits, Strings, Values};
use super::kind::count_decimals;
use crate::json::{JsonFault, Scanner};
use crate::rewrite::escape_text;

const DAY_S: i64 = 86_400;
pub(crate) const DAY_MS: i64 = DAY_S * 1_000;
/// 1970-01-01 as a Julian day, which timestamps of 96 bits count.
const JULIAN_EPOCH: i64 = 2_440_588;

/// What the type of the table's column decides about a value's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    is_integer: bool,
    is_uuid: bool,
    /// Whether a list is written as JSON instead of as an array: for json, jsonb, and pgvector's types.
    takes_json: bool,
}

impl Target {
    /// Returns what the name of a type decides, or for an array the name of its items.
    #[must_use]
    pub fn new(type_name: &str) -> Self {
        let name = type_name.strip_suffix("[]").unwrap_or(type_name);
        let bare = name.split('(').next().unwrap_or(name).rsplit('.').next().unwrap_or(name);
        Self {
            is_integer: matches!(name, "smallint" | "integer" | "bigint"),
            is_uuid: name == "uuid",
            takes_json: name == type_name && matches!(bare, "json" | "jsonb" | "vector" | "halfvec"),
        }
    }
}

/// Writes a value as a field of COPY text, and returns why it cannot be stored if so. A NUL is no fault if the row may be
/// rejected, because the server refuses it.
pub(crate) fn write_field(
    cells: &Cells<'_>,
    row: usize,
    target: Target,
    rejects: bool,
    out: &mut Vec<u8>,
) -> Option<Reason> {
    let Some((cells, row)) = cells.resolve(row) else {
        out.extend_from_slice(b"\\N");
        return None;
    };
    let start = out.len();
    let fault = write_value(cells, row, target, out);
    let nul = if has_escapes(&cells.values) { escape(out, start) } else { false };
    fault.or((nul && !rejects).then_some(Reason::Nul))
}

/// Returns whether texts of these values may have characters that COPY escapes.
fn has_escapes(values: &Values<'_>) -> bool {
    matches!(
        values,
        Values::Text(_) | Values::Json(_) | Values::Bytes(_) | Values::List(..) | Values::Map(..) | Values::Struct(_)
    )
}

/// Escapes what COPY text escapes from `start` on, and returns whether there is a NUL.
fn escape(out: &mut Vec<u8>, start: usize) -> bool {
    let is_special = |byte: &u8| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r' | 0);
    let Some(first) = out[start..].iter().position(is_special) else {
        return false;
    };
    let rest = out.split_off(start + first);
    escape_text(&rest, b'\t', out);
    memchr::memchr(0, &rest).is_some()
}

fn write_value(cells: &Cells<'_>, row: usize, target: Target, out: &mut Vec<u8>) -> Option<Reason> {
    match &cells.values {
        Values::Null | Values::Shared(..) => {}
        Values::Bool(bits) => push_bool(bits.value(row), out),
        Values::Bool8(values) => push_bool(values.get(row) != 0, out),
        Values::Int(values) => push_int(values.get(row), out),
        Values::Unsigned(values) => push_digits(values[row], 1, out),
        Values::Float16(values) => push_float(values[row].to_f64(), &values[row].to_f32(), target, out),
        Values::Float32(values) => push_float(values[row].into(), &values[row], target, out),
        Values::Float64(values) => push_float(values[row], &values[row], target, out),
        Values::Decimal(values, scale) => match values.get(row) {
            Digits::Narrow(value) => push_decimal(&value.to_string(), *scale, out),
            Digits::Wide(value) => push_decimal(&i256::to_string(&value), *scale, out),
        },
        Values::Date(counts, per_day) if counts.get(row) % per_day == 0 => push_date(counts.get(row) / per_day, out),
        Values::Date(counts, _) => {
            push_instant(counts.get(row).into(), TimeUnit::Millisecond, " ms", "", out);
            return Some(Reason::NotADay);
        }
        Values::Time(counts, unit) => return push_time(counts.get(row), *unit, out),
        Values::Timestamp(counts, unit, is_zoned) => {
            return push_timestamp(i128::from(counts.get(row)), *unit, *is_zoned, out)
        }
        Values::Int96(values) => {
            let (day, nanoseconds) = split_int96(values.value(row));
            let count = i128::from(day) * i128::from(DAY_S) * 1_000_000_000 + i128::from(nanoseconds);
            return push_timestamp(count, TimeUnit::Nanosecond, false, out);
        }
        Values::Text(strings) | Values::Json(strings) => out.extend_from_slice(strings.get(row)),
        Values::Bytes(strings) if target.is_uuid && strings.get(row).len() == 16 => push_uuid(strings.get(row), out),
        Values::Bytes(strings) => push_bytes(strings, row, out),
        Values::Uuid(values) => push_uuid(values.value(row), out),
        Values::List(items_of, items) if !(target.takes_json || is_nested(items)) => {
            out.push(b'{');
            let fault = join(items_of(row), out, |item, out| push_item(items, item, target, out));
            out.push(b'}');
            return fault;
        }
        Values::List(..) | Values::Map(..) | Values::Struct(_) => return push_json(cells, row, out),
    }
    None
}

fn is_nested(items: &Cells<'_>) -> bool {
    match &items.values {
        Values::Shared(_, values) => is_nested(values),
        values => matches!(values, Values::List(..) | Values::Map(..) | Values::Struct(_)),
    }
}

/// Writes a value as an item of an array (utils/adt/arrayfuncs.c, `array_in`).
fn push_item(items: &Cells<'_>, item: usize, target: Target, out: &mut Vec<u8>) -> Option<Reason> {
    let Some((cells, row)) = items.resolve(item) else {
        out.extend_from_slice(b"NULL");
        return None;
    };
    if !has_escapes(&cells.values) || (target.is_uuid && matches!(cells.values, Values::Bytes(_))) {
        return write_value(cells, row, target, out);
    }
    out.push(b'"');
    let start = out.len();
    let fault = write_value(cells, row, target, out);
    let text = out.split_off(start);
    for byte in text {
        if matches!(byte, b'\\' | b'"') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    fault
}

/// Writes what `push` writes of each number, joined by commas, and returns the first fault. It ends early if this becomes
/// too long.
fn join(
    numbers: std::ops::Range<usize>,
    out: &mut Vec<u8>,
    mut push: impl FnMut(usize, &mut Vec<u8>) -> Option<Reason>,
) -> Option<Reason> {
    let (first, mut fault, start) = (numbers.start, None, out.len());
    for number in numbers {
        if out.len() - start > MOST_VALUE_BYTES {
            return Some(Reason::TooLong);
        }
        if number > first {
            out.push(b',');
        }
        fault = fault.or(push(number, out));
    }
    fault
}

// ---------------------------------------------------------------- JSON

/// How long a value may be: `MaxAllocSize` (src/include/utils/memutils.h).
pub(crate) const MOST_VALUE_BYTES: usize = 0x3fff_ffff;

/// Writes a value as JSON, and returns why it cannot be stored if so.
pub(crate) fn write_json(cells: &Cells<'_>, row: usize, out: &mut Vec<u8>) -> Option<Reason> {
    if let Some((cells, row)) = cells.resolve(row) {
        return push_json(cells, row, out);
    }
    out.extend_from_slice(b"null");
    None
}

fn push_json(cells: &Cells<'_>, row: usize, out: &mut Vec<u8>) -> Option<Reason> {
    match &cells.values {
        Values::Map(items_of, parts) => push_map(&parts.0, &parts.1, items_of(row), out),
        Values::List(items_of, items) => {
            out.push(b'[');
            let fault = join(items_of(row), out, |item, out| write_json(items, item, out));
            out.push(b']');
            fault
        }
        Values::Struct(fields) => {
            let (mut fault, start) = (None, out.len());
            out.push(b'{');
            for (at, (name, field)) in fields.iter().enumerate() {
                if out.len() - start > MOST_VALUE_BYTES {
                    return Some(Reason::TooLong);
                }
                if at > 0 {
                    out.extend_from_slice(b", ");
                }
                quote(name.as_bytes(), out);
                out.extend_from_slice(b": ");
                fault = fault.or(write_json(field, row, out));
            }
            out.push(b'}');
            fault
        }
        Values::Text(strings) => {
            quote(strings.get(row), out);
            None
        }
        Values::Bool(_) | Values::Bool8(_) | Values::Int(_) | Values::Unsigned(_) | Values::Decimal(..) => {
            write_value(cells, row, Target::default(), out)
        }
        Values::Json(strings) => {
            out.extend_from_slice(strings.get(row));
            match Scanner::new(strings.get(row)).document() {
                Ok(_) => None,
                Err(JsonFault::Repeated { .. }) => Some(Reason::KeyTwice),
                Err(_) => Some(Reason::NotJson),
            }
        }
        values => {
            let mut text = Vec::new();
            let fault = write_value(cells, row, Target::default(), &mut text);
            // JSON has no number for these: as `to_jsonb` writes them, they are texts.
            let is_number = matches!(values, Values::Float16(_) | Values::Float32(_) | Values::Float64(_));
            if is_number && !text.ends_with(b"NaN") && !text.ends_with(b"Infinity") {
                out.extend_from_slice(&text);
            } else {
                quote(&text, out);
            }
            fault
        }
    }
}

fn push_map(keys: &Cells<'_>, values: &Cells<'_>, span: std::ops::Range<usize>, out: &mut Vec<u8>) -> Option<Reason> {
    let (mut seen, is_long) = (HashSet::new(), span.len() > 1);
    out.push(b'{');
    let fault = join(span, out, |at, out| {
        let mut key = Vec::new();
        let mut fault = match keys.resolve(at) {
            Some((cells, row)) => write_value(cells, row, Target::default(), &mut key),
            None => Some(Reason::NullKey),
        };
        quote(&key, out);
        out.extend_from_slice(b": ");
        fault = fault.or(write_json(values, at, out));
        // jsonb would keep one of the values.
        fault.or((is_long && !seen.insert(key)).then_some(Reason::KeyTwice))
    });
    out.push(b'}');
    fault
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

// ---------------------------------------------------------------- numbers and byte strings

fn push_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

fn push_int(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    push_digits(value.unsigned_abs(), 1, out);
}

/// Writes a number with at least `width` digits.
fn push_digits(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while value > 0 || digits.len() - at < width {
        at -= 1;
        digits[at] += u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

/// 2^63, the first whole number that is too large for a bigint.
const FIRST_BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// Writes a whole number without a point or an exponent, so that integer columns can read it, and returns whether it is
/// one. pandas stores integers as floating-point numbers if the column has nulls.
#[allow(clippy::cast_possible_truncation)] // it is whole, and fits
fn push_whole(value: f64, out: &mut Vec<u8>) -> bool {
    let is_whole = value.fract() == 0.0 && (-FIRST_BEYOND..FIRST_BEYOND).contains(&value);
    if is_whole {
        push_int(value as i64, out);
    }
    is_whole
}

/// Writes a number, which is given twice, by its shortest digits. Infinities have the name that `PostgreSQL` gives them.
fn push_float(value: f64, same: &impl Debug, target: Target, out: &mut Vec<u8>) {
    if target.is_integer && push_whole(value, out) {
        return;
    }
    let start = out.len();
    let _ = write!(out, "{same:?}");
    if out[start..].ends_with(b".0") {
        out.truncate(out.len() - 2);
    } else if value.is_infinite() {
        out.truncate(out.len() - 3);
        out.extend_from_slice(b"Infinity");
    }
}

fn push_decimal(number: &str, scale: i8, out: &mut Vec<u8>) {
    let (sign, digits) = number.split_at(usize::from(number.starts_with('-')));
    let decimals = usize::try_from(scale).unwrap_or(0);
    out.extend_from_slice(sign.as_bytes());
    // A digit is before the point.
    out.resize(out.len() + (decimals + 1).saturating_sub(digits.len()), b'0');
    out.extend_from_slice(digits.as_bytes());
    if decimals > 0 {
        out.insert(out.len() - decimals, b'.');
    } else if digits != "0" {
        out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn push_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(bytes.iter().flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]));
}

fn push_bytes(strings: &Strings<'_>, row: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    push_hex(strings.get(row), out);
}

fn push_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    for (at, &byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        push_hex(&[byte], out);
    }
}

// ---------------------------------------------------------------- dates and times

/// Returns the day since 1970-01-01 of a timestamp of 96 bits, and the nanoseconds since its midnight.
pub(crate) fn split_int96(bytes: &[u8]) -> (i64, i64) {
    let (nanoseconds, day) = bytes.split_at(8);
    let nanoseconds = i64::from_le_bytes(nanoseconds.try_into().unwrap_or_default());
    (i64::from(u32::from_le_bytes(day.try_into().unwrap_or_default())) - JULIAN_EPOCH, nanoseconds)
}

fn per_second(unit: TimeUnit) -> i64 {
    10_i64.pow(count_decimals(unit))
}

/// Returns a count in microseconds if it is one of whole microseconds in nanoseconds, and what follows one of others.
fn round(count: i128, unit: TimeUnit) -> (i128, TimeUnit, &'static str) {
    match unit {
        TimeUnit::Nanosecond if count % 1_000 == 0 => (count / 1_000, TimeUnit::Microsecond, ""),
        TimeUnit::Nanosecond => (count, unit, " ns"),
        _ => (count, unit, ""),
    }
}

fn push_timestamp(count: i128, unit: TimeUnit, is_zoned: bool, out: &mut Vec<u8>) -> Option<Reason> {
    let (count, unit, odd) = round(count, unit);
    push_instant(count, unit, odd, if is_zoned { "+00" } else { "" }, out);
    (!odd.is_empty()).then_some(Reason::Nanoseconds)
}

fn push_time(count: i64, unit: TimeUnit, out: &mut Vec<u8>) -> Option<Reason> {
    if !(0..DAY_S * per_second(unit)).contains(&count) {
        let _ = write!(out, "<value out of range: {count}>");
        return Some(Reason::NotOfADay);
    }
    let (count, unit, odd) = round(count.into(), unit);
    push_clock(count, unit, out);
    out.extend_from_slice(odd.as_bytes());
    (!odd.is_empty()).then_some(Reason::Nanoseconds)
}

/// Writes a count of units since 1970-01-01 00:00:00, with all decimals of the unit.
fn push_instant(count: i128, unit: TimeUnit, odd: &str, zone: &str, out: &mut Vec<u8>) {
    let per_day = i128::from(DAY_S * per_second(unit));
    let day = i64::try_from(count.div_euclid(per_day)).unwrap_or(i64::MAX);
    let (year, month, day_of_month) = split_day(day);
    push_day(year, month, day_of_month, out);
    out.push(b' ');
    push_clock(count.rem_euclid(per_day), unit, out);
    let _ = write!(out, "{odd}{zone}");
    push_era(year, out);
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is one of a day
fn push_clock(count: i128, unit: TimeUnit, out: &mut Vec<u8>) {
    let (count, per_second, decimals) = (count as u64, per_second(unit) as u64, count_decimals(unit) as usize);
    let second = count / per_second;
    push_digits(second / 3_600, 2, out);
    out.push(b':');
    push_digits(second / 60 % 60, 2, out);
    out.push(b':');
    push_digits(second % 60, 2, out);
    if decimals > 0 {
        out.push(b'.');
        push_digits(count % per_second, decimals, out);
    }
}

fn push_date(day: i64, out: &mut Vec<u8>) {
    let (year, month, day) = split_day(day);
    push_day(year, month, day, out);
    push_era(year, out);
}

fn push_day(year: i64, month: i64, day: i64, out: &mut Vec<u8>) {
    push_digits(if year > 0 { year } else { 1 - year }.unsigned_abs(), 4, out);
    for number in [month, day] {
        out.push(b'-');
        push_digits(number.unsigned_abs(), 2, out);
    }
}

fn push_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// Returns year, month and day of a day since 1970-01-01. The year before 1 is 0.
fn split_day(day: i64) -> (i64, i64, i64) {
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days
    let day = day.saturating_add(719_468);
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * month_from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_those_that_they_were() {
        let float = |value: f64| text(|out| push_float(value, &value, Target::default(), out));
        let found: Vec<_> = [1.0, 0.1, 1e15, 1e16, 1.5e-7, 123_456_789.125, -0.0, 5e-324, f64::NEG_INFINITY, f64::NAN]
            .map(float)
            .into();
        let expected =
            ["1", "0.1", "1000000000000000", "1e16", "1.5e-7", "123456789.125", "-0", "5e-324", "-Infinity", "NaN"];
        assert_eq!(found, expected);
        let decimal = |number, scale| text(|out| push_decimal(number, scale, out));
        assert_eq!(
            [
                decimal("150", 2),
                decimal("-2", 3),
                decimal("0", 2),
                decimal("-12", -2),
                decimal("0", -2),
                decimal("7", 0)
            ],
            ["1.50", "-0.002", "0.00", "-1200", "0", "7"]
        );
    }

    #[test]
    fn whole_numbers_are_those_of_bigint() {
        let found: Vec<_> = [-FIRST_BEYOND, FIRST_BEYOND, 0.5].map(|value| push_whole(value, &mut Vec::new())).into();
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn days_are_those_of_postgresql() {
        let date = |day| text(|out| push_date(day, out));
        assert_eq!([date(0), date(2_932_897), date(-719_163)], ["1970-01-01", "10000-01-01", "0001-12-31 BC"]);
    }
}
