//! Decides whether a column keeps a value as it is in a file, or stores another value without an error.
//!
//! A value is kept if the text that the column returns says the same: 1.50 may become 1.5, but 007 may not become 7.
//! The rules follow the server's input functions (src/backend/utils/adt). A value that these functions refuse counts as
//! kept, because it is never stored.

use crate::moments::{read_moment, DayOrder, Moment};
use crate::types::{count_digits, is_zeros, parse_exponent, split_sign};

/// The bits for the parts of a value that a column may not keep.
pub const FORM: u8 = 1;
pub const SIGN: u8 = 1 << 1;
pub const DIGITS: u8 = 1 << 2;
pub const TIME: u8 = 1 << 3;
pub const ZONE: u8 = 1 << 4;
pub const DAY: u8 = 1 << 5;
/// The order of day, month and year, which `DateStyle` decides.
pub const ORDER: u8 = 1 << 6;
pub const BLANKS: u8 = 1 << 7;

/// The most digits that a float keeps in any case.
const FLOAT4_DIGITS: usize = 6;
const FLOAT8_DIGITS: usize = 15;
/// The most digits that fit 64 bits in any case.
const LONG_NUMBER: usize = 19;
/// The last years of the types (src/include/datatype/timestamp.h).
const LAST_YEAR_OF_DATES: i64 = 5_874_897;
const LAST_YEAR_OF_TIMESTAMPS: i64 = 294_276;
/// The position of the decimals in a timestamp.
const DECIMALS_AT: usize = "2026-01-31 23:59:59.".len();

/// The type of a column, as far as it matters for which values are kept. `scale` and `decimals` count digits behind the
/// point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Other,
    Integer,
    Numeric { scale: i32 },
    Float4,
    Float8,
    Date,
    Timestamp { decimals: usize },
    Timestamptz { decimals: usize },
    Time { decimals: usize },
    Timetz { decimals: usize },
    Varchar { length: usize },
}

impl ColumnType {
    /// Returns the type with this name. `limit` is the scale, the number of decimals of a second, or the length. A
    /// negative limit means no limit, except for numeric, which may have a negative scale.
    #[must_use]
    pub fn named(name: &str, limit: i32) -> Option<Self> {
        let decimals = usize::try_from(limit).unwrap_or(6);
        Some(match name {
            "other" => Self::Other,
            "integer" => Self::Integer,
            "numeric" => Self::Numeric { scale: limit },
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp { decimals },
            "timestamptz" => Self::Timestamptz { decimals },
            "time" => Self::Time { decimals },
            "timetz" => Self::Timetz { decimals },
            "varchar" => Self::Varchar { length: usize::try_from(limit).unwrap_or(usize::MAX) },
            _ => return None,
        })
    }

    /// Returns whether the column keeps a value. For common forms, this is decided by as few of the value's bytes as
    /// possible, without a full reading.
    ///
    /// `may_group` is true if numbers may have underscores.
    #[inline(always)]
    #[must_use]
    pub fn keeps(self, value: &[u8], may_group: bool) -> bool {
        let is_number = || has_plain_start(value) && !(may_group && value.contains(&b'_'));
        let is_plain = match self {
            Self::Other => true,
            Self::Integer | Self::Numeric { scale: i32::MAX } => is_number(),
            Self::Numeric { scale } => is_number() && has_places(value, scale),
            Self::Float4 => value.len() <= FLOAT4_DIGITS + 1 && is_plain_decimal(value),
            Self::Float8 => is_plain_decimal(value) && (value.len() <= FLOAT8_DIGITS || is_plain_long(value)),
            Self::Date => is_plain_day(value),
            Self::Timestamp { decimals } => is_plain_timestamp(value, decimals),
            Self::Timestamptz { decimals } => is_plain_timestamp(zoneless(value), decimals),
            Self::Time { .. } | Self::Timetz { .. } => is_plain_time(value),
            Self::Varchar { length } => value.len() <= length || value.last() != Some(&b' '),
        };
        is_plain || self.changes_nothing(value)
    }

    /// Returns whether the column keeps a value in a form that the binary encoder accepts (`canonical.rs`).
    #[inline(always)]
    pub(crate) fn keeps_canonical(self, value: &[u8]) -> bool {
        let is_plain = match self {
            Self::Integer | Self::Numeric { scale: i32::MAX } => has_plain_start(value),
            Self::Numeric { scale } => has_plain_start(value) && has_places(value, scale),
            Self::Float8 => value.len() <= FLOAT8_DIGITS && has_plain_start(value),
            Self::Float4 => value.len() <= FLOAT4_DIGITS && has_plain_start(value),
            Self::Timestamp { decimals } => value.len() <= DECIMALS_AT + decimals,
            Self::Timestamptz { decimals } => value.len() <= DECIMALS_AT + decimals + "+00".len(),
            Self::Varchar { length } => value.len() <= length || value.last() != Some(&b' '),
            _ => true,
        };
        is_plain || self.changes_nothing(value)
    }

    #[inline(never)]
    fn changes_nothing(self, value: &[u8]) -> bool {
        self.change(value) == 0
    }

    /// Returns the parts of a value that the column does not keep, as bits. 0 if the column keeps the whole value, or
    /// refuses it.
    #[must_use]
    pub fn change(self, value: &[u8]) -> u8 {
        match self {
            Self::Other => 0,
            Self::Integer | Self::Numeric { .. } | Self::Float4 | Self::Float8 => self.change_number(value),
            Self::Varchar { length } => change_blanks(value, length),
            _ => read_moment(value).map_or(0, |moment| self.change_moment(&moment, value)),
        }
    }

    /// Returns what a column of numbers does not keep (int.c, int8.c, numeric.c, float.c). A form that only some
    /// versions read, such as `1_000`, is not kept, because other versions do not read it as a number.
    fn change_number(self, value: &[u8]) -> u8 {
        let text = value.trim_ascii();
        let (_, rest) = split_sign(text);
        if has_odd_form(rest) {
            return FORM;
        }
        let Some(number) = Decimal::parse(text) else { return 0 };
        let zeros = if number.whole.len() > 1 && number.whole[0] == b'0' { FORM } else { 0 };
        let is_zero = is_zeros(number.whole) && is_zeros(number.fraction);
        zeros
            | match self {
                Self::Float4 => lost_digits(number.is_kept_by_float4(text)),
                Self::Float8 => lost_digits(number.is_kept_by_float8(text)),
                _ if is_zero && number.is_negative => SIGN,
                Self::Numeric { scale } if !is_zero => lost_digits(number.places() <= scale),
                _ => 0,
            }
    }

    /// Returns what a column of days or times does not keep (datetime.c, date.c, timestamp.c).
    fn change_moment(self, moment: &Moment, value: &[u8]) -> u8 {
        let if_so = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
        let decimals = |most: usize| if_so(moment.decimals > most, DIGITS);
        let form = if_so(moment.is_word || moment.is_leap_second, FORM);
        form | match self {
            Self::Date => {
                let (has_time, has_zone) = (moment.has_time && !moment.is_midnight(), moment.has_zone);
                if_so(has_time, TIME) | if_so(has_zone, ZONE) | if_so(moment.is_unclear, ORDER)
            }
            Self::Timestamp { decimals: most } => {
                decimals(most) | if_so(moment.has_zone, ZONE) | if_so(moment.is_unclear, ORDER)
            }
            Self::Timestamptz { decimals: most } => decimals(most) | if_so(moment.is_unclear, ORDER),
            // In these types, digits without colons are a time, such as 040506.
            Self::Time { .. } | Self::Timetz { .. } if count_digits(value) >= 4 && !moment.has_time => 0,
            Self::Time { decimals: most } => decimals(most) | if_so(moment.has_zone, ZONE) | if_so(moment.has_day, DAY),
            Self::Timetz { decimals: most } => decimals(most) | if_so(moment.has_day, DAY),
            _ => 0,
        }
    }
}

fn lost_digits(is_kept: bool) -> u8 {
    if is_kept {
        0
    } else {
        DIGITS
    }
}

// ---------------------------------------------------------------- common forms

/// Returns whether a value begins like a number whose form is kept: with no superfluous zero, plus sign or blank, and
/// not as a negative zero.
#[inline(always)]
pub(crate) fn has_plain_start(value: &[u8]) -> bool {
    match value {
        [b'-', b'0', b'.', fraction @ ..] => {
            fraction.iter().find(|&&byte| byte != b'0').is_some_and(u8::is_ascii_digit)
        }
        [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] | [b'0'] => true,
        [b'0', second, ..] => *second == b'.',
        _ => false,
    }
}

/// Returns whether a number without an exponent has at most `scale` digits behind its point. Returns false if only a
/// full reading can decide that.
#[inline(always)]
fn has_places(value: &[u8], scale: i32) -> bool {
    let Ok(scale) = usize::try_from(scale) else { return false };
    let tail = &value[value.len().saturating_sub(scale + 1)..];
    for &byte in tail.iter().rev() {
        if byte == b'.' {
            return true;
        }
        if !byte.is_ascii_digit() {
            return false;
        }
    }
    value[1..].iter().all(u8::is_ascii_digit)
}

/// Returns whether a value has a plain start, and then only digits with at most one point.
#[inline(always)]
fn is_plain_decimal(value: &[u8]) -> bool {
    let mut points = 0;
    let is_part = |&byte: &u8| {
        points += usize::from(byte == b'.');
        byte == b'.' || byte.is_ascii_digit()
    };
    has_plain_start(value) && value[1..].iter().all(is_part) && points <= 1
}

/// Returns whether a double keeps a plain number of many digits. Returns false if only a full reading can decide that.
fn is_plain_long(value: &[u8]) -> bool {
    if value.len() > LONG_NUMBER + 2 {
        return false;
    }
    let (_, text) = split_sign(value);
    let (mut size, mut scale) = (0_u64, 0);
    let mut is_behind = false;
    for &byte in text {
        if byte == b'.' {
            is_behind = true;
        } else {
            size = size.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            scale += usize::from(is_behind);
        }
    }
    text.len() <= LONG_NUMBER + 1 && scale < POWERS.len() && is_near_a_double(size, POWERS[scale])
}

const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Returns whether some number of 53 bits differs from `size` / `power` by less than half of 1 / `power`.
fn is_near_a_double(size: u64, power: u64) -> bool {
    if size == 0 {
        return false;
    }
    // Shift the numerator so far that the quotient has 53 or 54 bits.
    let shift = (53 + power.ilog2()).saturating_sub(size.ilog2());
    if !(1..=64).contains(&shift) {
        return false;
    }
    let numerator = u128::from(size) << shift;
    let is_long = numerator / u128::from(power) >= 1 << 53;
    let (numerator, half) = if is_long { (numerator / 2, shift - 1) } else { (numerator, shift) };
    if half == 0 || (is_long && numerator * 2 != u128::from(size) << shift) {
        return false;
    }
    let rest = numerator % u128::from(power);
    rest.min(u128::from(power) - rest) < 1 << (half - 1)
}

/// Returns whether a value has the form 2026-01-31.
#[inline(always)]
fn is_plain_day(value: &[u8]) -> bool {
    value.len() == 10 && has_dashes(value)
}

#[inline(always)]
fn has_dashes(value: &[u8]) -> bool {
    value[4] == b'-' && value[7] == b'-' && value[..4].iter().all(u8::is_ascii_digit)
}

/// Returns whether a value has the form 2026-01-31 23:59:59, with at most `decimals` decimals and nothing behind them.
#[inline(always)]
fn is_plain_timestamp(value: &[u8], decimals: usize) -> bool {
    let length = value.len();
    if length < 19 || !has_dashes(value) || value[13] != b':' || value[16] != b':' || value[17] == b'6' {
        return false;
    }
    let is_apart = matches!(value[10], b' ' | b'T') && value[17].is_ascii_digit() && value[18].is_ascii_digit();
    let has_decimals = || value[19] == b'.' && length <= 20 + decimals && value[20..].iter().all(u8::is_ascii_digit);
    is_apart && (length == 19 || has_decimals())
}

/// Returns whether a value has the form 23:59:59, and its second is not 60.
#[inline(always)]
fn is_plain_time(value: &[u8]) -> bool {
    value.len() == 8 && value[2] == b':' && value[5] == b':' && value[6] != b'6'
}

/// Returns a value without the zone at its end: Z, or an offset such as +00 or +05:30.
#[inline(always)]
fn zoneless(value: &[u8]) -> &[u8] {
    match value {
        [rest @ .., b'Z']
        | [rest @ .., b'+' | b'-', b'0'..=b'9', b'0'..=b'9']
        | [rest @ .., b'+' | b'-', b'0'..=b'9', b'0'..=b'9', b':', b'0'..=b'9', b'0'..=b'9'] => rest,
        _ => value,
    }
}

// ---------------------------------------------------------------- numbers

/// Returns whether a number has a form such as `0x1F`, `0o17`, `0b1` or `1_000`.
pub(crate) fn has_odd_form(rest: &[u8]) -> bool {
    let has_base =
        matches!(rest, [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', digit, ..] if digit.is_ascii_hexdigit());
    has_base || (rest.first().is_some_and(u8::is_ascii_digit) && rest.contains(&b'_'))
}

/// A number in any form that one of the server's types of numbers reads: with a sign, a point and an exponent.
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i32,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (is_negative, rest) = split_sign(text);
        let (whole, behind) = rest.split_at(count_digits(rest));
        let (fraction, behind) = match behind.strip_prefix(b".") {
            Some(part) => part.split_at(count_digits(part)),
            None => (&behind[..0], behind),
        };
        let exponent = match behind {
            [] => 0,
            [b'e' | b'E', digits @ ..] => parse_exponent(digits)?,
            _ => return None,
        };
        (!whole.is_empty() || !fraction.is_empty()).then_some(Self { is_negative, whole, fraction, exponent })
    }

    /// Returns the digits from the first to the last one that is not 0.
    fn digits(&self) -> Vec<u8> {
        let all: Vec<u8> = self.whole.iter().chain(self.fraction).copied().collect();
        let first = all.iter().position(|&digit| digit != b'0').unwrap_or(all.len());
        let last = all.iter().rposition(|&digit| digit != b'0').map_or(first, |last| last + 1);
        all[first..last].to_vec()
    }

    /// Returns how many digits are behind the point, without zeros at the end. If zeros stand at the end before the
    /// point, as in 1200, the result is negative: -2.
    fn places(&self) -> i32 {
        let zeros = self.fraction.iter().chain(&[]).rev().take_while(|&&digit| digit == b'0').count();
        let whole_zeros = self.whole.iter().rev().take_while(|&&digit| digit == b'0').count();
        let zeros = if zeros == self.fraction.len() { zeros + whole_zeros } else { zeros };
        let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        size(self.fraction.len()).saturating_sub(size(zeros)).saturating_sub(self.exponent)
    }

    fn is_kept_by_float8(&self, text: &[u8]) -> bool {
        let digits = self.digits();
        let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        let Some(value) = parsed.filter(|value| value.is_finite() && *value != 0.0) else { return true };
        let is_short = digits.len() <= FLOAT8_DIGITS && value.is_normal();
        is_short || is_written(&format!("{:.*e}", digits.len() - 1, value), &digits)
    }

    fn is_kept_by_float4(&self, text: &[u8]) -> bool {
        let digits = self.digits();
        let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
        let Some(value) = parsed.filter(|value| value.is_finite() && *value != 0.0) else { return true };
        let is_short = digits.len() <= FLOAT4_DIGITS && value.is_normal();
        is_short || is_written(&format!("{:.*e}", digits.len() - 1, value), &digits)
    }
}

/// Returns whether a float has the digits of the text, if it is rounded to as many digits as the text has.
fn is_written(shown: &str, digits: &[u8]) -> bool {
    let found = shown.bytes().take_while(|&byte| byte != b'e').filter(u8::is_ascii_digit);
    found.eq(digits.iter().copied())
}

/// Returns whether a double, rounded to `scale` decimals, is `size` / 10^`scale`. None if this quick check cannot
/// decide that.
#[inline(always)]
#[must_use]
pub fn rounds_back(size: u64, scale: usize, value: f64) -> Option<bool> {
    let bits = value.abs().to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), bits >> 52);
    // The double is mantissa / 2^shift.
    let (mantissa, shift) = (fraction | 1 << 52, 1075_u64.wrapping_sub(exponent));
    if !(1..=64).contains(&shift) || scale >= POWERS.len() {
        return None;
    }
    let difference = (u128::from(mantissa) * u128::from(POWERS[scale])).abs_diff(u128::from(size) << shift);
    let half = 1 << (shift - 1);
    (difference != half).then_some(difference < half)
}

/// Returns the parts that varchar does not keep (varchar.c): blanks beyond its length are cut off. If other characters
/// are beyond the length, the server refuses the value.
fn change_blanks(value: &[u8], length: usize) -> u8 {
    let is_start = |byte: &&u8| **byte & 0xc0 != 0x80;
    let kept = value.trim_ascii_end().iter().filter(is_start).count();
    let all = value.iter().filter(is_start).count();
    if all > length && kept <= length && value.ends_with(b" ") {
        BLANKS
    } else {
        0
    }
}

/// Returns whether a column of days or times accepts a value and keeps it.
#[must_use]
pub(crate) fn keeps_moment(column: ColumnType, value: &[u8], order: DayOrder, knows_order: bool) -> bool {
    let Some(moment) = accepted_moment(column, value, order) else { return false };
    column.change_moment(&moment, value) & !(if knows_order { ORDER } else { 0 }) == 0
}

/// Returns the moment that a column of days reads in a value. None if the column refuses the value.
#[must_use]
pub(crate) fn accepted_moment(column: ColumnType, value: &[u8], order: DayOrder) -> Option<Moment> {
    let last_year = if column == ColumnType::Date { LAST_YEAR_OF_DATES } else { LAST_YEAR_OF_TIMESTAMPS };
    read_moment(value).filter(|moment| moment.is_accepted(last_year, order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_changes(column: ColumnType, cases: &[(&str, u8)]) {
        for &(value, expected) in cases {
            assert_eq!(column.change(value.as_bytes()), expected, "{column:?} {value}");
            assert_eq!(column.keeps(value.as_bytes(), true), expected == 0, "{column:?} {value}");
        }
    }

    #[test]
    fn numbers_keep_their_form_sign_and_digits() {
        let forms = [
            ("007", FORM),
            ("-007", FORM),
            (" 007 ", FORM),
            ("0x1F", FORM),
            ("0o17", FORM),
            ("-0b1", FORM),
            ("1_000", FORM),
            ("0", 0),
            ("-1", 0),
            ("+5", 0),
            (" 5 ", 0),
            ("x", 0),
            ("", 0),
            ("-", 0),
        ];
        assert_changes(ColumnType::Integer, &forms);
        assert_changes(ColumnType::Integer, &[("-0", SIGN), ("-000", FORM | SIGN)]);
        assert_changes(ColumnType::Numeric { scale: i32::MAX }, &forms);
        assert_changes(ColumnType::Numeric { scale: i32::MAX }, &[("-0.00", SIGN), ("-0.5", 0), ("1e3", 0), ("5.", 0)]);
        let rounded = [("1.005", DIGITS), ("1.500", 0), ("1e-3", DIGITS), ("1200e-4", 0), ("0.001", DIGITS), ("12", 0)];
        assert_changes(ColumnType::Numeric { scale: 2 }, &rounded);
        assert_changes(ColumnType::Numeric { scale: -2 }, &[("1200", 0), ("1250", DIGITS), ("12e2", 0), ("0", 0)]);
    }

    #[test]
    fn floats_keep_the_digits_that_they_write_back() {
        assert_changes(
            ColumnType::Float8,
            &[
                ("-0.0", 0),
                ("0.1", 0),
                ("0.10000000000000001", 0),
                ("-73.982154846191406", 0),
                ("0.12345678901234567", DIGITS),
                ("0.123456789012345678", DIGITS),
                ("9007199254740993", DIGITS),
                ("9007199254740992", 0),
                ("1.500000000000000000000", 0),
                ("1e400", 0),
                ("1.2345e-320", DIGITS),
                ("007.5", FORM),
                ("NaN", 0),
            ],
        );
        assert_changes(ColumnType::Float4, &[("12.3456", 0), ("16777217", DIGITS), ("-73.982155", 0)]);
    }

    #[test]
    fn rounding_back_is_what_the_digits_say() {
        let mut seed = 5_u64;
        let (mut kept, mut lost, mut nears) = (0, 0, 0);
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let digits = 15 + u32::try_from(seed % 5).unwrap();
            let size = (seed >> 1) % 10_u64.pow(digits);
            let scale = usize::try_from((seed >> 40) % 20).unwrap();
            let text = format!("{size}e-{scale}");
            let value: f64 = text.parse().unwrap();
            let Some(found) = rounds_back(size, scale, value) else { continue };
            let near = is_near_a_double(size, POWERS[scale]);
            assert!(near == found || !near, "{text}");
            nears += u32::from(near);
            let number = Decimal::parse(text.as_bytes()).unwrap();
            if !size.is_multiple_of(10) {
                assert_eq!(found, number.is_kept_by_float8(text.as_bytes()), "{text}");
                (kept, lost) = if found { (kept + 1, lost) } else { (kept, lost + 1) };
            }
        }
        assert!(kept > 1_000 && lost > 1_000 && nears * 10 > kept * 8, "{kept} {lost} {nears}");
    }

    #[test]
    fn days_lose_times_zones_and_their_order() {
        assert_changes(
            ColumnType::Date,
            &[
                ("2026-11-02", 0),
                (" 2026/11/02", 0),
                ("20261102", 0),
                ("2026-11-02 23:59:59", TIME),
                ("2026-11-02T08:00:00Z", TIME | ZONE),
                ("2026-11-02 00:00:00", 0),
                ("11/13/2026 12:00:00 AM", 0),
                ("11/13/2026 12:00:00 PM", TIME),
                ("2026-11-02+02", ZONE),
                ("01/02/2026", ORDER),
                ("02.03.2026", ORDER),
                ("2-3-2026", ORDER),
                ("2.3.26", ORDER),
                ("02/02/2026", 0),
                ("31.01.2026", 0),
                ("31-Jan-2026", 0),
                ("Jan-31-2026", 0),
                ("January 8, 1999", 0),
                ("Mon Jan 8 1999", 0),
                ("infinity", 0),
                ("today", FORM),
                ("x", 0),
                ("5", 0),
            ],
        );
    }

    #[test]
    fn timestamps_lose_zones_and_digits() {
        let cases = [
            ("2026-11-02", 0),
            ("2026-11-02 23:59:59.123456", 0),
            ("2026-11-02 23:59:59.1234567", DIGITS),
            ("2026-11-02 23:59:59.1200000000", 0),
            ("01/02/2026 10:00", ORDER),
            ("2016-12-31 23:59:60", FORM),
            ("20261102T101112", 0),
        ];
        let zones = [
            ("2026-11-02 23:59:59Z", ZONE),
            ("2026-11-02T23:59:59+02:00", ZONE),
            ("2026-11-02 23:59:59.5-03", ZONE),
            ("2026-11-02 23:59:59 UTC", ZONE),
            ("2026-11-02 23:59:59 America/New_York", ZONE),
            ("2026-11-02 11:59:59 PM EST", ZONE),
        ];
        assert_changes(ColumnType::Timestamp { decimals: 6 }, &cases);
        assert_changes(ColumnType::Timestamp { decimals: 6 }, &zones);
        assert_changes(ColumnType::Timestamp { decimals: 0 }, &[("2026-11-02 23:59:59.5", DIGITS)]);
        assert_changes(ColumnType::Timestamptz { decimals: 6 }, &cases);
        assert_changes(ColumnType::Timestamptz { decimals: 6 }, &zones.map(|(value, _)| (value, 0)));
    }

    #[test]
    fn times_lose_zones_and_days() {
        let cases = [
            ("10:15", 0),
            ("10:15:00.1234567", DIGITS),
            ("040506", 0),
            ("10:15:60", FORM),
            ("2026-11-02 10:15:00", DAY),
        ];
        assert_changes(ColumnType::Time { decimals: 6 }, &cases);
        assert_changes(ColumnType::Time { decimals: 6 }, &[("10:15:00+02", ZONE)]);
        assert_changes(ColumnType::Timetz { decimals: 6 }, &[("10:15:00+02", 0)]);
        assert_changes(ColumnType::Timetz { decimals: 6 }, &[("10:15:60", FORM), ("10:15:60+02", FORM)]);
    }

    #[test]
    fn blanks_beyond_the_length_are_lost() {
        let cases =
            [("abc", 0), ("abc ", BLANKS), ("\u{e9}\u{e9}\u{e9}", 0), ("ab ", 0), ("abcd ", 0), ("    ", BLANKS)];
        assert_changes(ColumnType::Varchar { length: 3 }, &cases);
    }
}
