//! Checks that hold for any bytes: the fast paths of this crate must return the same as slow and simple code.
//!
//! `make fuzz` searches for inputs for which a check fails, and `cargo test` repeats the inputs that it has kept
//! (rust/fuzz/corpus). The first bytes of an input choose the format, the delimiter and the like. The rest is data.

use std::ops::{Range, RangeInclusive};

use memchr::memchr_iter;

use crate::encode::{measure, Buffers, Encoder, Kind};
use crate::error::RecordError;
use crate::fieldmask::{find_ends, Ends, Shape};
use crate::fields::{FieldReader, Format, LineEnd};
use crate::records::{Cut, RecordCutter};

const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
const ESCAPED_CSV: Format = Format::Csv { quote: b'"', escape: b'\\' };
const SINGLE_QUOTED_CSV: Format = Format::Csv { quote: b'\'', escape: b'\'' };
const DELIMITERS: &[u8] = b",\t|; -:\x01";

const NULLS: [&str; 8] = ["", "\\N", "NULL", "0", "-", "t", "2000-01-01", "\u{e9}"];
const KINDS: [Kind; 12] = [
    Kind::Int2,
    Kind::Int4,
    Kind::Int8,
    Kind::Float4,
    Kind::Float8,
    Kind::Numeric,
    Kind::Bool,
    Kind::Date,
    Kind::Timestamp,
    Kind::Timestamptz,
    Kind::Uuid,
    Kind::Text,
];
/// The most digits of an integer and of a numeric in the binary format. A number with more digits is sent as text.
const INTEGER_DIGITS: usize = 19;
const NUMERIC_DIGITS: usize = 38;

/// The bytes of an input that were not used yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    fn shape(&mut self) -> Shape {
        Shape {
            format: self.choose(&[CSV, Format::Text, Format::Tsv, SINGLE_QUOTED_CSV]),
            delimiter: self.choose(DELIMITERS),
            line_end: self.choose(&[LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr]),
        }
    }
}

// -------------------------------------------------------------------- where records end

/// Checks that the cutter finds the same records as the machine that works byte by byte. This must hold for any pieces
/// of the file, and also if the header is cut by itself. With pieces of one byte, only the machine is used. The reader
/// of fields must find the same number of records.
pub fn cutter(data: &[u8]) {
    let mut input = Input(data);
    let format = input.choose(&[CSV, ESCAPED_CSV, Format::Text, Format::Tsv, Format::JsonLines]);
    let (delimiter, flags) = (input.choose(DELIMITERS), input.byte());
    let lengths = [input.byte(), input.byte(), input.byte()].map(|length| usize::from(length) + 1);
    let data = input.0;
    let new = || RecordCutter::new(format, delimiter, flags & 1 != 0);
    let (fast, slow) = (cut(new(), flags & 2 != 0, &lengths, data), cut(new(), false, &[1], data));
    assert_eq!((fast.whole, fast.total, &fast.error), (slow.whole, slow.total, &slow.error));
    if fast.error.is_some() {
        return;
    }
    assert_eq!(fast.cutter, slow.cutter);
    let block = &data[..fast.total.end];
    let torn = fast.cutter.find_torn(block, usize::from(flags >> 3), flags & 4 != 0);
    assert!(torn.is_none_or(|(start, _)| start < block.len()));
    if format != Format::JsonLines {
        let reader = FieldReader::new(format, delimiter, block, fast.cutter.line_end().unwrap_or(LineEnd::Lf));
        let (mut start, mut records, mut fields) = (0, 0, Vec::new());
        while start < block.len() {
            start = reader.read_record(start, &mut fields).expect("whole records");
            records += 1;
        }
        assert_eq!(records, fast.total.records);
    }
}

/// What a cutter has found in a file before its end, and at its end. Counts and offsets begin at the file's beginning.
struct Ran {
    cutter: RecordCutter,
    whole: Cut,
    total: Cut,
    error: Option<RecordError>,
}

fn cut(cutter: RecordCutter, has_header: bool, lengths: &[usize], data: &[u8]) -> Ran {
    let mut ran = Ran { cutter, whole: Cut::default(), total: Cut::default(), error: None };
    let (mut at, mut in_header, mut lengths) = (0, has_header, lengths.iter().cycle());
    while at < data.len() && ran.error.is_none() {
        let piece = &data[at..data.len().min(at + lengths.next().expect("a cycle"))];
        let fed = if in_header { ran.cutter.feed_one(piece) } else { ran.cutter.feed(piece) };
        ran.add(at, fed);
        at += piece.len();
        if in_header && ran.total.records > 0 {
            (at, in_header) = (ran.total.end, false);
        }
    }
    ran.whole = ran.total;
    if ran.error.is_none() {
        let end = ran.cutter.finish();
        ran.add(at, end);
    }
    ran
}

impl Ran {
    fn add(&mut self, at: usize, fed: Result<Cut, RecordError>) {
        let (start, cut) = match fed {
            Ok(cut) => (at, cut),
            Err(error) => {
                self.error = Some(error);
                (self.total.end, self.cutter.salvage())
            }
        };
        let before = self.total;
        self.total = Cut {
            end: if cut.records > 0 { start + cut.end } else { before.end },
            records: before.records + cut.records,
            lines: before.lines + cut.lines,
            server_lines: before.server_lines + cut.server_lines,
            stray_backslashes: before.stray_backslashes + cut.stray_backslashes,
            is_end: cut.is_end,
        };
    }
}

// -------------------------------------------------------------------- where fields end

/// Checks that `find_ends` finds the same ends in a block as the reader of fields, unless it declines the block.
pub fn fields(data: &[u8]) {
    let mut input = Input(data);
    let (shape, block) = (input.shape(), input.0);
    let mut found = Ends::default();
    if find_ends(shape, block, &mut found).is_err() {
        return;
    }
    let ends = found.as_slice();
    let is_last = |&&end: &&u32| block.get(end as usize).is_none_or(|&byte| byte == b'\n');
    assert_eq!(found.records, ends.iter().filter(is_last).count());
    if shape.format == Format::Text {
        assert_eq!(found.backslashes, memchr_iter(b'\\', block).count());
        if found.backslashes != count_nulls(shape.line_end, block, ends) {
            // The encoder refuses such a block, so the index of the block does not matter.
            return;
        }
    }
    assert_eq!(Some(ends), read_ends(shape, block).as_deref());
}

fn count_nulls(line_end: LineEnd, block: &[u8], ends: &[u32]) -> usize {
    let mut start = 0;
    let is_null = |&&end: &&u32| {
        let field = &block[start..end as usize];
        start = end as usize + 1;
        field == b"\\N" || (line_end == LineEnd::CrLf && field == b"\\N\r")
    };
    ends.iter().filter(is_null).count()
}

fn read_ends(shape: Shape, block: &[u8]) -> Option<Vec<u32>> {
    let reader = FieldReader::new(shape.format, shape.delimiter, block, shape.line_end);
    let (mut start, mut fields, mut ends) = (0, Vec::new(), Vec::new());
    while start < block.len() {
        start = reader.read_record(start, &mut fields)?;
        if !fields.iter().all(|field| reader.is_regular(field)) {
            return None;
        }
        ends.extend(fields.iter().map(|field| u32::try_from(field.end).expect("a short block")));
        let has_return = shape.line_end == LineEnd::CrLf && reader.is_ended(start);
        *ends.last_mut()? += u32::from(has_return);
    }
    Some(ends)
}

// -------------------------------------------------------------------- rows of the binary format

/// Checks that a block is encoded if its values have the forms of docs/copy-format.md, and that the rows have these
/// values.
pub fn encoder(data: &[u8]) {
    let mut input = Input(data);
    let (shape, null) = (input.shape(), input.choose(&NULLS));
    let kinds: Vec<_> = (0..=input.byte() % 4).map(|_| input.choose(&KINDS)).collect();
    let middle = usize::from(input.byte());
    let block = input.0;
    let expected = model(shape, null.as_bytes(), &kinds, block);
    let encoder = Encoder::new(shape, null.into(), kinds.clone());
    let (left, right) = block.split_at(middle.min(block.len()));
    let mut buffers = Buffers::default();
    for runs in [&[block][..], &[left, right]] {
        let found = encoder.encode(runs, shape.line_end, &mut buffers).ok();
        assert_eq!(found, expected.as_ref().map(|(rows, records)| (&rows[..], *records)));
    }
    if let Some((rows, records)) = expected {
        let bytes: u64 = measure(&rows, kinds.len()).iter().map(|column| column.1).sum();
        assert_eq!(rows.len() as u64, bytes + (records * (2 + 4 * kinds.len())) as u64);
    }
}

/// Returns the rows of a block and their number, None if the block must be sent as text.
fn model(shape: Shape, null: &[u8], kinds: &[Kind], block: &[u8]) -> Option<(Vec<u8>, usize)> {
    if block.contains(&0) || std::str::from_utf8(block).is_err() || shape.line_end == LineEnd::Cr {
        return None;
    }
    if shape.format == Format::Text && block.ends_with(b"\\") {
        return None;
    }
    let reader = FieldReader::new(shape.format, shape.delimiter, block, shape.line_end);
    let (mut start, mut fields, mut rows, mut records) = (0, Vec::new(), Vec::new(), 0);
    while start < block.len() {
        start = reader.read_record(start, &mut fields)?;
        let is_ended = shape.line_end == LineEnd::Lf || !reader.is_ended(start) || block[..start].ends_with(b"\r\n");
        if fields.len() != kinds.len() || !fields.iter().all(|field| reader.is_regular(field)) || !is_ended {
            return None;
        }
        rows.extend_from_slice(&u16::try_from(kinds.len()).ok()?.to_be_bytes());
        for (field, &kind) in fields.iter().zip(kinds) {
            let raw = &block[field.start..field.end];
            let is_quoted = field.is_special && matches!(shape.format, Format::Csv { .. });
            if raw == null && !is_quoted {
                rows.extend_from_slice(&[255; 4]);
                continue;
            }
            if raw.contains(&b'\r') || (field.is_special && shape.format == Format::Text) {
                return None;
            }
            let value = to_binary(kind, std::str::from_utf8(&reader.value(field)).ok()?)?;
            rows.extend_from_slice(&u32::try_from(value.len()).ok()?.to_be_bytes());
            rows.extend_from_slice(&value);
        }
        records += 1;
    }
    Some((rows, records))
}

fn to_binary(kind: Kind, text: &str) -> Option<Vec<u8>> {
    Some(match kind {
        Kind::Int2 => i16::try_from(to_integer(text)?).ok()?.to_be_bytes().into(),
        Kind::Int4 => i32::try_from(to_integer(text)?).ok()?.to_be_bytes().into(),
        Kind::Int8 => i64::try_from(to_integer(text)?).ok()?.to_be_bytes().into(),
        Kind::Float4 => {
            let value: f32 = text.parse().ok()?;
            let is_taken = is_float(text, value.into(), f64::from(1e-35_f32)..=f64::from(1e37_f32));
            is_taken.then(|| value.to_be_bytes().into())?
        }
        Kind::Float8 => {
            let value: f64 = text.parse().ok()?;
            is_float(text, value, 1e-290..=1e300).then(|| value.to_be_bytes().into())?
        }
        Kind::Numeric => to_numeric(text)?,
        Kind::Bool if text == "t" => vec![1],
        Kind::Bool if text == "f" => vec![0],
        Kind::Bool => return None,
        Kind::Date => to_day(&to_numbers(text, "0000-00-00")?)?.to_be_bytes().into(),
        Kind::Timestamp => to_microseconds(text)?.to_be_bytes().into(),
        Kind::Timestamptz => to_microseconds(text.strip_suffix("+00")?)?.to_be_bytes().into(),
        Kind::Uuid => {
            let lengths: Vec<_> = text.split('-').map(str::len).collect();
            let digits = text.replace('-', "");
            let is_taken = lengths == [8, 4, 4, 4, 12] && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_taken.then(|| u128::from_str_radix(&digits, 16).ok())??.to_be_bytes().into()
        }
        Kind::Text => text.into(),
    })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(text: &str) -> bool {
    text.split_once('.').map_or(is_digits(text), |(whole, decimals)| is_digits(whole) && is_digits(decimals))
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix('-').unwrap_or(text)
}

fn to_integer(text: &str) -> Option<i128> {
    let digits = unsigned(text);
    if is_digits(digits) && digits.len() <= INTEGER_DIGITS {
        text.parse().ok()
    } else {
        None
    }
}

/// Returns whether a number has the form of floats, and its value is in the range. A value of 0 is in the range only if
/// it is not rounded to 0.
fn is_float(text: &str, value: f64, range: RangeInclusive<f64>) -> bool {
    let (size, exponent) = unsigned(text).split_once(['e', 'E']).unwrap_or((unsigned(text), "0"));
    let is_zero = size.bytes().all(|byte| b"0.".contains(&byte));
    let has_form = is_plain(size) && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    has_form && (is_zero || range.contains(&value.abs()))
}

/// Returns a numeric: the number of groups of four digits, the weight of the first one, the sign, the scale, the
/// groups.
fn to_numeric(text: &str) -> Option<Vec<u8>> {
    let size = unsigned(text);
    let (whole, decimals) = size.split_once('.').unwrap_or((size, ""));
    if !is_plain(size) || whole.len() + decimals.len() > NUMERIC_DIGITS {
        return None;
    }
    let digits = format!("{}{whole}{decimals}000", "0".repeat(3 - (whole.len() + 3) % 4));
    let groups: Vec<i16> = digits.as_bytes().chunks_exact(4).map(to_group).collect();
    let first = groups.iter().position(|&group| group > 0).unwrap_or(groups.len());
    let used = groups.iter().rposition(|&group| group > 0).map_or(&[][..], |last| &groups[first..=last]);
    let is_negative = text.starts_with('-') && !used.is_empty();
    let count = |number: usize| i16::try_from(number).ok();
    let weight = if used.is_empty() { 0 } else { count(whole.len().div_ceil(4))? - 1 - count(first)? };
    let head = [count(used.len())?, weight, if is_negative { 0x4000 } else { 0 }, count(decimals.len())?];
    Some(head.iter().chain(used).flat_map(|number| number.to_be_bytes()).collect())
}

fn to_group(digits: &[u8]) -> i16 {
    digits.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0'))
}

/// Returns the numbers of a text that has digits where `form` has zeros, and is equal to it elsewhere.
fn to_numbers(text: &str, form: &str) -> Option<Vec<i64>> {
    let is_alike = |(byte, formed): (u8, u8)| if formed == b'0' { byte.is_ascii_digit() } else { byte == formed };
    let has_form = text.len() == form.len() && text.bytes().zip(form.bytes()).all(is_alike);
    has_form.then(|| text.split(|each: char| !each.is_ascii_digit()).map(|number| number.parse().ok()).collect())?
}

/// Returns the days from 2000-01-01 to a date. The year is 1 or later.
fn to_day(date: &[i64]) -> Option<i32> {
    let &[year, month, day, ..] = date else { return None };
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = 28 + i64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month).ok()?.checked_sub(1)?;
    if year < 1 || !(1..=*months.get(index)?).contains(&day) {
        return None;
    }
    // Count the days since 0001-01-01. The calendar repeats itself every 400 years.
    let sum = |years: Range<i64>| years.map(|year| 365 + i64::from(is_leap(year))).sum::<i64>();
    let (cycles, years) = ((year - 1) / 400, (year - 1) % 400 + 1);
    let days = cycles * sum(1..401) + sum(1..years) + months[..index].iter().sum::<i64>() + day - 1;
    i32::try_from(days - sum(1..2000)).ok()
}

fn to_microseconds(text: &str) -> Option<i64> {
    let decimals = text.split_once('.').map(|(_, decimals)| decimals);
    let form = decimals.map_or(String::new(), |decimals| format!(".{}", "0".repeat(decimals.len())));
    let numbers = to_numbers(text, &format!("0000-00-00 00:00:00{form}"))?;
    let &[hours, minutes, seconds, ..] = &numbers[3..] else { return None };
    let digits = decimals.unwrap_or("0");
    if hours > 23 || minutes > 59 || seconds > 59 || !(1..=6).contains(&digits.len()) {
        return None;
    }
    let within = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + format!("{digits:0<6}").parse::<i64>().ok()?;
    Some(i64::from(to_day(&numbers)?) * 86_400_000_000 + within)
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) fn hold(name: &str, prove: fn(&[u8])) {
        let kept = std::fs::read_dir(format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for path in kept.map(|entry| entry.unwrap().path()) {
            println!("{}", path.display()); // the last line is the input that fails
            prove(&std::fs::read(path).unwrap());
        }
    }

    #[test]
    fn kept_inputs_hold() {
        hold("cutter", super::cutter);
        hold("fields", super::fields);
        hold("encoder", super::encoder);
    }
}
