//! What in whole records speaks against a format that was guessed, which has no quotes: fields in quotes, and
//! backslashes that only one of text and tsv explains.

use memchr::memchr;

use crate::fields::LineEnd;
use crate::lanes::{with_widest, Lanes, Work, WORD};

/// What COPY TO writes behind a backslash in text.
const COPY_ESCAPES: &[u8] = b"\\bfnrtv";

/// How often something was met, and the index of the first's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    pub count: u64,
    pub line: u64,
}

/// `escapes` are as COPY TO writes them, `others` are none of its; a `\N` field and a lone `\.` are neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    pub quoted: Doubt,
    pub escapes: Doubt,
    pub others: Doubt,
}

/// Runs of bytes that together hold whole records, read as one.
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

    /// Whether a field begins or ends at a position, that of a delimiter or line end, or outside of the records.
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

/// Look through runs that together hold whole records; backslashes are not looked for if it is known that none matters.
#[must_use]
pub fn find_doubts(runs: &[&[u8]], delimiter: u8, line_end: LineEnd, with_backslashes: bool) -> Doubts {
    let is_in = |run: &&[u8]| memchr(b'"', run).is_some() || (with_backslashes && memchr(b'\\', run).is_some());
    if !runs.iter().any(is_in) {
        return Doubts::default();
    }
    let runs = Runs { parts: runs, delimiter, line_end };
    with_widest(Search { runs, with_backslashes, doubts: Doubts::default(), behind_escape: 0 })
}

struct Search<'a> {
    runs: Runs<'a>,
    with_backslashes: bool,
    doubts: Doubts,
    /// What an escape has taken along lies before it.
    behind_escape: usize,
}

impl Work for Search<'_> {
    type Output = Doubts;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Doubts {
        let (mut start, mut before) = (0, b'\n');
        for run in self.runs.parts {
            for word in run.chunks(WORD) {
                let mut candidates = self.candidates::<L>(word, before);
                while candidates != 0 {
                    self.judge(start + candidates.trailing_zeros() as usize);
                    candidates &= candidates - 1;
                }
                (start, before) = (start + word.len(), word[word.len() - 1]);
            }
        }
        self.doubts
    }
}

impl Search<'_> {
    /// The quotes that begin a field, and the backslashes that are no whole `\N` field's; at a run's end, all of them.
    #[inline(always)]
    fn candidates<L: Lanes>(&self, word: &[u8], before: u8) -> u64 {
        let Ok(word) = <&[u8; WORD]>::try_from(word) else {
            let is_one = |byte: u8| byte == b'"' || (self.with_backslashes && byte == b'\\');
            return word.iter().rev().fold(0, |mask, &byte| mask << 1 | u64::from(is_one(byte)));
        };
        let lanes = L::load(word);
        let quotes = lanes.equal(b'"');
        let backslashes = if self.with_backslashes { lanes.equal(b'\\') } else { 0 };
        if quotes | backslashes == 0 {
            return 0;
        }
        let separators = lanes.equal(self.runs.delimiter) | lanes.equal(b'\n') | lanes.equal(b'\r');
        let starts = (separators << 1) | u64::from(self.runs.separates(before));
        let nulls = starts & (lanes.equal(b'N') >> 1) & (separators >> 2);
        (quotes & starts) | (backslashes & !nulls)
    }

    fn judge(&mut self, at: usize) {
        if at < self.behind_escape {
            return;
        }
        if self.runs.byte(at) == Some(b'"') {
            if self.runs.is_edge(at.checked_sub(1)) && self.closes(at + 1) {
                self.doubts.quoted = self.runs.note(self.doubts.quoted, at);
            }
            return;
        }
        self.behind_escape = at + 2;
        match self.runs.byte(at + 1) {
            Some(b'N' | b'.') if self.runs.is_edge(at.checked_sub(1)) && self.runs.is_edge(Some(at + 2)) => {}
            Some(next) if next == self.runs.delimiter || COPY_ESCAPES.contains(&next) => {
                self.doubts.escapes = self.runs.note(self.doubts.escapes, at);
            }
            _ => self.doubts.others = self.runs.note(self.doubts.others, at),
        }
    }

    /// Whether the quote opened before `at` closes by the rules of csv, on its line and at the end of a field.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(data: &[u8]) -> [(u64, u64); 3] {
        let doubts = find_doubts(&[data], b'\t', LineEnd::Lf, true);
        [doubts.quoted, doubts.escapes, doubts.others].map(|doubt| (doubt.count, doubt.line))
    }

    #[test]
    fn quotes_are_doubtful_only_around_a_field() {
        assert_eq!(counts(b"a\tb\n\"a\" b\tc \"d\"\n5\"\t{\"a\": \"b\"}\nsay \"x\"\ty\n"), [(0, 0); 3]);
        assert_eq!(counts(b"a\tb\n\"a\"\t\"b\tc\"\nd\t\"\"\"e\"\"\""), [(3, 1), (0, 0), (0, 0)]);
        assert_eq!(counts(b"a\t\"open\nb\tclosed\"\n"), [(0, 0); 3]);
    }

    #[test]
    fn backslashes_are_told_apart_as_copy_writes_them() {
        assert_eq!(counts(b"\\N\ta\n\\.\n"), [(0, 0); 3]);
        assert_eq!(counts(b"a\nb\\tc\t\\\\\n\\\t"), [(0, 0), (3, 1), (0, 0)]);
        assert_eq!(counts(b"a\nb\nC:\\Users\tx\\Ny\n"), [(0, 0), (0, 0), (2, 2)]);
    }

    #[test]
    fn words_and_single_bytes_agree() {
        let parts: [&[u8]; 9] =
            [b"a", b"\t", b"\n", b"\"", b"\\", b"\\N", b"\t\\N\t", b"\t\"b\"\t", b"bcdefghijklmnopqrstuvwxyz"];
        let mut seed = 7_usize;
        for _ in 0..3000 {
            let mut data = Vec::new();
            for _ in 0..100 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                data.extend_from_slice(parts[(seed >> 33) % parts.len()]);
            }
            let bytes: Vec<&[u8]> = data.chunks(1).collect();
            let by_bytes = find_doubts(&bytes, b'\t', LineEnd::Lf, true);
            assert_eq!(find_doubts(&[&data], b'\t', LineEnd::Lf, true), by_bytes, "{data:?}");
            let without = Doubts { quoted: by_bytes.quoted, ..Doubts::default() };
            if !data.contains(&b'\\') {
                assert_eq!(find_doubts(&[&data], b'\t', LineEnd::Lf, false), without, "{data:?}");
            }
        }
    }

    #[test]
    fn runs_are_read_as_one() {
        let data = b"a\\tb\t\"c\"\n\"d\"\t\\N\n\\Qe\n";
        let whole = find_doubts(&[data], b'\t', LineEnd::Lf, true);
        assert_eq!((whole.quoted.count, whole.escapes.count, whole.others.count), (2, 1, 1));
        for middle in 0..data.len() {
            let (first, second) = data.split_at(middle);
            assert_eq!(find_doubts(&[first, second], b'\t', LineEnd::Lf, true), whole);
        }
    }
}
