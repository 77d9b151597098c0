//! Finds the values of a block that columns do not keep (`kept.rs`): how many there are, and the first of each kind.

use std::cell::RefCell;

use memchr::memchr;

use crate::fieldmask::{find_ends, Ends, Shape};
use crate::fields::{Format, LineEnd};
use crate::kept::{ColumnType, ORDER};
use crate::lanes::{with_widest, Lanes, Work, WORD};
use crate::notation::plain_value;
use crate::rewrite::Rewriter;
use crate::types::{is_quoted_null, SHOWN_BYTES};

/// Values that one column changes in the same way. `change` has the bits of `kept.rs`. The bit `ORDER` is never
/// combined with another bit. `line` and `value` are those of the first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub column: usize,
    pub change: u8,
    pub count: u64,
    pub line: u64,
    pub value: Vec<u8>,
}

/// The changes that were found so far.
#[derive(Default)]
pub(crate) struct Findings(pub(crate) Vec<Changed>);

impl Findings {
    /// Counts a value if the column does not keep it.
    pub(crate) fn note(&mut self, column: usize, kind: ColumnType, value: &[u8], line: impl Fn() -> u64) {
        let bits = if kind.keeps(value, true) { 0 } else { kind.change(value) };
        for change in [bits & !ORDER, bits & ORDER].into_iter().filter(|&change| change != 0) {
            if let Some(found) = self.0.iter_mut().find(|found| found.column == column && found.change == change) {
                found.count += 1;
            } else {
                let value = value[..value.len().min(SHOWN_BYTES)].to_vec();
                self.0.push(Changed { column, change, count: 1, line: line(), value });
            }
        }
    }
}

/// Finds the values that columns do not keep. `columns` are the types of the columns that the rewriter writes. `forced`
/// says for each column whether a quoted null string is null in it (`FORCE_NULL`).
#[must_use]
pub fn find_changes(
    rewriter: &Rewriter,
    block: &[u8],
    line_end: LineEnd,
    columns: &[ColumnType],
    forced: &[bool],
) -> Vec<Changed> {
    let places =
        |(index, &kind): (usize, &ColumnType)| (rewriter.keep.as_ref().map_or(index, |keep| keep[index]), index, kind);
    let mut checked: Vec<(usize, usize, ColumnType)> = columns.iter().enumerate().map(places).collect();
    checked.retain(|(_, _, kind)| *kind != ColumnType::Other);
    let is_plain = rewriter.notations.is_empty();
    if checked.is_empty() || (is_plain && !may_change(rewriter, block, &checked)) {
        return Vec::new();
    }
    if is_plain && ENDS.with_borrow_mut(|ends| keeps_all(rewriter, block, line_end, &checked, ends)) {
        return Vec::new();
    }
    let reader = rewriter.reader(block, line_end);
    let (mut start, mut fields, mut found) = (0, Vec::new(), Findings::default());
    while start < block.len() {
        let Some(next) = reader.read_record(start, &mut fields) else { break };
        for &(place, index, kind) in &checked {
            let Some(field) = fields.get(place) else { continue };
            let is_forced = forced.get(index).copied().unwrap_or(false);
            let is_null = rewriter.is_null(block, field) || is_forced && is_quoted_null(rewriter, &reader, field);
            let value = if is_null { None } else { plain_value(&rewriter.notations, &reader, index, field) };
            if let Some(value) = value {
                found.note(index, kind, &value, || reader.line_at(field.start));
            }
        }
        start = next;
    }
    found.0
}

/// Returns whether a column may change a value of a block. If the types of all columns allow it, only the beginnings
/// and ends of fields are examined.
fn may_change(rewriter: &Rewriter, block: &[u8], checked: &[(usize, usize, ColumnType)]) -> bool {
    let is_seen_there = |&(_, _, kind): &(usize, usize, ColumnType)| {
        matches!(kind, ColumnType::Integer | ColumnType::Numeric { scale: i32::MAX } | ColumnType::Varchar { .. })
    };
    let quote = match rewriter.format {
        Format::Csv { quote, .. } => quote,
        // An escape may stand for any character, so a closer look is needed.
        Format::Text if memchr(b'\\', block).is_some() => return true,
        _ => rewriter.delimiter,
    };
    let has_texts = checked.iter().any(|(_, _, kind)| matches!(kind, ColumnType::Varchar { .. }));
    let glance = Glance { block, delimiter: rewriter.delimiter, quote, has_texts };
    !checked.iter().all(is_seen_there) || with_widest(glance)
}

/// The words overlap by this many bytes, which are read at the end of one word and again at the beginning of the next.
/// The delimiter before a field and the first two bytes of the field must be in one word.
const SEEN_TWICE: usize = 3;

struct Glance<'a> {
    block: &'a [u8],
    delimiter: u8,
    quote: u8,
    /// Whether one of the columns is a varchar.
    has_texts: bool,
}

impl Work for Glance<'_> {
    type Output = bool;

    /// Returns whether a column may change a value: a field begins with a superfluous zero, with a sign before a zero
    /// or a point, or with a blank before a blank, a zero or a sign; a field ends with a blank; or there is an
    /// underscore.
    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        let mut start = 0;
        loop {
            let rest = &self.block[start..];
            let mut padded = [b'\n'; WORD];
            let word = rest.first_chunk().unwrap_or_else(|| {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            });
            let lanes = L::load(word);
            let edges = lanes.equal(self.delimiter) | lanes.equal(b'\n') | lanes.equal(b'\r') | lanes.equal(self.quote);
            let begins = edges << 1 | u64::from(start == 0);
            let (zeros, points, minus) = (lanes.equal(b'0'), lanes.equal(b'.'), lanes.equal(b'-'));
            let (plus, blanks) = (lanes.equal(b'+'), lanes.equal(b' ') | lanes.equal(b'\t'));
            let leading_zeros = zeros & !((edges | points) >> 1) & (u64::MAX >> 1);
            let signs = (minus & (zeros | points) >> 1) | (plus & zeros >> 1);
            let leading_blanks = blanks & (blanks | zeros | minus | plus) >> 1;
            let trailing_blanks = if self.has_texts { blanks & edges >> 1 } else { 0 };
            let is_odd = begins & (leading_zeros | signs | leading_blanks) | trailing_blanks | lanes.equal(b'_');
            if is_odd != 0 {
                return true;
            }
            if rest.len() <= WORD {
                return false;
            }
            start += WORD - SEEN_TWICE;
        }
    }
}

thread_local! {
    static ENDS: RefCell<Ends> = RefCell::default();
}

/// Returns whether columns keep all values, as far as an index of all fields shows it. `checked` has the places of
/// fields, with their columns.
fn keeps_all(
    rewriter: &Rewriter,
    block: &[u8],
    line_end: LineEnd,
    checked: &[(usize, usize, ColumnType)],
    ends: &mut Ends,
) -> bool {
    let is_indexed = match rewriter.format {
        Format::Csv { quote, escape } => quote == escape,
        Format::Text | Format::Tsv => true,
        Format::JsonLines => false,
    };
    let shape = Shape { format: rewriter.format, delimiter: rewriter.delimiter, line_end };
    if !is_indexed || find_ends(shape, block, ends).is_err() || ends.records == 0 {
        return false;
    }
    let places = ends.as_slice();
    let may_group = memchr(b'_', block).is_some();
    let width = places.len() / ends.records;
    let is_even = places.len() == width * ends.records && checked.iter().all(|(place, _, _)| *place < width);
    let mut start = 0;
    is_even
        && places.chunks_exact(width).all(|fields| {
            let first = start;
            let last = fields[width - 1] as usize;
            start = last + 1;
            // The last field of each group of `width` fields must end a record. There are as many groups as records, so
            // no other field can end a record then.
            block.get(last) != Some(&rewriter.delimiter)
                && checked.iter().all(|&(place, _, kind)| {
                    let begin = if place == 0 { first } else { fields[place - 1] as usize + 1 };
                    let end = fields[place] as usize;
                    let has_return = line_end == LineEnd::CrLf && end == last && end < block.len();
                    keeps_field(rewriter, &block[begin..end - usize::from(has_return)], kind, may_group)
                })
        })
}

/// Returns whether a field is null or its column keeps it. Returns false if only the slower check can decide that.
#[inline(always)]
fn keeps_field(rewriter: &Rewriter, bytes: &[u8], kind: ColumnType, may_group: bool) -> bool {
    let bytes = match (rewriter.format, bytes) {
        (_, []) => return true,
        (Format::Csv { quote, .. }, [first, inside @ .., _]) if *first == quote => inside,
        _ => bytes,
    };
    let is_read = rewriter.format != Format::Text || memchr(b'\\', bytes).is_none();
    is_read && kind.keeps(bytes, may_group) || rewriter.nulls.iter().any(|null| null == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{FORM, SIGN, TIME};

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
    const TYPES: [ColumnType; 3] = [ColumnType::Integer, ColumnType::Other, ColumnType::Date];

    fn found(format: Format, block: &str, line_end: LineEnd) -> Vec<(usize, u8, u64, u64)> {
        let nulls = if format == CSV { vec![Vec::new()] } else { vec![b"\\N".to_vec()] };
        let rewriter = Rewriter::new(format, b',', nulls, None, Vec::new(), None).unwrap();
        let changes = find_changes(&rewriter, block.as_bytes(), line_end, &TYPES, &[false, false, true]);
        changes.iter().map(|each| (each.column, each.change, each.count, each.line)).collect()
    }

    #[test]
    fn a_glance_sees_what_a_closer_look_finds() {
        let rewriter = Rewriter::new(CSV, b',', vec![Vec::new()], None, Vec::new(), None).unwrap();
        let types = [ColumnType::Integer, ColumnType::Varchar { length: 3 }];
        let checked: Vec<_> = types.iter().enumerate().map(|(at, &kind)| (at, at, kind)).collect();
        for value in
            ["007,a", "-0,a", " 07,a", "+07,a", "0x1F,a", "1_000,a", "\"07\",a", "1,abc ", "1,\"abc \"", "-00,a"]
        {
            for before in 0..130 {
                let block = format!("{}{value}\n{}", "1,a\n".repeat(before), "1,a\n".repeat(130 - before));
                assert!(may_change(&rewriter, block.as_bytes(), &checked), "{value} {before}");
                let found = find_changes(&rewriter, block.as_bytes(), LineEnd::Lf, &types, &[false; 2]);
                assert_eq!(found[0].line, before as u64, "{value}");
            }
        }
        let plain = "0,abc\n-7,0.5\n10,a b\n\"30\",\"\"\n".repeat(50);
        assert!(!may_change(&rewriter, plain.as_bytes(), &checked));
    }

    #[test]
    fn changes_are_counted_with_the_line_of_the_first() {
        let block = "1,007,2026-01-31\n,x,\n\"07\",\"a\nb\",\"2026-01-31 10:00\"\n007,,\"\"\n-0,,2026-01-31\n";
        assert_eq!(found(CSV, block, LineEnd::Lf), [(0, FORM, 2, 2), (2, TIME, 1, 3), (0, SIGN, 1, 5)]);
        let plain = "1,007,2026-01-31\r\n,x,\r\n\"7\",\"a\",\"2026-01-31\"\r\n";
        assert_eq!(found(CSV, plain, LineEnd::CrLf), []);
        assert_eq!(found(CSV, "07,,\r\n", LineEnd::CrLf), [(0, FORM, 1, 0)]);
        assert_eq!(found(CSV, "07", LineEnd::Lf), [(0, FORM, 1, 0)]);
        assert_eq!(found(Format::Text, "\\N,,\\N\n\\0607,,\\N\n", LineEnd::Lf), [(0, FORM, 1, 1)]);
        assert_eq!(found(Format::Tsv, "1\n1,2\n07,2,3\n", LineEnd::Lf), [(0, FORM, 1, 2)]);
    }
}
