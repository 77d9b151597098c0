//! Finds what speaks against a guessed format in whole records: quotes in places where the format has none, backslashes
//! that only one of the formats explains, fields in single quotes, and words for null.

use memchr::memchr;

use crate::fields::LineEnd;
use crate::lanes::{prefix_xor, with_widest, Lanes, Work, WORD};

/// The characters that COPY TO writes after a backslash in format text.
const COPY_ESCAPES: &[u8] = b"\\bfnrtv";

/// How many bytes after a candidate must be read to judge it: the rest of `"NULL"`, and the byte that ends its field.
const LOOKAHEAD: u32 = 6;

/// How often something was found, and the index of the line where it was found first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    pub count: u64,
    pub line: u64,
}

/// `escapes` are backslashes as COPY TO writes them, and `others` are backslashes that it never writes. The backslashes
/// of a field `\N` and of a lone `\.` are neither.
///
/// `quoted` are fields in quotes although the format has no quotes. `strays` are quotes of csv that open after a value
/// or close before one. COPY removes these quotes, and reads what follows as quoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    pub quoted: Doubt,
    pub escapes: Doubt,
    pub others: Doubt,
    pub strays: Doubt,
    pub apostrophes: Doubt,
    pub nulls: Doubt,
}

/// A guessed format. In csv, a quote is escaped by a quote. Formats other than csv have no quotes. `nulls` are words
/// that other programs write for null and that the dialect reads as text.
#[derive(Clone, Copy)]
pub struct Guess<'a> {
    pub is_csv: bool,
    pub delimiter: u8,
    pub line_end: LineEnd,
    pub nulls: &'a [&'a [u8]],
}

/// Parts of the data. Joined in their order, they hold whole records.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) delimiter: u8,
    pub(crate) line_end: LineEnd,
}

impl Runs<'_> {
    pub(crate) fn byte(&self, mut position: usize) -> Option<u8> {
        for run in self.parts {
            if let Some(&byte) = run.get(position) {
                return Some(byte);
            }
            position -= run.len();
        }
        None
    }

    #[inline(always)]
    pub(crate) fn separates(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }

    /// Returns whether a field begins or ends at a position: at a delimiter or line end, or outside of the records.
    pub(crate) fn is_edge(&self, position: Option<usize>) -> bool {
        position.and_then(|position| self.byte(position)).is_none_or(|byte| self.separates(byte))
    }

    pub(crate) fn note(&self, doubt: Doubt, at: usize) -> Doubt {
        let line = if doubt.count == 0 { self.line_at(at) } else { doubt.line };
        Doubt { count: doubt.count + 1, line }
    }

    fn line_at(&self, mut position: usize) -> u64 {
        let mut lines = 0;
        for run in self.parts {
            lines += self.line_end.count(&run[..position.min(run.len())]);
            position = position.saturating_sub(run.len());
        }
        lines
    }
}

/// Returns how many bytes of `runs` are control characters in ISO 8859 (0x80 to 0x9F), and the line of the first one,
/// counted from 0.
#[must_use]
pub fn find_controls(runs: &[&[u8]], line_end: LineEnd) -> (u64, u64) {
    let is_control = |byte: u8| byte & 0xE0 == 0x80;
    // A sum of bytes is vectorised, and a sum of 255 of them is a byte.
    let in_part = |part: &[u8]| u64::from(part.iter().map(|&byte| u8::from(is_control(byte))).sum::<u8>());
    let count: u64 = runs.iter().flat_map(|run| run.chunks(255)).map(in_part).sum();
    if count == 0 {
        return (0, 0);
    }
    let newline = if line_end == LineEnd::Cr { b'\r' } else { b'\n' };
    let before = runs.iter().copied().flatten().take_while(|&&byte| !is_control(byte));
    (count, before.filter(|&&byte| byte == newline).count() as u64)
}

/// Searches runs that together hold whole records. If `with_backslashes` is false, backslashes are not searched. The
/// caller knows in this case that no backslash speaks against the format.
#[must_use]
pub fn find_doubts(runs: &[&[u8]], guess: Guess, with_backslashes: bool) -> Doubts {
    let has = |byte| runs.iter().any(|run| memchr(byte, run).is_some());
    let (with_backslashes, with_quotes) = (with_backslashes && has(b'\\'), has(b'"'));
    let runs = Runs { parts: runs, delimiter: guess.delimiter, line_end: guess.line_end };
    let (doubts, behind_escape) = (Doubts::default(), 0);
    with_widest(Search { runs, guess, with_backslashes, with_quotes, doubts, behind_escape })
}

struct Search<'a> {
    runs: Runs<'a>,
    guess: Guess<'a>,
    with_backslashes: bool,
    with_quotes: bool,
    doubts: Doubts,
    /// The position after the last escape. Bytes before it belong to that escape, and are not judged.
    behind_escape: usize,
}

/// The bytes of a word that may speak against the format, and the bytes that are quoted or open a quote.
struct Candidates {
    mask: u64,
    inside: u64,
}

impl Work for Search<'_> {
    type Output = Doubts;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Doubts {
        let (mut start, mut before, mut in_quote) = (0, b'\n', false);
        for run in self.runs.parts {
            for word in run.chunks(WORD) {
                let Candidates { mut mask, inside } = self.candidates::<L>(word, before, in_quote);
                while mask != 0 {
                    let offset = mask.trailing_zeros();
                    self.judge(start + offset as usize, inside >> offset & 1 != 0);
                    mask &= mask - 1;
                }
                in_quote = inside >> (word.len() - 1) & 1 != 0;
                (start, before) = (start + word.len(), word[word.len() - 1]);
            }
        }
        self.doubts
    }
}

impl Search<'_> {
    /// Returns the bytes that may be doubtful. Near the end of the word, more bytes are returned, because the bytes
    /// after the word would be needed to decide.
    #[inline(always)]
    fn candidates<L: Lanes>(&self, bytes: &[u8], before: u8, in_quote: bool) -> Candidates {
        let mut padded = [0; WORD];
        let word = <&[u8; WORD]>::try_from(bytes).unwrap_or_else(|_| {
            padded[..bytes.len()].copy_from_slice(bytes);
            &padded
        });
        let valid = u64::MAX >> (WORD - bytes.len());
        let unseen = valid & !(valid >> LOOKAHEAD);
        let lanes = L::load(word);
        let separators = lanes.equal(self.guess.delimiter) | lanes.equal(b'\n') | lanes.equal(b'\r');
        let mut starts = (separators << 1) | u64::from(self.runs.separates(before));
        let (mut mask, mut inside) = (0, 0);
        let quotes = if self.with_quotes { lanes.equal(b'"') } else { 0 };
        if self.guess.is_csv && (quotes != 0 || in_quote) {
            inside = prefix_xor(quotes) ^ if in_quote { u64::MAX } else { 0 };
            let behind_quote = (quotes << 1) | u64::from(before == b'"');
            mask |= quotes & inside & !(starts | behind_quote);
            mask |= quotes & !inside & !((separators | quotes) >> 1);
            mask |= quotes & inside & starts & ((separators >> 6) | unseen);
            starts &= !((inside << 1) | u64::from(in_quote));
        } else {
            mask |= quotes & starts;
        }
        let null_ends = (separators >> 4) | unseen;
        mask |= starts & (lanes.equal(b'\'') | ((lanes.equal(b'N') | lanes.equal(b'n')) & null_ends));
        if self.with_backslashes {
            mask |= lanes.equal(b'\\');
        }
        Candidates { mask: mask & valid, inside }
    }

    /// Judges a candidate. `is_inside` is true if it is quoted, or opens a quote of csv.
    fn judge(&mut self, at: usize, is_inside: bool) {
        if at < self.behind_escape {
            return;
        }
        match self.runs.byte(at) {
            Some(b'"') if self.guess.is_csv => self.judge_csv_quote(at, is_inside),
            Some(b'"') if self.runs.is_edge(at.checked_sub(1)) && self.closes(at + 1) => {
                self.doubts.quoted = self.runs.note(self.doubts.quoted, at);
            }
            Some(b'\'') if !is_inside && self.is_in_apostrophes(at) => {
                self.doubts.apostrophes = self.runs.note(self.doubts.apostrophes, at);
            }
            Some(b'N' | b'n') if !is_inside && self.is_null_word(at, 4) => {
                self.doubts.nulls = self.runs.note(self.doubts.nulls, at);
            }
            Some(b'\\') => self.judge_backslash(at, is_inside),
            _ => {}
        }
    }

    fn judge_csv_quote(&mut self, at: usize, is_open: bool) {
        let neighbour = if is_open { at.checked_sub(1) } else { Some(at + 1) };
        if !self.runs.is_edge(neighbour) && neighbour.and_then(|next| self.runs.byte(next)) != Some(b'"') {
            self.doubts.strays = self.runs.note(self.doubts.strays, at);
        } else if is_open && self.is_quoted_null(at) {
            self.doubts.nulls = self.runs.note(self.doubts.nulls, at);
        }
    }

    fn judge_backslash(&mut self, at: usize, is_inside: bool) {
        self.behind_escape = at + 2;
        let begins = self.runs.is_edge(at.checked_sub(1)) && !is_inside;
        match self.runs.byte(at + 1) {
            Some(b'N' | b'.') if begins && self.runs.is_edge(Some(at + 2)) => {
                if self.is_null_word(at, 2) {
                    self.doubts.nulls = self.runs.note(self.doubts.nulls, at);
                }
            }
            Some(b'"') if begins && !self.guess.is_csv => {
                self.doubts.quoted = self.runs.note(self.doubts.quoted, at);
                self.doubts.others = self.runs.note(self.doubts.others, at);
            }
            Some(b'"') if self.guess.is_csv => self.behind_escape = at + 1,
            Some(next) if next == self.guess.delimiter || COPY_ESCAPES.contains(&next) => {
                self.doubts.escapes = self.runs.note(self.doubts.escapes, at);
            }
            _ => self.doubts.others = self.runs.note(self.doubts.others, at),
        }
    }

    /// Returns whether the quote that was opened before `at` is closed by the rules of csv, on its line and at the end
    /// of a field.
    fn closes(&self, mut at: usize) -> bool {
        loop {
            match self.runs.byte(at) {
                Some(b'"') if self.runs.byte(at + 1) == Some(b'"') => at += 2,
                Some(b'"') => return self.runs.is_edge(Some(at + 1)),
                None | Some(b'\n' | b'\r') => return false,
                Some(_) => at += 1,
            }
        }
    }

    /// Returns whether the field that begins with a single quote at `at` ends with a single quote.
    fn is_in_apostrophes(&self, at: usize) -> bool {
        let mut end = at + 1;
        while !self.runs.is_edge(Some(end)) {
            end += 1;
        }
        end > at + 1 && self.runs.byte(end - 1) == Some(b'\'')
    }

    /// Returns whether the `length` bytes at `at` are a field that is one of the words for null.
    fn is_null_word(&self, at: usize, length: usize) -> bool {
        let is_at =
            |word: &&[u8]| word.iter().enumerate().all(|(index, &byte)| self.runs.byte(at + index) == Some(byte));
        let mut words = self.guess.nulls.iter().filter(|word| word.len() == length);
        self.runs.is_edge(Some(at + length)) && words.any(is_at)
    }

    /// Returns whether the quote at `at` begins the field `"NULL"`, on a line that begins and ends with quotes.
    fn is_quoted_null(&self, at: usize) -> bool {
        let is_word = |word: &[u8]| (0..4).all(|index| self.runs.byte(at + 1 + index) == word.get(index).copied());
        let is_field = self.runs.byte(at + 5) == Some(b'"') && self.runs.is_edge(Some(at + 6));
        if !is_field || !self.guess.nulls.iter().any(|word| word.len() == 4 && is_word(word)) {
            return false;
        }
        let is_end = |position: usize| matches!(self.runs.byte(position), None | Some(b'\n' | b'\r'));
        let (mut first, mut last) = (at, at + 5);
        while first > 0 && !is_end(first - 1) {
            first -= 1;
        }
        while !is_end(last + 1) {
            last += 1;
        }
        [first, last].iter().all(|&edge| self.runs.byte(edge) == Some(b'"'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TSV: Guess = Guess { is_csv: false, delimiter: b'\t', line_end: LineEnd::Lf, nulls: &[b"NULL", b"null"] };
    const CSV: Guess = Guess { is_csv: true, delimiter: b',', nulls: &[b"NULL", b"null", b"\\N"], ..TSV };

    fn counts(data: &[u8]) -> [(u64, u64); 3] {
        let doubts = find_doubts(&[data], TSV, true);
        [doubts.quoted, doubts.escapes, doubts.others].map(|doubt| (doubt.count, doubt.line))
    }

    fn strays(data: &[u8]) -> (u64, u64) {
        let found = find_doubts(&[data], CSV, true).strays;
        (found.count, found.line)
    }

    fn words(data: &[u8], guess: Guess) -> [(u64, u64); 2] {
        let doubts = find_doubts(&[data], guess, true);
        [doubts.apostrophes, doubts.nulls].map(|doubt| (doubt.count, doubt.line))
    }

    #[test]
    fn controls_are_counted_over_runs() {
        let (first, second) = ([b"a\n".as_slice(), &[0xE9; 300]].concat(), [b"\n".as_slice(), &[0x93; 300]].concat());
        assert_eq!(find_controls(&[&first, &second], LineEnd::Lf), (300, 2));
        assert_eq!(find_controls(&[&first], LineEnd::Lf), (0, 0));
    }

    #[test]
    fn quotes_are_doubtful_only_around_a_field() {
        assert_eq!(counts(b"a\tb\n\"a\" b\tc \"d\"\n5\"\t{\"a\": \"b\"}\nsay \"x\"\ty\n"), [(0, 0); 3]);
        assert_eq!(counts(b"a\tb\n\"a\"\t\"b\tc\"\nd\t\"\"\"e\"\"\""), [(3, 1), (0, 0), (0, 0)]);
        assert_eq!(counts(b"a\t\"open\nb\tclosed\"\n"), [(0, 0); 3]);
        assert_eq!(counts(b"a\tb\n\\\"a\\\"\tb\n"), [(1, 1), (0, 0), (2, 1)]);
    }

    #[test]
    fn backslashes_are_told_apart_as_copy_writes_them() {
        assert_eq!(counts(b"\\N\ta\n\\.\n"), [(0, 0); 3]);
        assert_eq!(counts(b"a\nb\\tc\t\\\\\n\\\t"), [(0, 0), (3, 1), (0, 0)]);
        assert_eq!(counts(b"a\nb\nC:\\Users\tx\\Ny\n"), [(0, 0), (0, 0), (2, 2)]);
        let doubts = find_doubts(&[b"a,\"C:\\\\temp\"\nb,\"C:\\\"\n"], CSV, true);
        assert_eq!((doubts.escapes.count, doubts.others.count, doubts.strays.count), (1, 0, 0));
    }

    #[test]
    fn regular_csv_has_no_strays() {
        assert_eq!(strays(b"\"a\",\"b, \"\"c\"\"\"\n,\"\",\"\"\"\"\n\"x\ny\",z\r\n\"last\""), (0, 0));
    }

    #[test]
    fn quotes_that_open_behind_a_value_or_close_before_one_are_strays() {
        assert_eq!(strays(b"a,b\n1,5\" x 3\"\n2,say \"x\" y\n"), (3, 1));
        assert_eq!(strays(b"a\nb\n\"c\"d,e\n"), (1, 2));
        assert_eq!(strays(b"a,5\"\nb,6\n\"c\",7\n"), (3, 0));
        assert_eq!(strays(b"a,some name 5\"\nb,6\n"), (1, 0));
    }

    #[test]
    fn words_for_null_and_single_quotes_are_fields_outside_of_quotes() {
        assert_eq!(words(b"a\tb\n'a'\tNULL\nnull\t'\n", TSV), [(1, 1), (2, 1)]);
        assert_eq!(words(b"'twas,NULLs\ndogs',nulls\nNull,\"a,'b',NULL,\"\n", CSV), [(0, 0); 2]);
        assert_eq!(words(b"a,\\N\n\"x\",\"NULL\",\"y\"\nx,\"NULL\"\n", CSV), [(0, 0), (2, 0)]);
    }

    #[test]
    fn words_and_single_bytes_agree() {
        let parts: [&[u8]; 14] = [
            b"a",
            b"\t",
            b"\n",
            b"\"",
            b"\\",
            b"\\N",
            b"\t\\N\t",
            b"\t\"b\"\t",
            b"'",
            b"\tNULL\t",
            b"\n\"NULL\"\n",
            b"null",
            b"\"\"",
            b"bcdefghijklmnopqrstuvwxyz",
        ];
        let mut seed = 7_usize;
        for guess in [TSV, Guess { delimiter: b'\t', ..CSV }] {
            for _ in 0..1000 {
                let mut data = Vec::new();
                for _ in 0..100 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    data.extend_from_slice(parts[(seed >> 33) % parts.len()]);
                }
                let bytes: Vec<&[u8]> = data.chunks(1).collect();
                let by_bytes = find_doubts(&bytes, guess, true);
                assert_eq!(find_doubts(&[&data], guess, true), by_bytes, "{data:?}");
                if !data.contains(&b'\\') {
                    assert_eq!(find_doubts(&[&data], guess, false), by_bytes, "{data:?}");
                }
            }
        }
    }

    #[test]
    fn runs_are_read_as_one() {
        let data = b"a\\tb\t\"c\"\n\"d\"\t\\N\n\\Qe\n";
        let whole = find_doubts(&[data], TSV, true);
        assert_eq!((whole.quoted.count, whole.escapes.count, whole.others.count), (2, 1, 1));
        for middle in 0..data.len() {
            let (first, second) = data.split_at(middle);
            assert_eq!(find_doubts(&[first, second], TSV, true), whole);
        }
    }
}
