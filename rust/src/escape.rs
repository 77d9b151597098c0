//! Writes tsv as COPY text, if this only requires that all backslashes except those of `\N` fields are doubled.
//!
//! The files of `IMDb` require no more than that. So each byte is copied only once, from the decompressor's buffers to
//! its place.

use crate::lanes::{with_widest, Lanes, Work, WORD};

/// Writes the records of `runs`, which end with line feeds, into `output`. Returns whether `output` was filled exactly.
///
/// The cutter has counted the backslashes to double (`Cut::stray_backslashes`), so the caller knows the size of
/// `output`.
#[must_use]
pub fn double_backslashes(runs: &[&[u8]], delimiter: u8, output: &mut [u8]) -> bool {
    with_widest(Doubling { runs, delimiter, sink: Sink { output, filled: 0 } })
}

struct Doubling<'a> {
    runs: &'a [&'a [u8]],
    delimiter: u8,
    sink: Sink<'a>,
}

impl Work for Doubling<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> bool {
        let mut before = b'\n';
        for (index, run) in self.runs.iter().enumerate() {
            let Some(rest) = self.write_run::<L>(index, run, before) else { return false };
            if !self.sink.write(rest) {
                return false;
            }
            before = run.last().copied().unwrap_or(before);
        }
        self.sink.filled == self.sink.output.len()
    }
}

impl<'a> Doubling<'a> {
    /// Writes a run up to its last backslash that is doubled. Returns the rest of the run, None if `output` has no
    /// room.
    #[inline(always)]
    fn write_run<L: Lanes>(&mut self, index: usize, run: &'a [u8], mut before: u8) -> Option<&'a [u8]> {
        let mut copied = 0;
        let following = &self.runs[index + 1..];
        for (number, word) in run.chunks(WORD).enumerate() {
            let mut doubtful = doubtful_backslashes::<L>(word, before, self.delimiter);
            while doubtful != 0 {
                let at = number * WORD + doubtful.trailing_zeros() as usize;
                doubtful &= doubtful - 1;
                let previous = if at.is_multiple_of(WORD) { before } else { run[at - 1] };
                let starts_field = previous == self.delimiter || previous == b'\n';
                if starts_field && is_null(run, at, following, self.delimiter) {
                    continue;
                }
                // This part ends with the backslash, and the next part begins with the same backslash.
                if !self.sink.write(&run[copied..=at]) {
                    return None;
                }
                copied = at;
            }
            before = word[word.len() - 1];
        }
        Some(&run[copied..])
    }
}

/// Returns the backslashes of a word, except those of `\N` fields that are in the word as a whole. `before` is the byte
/// before the word.
#[inline(always)]
fn doubtful_backslashes<L: Lanes>(word: &[u8], before: u8, delimiter: u8) -> u64 {
    let Ok(word) = <&[u8; WORD]>::try_from(word) else {
        return word.iter().rev().fold(0, |mask, &byte| mask << 1 | u64::from(byte == b'\\'));
    };
    let lanes = L::load(word);
    let backslashes = lanes.equal(b'\\');
    if backslashes == 0 {
        return 0;
    }
    let separators = lanes.equal(delimiter) | lanes.equal(b'\n');
    let starts = (separators << 1) | u64::from(before == delimiter || before == b'\n');
    backslashes & !(starts & (lanes.equal(b'N') >> 1) & (separators >> 2))
}

/// Returns whether the field that begins with the backslash at `at` is `\N`.
fn is_null(run: &[u8], at: usize, following: &[&[u8]], delimiter: u8) -> bool {
    let ends = |byte: u8| byte == delimiter || byte == b'\n';
    if let Some(&[letter, end]) = run.get(at + 1..at + 3) {
        return letter == b'N' && ends(end);
    }
    let mut rest = run[at + 1..].iter().chain(following.iter().copied().flatten());
    rest.next() == Some(&b'N') && rest.next().is_none_or(|&byte| ends(byte))
}

struct Sink<'a> {
    output: &'a mut [u8],
    filled: usize,
}

impl Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> bool {
        let end = self.filled + bytes.len();
        let Some(place) = self.output.get_mut(self.filled..end) else { return false };
        place.copy_from_slice(bytes);
        self.filled = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubled(runs: &[&[u8]], count: usize) -> Option<Vec<u8>> {
        let mut output = vec![0; runs.concat().len() + count];
        double_backslashes(runs, b'\t', &mut output).then_some(output)
    }

    #[test]
    fn null_fields_stay_and_other_backslashes_are_doubled() {
        let text = b"\\N\ta\\b\t\\N\n\\Nx\t\\\\\t\\N";
        assert_eq!(doubled(&[text], 4).unwrap(), b"\\N\ta\\\\b\t\\N\n\\\\Nx\t\\\\\\\\\t\\N");
    }

    #[test]
    fn where_runs_meet_makes_no_difference() {
        let text = b"\\N\ta\\b\t\\N\n\\Nx\t\\\\\t\\N\n";
        for first in 0..text.len() {
            for second in first..text.len() {
                let runs = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(doubled(&runs, 4), doubled(&[text], 4), "{first} {second}");
            }
        }
    }

    #[test]
    fn long_texts_are_doubled_as_field_by_field() {
        let parts: [&[u8]; 7] = [b"\\N", b"\\", b"N", b"\t", b"\n", b"abcdefghijklmnopqrstuvw", b"\t\\N\t\\N\n"];
        let mut seed = 1_usize;
        for _ in 0..500 {
            let mut text = Vec::new();
            for _ in 0..100 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.extend_from_slice(parts[(seed >> 33) % parts.len()]);
            }
            text.push(b'\n');
            let mut expected = Vec::new();
            for part in text.split_inclusive(|&byte| byte == b'\t' || byte == b'\n') {
                let (field, end) = part.split_at(part.len() - 1);
                let doubled = field.iter().flat_map(|&byte| vec![byte; if byte == b'\\' { 2 } else { 1 }]).collect();
                expected.extend(if field == b"\\N" { field.to_vec() } else { doubled });
                expected.extend_from_slice(end);
            }
            let cut = (seed >> 40) % text.len();
            let runs = [&text[..cut], &text[cut..]];
            assert_eq!(doubled(&runs, expected.len() - text.len()), Some(expected));
        }
    }

    #[test]
    fn a_wrong_count_is_told() {
        assert_eq!(doubled(&[b"a\\b\n"], 0), None);
        assert_eq!(doubled(&[b"a\\b\n"], 2), None);
    }
}
