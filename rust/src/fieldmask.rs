//! Finds where the fields of a block end, 64 bytes at a time, if nothing in the block needs a closer look.
//!
//! `fields.rs` reads any block. This module accepts only blocks that both modules read in the same way: fields are
//! quoted as a whole or not at all, all records end in the same way, no data has a carriage return, and format text has
//! no escape except that of nulls.

use memchr::memchr;

use crate::fields::{Format, LineEnd};
use crate::lanes::{prefix_xor, with_widest, Lanes, Work, WORD};

const LAST_BIT: u32 = 63;
const STEP: u32 = 64;
/// How many ends are written at once.
const FEW: usize = 4;

/// Why a block is not indexed or not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The records end in carriage returns alone, or the data has a carriage return.
    CarriageReturn,
    /// A quote is inside a field that is not quoted, or text follows a closing quote.
    Quote,
    /// Format text has a backslash that is not that of a null.
    Escape,
    /// The bytes are not UTF-8, or contain the character NUL.
    Encoding,
    /// The number of fields differs from that of the columns, or the number of records from the expected one.
    FieldCount,
    /// A value is not in the canonical form of its type.
    Value,
    /// The block is longer than buffers should become.
    Length,
}

impl Rule {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CarriageReturn => "carriage return",
            Self::Quote => "quote",
            Self::Escape => "escape",
            Self::Encoding => "encoding",
            Self::FieldCount => "field count",
            Self::Value => "value",
            Self::Length => "length",
        }
    }
}

/// How the fields of a block are separated. In csv, the quote is also the escape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub format: Format,
    pub delimiter: u8,
    pub line_end: LineEnd,
}

/// Where the fields of a block end. The buffer is used again for the next block.
#[derive(Default)]
pub struct Ends {
    places: Vec<u32>,
    count: usize,
    /// How many of the ends are ends of records. The block's end is one of these.
    pub records: usize,
    /// The number of backslashes, in format text.
    pub backslashes: usize,
    pub has_quotes: bool,
}

impl Ends {
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.places[..self.count]
    }

    /// Adds the positions of the set bits of `mask`. The word of the mask begins at `start`.
    #[inline(always)]
    fn add(&mut self, start: u32, mut mask: u64) {
        if self.places.len() < self.count + WORD {
            self.places.resize(2 * self.places.len() + WORD, 0);
        }
        let places = &mut self.places[self.count..self.count + WORD];
        let count = mask.count_ones() as usize;
        self.count += count;
        // Write FEW places at a time, because most words have at most FEW ends. A loop over the exact number would be
        // slower, because the processor cannot predict this number.
        for few in places.chunks_exact_mut(FEW).take(count.div_ceil(FEW)) {
            for place in few {
                *place = start + mask.trailing_zeros();
                mask &= mask.wrapping_sub(1);
            }
        }
    }

    fn push(&mut self, end: u32) {
        self.places.truncate(self.count);
        self.places.push(end);
        self.count += 1;
    }
}

/// Fills `ends` with the positions of the delimiters and line ends outside of quotes. If the last record has no line
/// end, the block's end is added.
///
/// # Errors
///
/// The rule because of which `fields.rs` must read the block, or `Rule::Encoding`.
pub fn find_ends(shape: Shape, block: &[u8], ends: &mut Ends) -> Result<(), Rule> {
    *ends = Ends { places: std::mem::take(&mut ends.places), ..Ends::default() };
    if shape.line_end == LineEnd::Cr {
        return Err(Rule::CarriageReturn);
    }
    with_widest(Indexing { shape, block, ends })?;
    let last = ends.as_slice().last();
    let is_ended = last.is_some_and(|&end| end as usize + 1 == block.len() && block[end as usize] == b'\n');
    if !(is_ended || block.is_empty()) {
        ends.push(u32::try_from(block.len()).map_err(|_| Rule::Length)?);
        ends.records += 1;
    }
    Ok(())
}

struct Indexing<'a> {
    shape: Shape,
    block: &'a [u8],
    ends: &'a mut Ends,
}

/// What the next word must know of this one: bit 0 of each mask, and whether this word ends in quotes.
#[derive(Default)]
struct Carried {
    separator: u64,
    closing: u64,
    carriage_return: u64,
    in_quote: bool,
    nuls: u64,
    high: u64,
}

impl Work for Indexing<'_> {
    type Output = Result<(), Rule>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        let Self { shape, block, ends } = self;
        let mut carried = Carried { separator: 1, ..Carried::default() };
        let mut words = block.chunks_exact(WORD);
        let mut start = 0;
        for word in &mut words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            carried.index::<L>(shape, &bytes, start, ends)?;
            start += STEP;
        }
        let rest = words.remainder();
        if carried.nuls != 0 || memchr(0, rest).is_some() {
            return Err(Rule::Encoding);
        }
        if !rest.is_empty() {
            // Fill up the last word with NUL, because no delimiter or quote is NUL.
            let mut bytes = [0; WORD];
            bytes[..rest.len()].copy_from_slice(rest);
            // Add a delimiter: a closing quote is correct at the end of the block, as it is before a delimiter.
            bytes[rest.len()] = shape.delimiter;
            carried.index::<L>(shape, &bytes, start, ends)?;
            if !carried.in_quote {
                ends.count -= 1;
            }
        }
        if carried.high != 0 && std::str::from_utf8(block).is_err() {
            return Err(Rule::Encoding);
        }
        if carried.carriage_return != 0 {
            return Err(Rule::CarriageReturn);
        }
        if carried.in_quote {
            return Err(Rule::Quote);
        }
        Ok(())
    }
}

impl Carried {
    #[inline(always)]
    fn index<L: Lanes>(&mut self, shape: Shape, bytes: &[u8; WORD], start: u32, ends: &mut Ends) -> Result<(), Rule> {
        let lanes = L::load(bytes);
        self.nuls |= lanes.equal(0);
        self.high |= lanes.high();
        let mut line_feeds = lanes.equal(b'\n');
        let mut separators = lanes.equal(shape.delimiter) | line_feeds;
        let carriage_returns = lanes.equal(b'\r');
        if let Format::Csv { quote, .. } = shape.format {
            let quotes = lanes.equal(quote);
            if quotes != 0 || self.in_quote || self.closing != 0 {
                ends.has_quotes = true;
                let inside = prefix_xor(quotes) ^ if self.in_quote { u64::MAX } else { 0 };
                let (opening, closing) = (quotes & inside, quotes & !inside);
                separators &= !inside;
                line_feeds &= !inside;
                let behind_closing = closing << 1 | self.closing;
                let may_open = separators << 1 | self.separator | behind_closing;
                let may_follow = separators | opening | carriage_returns;
                if opening & !may_open != 0 || behind_closing & !may_follow != 0 {
                    return Err(Rule::Quote);
                }
                self.closing = closing >> LAST_BIT;
                self.in_quote = inside >> LAST_BIT != 0;
            }
        } else if shape.format == Format::Text {
            ends.backslashes += lanes.equal(b'\\').count_ones() as usize;
        }
        if carriage_returns != 0 || self.carriage_return != 0 || shape.line_end == LineEnd::CrLf {
            let before_line_feed = carriage_returns << 1 | self.carriage_return;
            if shape.line_end == LineEnd::Lf || before_line_feed != line_feeds {
                return Err(Rule::CarriageReturn);
            }
            self.carriage_return = carriage_returns >> LAST_BIT;
        }
        self.separator = separators >> LAST_BIT;
        ends.records += line_feeds.count_ones() as usize;
        ends.add(start, separators);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldReader;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };

    fn indexed(format: Format, line_end: LineEnd, block: &[u8]) -> Result<Vec<u32>, Rule> {
        let mut ends = Ends::default();
        find_ends(Shape { format, delimiter: b',', line_end }, block, &mut ends).map(|()| ends.as_slice().to_vec())
    }

    /// Returns the end of every field, found by the reader that reads any block. None if a quote is open or stray.
    fn read(format: Format, line_end: LineEnd, block: &[u8]) -> Option<Vec<u32>> {
        let reader = FieldReader::new(format, b',', block, line_end);
        let (mut start, mut fields, mut ends) = (0, Vec::new(), Vec::new());
        while start < block.len() {
            start = reader.read_record(start, &mut fields)?;
            if !fields.iter().all(|field| reader.is_regular(field)) {
                return None;
            }
            ends.extend(fields.iter().map(|field| u32::try_from(field.end).unwrap()));
            let is_ended = line_end == LineEnd::CrLf && reader.is_ended(start);
            *ends.last_mut()? += u32::from(is_ended);
        }
        Some(ends)
    }

    #[test]
    fn noise_is_indexed_as_the_reader_reads_it_or_declined() {
        let long: &[u8] = b"abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghij";
        let alphabets: [&[&[u8]]; 4] = [
            &[b"a", long, b",", b"\n", b"\"", b",\"a\"", b"\"\"", b"\"a\nb\","],
            &[b"a", long, b",", b",\"\"\"x\"\"\",", b"\n", b",\"", b"\",", b"\"\n"],
            &[b"a", b"bcd", b",", b"\r\n", b",\"x\"\r\n", b"\r", b",\"\n\""],
            &[b"a", b"bcdefgh", b",", b"\n", b"\\N", b",\\N,", b"\\"],
        ];
        let mut seed = 11_u64;
        let mut noise = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let (mut taken, mut declined) = (0, 0);
        for round in 0..40_000 {
            let alphabet = alphabets[round % alphabets.len()];
            let count = 1 + noise(40);
            let block: Vec<u8> = (0..count).flat_map(|_| alphabet[noise(alphabet.len())].to_vec()).collect();
            for format in [CSV, Format::Text, Format::Tsv] {
                for line_end in [LineEnd::Lf, LineEnd::CrLf] {
                    let Ok(ends) = indexed(format, line_end, &block) else {
                        declined += 1;
                        continue;
                    };
                    taken += 1;
                    if format == Format::Text && block.contains(&b'\\') {
                        // The caller compares the backslashes with those of nulls.
                        continue;
                    }
                    assert_eq!(Some(ends), read(format, line_end, &block), "{format:?} {line_end:?} {block:?}");
                }
            }
        }
        assert!(taken > 20_000 && declined > 20_000, "{taken} {declined}");
    }

    #[test]
    fn each_rule_of_the_stream_declines() {
        for (format, line_end, block, rule) in [
            (CSV, LineEnd::Cr, &b"a\rb\r"[..], Rule::CarriageReturn),
            (CSV, LineEnd::Lf, b"\"a\rb\"\n", Rule::CarriageReturn),
            (CSV, LineEnd::CrLf, b"\"a\r\nb\"\r\n", Rule::CarriageReturn),
            (CSV, LineEnd::CrLf, b"a\r\nb\n", Rule::CarriageReturn),
            (Format::Tsv, LineEnd::CrLf, b"a\r\nb\r", Rule::CarriageReturn),
            (CSV, LineEnd::Lf, b"a\"b\"\n", Rule::Quote),
            (CSV, LineEnd::Lf, b"\"a\" ,b\n", Rule::Quote),
            (CSV, LineEnd::Lf, b"\"a", Rule::Quote),
        ] {
            assert_eq!(indexed(format, line_end, block), Err(rule), "{block:?}");
        }
        assert_eq!(indexed(CSV, LineEnd::CrLf, b"a,\"\n\"\r\n\"\""), Ok(vec![1, 6, 9]));
        assert_eq!(indexed(CSV, LineEnd::Lf, b"a,"), Ok(vec![1, 2]));
        assert_eq!(indexed(CSV, LineEnd::Lf, b""), Ok(vec![]));
    }
}
