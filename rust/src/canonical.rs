//! Reads values in the one form that means the same with any settings, eight bytes at a time.
//!
//! The comment of each method names the server's input function (src/backend/utils/adt) that returns the same value for
//! the same text. A method accepts fewer forms than that function does. `types.rs` recognises more forms than these
//! methods, because it only finds types.

use memchr::memchr;

use crate::kept::rounds_back;

const ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;

const POWERS: [f64; 20] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19];
/// The powers of ten, up to the number of digits that the longest `part` has.
const WHOLE_POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};
const SMALL_POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// A double is known to keep all digits of any number up to this size, because it keeps all numbers of 15 digits.
const EXACT_SIZE: u64 = 1_000_000_000_000_000;

/// The days from 0000-02-29 to 2000-01-01.
const EPOCH_DAYS: i32 = 730_426;
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// A block with NUL bytes behind it, so that a fixed number of bytes can be read at any position of the block.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// Reads an integer as `int2in`, `int4in` (int.c) and `int8in` (int8.c) do: digits, which may follow a minus sign.
    #[inline(always)]
    pub(crate) fn integer(&self, start: usize, end: usize) -> Option<i64> {
        let is_negative = self.0[start] == b'-';
        let first = start + usize::from(is_negative);
        let size = self.digits(first, end.checked_sub(first)?)?;
        if is_negative {
            0_i64.checked_sub_unsigned(size)
        } else {
            i64::try_from(size).ok()
        }
    }

    /// Returns the number that `length` digits at `at` stand for. None if they are not digits, or are more than 19.
    #[inline(always)]
    fn digits(&self, at: usize, length: usize) -> Option<u64> {
        match length {
            1..=8 => read_digits(self.load(at), length),
            9..=16 => {
                let high = read_digits(self.load(at), length - 8)?;
                Some(high * 100_000_000 + read_digits(self.load(at + length - 8), 8)?)
            }
            17..=19 => {
                let high = read_digits(self.load(at), length - 16)?;
                let middle = read_digits(self.load(at + length - 16), 8)?;
                Some((high * 100_000_000 + middle) * 100_000_000 + read_digits(self.load(at + length - 8), 8)?)
            }
            _ => None,
        }
    }

    /// Returns how many of `length` bytes are before the point, if a point is among the first 24 of them.
    #[inline(always)]
    fn before_point(&self, start: usize, length: usize) -> Option<usize> {
        for at in [0, 8, 16] {
            if at >= length {
                break;
            }
            let before = find_point(self.load(start + at));
            if before < 8 {
                return (at + before < length).then_some(at + before);
            }
        }
        None
    }

    /// Reads a number with up to eight digits, and up to eight more behind a point. A minus sign may precede it. None
    /// for any other text.
    #[inline(always)]
    pub(crate) fn short_decimal(&self, start: usize, end: usize) -> Option<ShortDecimal> {
        let is_negative = self.0[start] == b'-';
        let first = start + usize::from(is_negative);
        let length = end.checked_sub(first)?;
        let word = self.load(first);
        let before = find_point(word).min(length);
        let scale = (length - before).saturating_sub(1);
        // A point must have digits on both sides.
        if before == 0 || scale > 8 || before < length && (scale == 0 || self.0[first + before] != b'.') {
            return None;
        }
        let behind = if scale == 0 { 0 } else { u64::MAX >> (64 - 8 * scale) };
        let whole = (word ^ ZEROS) << (64 - 8 * before);
        let part = (self.load(first + before + 1) ^ ZEROS) & behind;
        if (beyond_digits(whole) | beyond_digits(part)) & HIGH_BITS != 0 {
            return None;
        }
        let pair = |digits| {
            let fours = join_to_fours(digits);
            (fours << 16 | fours >> 32) & 0xffff_ffff
        };
        Some(ShortDecimal { is_negative, groups: pair(whole) << 32 | pair(part), scale })
    }

    /// Reads a number: digits, or digits, a point and digits. A minus sign may precede it. None for any other text, or
    /// if the number is too long.
    #[inline(always)]
    pub(crate) fn decimal(&self, start: usize, end: usize) -> Option<Decimal> {
        let is_negative = self.0[start] == b'-';
        let first = start + usize::from(is_negative);
        let length = end.checked_sub(first)?;
        let Some(before) = self.before_point(first, length) else {
            return Some(Decimal { is_negative, whole: self.digits(first, length)?, part: 0, scale: 0 });
        };
        let scale = length - before - 1;
        let whole = self.digits(first, before)?;
        Some(Decimal { is_negative, whole, part: self.digits(first + before + 1, scale)?, scale })
    }

    /// Reads the nearest double as `float8in` (float.c) does. Also returns whether the double is known to keep all
    /// digits.
    #[inline(always)]
    pub(crate) fn float8(&self, start: usize, end: usize) -> Option<(f64, bool)> {
        if let Some(decimal) = self.decimal(start, end) {
            if let Some(size) = decimal.size() {
                // A double stores the size and the power exactly. So only their quotient is rounded, once.
                #[allow(clippy::cast_precision_loss)] // up to 2^53 there is none
                let value = match decimal.scale {
                    scale if size <= 1 << 53 => size as f64 / POWERS[scale],
                    scale => divide(size, WHOLE_POWERS[scale]),
                };
                let is_kept = size <= EXACT_SIZE || rounds_back(size, decimal.scale, value) == Some(true);
                return Some((if decimal.is_negative { -value } else { value }, is_kept));
            }
        }
        let value: f64 = read_float(&self.0[start..end])?;
        let is_within = value == 0.0 || (1e-290..=1e300).contains(&value.abs());
        is_within.then_some((value, false))
    }

    /// Reads a float as `float4in` (float.c) does: the text is rounded to a float directly, not to a double first.
    #[inline(always)]
    pub(crate) fn float4(&self, start: usize, end: usize) -> Option<f32> {
        if let Some(decimal) = self.decimal(start, end).filter(|found| found.scale < SMALL_POWERS.len()) {
            if let Some(size) = decimal.size().filter(|&size| size <= 1 << 24) {
                #[allow(clippy::cast_precision_loss)] // up to 2^24 there is none
                let value = size as f32 / SMALL_POWERS[decimal.scale];
                return Some(if decimal.is_negative { -value } else { value });
            }
        }
        let value: f32 = read_float(&self.0[start..end])?;
        let is_within = value == 0.0 || (1e-35..=1e37).contains(&value.abs());
        is_within.then_some(value)
    }

    // ------------------------------------------------------------ days, times, uuids

    /// Reads a date such as 2026-01-31 as `date_in` (date.c) does. Returns the days since 2000-01-01.
    #[inline(always)]
    pub(crate) fn date(&self, start: usize, end: usize) -> Option<i32> {
        if end - start == 10 {
            self.day(start)
        } else {
            None
        }
    }

    #[inline(always)]
    fn day(&self, start: usize) -> Option<i32> {
        // Turn "2026-01-" into eight digits. The exclusive or turns each dash into the digit 0.
        let head = self.load(start) ^ 0x2d30_302d_3030_3030;
        let (tens, ones) = (self.0[start + 8] ^ b'0', self.0[start + 9] ^ b'0');
        if !are_digits(head) || head & 0xff00_00ff_0000_0000 != 0 || tens > 9 || ones > 9 {
            return None;
        }
        let pairs = join_to_pairs(head);
        #[allow(clippy::cast_possible_truncation)] // one byte
        let pair = |at: u32| (pairs >> (8 * at)) as u32 & 0xff;
        let (century, of_century, month) = (pair(0), pair(2), pair(5));
        let (year, day) = (century * 100 + of_century, u32::from(tens) * 10 + u32::from(ones));
        let is_leap = if of_century == 0 { century } else { of_century } % 4 == 0;
        // Up to July the odd months have 31 days, from August on the even ones.
        let length = if month == 2 { 28 + u32::from(is_leap) } else { 30 + ((month ^ month >> 3) & 1) };
        if year == 0 || month.wrapping_sub(1) > 11 || day.wrapping_sub(1) >= length {
            return None;
        }
        // Let years begin with March. Then the leap day is the last day of its year, and any five months in a row have
        // 153 days.
        let is_early = u32::from(month <= 2);
        let (years, months) = (year - is_early, month + 12 * is_early - 3);
        let days = years * 1_461 / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day;
        Some(days.cast_signed() - EPOCH_DAYS)
    }

    /// Reads a timestamp such as 2026-01-31 23:59:59, with up to six decimals, as `timestamp_in` (timestamp.c) does.
    /// Returns the microseconds since 2000-01-01.
    #[inline(always)]
    pub(crate) fn timestamp(&self, start: usize, end: usize) -> Option<i64> {
        let length = end - start;
        if length < 19 || self.0[start + 10] != b' ' {
            return None;
        }
        let day = self.day(start)?;
        let time = self.load(start + 11) ^ 0x3030_3a30_303a_3030;
        if !are_digits(time) || time & 0x0000_ff00_00ff_0000 != 0 {
            return None;
        }
        let pair = |at: u32| (time >> (8 * at) & 0xff) * 10 + (time >> (8 * at + 8) & 0xff);
        let (hours, minutes, seconds) = (pair(0), pair(3), pair(6));
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        let mut time = (hours * 3600 + minutes * 60 + seconds) * 1_000_000;
        if length > 19 {
            let digits = length - 20;
            if self.0[start + 19] != b'.' || !(1..=6).contains(&digits) {
                return None;
            }
            time += read_digits(self.load(start + 20), digits)? * [0, 100_000, 10_000, 1_000, 100, 10, 1][digits];
        }
        Some(i64::from(day) * DAY_MICROSECONDS + time.cast_signed())
    }

    /// Reads a uuid as `uuid_in` (uuid.c) does: 8-4-4-4-12 hexadecimal digits.
    #[inline(always)]
    pub(crate) fn uuid(&self, start: usize, end: usize) -> Option<[u8; 16]> {
        if end - start != 36 || [8, 13, 18, 23].iter().any(|&at| self.0[start + at] != b'-') {
            return None;
        }
        let low = 0xffff_ffff;
        let words = [
            self.load(start),
            self.load(start + 9) & low | (self.load(start + 14) & low) << 32,
            self.load(start + 19) & low | (self.load(start + 24) & low) << 32,
            self.load(start + 28),
        ];
        let mut value = [0; 16];
        for (word, place) in words.into_iter().zip(value.chunks_exact_mut(4)) {
            place.copy_from_slice(&read_hexadecimal(word)?.to_le_bytes());
        }
        Some(value)
    }
}

/// A number in groups of four digits, as numeric stores it. `groups` has two groups before the point and two behind it,
/// the last one in the lowest 16 bits. `scale` is the number of digits behind the point.
pub(crate) struct ShortDecimal {
    pub(crate) is_negative: bool,
    pub(crate) groups: u64,
    pub(crate) scale: usize,
}

/// A number. `whole` is the number before its point. `part` is the number that the `scale` digits behind the point
/// stand for. Each has up to 19 digits.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    pub(crate) is_negative: bool,
    pub(crate) whole: u64,
    pub(crate) part: u64,
    pub(crate) scale: usize,
}

impl Decimal {
    /// Returns all digits as one number, None if it does not fit 64 bits.
    #[inline(always)]
    pub(crate) fn size(self) -> Option<u64> {
        self.whole.checked_mul(WHOLE_POWERS[self.scale])?.checked_add(self.part)
    }
}

/// Returns the double that is nearest to a quotient. If two doubles are equally near, it is the even one.
///
/// Both numbers are shifted so that their highest bit is set. Their quotient then has 63 or 64 bits, ten more than a
/// double stores. If a remainder is left, the lowest bit is set. So the conversion to a double rounds as if it saw all
/// bits. The multiplication by a power of two is exact.
#[inline(always)]
fn divide(size: u64, divisor: u64) -> f64 {
    let (up, down) = (size.leading_zeros(), divisor.leading_zeros());
    let numerator = u128::from(size << up) << 63;
    let divisor = u128::from(divisor << down);
    #[allow(clippy::cast_possible_truncation)] // below 2^64, as the divisor is at least 2^63
    let quotient = (numerator / divisor) as u64 | u64::from(numerator % divisor != 0);
    #[allow(clippy::cast_precision_loss)] // rounded here, and only here
    let value = quotient as f64;
    value * f64::from_bits(u64::from(1023 - 63 + down - up) << 52)
}

/// Returns how many of eight bytes are before the first point, 8 if they have none.
#[inline(always)]
fn find_point(word: u64) -> usize {
    let points = word ^ (LOW_BITS * u64::from(b'.'));
    let found = points.wrapping_sub(LOW_BITS) & !points & HIGH_BITS;
    found.trailing_zeros() as usize / 8
}

/// Returns whether eight bytes are the digits 0 to 9. The caller has taken '0' from each byte by an exclusive or.
#[inline(always)]
fn are_digits(word: u64) -> bool {
    beyond_digits(word) & HIGH_BITS == 0
}

/// Returns a word with a high bit set if a byte is above 9. The lowest high bit is that of such a byte. Higher ones may
/// also be set for a later byte that is not above 9.
#[inline(always)]
fn beyond_digits(word: u64) -> u64 {
    word.wrapping_add(0x7676_7676_7676_7676) | word
}

/// Returns the number that the first `length` (1 to 8) bytes of a word stand for, None if they are not digits. The
/// lowest byte is the first digit.
#[inline(always)]
fn read_digits(word: u64, length: usize) -> Option<u64> {
    let digits = (word ^ ZEROS) << (64 - 8 * length);
    are_digits(digits).then(|| join_digits(digits))
}

/// Returns the number that eight digits stand for.
#[inline(always)]
fn join_digits(digits: u64) -> u64 {
    let fours = join_to_fours(digits);
    (fours & 0xffff_ffff) * 10_000 + (fours >> 32)
}

/// Returns two numbers of four digits each, the first in the lower half. Neighbouring digits are joined to pairs, and
/// pairs to fours.
#[inline(always)]
fn join_to_fours(digits: u64) -> u64 {
    let pairs = join_to_pairs(digits);
    (pairs & 0x0000_00ff_0000_00ff) * 100 + (pairs >> 16 & 0x0000_00ff_0000_00ff)
}

/// Returns a word in which each byte has a number of two digits: the digit of the same byte and that of the next byte.
#[inline(always)]
fn join_to_pairs(digits: u64) -> u64 {
    digits * 10 + (digits >> 8)
}

/// Returns the four bytes that eight hexadecimal digits stand for, None for other bytes. The lowest byte is the first
/// one.
#[inline(always)]
fn read_hexadecimal(word: u64) -> Option<u32> {
    if word & HIGH_BITS != 0 {
        return None;
    }
    // A byte above '9' must be a letter from A to F in either case. The high bit is set so that no byte borrows from
    // the next.
    let above_nine = (word ^ ZEROS).wrapping_add(LOW_BITS * 0x76) & HIGH_BITS;
    let letters = (word | (LOW_BITS * 0x20) | HIGH_BITS) - LOW_BITS * 0x61;
    let not_letters = (!letters | ((letters & !HIGH_BITS) + LOW_BITS * 0x7a)) & HIGH_BITS;
    if above_nine & not_letters != 0 {
        return None;
    }
    let halves = (word & (LOW_BITS * 0x0f)) + (above_nine >> 7) * 9;
    let pairs = (halves << 4 | halves >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    #[allow(clippy::cast_possible_truncation)] // the upper half is what was joined to the lower
    let joined = (fours | fours >> 16) as u32;
    Some(joined)
}

/// Returns whether a text consists of digits, or of digits, a point and digits.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    match memchr(b'.', text) {
        Some(point) => is_number(&text[..point]) && is_number(&text[point + 1..]),
        None => is_number(text),
    }
}

/// Reads the number nearest to a plain number, which may have a sign and an exponent. None for any other text, or if a
/// number other than 0 is so small that it would become 0.
///
/// `parse` would also accept a plus sign, a point without digits on both sides, and words.
fn read_float<T: std::str::FromStr + PartialEq + From<i8>>(text: &[u8]) -> Option<T> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let has_digit = |at: usize| digits.get(at).is_some_and(u8::is_ascii_digit);
    if !has_digit(0) || memchr(b'.', digits).is_some_and(|point| !has_digit(point + 1)) {
        return None;
    }
    let value: T = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_zero = || {
        let mantissa = digits.split(|byte| matches!(byte, b'e' | b'E')).next();
        mantissa.is_some_and(|mantissa| mantissa.iter().all(|byte| matches!(byte, b'0' | b'.')))
    };
    (value != T::from(0) || is_zero()).then_some(value)
}
