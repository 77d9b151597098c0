//! Reads texts for days and times as `PostgreSQL` does, by the tokens of `ParseDateTime` and `DecodeDateTime`
//! (src/backend/utils/adt/datetime.c).
//!
//! Some forms that nobody writes, such as `2026-01-31 CET DST`, are read here as refused, though the server accepts them.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::types::{count_digits, is_zeros};

/// The largest offset of a zone in hours (`MAX_TZDISP_HOUR`).
const LARGEST_OFFSET_HOURS: u32 = 15;
/// The largest offset behind a name, such as that of `UTC+3`. The server's limit is higher.
const LARGEST_NAMED_OFFSET_HOURS: u32 = 24;
/// The year before the first one that all types have, as a year of the common era.
const FIRST_YEAR: i64 = -4712;

/// The order of `DateStyle` in which the server reads the three numbers of a day.
#[derive(Clone, Copy)]
pub(crate) enum DayOrder {
    Any,
    Mdy,
    Dmy,
    Ymd,
}

impl DayOrder {
    pub(crate) fn numbered(number: u64) -> Self {
        match number & 0b11 {
            1 => Self::Mdy,
            2 => Self::Dmy,
            3 => Self::Ymd,
            _ => Self::Any,
        }
    }

    /// Returns the days among `days` (see `order_day`) that have this order.
    fn choose(self, days: &[[Digits; 3]]) -> &[[Digits; 3]] {
        match self {
            Self::Mdy if days.len() > 1 => &days[..1],
            Self::Dmy if days.len() > 1 => &days[1..2],
            Self::Ymd if days.len() > 1 => &days[2..],
            _ => days,
        }
    }
}

/// A number in a text, and how many digits it has.
#[derive(Clone, Copy)]
struct Digits {
    value: u32,
    length: usize,
}

/// What a text for a day, a time or both contains.
#[allow(clippy::struct_excessive_bools)] // each is found by itself
#[derive(Default)]
pub(crate) struct Moment {
    pub(crate) has_day: bool,
    /// Whether day, month and year may be read in more than one order.
    pub(crate) is_unclear: bool,
    pub(crate) has_time: bool,
    pub(crate) has_zone: bool,
    /// Whether the text is a word such as now or today.
    pub(crate) is_word: bool,
    pub(crate) is_leap_second: bool,
    /// The number of decimals of the seconds, without zeros at the end.
    pub(crate) decimals: usize,
    hour: u32,
    /// Whether minutes and seconds are 0.
    is_full_hour: bool,
    is_before_noon: bool,
    /// Whether AM or PM follows the time.
    is_half: bool,
    /// Whether AD or BC follows the day.
    has_era: bool,
    is_before_christ: bool,
    has_weekday: bool,
    /// The days of the text that its numbers may mean: year, month, day.
    days: Vec<[Digits; 3]>,
    month: Option<u32>,
    /// Whether the parts of the day are joined, as in 31-Jan-2026.
    is_joined: bool,
    /// The numbers that stand alone, such as the day and the year of "January 8, 1999".
    numbers: Vec<Digits>,
    /// Whether the text is infinity or -infinity.
    is_infinite: bool,
    /// Whether the server refuses the text, because a part of it is out of range or at a wrong place.
    is_refused: bool,
}

impl Moment {
    pub(crate) fn is_midnight(&self) -> bool {
        self.is_full_hour && (self.hour == 0 || (self.hour == 12 && self.is_before_noon))
    }

    /// Returns whether a column accepts the text.
    pub(crate) fn is_accepted(&self, last_year: i64, order: DayOrder) -> bool {
        let is_half_hour = !self.is_half || (self.has_time && self.hour <= 12);
        let has_numbers = self.numbers.len() == if self.month.is_some() { 2 } else { 0 };
        let exists = self.is_word || self.is_infinite || self.all_days(order).any(|day| self.exists(day, last_year));
        self.has_day && exists && has_numbers && is_half_hour && !self.is_refused
    }

    /// Returns the days that the text may mean, by year, month and day.
    fn all_days(&self, order: DayOrder) -> impl Iterator<Item = [Digits; 3]> + '_ {
        let named = match (self.month, self.numbers.as_slice()) {
            (Some(value), &[first, second]) => {
                let (year, day) = if first.length > 2 { (first, second) } else { (second, first) };
                Some([year, Digits { value, length: 2 }, day])
            }
            _ => None,
        };
        order.choose(&self.days).iter().copied().chain(named)
    }

    /// Returns whether a day is one of the calendar (`ValidateDate`).
    fn exists(&self, [year, month, day]: [Digits; 3], last_year: i64) -> bool {
        let written = i64::from(year.value);
        let year = match year.length {
            _ if self.is_before_christ => 1 - written,
            1 | 2 => written + if written < 70 { 2000 } else { 1900 },
            _ => written,
        };
        let is_leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
        let days = match month.value {
            2 => 28 + u32::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        let is_year = if self.is_before_christ { year <= 0 } else { year > 0 };
        is_year && (FIRST_YEAR..=last_year).contains(&year) && (1..=days).contains(&day.value)
    }

    /// Refuses the text if a part of it is at a wrong place.
    fn refuse_if(&mut self, is_wrong: bool) {
        self.is_refused |= is_wrong;
    }

    /// Notes a time. 24:00 is the end of a day.
    fn set_time(&mut self, [hour, minute, second]: [u32; 3], fraction: &[u8]) {
        self.has_time = true;
        self.hour = hour;
        self.is_full_hour = minute == 0 && second == 0 && is_zeros(fraction);
        self.decimals = fraction.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
        self.is_leap_second = second == 60;
        let is_whole = is_zeros(fraction);
        self.refuse_if(hour > 24 || minute > 59 || second > 60 || (hour == 24 && !self.is_full_hour));
        self.refuse_if((hour, minute, second, is_whole) == (23, 59, 60, false));
    }

    /// Reads a time such as 23:59, 23:59:59 or 23:59:59.5, and returns its length.
    fn take_time(&mut self, text: &[u8]) -> Option<usize> {
        let length = text.iter().take_while(|&&byte| byte.is_ascii_digit() || byte == b':' || byte == b'.').count();
        let (clock, fraction) = match text[..length].iter().position(|&byte| byte == b'.') {
            Some(at) => (&text[..at], &text[at + 1..length]),
            None => (&text[..length], &text[..0]),
        };
        let parts: Vec<u32> = clock.split(|&byte| byte == b':').map(to_number).collect::<Option<_>>()?;
        if self.has_time || !(2..=3).contains(&parts.len()) || count_digits(fraction) < fraction.len() {
            return None;
        }
        self.set_time([parts[0], parts[1], parts.get(2).copied().unwrap_or(0)], fraction);
        // The server reads 10:30.5 as minutes and seconds.
        self.refuse_if(parts.len() == 2 && length > clock.len());
        Some(length)
    }

    /// Reads digits without a colon behind them, and returns the length of what they belong to: three numbers of a day,
    /// a number that stands alone, or a day such as 20260131.
    fn take_digits(&mut self, text: &[u8]) -> Option<usize> {
        let length = count_digits(text);
        if let Some((parts, taken)) = split_day(text) {
            if self.has_day {
                return None;
            }
            self.has_day = true;
            self.is_unclear = is_unclear(parts);
            self.days = order_day(parts)?;
            // The server reads such a text behind a time or a weekday as a zone.
            self.refuse_if(self.has_time || self.has_weekday || self.month.is_some());
            let separator = text[length];
            self.refuse_if(text.get(taken).is_some_and(|&byte| byte == separator || matches!(byte, b'/' | b'.')));
            return Some(taken);
        }
        match length {
            1..=7 if self.month.is_some() => self.numbers.push(to_digits(&text[..length])?),
            8 if !self.has_day => self.take_whole_day(text, length)?,
            6 | 4 if self.has_day => {
                self.refuse_if(self.has_time);
                let part = |at: usize| if at < length { to_number(&text[at..at + 2]) } else { Some(0) };
                self.set_time([part(0)?, part(2)?, part(4)?], b"");
            }
            6 => {
                self.is_unclear = true;
                self.take_whole_day(text, length)?;
            }
            1..=5 => self.numbers.push(to_digits(&text[..length])?),
            _ => return None,
        }
        Some(length)
    }

    /// Reads a day such as 20260131 or 260131: year, month and day.
    fn take_whole_day(&mut self, text: &[u8], length: usize) -> Option<()> {
        let (year, rest) = text[..length].split_at(length - 4);
        self.days.push([to_digits(year)?, to_digits(&rest[..2])?, to_digits(&rest[2..])?]);
        self.has_day = true;
        self.refuse_if(self.month.is_some() || matches!(text.get(length), Some(b'-' | b'/' | b'.')));
        Some(())
    }

    fn take_word(&mut self, text: &[u8]) -> Option<usize> {
        let length = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let word = &text[..length];
        let is_next_digit = || text[length..].trim_ascii_start().first().is_some_and(u8::is_ascii_digit);
        let place =
            |names: &[&str]| names.iter().position(|name| word == name.as_bytes() || word == &name.as_bytes()[..3]);
        match word {
            b"t" => self.refuse_if(!is_next_digit()),
            b"at" | b"on" => {}
            b"am" | b"pm" => {
                self.refuse_if(self.is_half || matches!(text.get(length), Some(b'-' | b'+' | b'/' | b'.')));
                (self.is_half, self.is_before_noon) = (true, word == b"am");
            }
            b"ad" | b"bc" => {
                self.refuse_if(self.has_era);
                (self.has_era, self.is_before_christ) = (true, word == b"bc");
            }
            b"weds" | b"tues" | b"thur" | b"thurs" => self.has_weekday = true,
            b"now" | b"today" | b"tomorrow" | b"yesterday" | b"epoch" => (self.is_word, self.has_day) = (true, true),
            b"allballs" => self.is_word = true,
            b"infinity" => (self.is_infinite, self.has_day) = (true, true),
            b"sept" => self.take_month(9),
            _ => match (place(&MONTHS), place(&WEEKDAYS)) {
                (Some(month), _) => self.take_month(u32::try_from(month).ok()? + 1),
                (_, Some(_)) => self.has_weekday = true,
                _ if self.has_day || self.has_time || self.month.is_some() => {
                    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"/_+-:".contains(byte);
                    let name = &text[..text.iter().take_while(is_part).count()];
                    self.refuse_if(self.has_zone || !is_zone(name));
                    self.has_zone = true;
                    return Some(name.len());
                }
                _ => return None,
            },
        }
        Some(length)
    }

    fn may_have_offset(&self) -> bool {
        self.has_time || self.has_day || (self.month.is_some() && self.numbers.len() == 2)
    }

    fn take_month(&mut self, month: u32) {
        self.refuse_if(self.month.is_some() || self.has_day);
        self.month = Some(month);
    }

    /// Reads an offset such as +02, -0330 or +05:30, and returns its length.
    fn take_offset(&mut self, text: &[u8]) -> usize {
        let length = 1 + text[1..].iter().take_while(|&&byte| byte.is_ascii_digit() || byte == b':').count();
        self.refuse_if(self.has_zone || !is_offset(&text[1..length], LARGEST_OFFSET_HOURS));
        self.has_zone = true;
        length
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// The names and abbreviations of zones in lower case, as `PostgreSQL` 18 has them (`pg_timezone_names` and
/// `pg_timezone_abbrevs`).
static ZONES: LazyLock<HashSet<&str>> = LazyLock::new(|| include_str!("zones.txt").split_ascii_whitespace().collect());

/// Returns whether a word in lower case is the name of a zone, or names one by its offset, such as `utc+3`.
pub(crate) fn is_zone(word: &[u8]) -> bool {
    let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let offset = &word[letters..];
    let offset = offset.strip_prefix(b"+").or_else(|| offset.strip_prefix(b"-")).unwrap_or(offset);
    let is_named = std::str::from_utf8(word).is_ok_and(|name| ZONES.contains(name));
    let has_hours = count_digits(offset) <= 2 && is_offset(offset, LARGEST_NAMED_OFFSET_HOURS);
    is_named || (letters >= 3 && has_hours)
}

/// Returns whether digits and colons are an offset in hours, minutes and seconds (`DecodeTimezone`).
fn is_offset(text: &[u8], most_hours: u32) -> bool {
    let (hours, minutes) = match text.iter().position(|&byte| byte == b':') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None if text.len() > 2 => text.split_at(text.len() - 2),
        None => (text, &b"0"[..]),
    };
    let is_part = |part: &[u8]| to_number(part).is_some_and(|number| number < 60);
    to_number(hours).is_some_and(|hours| hours <= most_hours)
        && minutes.split(|&byte| byte == b':').all(is_part)
        && minutes.split(|&byte| byte == b':').count() <= 2
}

fn to_number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn to_digits(digits: &[u8]) -> Option<Digits> {
    Some(Digits { value: to_number(digits)?, length: digits.len() })
}

/// Returns three numbers with the same separator (-, / or .) between them, and their length.
fn split_day(text: &[u8]) -> Option<([&[u8]; 3], usize)> {
    let (one, rest) = text.split_at(count_digits(text));
    let (&separator, rest) = rest.split_first().filter(|(byte, _)| b"-/.".contains(byte))?;
    let (two, rest) = rest.split_at(count_digits(rest));
    let rest = rest.strip_prefix(&[separator])?;
    let three = &rest[..count_digits(rest)];
    let is_day = !(two.is_empty() || three.is_empty());
    is_day.then_some(([one, two, three], one.len() + two.len() + three.len() + 2))
}

/// Returns the days that three numbers may be, by year, month and day, in the orders mdy, dmy and ymd. A year of three or more digits is the first or the
/// last number.
fn order_day(parts: [&[u8]; 3]) -> Option<Vec<[Digits; 3]>> {
    let [one, two, three] = [to_digits(parts[0])?, to_digits(parts[1])?, to_digits(parts[2])?];
    let years_first = [one, two, three];
    Some(if one.length > 2 { vec![years_first] } else { vec![[three, one, two], [three, two, one], years_first] })
}

/// Returns whether a day such as 01/02/2026 may be read in more than one order. A year of four digits is the first or
/// the last number.
fn is_unclear([one, two, three]: [&[u8]; 3]) -> bool {
    if one.len() > 2 {
        return false;
    }
    let may_be_month = |part: &[u8]| to_number(part).is_some_and(|number| number <= 12);
    three.len() <= 2 || (to_number(one) != to_number(two) && may_be_month(one) && may_be_month(two))
}

/// Reads a text for a day, a time or both. None for a text of any other form.
pub(crate) fn read_moment(value: &[u8]) -> Option<Moment> {
    let text = value.trim_ascii().to_ascii_lowercase();
    let (mut moment, mut at) = (Moment::default(), 0);
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        let next = rest.get(1);
        // The server reads a T, or what looks like an offset, as a part of such a day, in some forms of it.
        let is_behind_day = moment.numbers.len() == 2 && text[..at].last().is_some_and(u8::is_ascii_digit);
        let is_offset = matches!(byte, b'-' | b'+') && !moment.has_time;
        moment.refuse_if(is_behind_day && (is_offset || (byte == b't' && moment.is_joined)));
        at += match byte {
            b'0'..=b'9' if rest.get(count_digits(rest)) == Some(&b':') => moment.take_time(rest)?,
            b'0'..=b'9' => moment.take_digits(rest)?,
            b'a'..=b'z' => moment.take_word(rest)?,
            b'+' | b'-' if moment.may_have_offset() && next.is_some_and(u8::is_ascii_digit) => moment.take_offset(rest),
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b',' => 1,
            b'-' | b'/' | b'.' => {
                // Between the parts of a day such as 31-Jan-2026.
                let is_within =
                    at > 0 && text[at - 1].is_ascii_alphanumeric() && next.is_some_and(u8::is_ascii_alphanumeric);
                moment.refuse_if(moment.has_day || !(is_within || rest == b"-infinity"));
                moment.is_joined = true;
                1
            }
            _ => return None,
        };
    }
    moment.refuse_if(moment.is_infinite && !(text == b"infinity" || text == b"-infinity"));
    // The server reads more than five digits that stand alone as a day such as 260131.
    let has_long = moment.numbers.iter().any(|number| number.length > 5);
    moment.refuse_if(has_long && !moment.is_joined);
    moment.has_day |= moment.month.is_some() && !moment.numbers.is_empty();
    (moment.has_day || moment.has_time).then_some(moment)
}
