//! Quotes of csv that stand inside a field: COPY takes them away, and reads what follows as quoted.

use memchr::memchr;

use crate::doubts::{Doubt, Runs};
use crate::fields::LineEnd;
use crate::lanes::{with_widest, Lanes, Work, WORD};

/// How csv is written; regular csv has quotes only at the edges of a field, next to each other, or behind the escape.
#[derive(Clone, Copy)]
pub struct Quoting {
    pub delimiter: u8,
    pub quote: u8,
    pub escape: u8,
}

/// Look through runs that together hold whole records.
#[must_use]
pub fn find_strays(runs: &[&[u8]], quoting: Quoting, line_end: LineEnd) -> Doubt {
    if !runs.iter().any(|run| memchr(quoting.quote, run).is_some()) {
        return Doubt::default();
    }
    let runs = Runs { parts: runs, delimiter: quoting.delimiter, line_end };
    with_widest(Search { runs, quoting })
}

struct Search<'a> {
    runs: Runs<'a>,
    quoting: Quoting,
}

impl Work for Search<'_> {
    type Output = Doubt;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Doubt {
        let mut found = Doubt::default();
        let (mut start, mut before) = (0, b'\n');
        for run in self.runs.parts {
            for word in run.chunks(WORD) {
                let mut candidates = self.candidates::<L>(word, before);
                while candidates != 0 {
                    let at = start + candidates.trailing_zeros() as usize;
                    if self.is_stray(at) {
                        found = self.runs.note(found, at);
                    }
                    candidates &= candidates - 1;
                }
                (start, before) = (start + word.len(), word[word.len() - 1]);
            }
        }
        found
    }
}

impl Search<'_> {
    /// The quotes that have nothing of csv beside them; at a word's end, and in a run's last word, more of them.
    #[inline(always)]
    fn candidates<L: Lanes>(&self, word: &[u8], before: u8) -> u64 {
        let quote = self.quoting.quote;
        let Ok(word) = <&[u8; WORD]>::try_from(word) else {
            return word.iter().rev().fold(0, |mask, &byte| mask << 1 | u64::from(byte == quote));
        };
        let lanes = L::load(word);
        let quotes = lanes.equal(quote);
        if quotes == 0 {
            return 0;
        }
        let regular = quotes | lanes.equal(self.quoting.delimiter) | lanes.equal(b'\n') | lanes.equal(b'\r');
        let escapes = lanes.equal(self.quoting.escape);
        quotes & !(((regular | escapes) << 1) | u64::from(self.allows(before)) | (regular >> 1))
    }

    /// Whether a quote behind this byte may be regular.
    #[inline(always)]
    fn allows(&self, byte: u8) -> bool {
        byte == self.quoting.quote || byte == self.quoting.escape || self.runs.separates(byte)
    }

    fn is_stray(&self, at: usize) -> bool {
        let is_regular = |byte| byte == self.quoting.quote || self.runs.separates(byte);
        let before = at.checked_sub(1).and_then(|before| self.runs.byte(before));
        !before.is_none_or(|byte| self.allows(byte)) && !self.runs.byte(at + 1).is_none_or(is_regular)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Quoting = Quoting { delimiter: b',', quote: b'"', escape: b'"' };

    fn strays(data: &[u8], quoting: Quoting) -> (u64, u64) {
        let found = find_strays(&[data], quoting, LineEnd::Lf);
        (found.count, found.line)
    }

    #[test]
    fn regular_csv_has_none() {
        assert_eq!(strays(b"\"a\",\"b, \"\"c\"\"\"\n,\"\",\"\"\"\"\n\"x\ny\",z\r\n\"last\"", CSV), (0, 0));
        assert_eq!(strays(b"\"a \\\"b\\\" c\",d", Quoting { escape: b'\\', ..CSV }), (0, 0));
    }

    #[test]
    fn quotes_inside_of_a_field_are_strays() {
        assert_eq!(strays(b"a,b\n1,5\" x 3\"\n2,say \"x\" y\n", CSV), (3, 1));
        assert_eq!(strays(b"a\nb\n\"c\"d,e\n", CSV), (1, 2));
    }

    #[test]
    fn words_and_single_bytes_agree() {
        let parts: [&[u8]; 7] = [b"a", b",", b"\n", b"\"", b"\"\"", b"\\\"", b"bcdefghijklmnopqrstuvwxyz"];
        for escape in [b'"', b'\\'] {
            let quoting = Quoting { escape, ..CSV };
            let mut seed = 7_usize;
            for _ in 0..3000 {
                let mut data = Vec::new();
                for _ in 0..100 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    data.extend_from_slice(parts[(seed >> 33) % parts.len()]);
                }
                let bytes: Vec<&[u8]> = data.chunks(1).collect();
                let by_bytes = find_strays(&bytes, quoting, LineEnd::Lf);
                assert_eq!(find_strays(&[&data], quoting, LineEnd::Lf), by_bytes, "{data:?}");
            }
        }
    }
}
