//! Reads numbers and dates as people write them, and writes them in a plain form that `PostgreSQL` reads in the same
//! way with any settings.
//!
//! A value that is not written in the notation of its column has no plain form. No other notation is tried.

use std::borrow::Cow;

use crate::fields::{Field, FieldReader};
use crate::moments::is_zone;
use crate::types::{count_digits, date, number_of, parse_exponent, timestamp, timestamptz, Fit, SHOWN_BYTES};

/// How the numbers or the dates of a column are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notation {
    /// The decimal mark, and the texts that may separate groups of three digits before the mark.
    Number { mark: u8, separators: Vec<Vec<u8>> },
    /// The positions of year, month and day among the three numbers of a date, from 0.
    Date([usize; 3]),
}

impl Notation {
    /// Returns the notation with this name: dmy, mdy or ymd for dates, and 1234.5 in the notation itself for numbers.
    #[must_use]
    pub fn named(name: &str, separators: Vec<Vec<u8>>) -> Option<Self> {
        match name.as_bytes() {
            b"dmy" => Some(Self::Date([2, 1, 0])),
            b"mdy" => Some(Self::Date([2, 0, 1])),
            b"ymd" => Some(Self::Date([0, 1, 2])),
            [b'1', .., mark @ (b'.' | b','), b'5'] => Some(Self::Number { mark: *mark, separators }),
            _ => None,
        }
    }

    /// Returns the plain form of a value, which `PostgreSQL` reads in the same way with any settings. None if the value
    /// is not written in this notation.
    #[must_use]
    pub fn plain(&self, value: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Number { mark, separators } => plain_number(value.trim_ascii(), *mark, separators),
            Self::Date(places) => plain_date(value.trim_ascii(), *places),
        }
    }
}

/// The notation of one column.
#[derive(Clone, Debug)]
pub struct ColumnNotation {
    pub column: String,
    /// The name of the notation, for messages.
    pub name: String,
    pub notation: Notation,
    /// Whether a quoted null string is null (`FORCE_NULL`).
    pub is_forced: bool,
}

impl ColumnNotation {
    /// Returns a text that says why a value has no plain form.
    #[must_use]
    pub fn refuse(&self, value: &[u8]) -> String {
        let shown = String::from_utf8_lossy(&value[..value.len().min(SHOWN_BYTES)]);
        format!("value \"{shown}\" of column \"{}\" is not written as {}", self.column, self.name)
    }
}

/// For each column that a rewriter writes, its notation, or None if the column is sent as it is.
pub type Notations = Vec<Option<ColumnNotation>>;

/// Returns the plain form of a field's value. Without a notation of the column, returns the value itself. None if the
/// value is not written in the notation.
pub(crate) fn plain_value<'a>(
    notations: &[Option<ColumnNotation>],
    reader: &FieldReader<'a>,
    index: usize,
    field: &Field,
) -> Option<Cow<'a, [u8]>> {
    let value = reader.value(field);
    match notations.get(index) {
        Some(Some(column)) => column.notation.plain(&value).map(Cow::Owned),
        _ => Some(value),
    }
}

fn plain_number(text: &[u8], mark: u8, separators: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len() + 1);
    let mut rest = text;
    if let [sign @ (b'-' | b'+'), behind @ ..] = text {
        plain.push(*sign);
        rest = behind;
    }
    if [&b"nan"[..], b"inf", b"infinity"].iter().any(|word| rest.eq_ignore_ascii_case(word)) {
        return Some(text.to_vec());
    }
    let whole = count_digits(rest);
    let is_leading = (1..=3).contains(&whole) && rest[0] != b'0';
    plain.extend_from_slice(&rest[..whole]);
    rest = &rest[whole..];
    while let Some(behind) = separators.iter().find_map(|separator| rest.strip_prefix(separator.as_slice())) {
        if !is_leading || count_digits(behind) != 3 {
            return None;
        }
        plain.extend_from_slice(&behind[..3]);
        rest = &behind[3..];
    }
    if let Some(behind) = rest.strip_prefix(&[mark]) {
        let digits = count_digits(behind);
        plain.push(b'.');
        plain.extend_from_slice(&behind[..digits]);
        rest = &behind[digits..];
        if digits == 0 {
            return None;
        }
    } else if whole == 0 {
        return None;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        parse_exponent(exponent)?;
        plain.extend_from_slice(rest);
        rest = b"";
    }
    rest.is_empty().then_some(plain)
}

/// Returns the plain form of a date. A year of two digits is read as `PostgreSQL` reads it: 70 is 1970, and 69 is 2069
/// (`ValidateDate` in src/backend/utils/adt/datetime.c).
fn plain_date(text: &[u8], places: [usize; 3]) -> Option<Vec<u8>> {
    let (first, rest) = text.split_at(count_digits(text));
    let (&mark, rest) = rest.split_first().filter(|(mark, _)| matches!(mark, b'.' | b'/' | b'-'))?;
    let (second, rest) = rest.split_at(count_digits(rest));
    let rest = rest.strip_prefix(&[mark])?;
    let (third, rest) = rest.split_at(count_digits(rest));
    let [year, month, day] = places.map(|place| [first, second, third][place]);
    let is_short = |part: &[u8]| (1..=2).contains(&part.len());
    if !is_short(month) || !is_short(day) || !matches!(year.len(), 2 | 4) {
        return None;
    }
    let century: &[u8] = match year {
        [_, _, _, _] => b"",
        [b'0'..=b'6', _] => b"20",
        _ => b"19",
    };
    let zero = |part: &[u8]| if part.len() == 1 { &b"0"[..] } else { b"" };
    let mut plain = [century, year, b"-", zero(month), month, b"-", zero(day), day].concat();
    if date(&plain) == Fit::No {
        return None;
    }
    match rest {
        [] => {}
        [b' ' | b'T', time @ ..] => write_time(time.trim_ascii_start(), &mut plain)?,
        _ => return None,
    }
    Some(plain)
}

/// Appends a time such as 9:05, 23:59:59.5, 11:59 PM, 23:59+02:00 or 23:59 CET to a date. None for any other text.
fn write_time(text: &[u8], plain: &mut Vec<u8>) -> Option<()> {
    let (hour, rest) = text.split_at(count_digits(text));
    let (minutes, rest) = rest.split_at_checked(3)?;
    let (seconds, rest) = rest.split_at_checked(if rest.starts_with(b":") { 3 } else { 0 })?;
    let has_decimals = !seconds.is_empty() && rest.starts_with(b".");
    let (decimals, zone) = rest.split_at(if has_decimals { 1 + count_digits(&rest[1..]) } else { 0 });
    let half = zone.trim_ascii_start();
    let is_half = half.eq_ignore_ascii_case(b"am") || half.eq_ignore_ascii_case(b"pm");
    let zone = if is_half { b"" } else { zone };
    let hour = match number_of(hour).filter(|_| matches!(hour.len(), 1 | 2))? {
        hour @ 1..=12 if is_half => hour % 12 + if half[0].eq_ignore_ascii_case(&b'p') { 12 } else { 0 },
        _ if is_half => return None,
        hour => hour,
    };
    plain.extend_from_slice(format!(" {hour:02}").as_bytes());
    plain.extend_from_slice(&[minutes, seconds].concat());
    // The decimals are left out of the check, because the server accepts more of them than `timestamp` does.
    let is_time = timestamp(plain) != Fit::No;
    let is_read = match zone.trim_ascii_start() {
        [] => is_time,
        name @ [b'a'..=b'z' | b'A'..=b'Z', ..] => is_time && is_zone(&name.to_ascii_lowercase()),
        _ => timestamptz(&[plain, zone].concat()) != Fit::No,
    };
    plain.extend_from_slice(&[decimals, zone].concat());
    (is_read && decimals.len() != 1).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(name: &str, separators: &[&str], value: &str) -> Option<String> {
        let separators = separators.iter().map(|each| each.as_bytes().to_vec()).collect();
        let found = Notation::named(name, separators).unwrap().plain(value.as_bytes())?;
        Some(String::from_utf8(found).unwrap())
    }

    #[test]
    fn numbers_of_a_notation_become_plain() {
        for (name, separators, value, expected) in [
            ("1234,5", &[][..], "0,5", "0.5"),
            ("1234,5", &[], " -1234 ", "-1234"),
            ("1234,5", &[], "+,50", "+.50"),
            ("1234,5", &[], "1,23E+12", "1.23E+12"),
            ("1234,5", &[], "-Infinity", "-Infinity"),
            ("1.234,5", &["."], "1.234.567,89", "1234567.89"),
            ("1.234,5", &["."], "1234,5", "1234.5"),
            ("1 234,5", &[" ", "\u{a0}"], "12\u{a0}345,6", "12345.6"),
            ("1,234.5", &[","], "1,234.5", "1234.5"),
        ] {
            assert_eq!(plain(name, separators, value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn other_numbers_are_not_guessed() {
        for (name, separators, value) in [
            ("1234,5", &[][..], "1.5"),
            ("1234,5", &[], "1,"),
            ("1234,5", &[], ","),
            ("1234,5", &[], ""),
            ("1234,5", &[], "-"),
            ("1234,5", &[], "1,5 EUR"),
            ("1234,5", &[], "1,2,3"),
            ("1234,5", &[], "1,5e"),
            ("1234,5", &[], "1 234"),
            ("1.234,5", &["."], "1.23"),
            ("1.234,5", &["."], "1.2345"),
            ("1.234,5", &["."], "1234.567"),
            ("1.234,5", &["."], "0.123"),
            ("1.234,5", &["."], ".123"),
            ("1.234,5", &["."], "1,234.567"),
        ] {
            assert_eq!(plain(name, separators, value), None, "{value}");
        }
    }

    #[test]
    fn dates_of_an_order_become_plain() {
        for (order, value, expected) in [
            ("dmy", "31.12.2025", "2025-12-31"),
            ("dmy", " 1/2/26 ", "2026-02-01"),
            ("dmy", "1-2-70", "1970-02-01"),
            ("mdy", "2/29/2024 1:05 PM", "2024-02-29 13:05"),
            ("mdy", "12/31/2025 12:00:00 am", "2025-12-31 00:00:00"),
            ("mdy", "12/31/2025 12:30PM", "2025-12-31 12:30"),
            ("ymd", "2026/1/31", "2026-01-31"),
            ("ymd", "26-01-31T09:08:07.1234567Z", "2026-01-31 09:08:07.1234567Z"),
            ("dmy", "31.01.2026  9:08+05:30", "2026-01-31 09:08+05:30"),
            ("dmy", "31.01.2026 9:08 CET", "2026-01-31 09:08 CET"),
            ("dmy", "31.01.2026 9:08:07.5 America/New_York", "2026-01-31 09:08:07.5 America/New_York"),
        ] {
            assert_eq!(plain(order, &[], value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn other_dates_are_not_guessed() {
        for (order, value) in [
            ("dmy", "12/31/2025"),
            ("dmy", "2025-12-31"),
            ("dmy", "31.02.2025"),
            ("dmy", "31.12/2025"),
            ("dmy", "31.12.025"),
            ("dmy", "31.12."),
            ("dmy", "31122025"),
            ("dmy", ""),
            ("dmy", "0.1.2025"),
            ("dmy", "31.12.2025x"),
            ("mdy", "31.12.2025"),
            ("mdy", "12/31/2025 13:05 PM"),
            ("mdy", "12/31/2025 25:05"),
            ("mdy", "12/31/2025 5"),
            ("mdy", "12/31/2025 10:60"),
            ("mdy", "12/31/2025 10:10:10."),
            ("mdy", "12/31/2025 10:10 foo"),
            ("mdy", "12/31/2025 25:10 CET"),
            ("mdy", "12/31/2025 CET"),
            ("ymd", "31.12.2025"),
            ("ymd", "2025-12"),
        ] {
            assert_eq!(plain(order, &[], value), None, "{value}");
        }
    }

    #[test]
    fn a_plain_value_keeps_all_digits_and_is_plain_already() {
        let (mut noise, mut plain_ones) = (1_u32, 0);
        let mut draw = |count: usize| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 8) as usize % count
        };
        for (name, separators, own) in
            [("1.234,5", &["."][..], "1234.5"), ("1,234.5", &[","], "1234.5"), ("dmy", &[], "ymd"), ("mdy", &[], "ymd")]
        {
            for _ in 0..100_000 {
                let value: String = (0..draw(12)).map(|_| char::from(b"0123456789012,.-/ e"[draw(19)])).collect();
                let Some(found) = plain(name, separators, &value) else { continue };
                plain_ones += 1;
                assert_eq!(plain(own, &[], &found).as_ref(), Some(&found), "{value}");
                let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
                assert!(own == "ymd" || digits(&value) == digits(&found), "{value} {found}");
            }
        }
        assert!(plain_ones > 1000, "{plain_ones}");
    }
}
