//! Finds the fields of a block's records, by the rules of `CopyReadAttributesCSV` and `CopyReadAttributesText`
//! (src/backend/commands/copyfromparse.c). A block holds whole records that all end in the same way. `records.rs` finds
//! where records end.

use std::borrow::Cow;
use std::cell::Cell;

use memchr::{memchr, memchr2, memchr_iter};

use crate::lanes::{Lanes, Narrow, WORD};

/// The format of a file. `Tsv` has neither quotes nor escapes, and is written as COPY text.
///
/// For `JsonLines`, these rules only find the records. `json_lines.rs` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv { quote: u8, escape: u8 },
    Text,
    Tsv,
    JsonLines,
}

/// How the records of a file end. Records that are written always end in a line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    Lf,
    CrLf,
    Cr,
}

impl LineEnd {
    fn last_byte(self) -> u8 {
        match self {
            Self::Lf | Self::CrLf => b'\n',
            Self::Cr => b'\r',
        }
    }

    /// Returns the number of line ends in some bytes.
    pub(crate) fn count(self, data: &[u8]) -> u64 {
        memchr_iter(self.last_byte(), data).map(|_| 1).sum()
    }
}

/// Where a field's raw bytes are in the block. `is_special` is true if the field has quotes (csv), has escapes (text),
/// or needs escapes (tsv).
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) is_special: bool,
}

/// Finds the fields of a block's records.
pub(crate) struct FieldReader<'a> {
    format: Format,
    delimiter: u8,
    line_end: LineEnd,
    /// The byte that ends a record. It is the delimiter if the block is one record without its line end.
    end_byte: u8,
    block: &'a [u8],
    /// The bytes at which a field may end or become special. The same byte may be listed twice.
    stops: [u8; 5],
    /// The number of one word of the block, and the mask of the stops in that word.
    seen: Cell<(usize, u64)>,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(format: Format, delimiter: u8, block: &'a [u8], line_end: LineEnd) -> Self {
        Self::ended_by(line_end.last_byte(), format, delimiter, block, line_end)
    }

    /// Returns a reader of one record without its line end. Line ends in the record are data.
    pub(crate) fn of_record(format: Format, delimiter: u8, record: &'a [u8]) -> Self {
        Self::ended_by(delimiter, format, delimiter, record, LineEnd::Lf)
    }

    fn ended_by(end_byte: u8, format: Format, delimiter: u8, block: &'a [u8], line_end: LineEnd) -> Self {
        let specials = match format {
            Format::Csv { quote, .. } => [quote; 3],
            Format::Text => [b'\\'; 3],
            Format::Tsv | Format::JsonLines => [b'\\', b'\r', b'\n'],
        };
        let stops = [delimiter, end_byte, specials[0], specials[1], specials[2]];
        let seen = Cell::new((usize::MAX, 0));
        Self { format, delimiter, line_end, end_byte, block, stops, seen }
    }

    /// Returns the position of the first stop from `at` on, or the end of the block.
    fn next_stop(&self, at: usize) -> usize {
        let mut word = at / WORD;
        let mut ahead = self.stops_of(word) >> (at % WORD) << (at % WORD);
        while ahead == 0 {
            word += 1;
            if word * WORD >= self.block.len() {
                return self.block.len();
            }
            ahead = self.stops_of(word);
        }
        word * WORD + ahead.trailing_zeros() as usize
    }

    /// Returns which bytes of a word are stops. The result is kept, because fields are read in order and so the same
    /// word is often asked for again.
    fn stops_of(&self, word: usize) -> u64 {
        let (seen, mask) = self.seen.get();
        if seen == word {
            return mask;
        }
        let rest = self.block.get(word * WORD..).unwrap_or_default();
        let mask = if let Some(bytes) = rest.first_chunk() {
            self.find_stops(bytes)
        } else {
            let mut bytes = [0; WORD];
            bytes[..rest.len()].copy_from_slice(rest);
            self.find_stops(&bytes) & ((1 << rest.len()) - 1)
        };
        self.seen.set((word, mask));
        mask
    }

    fn find_stops(&self, bytes: &[u8; WORD]) -> u64 {
        let lanes = Narrow::load(bytes);
        let [delimiter, end, special, ..] = self.stops;
        let mask = lanes.equal(delimiter) | lanes.equal(end) | lanes.equal(special);
        if matches!(self.format, Format::Tsv | Format::JsonLines) {
            mask | lanes.equal(self.stops[3]) | lanes.equal(self.stops[4])
        } else {
            mask
        }
    }

    /// Returns the index of the line on which `position` is.
    pub(crate) fn line_at(&self, position: usize) -> u64 {
        self.count_lines(0, position)
    }

    /// Returns the number of line ends between two positions.
    pub(crate) fn count_lines(&self, start: usize, end: usize) -> u64 {
        self.line_end.count(&self.block[start..end])
    }

    /// Returns whether a line end precedes `position`.
    pub(crate) fn is_ended(&self, position: usize) -> bool {
        self.block[..position].last() == Some(&self.line_end.last_byte())
    }

    /// Returns the value of a field: without quotes, and with its escapes decoded.
    pub(crate) fn value(&self, field: &Field) -> Cow<'a, [u8]> {
        let bytes = &self.block[field.start..field.end];
        match self.format {
            Format::Csv { quote, escape } if field.is_special => match inside_quotes(bytes, quote, escape) {
                Some(inside) => Cow::Borrowed(inside),
                None => Cow::Owned(unquote(bytes, quote, escape)),
            },
            Format::Text if field.is_special => Cow::Owned(unescape(bytes)),
            _ => Cow::Borrowed(bytes),
        }
    }

    /// Returns whether a field of csv is quoted as a whole or not at all. Any other quote is a stray quote.
    pub(crate) fn is_regular(&self, field: &Field) -> bool {
        match self.format {
            Format::Csv { quote, escape } if field.is_special => {
                is_quoted(&self.block[field.start..field.end], quote, escape)
            }
            _ => true,
        }
    }

    /// Removes a field after the last expected one if it has only blanks, in quotes or without.
    pub(crate) fn drop_empty_end(&self, fields: &mut Vec<Field>, expected: usize) {
        if fields.len() == expected + 1 && fields.last().is_some_and(|last| self.is_blank(last)) {
            fields.pop();
        }
    }

    fn is_blank(&self, field: &Field) -> bool {
        let bytes = &self.block[field.start..field.end];
        let inside = match self.format {
            Format::Csv { quote, .. } => bytes.strip_prefix(&[quote]).and_then(|rest| rest.strip_suffix(&[quote])),
            _ => None,
        };
        inside.unwrap_or(bytes).iter().all(u8::is_ascii_whitespace)
    }

    /// Fills `fields` from the record at `start`, and returns where the next record begins. None if a quote stays open.
    pub(crate) fn read_record(&self, start: usize, fields: &mut Vec<Field>) -> Option<usize> {
        fields.clear();
        let mut at = start;
        loop {
            let (mut field, stop) = self.read_field(at)?;
            at = stop + 1;
            let next = self.block.get(stop);
            if next == Some(&self.delimiter) {
                fields.push(field);
                continue;
            }
            let has_return = next.is_some() && self.block[field.start..field.end].ends_with(b"\r");
            if has_return && self.line_end == LineEnd::CrLf {
                field.end -= 1;
            }
            fields.push(field);
            return Some(at.min(self.block.len()));
        }
    }

    /// Returns the field at `start`, and the position of the delimiter or line end after it.
    fn read_field(&self, start: usize) -> Option<(Field, usize)> {
        let block = self.block;
        let mut at = start;
        let mut is_special = false;
        loop {
            at = self.next_stop(at);
            let is_end = block.get(at).is_none_or(|&byte| byte == self.delimiter || byte == self.end_byte);
            if is_end {
                return Some((Field { start, end: at, is_special }, at));
            }
            is_special = true;
            match self.format {
                Format::Csv { quote, escape } => at = behind_quote(block, at + 1, quote, escape)?,
                Format::Tsv | Format::JsonLines => at += 1,
                // The backslash is the file's last byte. The server drops it, and it must not escape the line end that
                // is written.
                Format::Text if at + 1 == block.len() => return Some((Field { start, end: at, is_special }, at + 1)),
                Format::Text => at = behind_escape(block, at),
            }
        }
    }
}

/// Returns where text continues after the escape at `at`. The hexadecimal digits after `\x` belong to the escape, even
/// if one of them is the delimiter.
fn behind_escape(block: &[u8], at: usize) -> usize {
    let is_digit = |&offset: &usize| block.get(at + offset).is_some_and(u8::is_ascii_hexdigit);
    let digits = if block.get(at + 1) == Some(&b'x') { (2..4).take_while(is_digit).count() } else { 0 };
    at + 2 + digits
}

/// Returns where an unfinished escape such as `\x4` at the end of a field begins, and its digits. Such an escape would
/// include what is written after the field.
pub(crate) fn open_hexadecimal(field: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0;
    while let Some(offset) = memchr(b'\\', &field[at..]) {
        let start = at + offset;
        at = behind_escape(field, start).min(field.len());
        if at == field.len() && at < start + 4 && field.get(start + 1) == Some(&b'x') {
            return Some((start, &field[start + 2..]));
        }
    }
    None
}

/// Returns where csv continues after the quote that closes a field whose quote opened before `start`. None if no quote
/// closes it.
fn behind_quote(block: &[u8], start: usize, quote: u8, escape: u8) -> Option<usize> {
    if quote == escape {
        // A doubled quote is read as a quote that closes and a quote that opens again.
        return memchr(quote, &block[start..]).map(|offset| start + offset + 1);
    }
    let mut at = start;
    loop {
        at += memchr2(quote, escape, block.get(at..)?)?;
        if block[at] == quote {
            return Some(at + 1);
        }
        let is_escaping = block.get(at + 1).is_some_and(|&next| next == quote || next == escape);
        at += if is_escaping { 2 } else { 1 };
    }
}

/// Returns whether the first quote of a csv field opens at the field's start, and is closed at its end.
fn is_quoted(field: &[u8], quote: u8, escape: u8) -> bool {
    let Some(inside) = field.strip_prefix(&[quote]) else { return false };
    let mut at = 0;
    while let Some(offset) = inside.get(at..).and_then(|rest| memchr2(quote, escape, rest)) {
        at += offset;
        let is_pair = inside[at] == escape && (quote != escape || inside.get(at + 1) == Some(&quote));
        if !is_pair {
            return at + 1 == inside.len();
        }
        at += 2;
    }
    false
}

/// Returns the text between the quotes around a field. None if there are no quotes, or if the text has a quote or an
/// escape.
fn inside_quotes(field: &[u8], quote: u8, escape: u8) -> Option<&[u8]> {
    let inside = field.strip_prefix(&[quote])?.strip_suffix(&[quote])?;
    memchr2(quote, escape, inside).is_none().then_some(inside)
}

/// Returns a field of csv without its quotes, which may open and close anywhere in the field.
fn unquote(field: &[u8], quote: u8, escape: u8) -> Vec<u8> {
    let mut value = Vec::with_capacity(field.len());
    let mut in_quote = false;
    let mut bytes = field.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = bytes.next_if(|&next| in_quote && byte == escape && (next == quote || next == escape));
        if let Some(escaped) = escaped {
            value.push(escaped);
        } else if byte == quote {
            in_quote = !in_quote;
        } else {
            value.push(byte);
        }
    }
    value
}

/// Returns a field of format text with its escapes decoded.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = memchr(b'\\', rest) {
        value.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(&letter) = rest.first() else { break };
        let octal = rest.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        let hexadecimal = rest[1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (byte, length) = match letter {
            b'0'..=b'7' => (number(&rest[..octal], 8), octal),
            b'x' if hexadecimal > 0 => (number(&rest[1..=hexadecimal], 16), 1 + hexadecimal),
            b'b' => (b'\x08', 1),
            b'f' => (b'\x0c', 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b't' => (b'\t', 1),
            b'v' => (b'\x0b', 1),
            other => (other, 1),
        };
        value.push(byte);
        rest = &rest[length..];
    }
    value.extend_from_slice(rest);
    value
}

/// Returns the byte that the ASCII digits of an escape stand for. As in `PostgreSQL`, a larger number keeps its low
/// bits.
fn number(digits: &[u8], base: u8) -> u8 {
    digits.iter().fold(0, |sum: u8, digit| sum.wrapping_mul(base).wrapping_add((digit & 0xf) + 9 * (digit >> 6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_those_that_a_look_at_each_byte_finds() {
        let mut noise: u32 = 1;
        for length in (0..200).chain([WORD * 4, WORD * 4 + 1]) {
            let block: Vec<u8> = (0..length)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if noise >> 27 == 0 {
                        b",\n\"\\\r\t"[(noise >> 8) as usize % 6]
                    } else {
                        b'x'
                    }
                })
                .collect();
            for (format, stops) in [
                (Format::Csv { quote: b'"', escape: b'"' }, &b",\n\""[..]),
                (Format::Text, b",\n\\"),
                (Format::Tsv, b",\n\\\r"),
            ] {
                let reader = FieldReader::new(format, b',', &block, LineEnd::Lf);
                for at in (0..=length).chain((0..=length).rev()) {
                    let expected =
                        block[at..].iter().position(|byte| stops.contains(byte)).map_or(length, |far| at + far);
                    assert_eq!(reader.next_stop(at), expected, "{format:?} {at} of {length}");
                }
            }
        }
    }
}
