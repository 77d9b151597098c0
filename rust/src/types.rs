//! Finds which types of `PostgreSQL` all values of a column have.
//!
//! The functions that recognise a type's values accept fewer values than the server's input functions. Each value that
//! they accept is also accepted by the server, with any settings, and the server stores the same value, with every
//! digit of a number. A code such as 007 is not recognised as a number.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::fields::{Field, FieldReader, Format, LineEnd};
use crate::json::Scanner;
use crate::kept::{accepted_moment, keeps_moment, rounds_back, ColumnType};
use crate::moments::DayOrder;
use crate::notation::{plain_value, Notation};
use crate::rewrite::Rewriter;

/// The bits of a set of types, in the order in which they are preferred.
pub const BOOLEAN: u64 = 1;
pub const INTEGER: u64 = 1 << 1;
pub const BIGINT: u64 = 1 << 2;
pub const NUMERIC: u64 = 1 << 3;
pub const DOUBLE: u64 = 1 << 4;
pub const DATE: u64 = 1 << 5;
pub const TIMESTAMP: u64 = 1 << 6;
pub const TIMESTAMPTZ: u64 = 1 << 7;
pub const UUID: u64 = 1 << 8;
pub const JSONB: u64 = 1 << 9;
/// This bit is not a type. It says that the user has chosen the order of day, month and year, so that columns keep
/// 01/02/2026.
pub const KNOWN_ORDER: u64 = 1 << 10;
/// The bits for what an existing column of this type accepts and keeps (`kept.rs`), such as +7 for an integer.
pub const KEPT_SMALLINT: u64 = 1 << 11;
pub const KEPT_INTEGER: u64 = 1 << 12;
pub const KEPT_BIGINT: u64 = 1 << 13;
pub const KEPT_NUMERIC: u64 = 1 << 14;
pub const KEPT_DATE: u64 = 1 << 15;
pub const KEPT_TIMESTAMP: u64 = 1 << 16;
pub const KEPT_TIMESTAMPTZ: u64 = 1 << 17;
/// The bits from here on are notations (`NOTATED`): a value has the bit if it is written so.
const FIRST_NOTATION: u32 = 18;
const ORDERS: u64 = 0b111 << FIRST_NOTATION;
const YMD: u64 = 0b100 << FIRST_NOTATION;
const WITH_COMMA: u64 = 0b111_1000 << FIRST_NOTATION;
const WITH_POINT: u64 = 0b11_1000_0000 << FIRST_NOTATION;
/// The bit for numbers, dates and timestamps that are plain already, whose notation does not matter.
pub const PLAIN: u64 = 1 << (FIRST_NOTATION + 10);
const NOTATIONS: u64 = ORDERS | WITH_COMMA | WITH_POINT | PLAIN;
/// This bit is not a type. It says that records with a value that their column refuses are rejected. So a value that all
/// columns of numbers refuse changes none of them, and a value that all columns of days and times refuse none of those.
pub const REJECTS: u64 = 1 << 29;
/// Two bits that say which order of the three numbers of a day the server reads (`DayOrder::numbered`).
const ORDER_SHIFT: u32 = 30;
/// This bit is not a type. A column loses it at the first of `NULL_WORDS`, which takes no other bit: the other bits are
/// those of the values that are left if the word stands for null.
pub const NO_WORD: u64 = 1 << 32;
/// The bits that are no types and no notations, but for `NO_WORD`.
pub(crate) const FLAGS: u64 = KNOWN_ORDER | REJECTS | 0b11 << ORDER_SHIFT;
/// The bits that are no types and no notations.
const MARKS: u64 = FLAGS | NO_WORD;
/// The words that other programs write for null.
pub const NULL_WORDS: [&str; 15] =
    ["", "\\N", "NULL", "null", "NA", "N/A", "#N/A", "n/a", "None", "none", "nil", "-", "--", ".", "?"];

const NUMBERS: u64 = INTEGER | BIGINT | NUMERIC | DOUBLE;
const TIMES: u64 = DATE | TIMESTAMP | TIMESTAMPTZ;
const KEPT_NUMBERS: u64 = KEPT_SMALLINT | KEPT_INTEGER | KEPT_BIGINT | KEPT_NUMERIC;
const KEPT_TIMES: u64 = KEPT_DATE | KEPT_TIMESTAMP | KEPT_TIMESTAMPTZ;
pub(crate) const KEPT: u64 = KEPT_NUMBERS | KEPT_TIMES;
/// How many decimals of a second the server stores.
const DECIMALS: usize = 6;

/// How many bytes of a value are shown.
pub(crate) const SHOWN_BYTES: usize = 60;

// The most digits of a numeric before and behind the decimal point (src/backend/utils/adt/numeric.c).
const NUMERIC_WHOLE_DIGITS: usize = 131_072;
const NUMERIC_FRACTION_DIGITS: usize = 16_383;
/// The most significant digits of a fraction that a double may keep. If a fraction has more digits, some are lost.
const DOUBLE_DIGITS: usize = 17;
/// The number of digits up to which a double keeps every number.
const EXACT_DIGITS: usize = 15;
/// How deep values of jsonb may be nested. Deeper values could exceed the smallest `max_stack_depth` of the server.
const JSON_DEPTH: usize = 100;
/// The longest number in jsonb, which stores numbers as numeric. A value with a longer number stays text.
const JSON_NUMBER_BYTES: usize = 1000;

/// Whether a type accepts a value. A value is `Canonical` if the server itself would write it so (with `DateStyle`
/// ISO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    No,
    Accepted,
    Canonical,
}

impl Fit {
    fn if_accepted(is_accepted: bool) -> Self {
        if is_accepted {
            Self::Accepted
        } else {
            Self::No
        }
    }

    fn if_canonical(is_canonical: bool) -> Self {
        if is_canonical {
            Self::Canonical
        } else {
            Self::Accepted
        }
    }
}

/// A value that decides a type, cut after `SHOWN_BYTES` bytes. `line` is the index of its line in the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub line: u64,
    pub value: Vec<u8>,
}

/// The types that all values of one column of a block have. `lost` lists each type that does not fit, with the first
/// value that does not have this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTypes {
    pub fits: u64,
    pub first: Option<Witness>,
    pub lost: Vec<(u64, Witness)>,
}

/// Finds the types of the columns that a rewriter writes. `block` has whole records. `forced` says for each column
/// whether a quoted null string is null in it (`FORCE_NULL`).
///
/// Records with a wrong number of fields are skipped, because COPY refuses them.
#[must_use]
pub fn find_types(
    rewriter: &Rewriter,
    block: &[u8],
    line_end: LineEnd,
    wanted: u64,
    forced: &[bool],
) -> Vec<ColumnTypes> {
    let reader = rewriter.reader(block, line_end);
    let (mut start, mut fields) = (0, Vec::new());
    let mut columns: Vec<ColumnTypes> = Vec::new();
    while start < block.len() {
        let Some(next) = reader.read_record(start, &mut fields) else { break };
        if rewriter.check_width(&reader, &mut fields, 0, || 0).is_ok() {
            let count = rewriter.keep.as_ref().map_or(fields.len(), Vec::len);
            if columns.is_empty() {
                columns.resize_with(count, || ColumnTypes::new(wanted));
            }
            for (index, column) in columns.iter_mut().enumerate() {
                if column.fits & !MARKS == 0 {
                    continue;
                }
                let field = &fields[rewriter.keep.as_ref().map_or(index, |keep| keep[index])];
                let is_forced = forced.get(index).copied().unwrap_or(false);
                let is_forced_null = is_forced && is_quoted_null(rewriter, &reader, field);
                if is_forced_null || rewriter.is_null(block, field) {
                    continue;
                }
                // COPY is not sent a record with a value that is not in the notation of its column.
                if let Some(value) = plain_value(&rewriter.notations, &reader, index, field) {
                    let (left, line) = (fitting(&value, column.fits), || reader.line_at(field.start));
                    if wanted & NO_WORD != 0 && left & !MARKS == 0 && is_null_word(&value) {
                        column.take_word(&value, line);
                    } else {
                        column.take_value(|| reader.value(field), left, line);
                    }
                }
            }
        }
        start = next;
    }
    columns
}

pub(crate) fn is_quoted_null(rewriter: &Rewriter, reader: &FieldReader, field: &Field) -> bool {
    field.is_special
        && matches!(rewriter.format, Format::Csv { .. })
        && rewriter.nulls.first().is_some_and(|null| *reader.value(field) == **null)
}

impl ColumnTypes {
    pub(crate) fn new(wanted: u64) -> Self {
        Self { fits: wanted, first: None, lost: Vec::new() }
    }

    /// Takes a word for null that no type accepts.
    fn take_word(&mut self, value: &[u8], line: impl FnOnce() -> u64) {
        if self.fits & NO_WORD == 0 {
            return;
        }
        let shown = Witness { line: line(), value: value.to_vec() };
        self.first.get_or_insert_with(|| shown.clone());
        self.lost.push((NO_WORD, shown));
        self.fits &= !NO_WORD;
    }

    /// Takes a value as it is written. `left` are those of the types in `fits` that accept the value.
    ///
    /// If no type is left, the column's further values do not matter.
    pub(crate) fn take_value<'a>(
        &mut self,
        value: impl FnOnce() -> Cow<'a, [u8]>,
        mut left: u64,
        line: impl FnOnce() -> u64,
    ) {
        if left == self.fits && self.first.is_some() {
            return;
        }
        if self.fits & NO_WORD != 0 && left & !MARKS == 0 {
            left = 0;
        }
        let value = value();
        let shown = Witness { line: line(), value: value[..value.len().min(SHOWN_BYTES)].to_vec() };
        if left != self.fits {
            self.lost.push((self.fits & !left & !MARKS, shown.clone()));
        }
        self.first.get_or_insert(shown);
        self.fits = left;
    }
}

fn is_null_word(value: &[u8]) -> bool {
    NULL_WORDS.iter().any(|word| word.as_bytes() == value)
}

/// Returns the types of `wanted` that accept a value.
#[must_use]
pub fn fitting(value: &[u8], wanted: u64) -> u64 {
    let Some(&first) = value.first() else { return wanted & if wanted & REJECTS == 0 { MARKS } else { MARKS | KEPT } };
    let mut found = 0;
    let mut note = |bit: u64, fit: Fit| found |= if fit == Fit::No { 0 } else { bit };
    let number = if wanted & (NUMBERS | NOTATIONS) == 0 { None } else { Number::parse(value) };
    if wanted & NUMBERS != 0 {
        if let Some(number) = number {
            if number.is_negative && number.is_zero() {
                // Only floating-point numbers have a negative zero.
                note(DOUBLE, number.double(value));
            } else if number.is_short() {
                // A number with so few digits is in the range of numeric, double and bigint, but maybe not of integer.
                // Only numeric and double accept a fraction.
                note(NUMERIC | DOUBLE, Fit::Accepted);
                note(BIGINT, Fit::if_accepted(number.is_whole()));
                note(INTEGER, if wanted & INTEGER == 0 { Fit::No } else { number.integer() });
            } else {
                note(INTEGER, number.integer());
                note(BIGINT, number.bigint());
                note(NUMERIC, number.numeric());
                note(DOUBLE, if wanted & DOUBLE == 0 { Fit::No } else { number.double(value) });
            }
        } else if wanted & DOUBLE != 0 {
            note(DOUBLE, infinite(value));
        }
    }
    if wanted & BOOLEAN != 0 {
        note(BOOLEAN, boolean(value));
    }
    if wanted & TIMES != 0 && first.is_ascii_digit() {
        for (bit, recognise) in [(DATE, date as fn(&[u8]) -> Fit), (TIMESTAMP, timestamp), (TIMESTAMPTZ, timestamptz)] {
            note(bit, if wanted & bit == 0 { Fit::No } else { recognise(value) });
        }
    }
    if wanted & UUID != 0 {
        note(UUID, uuid(value));
    }
    if wanted & JSONB != 0 {
        note(JSONB, jsonb(value));
    }
    if wanted & NOTATIONS != 0 {
        found |= notations(value, wanted, number);
    }
    if wanted & KEPT_NUMBERS != 0 {
        found |= kept_by_numbers(value, wanted);
    }
    if wanted & KEPT_TIMES != 0 {
        found |= kept_by_times(value, wanted);
    }
    (found | MARKS) & wanted
}

/// Returns the types whose canonical form a value has.
#[must_use]
pub fn canonical(value: &[u8]) -> u64 {
    let mut found = 0;
    let mut note = |bit: u64, fit: Fit| found |= if fit == Fit::Canonical { bit } else { 0 };
    if let Some(number) = Number::parse(value) {
        note(INTEGER, number.integer());
        note(BIGINT, number.bigint());
        note(NUMERIC, number.numeric());
        note(DOUBLE, number.double(value));
    } else {
        note(DOUBLE, infinite(value));
    }
    note(BOOLEAN, boolean(value));
    note(DATE, date(value));
    note(TIMESTAMP, timestamp(value));
    note(TIMESTAMPTZ, timestamptz(value));
    note(UUID, uuid(value));
    found
}

/// Recognises true and false in lower case, in upper case or capitalised, and t and f (boolin in
/// src/backend/utils/adt/bool.c).
#[must_use]
pub fn boolean(value: &[u8]) -> Fit {
    match value {
        b"t" | b"f" => Fit::Canonical,
        b"true" | b"false" | b"True" | b"False" | b"TRUE" | b"FALSE" => Fit::Accepted,
        _ => Fit::No,
    }
}

// ---------------------------------------------------------------- numbers

/// A decimal number without `+` and leading zeros. If it has a point, at least one digit follows the point.
#[derive(Clone, Copy, Debug)]
pub struct Number<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: Option<i32>,
}

pub(crate) fn count_digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

pub(crate) fn is_zeros(digits: &[u8]) -> bool {
    digits.iter().all(|&byte| byte == b'0')
}

impl<'a> Number<'a> {
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (is_negative, rest) = value.strip_prefix(b"-").map_or((false, value), |rest| (true, rest));
        let (whole, rest) = rest.split_at(count_digits(rest));
        if whole.len() > 1 && whole[0] == b'0' {
            return None;
        }
        let (fraction, rest) = match rest.strip_prefix(b".") {
            Some(behind) => behind.split_at(count_digits(behind)),
            None => (&rest[..0], rest),
        };
        let has_point = !fraction.is_empty();
        let is_bare_point = value.contains(&b'.') && !has_point;
        if is_bare_point || (whole.is_empty() && !has_point) {
            return None;
        }
        let exponent = match rest {
            [] => None,
            [b'e' | b'E', digits @ ..] => Some(parse_exponent(digits)?),
            _ => return None,
        };
        Some(Self { is_negative, whole, fraction, exponent })
    }

    fn is_whole(&self) -> bool {
        self.fraction.is_empty() && self.exponent.is_none()
    }

    /// Returns whether the number has no exponent, and so few digits that a double keeps it.
    fn is_short(&self) -> bool {
        self.exponent.is_none() && self.whole.len() + self.fraction.len() <= EXACT_DIGITS
    }

    fn is_zero(&self) -> bool {
        is_zeros(self.whole) && is_zeros(self.fraction)
    }

    /// Returns the absolute value of a whole number of at most 19 digits, None for any other number.
    fn magnitude(&self) -> Option<u64> {
        if !self.is_whole() || self.whole.len() > 19 {
            return None;
        }
        Some(self.whole.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }

    fn within(&self, highest: u64) -> Fit {
        match self.magnitude() {
            Some(0) if self.is_negative => Fit::No,
            Some(size) if size <= highest + u64::from(self.is_negative) => Fit::Canonical,
            _ => Fit::No,
        }
    }

    /// Returns how the number fits an integer (int4in in src/backend/utils/adt/int.c).
    #[must_use]
    pub fn integer(&self) -> Fit {
        self.within(i32::MAX as u64)
    }

    /// Returns how the number fits a bigint (int8in in src/backend/utils/adt/int8.c).
    #[must_use]
    pub fn bigint(&self) -> Fit {
        self.within(i64::MAX as u64)
    }

    /// Returns how the number fits a numeric (`numeric_in` in src/backend/utils/adt/numeric.c). A number with an
    /// exponent only fits a double.
    #[must_use]
    pub fn numeric(&self) -> Fit {
        let is_short = self.whole.len() <= NUMERIC_WHOLE_DIGITS && self.fraction.len() <= NUMERIC_FRACTION_DIGITS;
        let is_negative_zero = self.is_negative && self.is_zero();
        if self.exponent.is_some() || !is_short || is_negative_zero {
            return Fit::No;
        }
        Fit::if_canonical(!self.whole.is_empty())
    }

    /// Returns how the number fits a double (float8in in src/backend/utils/adt/float.c). It does not fit if the double
    /// does not keep the digits of `value`.
    #[must_use]
    pub fn double(&self, value: &[u8]) -> Fit {
        let digits = self.significant_digits();
        let most = if self.is_whole() { EXACT_DIGITS } else { DOUBLE_DIGITS };
        if digits > most || (digits > EXACT_DIGITS && !self.is_kept_by_double(value)) {
            return Fit::No;
        }
        let is_far = self.exponent.is_some_and(|size| size.unsigned_abs() > 250) || value.len() > 40;
        if is_far && !self.is_zero() {
            let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
            if !parsed.is_some_and(|found| found.is_finite() && found.abs() >= f64::MIN_POSITIVE) {
                return Fit::No;
            }
        }
        Fit::if_canonical(self.is_written_so(digits))
    }

    /// Returns whether a double has the same digits as the number, if the double is rounded to as many digits.
    fn is_kept_by_double(&self, value: &[u8]) -> bool {
        let digits = self.whole.iter().chain(self.fraction);
        let size = digits.fold(0_u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
        let is_plain = self.exponent.is_none() && self.whole.len() + self.fraction.len() <= 19;
        let parsed = || std::str::from_utf8(value).ok()?.parse::<f64>().ok();
        let found =
            if is_plain { parsed().and_then(|found| rounds_back(size, self.fraction.len(), found)) } else { None };
        found == Some(true) || ColumnType::Float8.change(value) == 0
    }

    /// Returns how many digits there are from the first to the last one that is not 0.
    fn significant_digits(&self) -> usize {
        let zeros = |bytes: &mut dyn Iterator<Item = &u8>| bytes.take_while(|&&byte| byte == b'0').count();
        let all = self.whole.len() + self.fraction.len();
        let leading = zeros(&mut self.whole.iter().chain(self.fraction));
        let trailing = zeros(&mut self.fraction.iter().rev().chain(self.whole.iter().rev()));
        all.saturating_sub(leading + trailing)
    }

    /// Returns whether float8out writes the number in this form: at most 15 digits, no zeros at the end, no exponent
    /// needed.
    fn is_written_so(&self, digits: usize) -> bool {
        let is_plain = self.exponent.is_none() && !self.whole.is_empty() && digits <= EXACT_DIGITS;
        let small_zeros = self.fraction.iter().take_while(|&&byte| byte == b'0').count();
        let is_tiny = self.whole == b"0" && small_zeros > 3;
        is_plain && self.whole.len() <= EXACT_DIGITS && !is_tiny && self.fraction.last() != Some(&b'0')
    }
}

pub(crate) fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix(b"+").unwrap_or(text)),
    }
}

/// Reads an exponent of at most four digits.
pub(crate) fn parse_exponent(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = split_sign(text);
    if digits.is_empty() || digits.len() > 4 || count_digits(digits) < digits.len() {
        return None;
    }
    let size = digits.iter().fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
    Some(if is_negative { -size } else { size })
}

/// Recognises the values of a double that are not numbers, as programs write them.
fn infinite(value: &[u8]) -> Fit {
    match value {
        b"NaN" | b"Infinity" | b"-Infinity" => Fit::Canonical,
        b"nan" | b"inf" | b"-inf" | b"Inf" | b"-Inf" => Fit::Accepted,
        _ => Fit::No,
    }
}

/// Returns which columns of numbers accept a value by the server's own rules, and keep it.
fn kept_by_numbers(value: &[u8], wanted: u64) -> u64 {
    let text = value.trim_ascii();
    let (is_negative, rest) = split_sign(text);
    if ColumnType::Integer.change(value) != 0 {
        return if wanted & REJECTS == 0 || is_odd_number(rest) { 0 } else { KEPT_NUMBERS };
    }
    let (whole, behind) = rest.split_at(count_digits(rest));
    let zeros = whole.iter().take_while(|&&byte| byte == b'0').count();
    let number = Number { is_negative, whole: &whole[zeros..], fraction: b"", exponent: None };
    if behind.is_empty() && !whole.is_empty() {
        let bit = |bit: u64, fit: Fit| if fit == Fit::No { 0 } else { bit };
        return KEPT_NUMERIC
            | bit(KEPT_SMALLINT, number.within(i16::MAX as u64))
            | bit(KEPT_INTEGER, number.integer())
            | bit(KEPT_BIGINT, number.bigint());
    }
    let behind_point = behind.strip_prefix(b".").unwrap_or(behind);
    let (fraction, exponent) =
        behind_point.split_at(if behind.starts_with(b".") { count_digits(behind_point) } else { 0 });
    let is_number = !(whole.is_empty() && fraction.is_empty())
        && match exponent {
            [] => true,
            [b'e' | b'E', digits @ ..] => parse_exponent(digits).is_some(),
            _ => false,
        };
    let is_infinite = [&b"inf"[..], b"infinity"].iter().any(|word| rest.eq_ignore_ascii_case(word));
    if is_number || is_infinite || text.eq_ignore_ascii_case(b"nan") {
        KEPT_NUMERIC
    } else if wanted & REJECTS != 0 {
        KEPT_NUMBERS
    } else {
        0
    }
}

/// Returns whether a text that a column would not keep may be a number to some version of the server, such as `1_000`.
fn is_odd_number(rest: &[u8]) -> bool {
    match rest {
        [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', digits @ ..] => {
            digits.iter().all(|&byte| byte.is_ascii_hexdigit() || byte == b'_')
        }
        _ => rest.iter().all(|byte| byte.is_ascii_digit() || b"_.eE+-".contains(byte)),
    }
}

/// Returns which columns of days and times accept a value, and keep it.
fn kept_by_times(value: &[u8], wanted: u64) -> u64 {
    let widest = ColumnType::Timestamptz { decimals: DECIMALS };
    if wanted & REJECTS != 0 && accepted_moment(widest, value, DayOrder::numbered(wanted >> ORDER_SHIFT)).is_none() {
        return KEPT_TIMES;
    }
    let knows_order = wanted & KNOWN_ORDER != 0;
    let order = DayOrder::numbered(wanted >> ORDER_SHIFT);
    let bit = |bit: u64, column: ColumnType| {
        if wanted & bit != 0 && keeps_moment(column, value, order, knows_order) {
            bit
        } else {
            0
        }
    };
    bit(KEPT_DATE, ColumnType::Date)
        | bit(KEPT_TIMESTAMP, ColumnType::Timestamp { decimals: DECIMALS })
        | bit(KEPT_TIMESTAMPTZ, widest)
}

// ---------------------------------------------------------------- dates and times

pub(crate) fn number_of(digits: &[u8]) -> Option<u32> {
    let is_number = count_digits(digits) == digits.len();
    is_number.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
}

/// Recognises a day of the calendar, from year 1 to 9999. It may have the form 2026-01-31, in which the server writes
/// days, or the form 2026/01/31, whose order does not depend on `DateStyle` either (`DecodeNumber` in
/// src/backend/utils/adt/datetime.c).
fn day(text: &[u8]) -> Fit {
    let [y1, y2, y3, y4, one @ (b'-' | b'/'), m1, m2, two, d1, d2] = text else { return Fit::No };
    if is_day([*y1, *y2, *y3, *y4, *m1, *m2, *d1, *d2]) && one == two {
        Fit::if_canonical(*one == b'-')
    } else {
        Fit::No
    }
}

fn is_day([y1, y2, y3, y4, m1, m2, d1, d2]: [u8; 8]) -> bool {
    let (year, month, day) = (number_of(&[y1, y2, y3, y4]), number_of(&[m1, m2]), number_of(&[d1, d2]));
    let (Some(year), Some(month), Some(day)) = (year, month, day) else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(is_leap),
        1..=12 => 31,
        _ => return false,
    };
    year > 0 && (1..=days).contains(&day)
}

/// Recognises a date (`date_in` in src/backend/utils/adt/date.c).
#[must_use]
pub fn date(value: &[u8]) -> Fit {
    day(value)
}

/// Reads a time such as 23:59, 23:59:59 or 23:59:59.123456. Returns its length, and whether the server writes it in
/// this form.
fn read_time(text: &[u8]) -> Option<(usize, bool)> {
    let within = |at: usize, most: u32| text.get(at..at + 2).and_then(number_of).is_some_and(|number| number <= most);
    if !(within(0, 23) && text.get(2) == Some(&b':') && within(3, 59)) {
        return None;
    }
    if text.get(5) != Some(&b':') {
        return Some((5, false));
    }
    if !within(6, 59) {
        return None;
    }
    if text.get(8) != Some(&b'.') {
        return Some((8, true));
    }
    let digits = count_digits(&text[9..]);
    // At most six decimals are accepted, because the server rounds more.
    (1..=6).contains(&digits).then(|| (9 + digits, text[8 + digits] != b'0'))
}

/// Returns what follows the day and the time, and whether the server writes both in this form. None if the value has no
/// time.
fn split_time(value: &[u8]) -> Option<(&[u8], bool)> {
    if value.len() < 16 || !matches!(value[10], b' ' | b'T') {
        return None;
    }
    let day = day(&value[..10]);
    if day == Fit::No {
        return None;
    }
    let (length, is_canonical) = read_time(&value[11..])?;
    Some((&value[11 + length..], is_canonical && value[10] == b' ' && day == Fit::Canonical))
}

/// Recognises a timestamp (`timestamp_in` in src/backend/utils/adt/timestamp.c). A day without a time is its midnight.
#[must_use]
pub fn timestamp(value: &[u8]) -> Fit {
    match split_time(value) {
        Some(([], is_canonical)) => Fit::if_canonical(is_canonical),
        None if date(value) != Fit::No => Fit::Accepted,
        _ => Fit::No,
    }
}

/// Recognises a timestamp with Z or an offset of hours and minutes (`timestamptz_in`), so that `TimeZone` does not
/// matter.
#[must_use]
pub fn timestamptz(value: &[u8]) -> Fit {
    let Some((zone, _)) = split_time(value) else { return Fit::No };
    let is_offset = |digits: &[u8]| match digits {
        [h1, h2] => number_of(&[*h1, *h2]).is_some_and(|hours| hours <= 15),
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => {
            let (hours, minutes) = (number_of(&[*h1, *h2]), number_of(&[*m1, *m2]));
            hours.is_some_and(|hours| hours <= 15) && minutes.is_some_and(|minutes| minutes <= 59)
        }
        _ => false,
    };
    match zone {
        b"Z" => Fit::Accepted,
        [b'+' | b'-', digits @ ..] | [b' ', b'+' | b'-', digits @ ..] if is_offset(digits) => Fit::Accepted,
        _ => Fit::No,
    }
}

// ---------------------------------------------------------------- notations

/// The notations in the order of their bits. Separators are those of UTF-8 and of Windows-1252.
static NOTATED: LazyLock<Vec<Notation>> = LazyLock::new(|| {
    const BLANKS: [&[u8]; 4] = [b" ", b"\xa0", b"\xc2\xa0", b"\xe2\x80\xaf"];
    const MARKS: [&[u8]; 3] = [b"'", b"\x92", b"\xe2\x80\x99"];
    let names: [(&str, &[&[u8]]); 10] = [
        ("dmy", &[]),
        ("mdy", &[]),
        ("ymd", &[]),
        ("1234,5", &[]),
        ("1.234,5", &[b"."]),
        ("1 234,5", &BLANKS),
        ("1'234,5", &MARKS),
        ("1,234.5", &[b","]),
        ("1 234.5", &BLANKS),
        ("1'234.5", &MARKS),
    ];
    let named = |(name, separators): (&str, &[&[u8]])| {
        Notation::named(name, separators.iter().map(|separator| separator.to_vec()).collect())
    };
    names.into_iter().filter_map(named).collect()
});

/// Returns the notations of `wanted` in which a value is written, so that its plain form has a type.
fn notations(value: &[u8], wanted: u64, number: Option<Number>) -> u64 {
    let is_time = |text: &[u8]| [date, timestamp, timestamptz].iter().any(|recognise| recognise(text) != Fit::No);
    // Blanks around a number or a date are no notation.
    let value = value.trim_ascii();
    let known = match number.or_else(|| Number::parse(value)) {
        Some(number) if number.is_whole() => PLAIN | WITH_POINT | WITH_COMMA,
        Some(_) => PLAIN | WITH_POINT,
        None if wanted & (PLAIN | YMD) != 0 && is_time(value) => PLAIN | YMD,
        None => 0,
    };
    let left = wanted & NOTATIONS & !known & !PLAIN;
    if left == 0 {
        return known;
    }
    let bits = (FIRST_NOTATION..).map(|number| 1 << number).zip(NOTATED.iter()).filter(|(bit, _)| left & bit != 0);
    let has_type = |bit: u64, plain: Vec<u8>| match bit & ORDERS {
        0 => Number::parse(&plain).is_some(),
        _ => is_time(&plain),
    };
    let fits = |(bit, notation): &(u64, &Notation)| notation.plain(value).is_some_and(|plain| has_type(*bit, plain));
    known | bits.filter(fits).map(|(bit, _)| bit).sum::<u64>()
}

// ---------------------------------------------------------------- uuid and jsonb

/// Recognises 8-4-4-4-12 hexadecimal digits (`uuid_in` in src/backend/utils/adt/uuid.c).
#[must_use]
pub fn uuid(value: &[u8]) -> Fit {
    if value.len() != 36 {
        return Fit::No;
    }
    let is_right = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    if value.iter().enumerate().all(is_right) {
        Fit::if_canonical(!value.iter().any(u8::is_ascii_uppercase))
    } else {
        Fit::No
    }
}

/// Recognises an object or array without duplicate names (`jsonb_in`, src/common/jsonapi.c), for a database with
/// encoding UTF8.
#[must_use]
pub fn jsonb(value: &[u8]) -> Fit {
    let is_started = matches!(value.trim_ascii_start().first(), Some(b'{' | b'['));
    let is_whole = || Scanner::new(value).limited(JSON_DEPTH, JSON_NUMBER_BYTES).document().is_ok();
    Fit::if_accepted(is_started && is_whole())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
    const ALL: u64 = KNOWN_ORDER - 1;

    fn types(value: &str) -> u64 {
        fitting(value.as_bytes(), ALL)
    }

    #[test]
    fn each_value_has_its_types() {
        let whole = INTEGER | BIGINT | NUMERIC | DOUBLE;
        for (value, expected) in [
            ("", 0),
            ("t", BOOLEAN),
            ("TRUE", BOOLEAN),
            ("yes", 0),
            ("0", whole),
            ("-2147483648", whole),
            ("2147483648", BIGINT | NUMERIC | DOUBLE),
            ("-9223372036854775808", BIGINT | NUMERIC),
            ("9223372036854775808", NUMERIC),
            ("1000000000000000000000", NUMERIC | DOUBLE),
            ("007", 0),
            ("+7", 0),
            ("-0", DOUBLE),
            ("-0.0", DOUBLE),
            ("0.10000000000000001", NUMERIC | DOUBLE),
            ("0.12345678901234567", NUMERIC),
            ("1.2345678901234567e5", DOUBLE),
            ("1.2345678901234561e5", 0),
            ("-", 0),
            (".", 0),
            ("5.", 0),
            (".5", NUMERIC | DOUBLE),
            ("1.50", NUMERIC | DOUBLE),
            ("0.12345678901234567890", NUMERIC),
            ("1e5", DOUBLE),
            ("1.e5", 0),
            ("1e400", 0),
            ("1e-400", 0),
            ("0e-400", DOUBLE),
            ("NaN", DOUBLE),
            ("2024-02-29", DATE | TIMESTAMP),
            ("2023-02-29", 0),
            ("2024/02/29", DATE | TIMESTAMP),
            ("2024/02-29", 0),
            ("2023/02/29", 0),
            ("2024/02/29 23:59:59Z", TIMESTAMPTZ),
            ("0000-01-01", 0),
            ("2024-02-29 23:59", TIMESTAMP),
            ("2024-02-29T23:59:59.123456", TIMESTAMP),
            ("2024-02-29 23:59:59.1234567", 0),
            ("2024-02-29 24:00:00", 0),
            ("2024-02-29T23:59:59Z", TIMESTAMPTZ),
            ("2024-02-29 23:59:59.5 -0330", TIMESTAMPTZ),
            ("2024-02-29 23:59:59+16", 0),
            ("6F9619FF-8B86-D011-B42D-00CF4FC964FF", UUID),
            ("{\"a\": [1, -0.5e3, \"\\ud83d\\ude00\"], \"b\": {\"a\": null}} ", JSONB),
            ("{\"a\": 1, \"\\u0061\": 2}", 0),
            ("[\"\\u0000\"]", 0),
            ("[\"\\ud83d\"]", 0),
            ("[01]", 0),
            ("[.5]", 0),
            ("[1,]", 0),
            ("[1e1001]", 0),
            ("\"a\"", 0),
            ("01/02/2026", 0),
        ] {
            assert_eq!(types(value), expected, "{value}");
        }
        let deep = "[".repeat(101) + &"]".repeat(101);
        assert_eq!((types(&deep), types(&deep[1..201])), (0, JSONB));
    }

    #[test]
    fn values_are_written_in_their_notations() {
        let bits = |names: &[usize]| names.iter().map(|name| 1 << (FIRST_NOTATION as usize + name)).sum::<u64>();
        for (value, expected) in [
            ("01/02/2026", bits(&[0, 1])),
            ("31.12.2025", bits(&[0])),
            ("12/31/2025 1:05 PM", bits(&[1])),
            ("01.02.03", bits(&[0, 1, 2])),
            ("2026-01-31", YMD | PLAIN),
            ("2026/1/31 9:05", YMD),
            ("2026-01-31 09:05:06.1234567", 0),
            ("1.2.3.4", 0),
            ("12", WITH_COMMA | WITH_POINT | PLAIN),
            ("1.5", WITH_POINT | PLAIN),
            ("1.234", WITH_POINT | PLAIN | bits(&[4])),
            ("1,5", WITH_COMMA),
            ("1,234", WITH_COMMA | bits(&[7])),
            ("1.234,50", bits(&[4])),
            ("1\u{a0}234", bits(&[5, 8])),
            ("007", 0),
            ("0,1,2", 0),
            ("", 0),
        ] {
            assert_eq!(fitting(value.as_bytes(), NOTATIONS), expected, "{value}");
        }
    }

    #[test]
    fn columns_keep_what_reads_back_alike() {
        let whole = KEPT_SMALLINT | KEPT_INTEGER | KEPT_BIGINT | KEPT_NUMERIC;
        for (value, expected) in [
            (" +7 ", whole),
            ("-32768", whole),
            ("32768", whole & !KEPT_SMALLINT),
            ("1e5", KEPT_NUMERIC),
            ("5.", KEPT_NUMERIC),
            ("nan", KEPT_NUMERIC),
            ("-nan", 0),
            ("007", 0),
            ("-0", 0),
            ("0x1F", 0),
            ("1_000", 0),
            ("a", 0),
            ("", 0),
            ("1.2.3", 0),
            (".", 0),
            ("e5", 0),
        ] {
            assert_eq!(fitting(value.as_bytes(), KEPT_NUMBERS), expected, "{value}");
        }
        for (value, expected) in [
            (" 2026-03-01", KEPT_TIMES),
            ("2026-03-01 00:00", KEPT_TIMES),
            ("2026-03-01 10:00", KEPT_TIMESTAMP | KEPT_TIMESTAMPTZ),
            ("2026-03-01T10:00:00Z", KEPT_TIMESTAMPTZ),
            ("2026-03-01T10:00:00.1234567Z", 0),
            ("01/02/2026", 0),
            ("x", 0),
            ("0000-00-00", 0),
            ("2026-02-29", 0),
            ("2024-02-29", KEPT_TIMES),
            ("2026-03-01 25:00", 0),
            ("2026-03-01 24:30", 0),
            ("2026-03-01 24:00", KEPT_TIMESTAMP | KEPT_TIMESTAMPTZ),
            ("2026-03-01 10:00+99", 0),
            ("2026-03-01 foo", 0),
            ("2026-03-01 10:00 Europe/Berlin", KEPT_TIMESTAMPTZ),
            ("2026-03-01 10:00 utc+3", KEPT_TIMESTAMPTZ),
            ("31/02/2026", 0),
            ("31 Feb 2026", 0),
            ("Jan 2026", 0),
            ("294277-01-01", KEPT_DATE),
            ("-infinity", KEPT_TIMES),
            ("infinity 10:00", 0),
        ] {
            assert_eq!(fitting(value.as_bytes(), KEPT_TIMES), expected, "{value}");
        }
        assert_eq!(fitting(b"01/02/2026", KEPT_DATE | KNOWN_ORDER), KEPT_DATE | KNOWN_ORDER);
        for (number, expected) in [(0, KEPT_TIMES), (1, 0), (2, KEPT_TIMES), (3, 0)] {
            assert_eq!(fitting(b"31.12.2025", KEPT_TIMES | number << ORDER_SHIFT) & KEPT, expected, "{number}");
        }
    }

    #[test]
    fn where_records_are_rejected_a_value_that_all_columns_refuse_changes_none() {
        let taken = |value: &str| fitting(value.as_bytes(), KEPT | REJECTS) & KEPT;
        let whole = KEPT_NUMERIC | KEPT_BIGINT;
        for (value, expected) in [
            ("x", KEPT),
            ("", KEPT),
            ("1_x", KEPT),
            ("0xG", KEPT),
            ("3000000000", KEPT_TIMES | whole),
            ("1_000", KEPT_TIMES),
            ("007", KEPT_TIMES),
            ("2026-02-29", KEPT),
            ("2026-02-28", KEPT),
            ("2026-02-28 10:00", KEPT_NUMBERS | KEPT_TIMESTAMP | KEPT_TIMESTAMPTZ),
            ("now", KEPT_NUMBERS),
        ] {
            assert_eq!(taken(value), expected, "{value}");
        }
    }

    #[test]
    fn a_column_keeps_the_types_of_all_values() {
        let nulls = vec![b"".to_vec(), b"NA".to_vec()];
        let rewriter = Rewriter::new(CSV, b',', nulls, Some(vec![0, 2]), Vec::new(), Some(3)).unwrap();
        let block = b"1,x,\"a\"\n\n\"2\n\",x\n,x,\"\"\nNA,x,2\n3000000000,x,3\n1,2\n";
        let found = find_types(&rewriter, block, LineEnd::Lf, ALL, &[false, true]);
        let seen = |line: u64, value: &str| Witness { line, value: value.as_bytes().to_vec() };
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].fits, BIGINT | NUMERIC | DOUBLE);
        assert_eq!(found[0].first, Some(seen(0, "1")));
        assert_eq!(found[0].lost.last(), Some(&(INTEGER, seen(6, "3000000000"))));
        assert_eq!((found[1].fits, found[1].lost.len()), (0, 1));
    }

    #[test]
    fn quoted_nulls_are_null_if_forced() {
        let rewriter = Rewriter::new(CSV, b',', vec![b"".to_vec()], None, Vec::new(), Some(2)).unwrap();
        let found = find_types(&rewriter, b"\"\",\"\"\n", LineEnd::Lf, ALL, &[true, false]);
        assert_eq!((found[0].fits, found[1].fits), (ALL, 0));
        assert_eq!((&found[0].first, found[0].lost.len()), (&None, 0));
    }
}
