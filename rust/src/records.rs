//! Finds where records end, by `PostgreSQL`'s own rules.
//!
//! The rules are those of `CopyReadLineText` (src/backend/commands/copyfromparse.c, `PostgreSQL` 14 to 18). Quotes
//! toggle even in the middle of a field. In format text, a backslash escapes the next byte. All records must end as the
//! first one does. The reference is a machine that works byte by byte (`step`). If a word of 64 bytes has nothing
//! unusual, a faster path with bit masks takes it. A test compares the two.

use crate::error::RecordError;
use crate::fields::{FieldReader, Format, LineEnd};
use crate::lanes::{prefix_xor, with_widest, Lanes, Work, WORD};

/// `PostgreSQL`'s own limit for a line (`MaxAllocSize`, src/include/utils/memutils.h).
const RECORD_LIMIT_BYTES: u64 = 0x3fff_ffff;

const LAST_BIT: u32 = u64::BITS - 1;

/// Counts since the start of the object. A cut reports by how much they have grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    bytes: u64,
    records: u64,
    /// The lines as an editor counts them: line feeds, also in quotes, or carriage returns if these end the lines.
    lines: u64,
    /// The line ends inside records that the server's own line counter counts.
    embedded: u64,
    backslashes: u64,
    /// The fields that consist only of `\N`.
    null_fields: u64,
}

/// The records that were completed by the bytes that were fed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The offset in these bytes after the last whole record. 0 if no record ended in them.
    pub end: usize,
    /// The number of records that ended. A record may end at offset 0 if a carriage return was waiting for its line
    /// feed.
    pub records: u64,
    pub lines: u64,
    /// By how much the server's line counter advances.
    pub server_lines: u64,
    /// The backslashes of tsv, except those of `\N` fields. They must be doubled in COPY text.
    pub stray_backslashes: u64,
    /// Whether the end-of-data marker was found. The cut does not include the marker.
    pub is_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the states of PostgreSQL's own machine, kept under its names
pub struct RecordCutter {
    format: Format,
    delimiter: u8,
    checks_end_marker: bool,
    line_end: Option<LineEnd>,
    in_quote: bool,
    after_escape: bool,
    /// Whether the last byte was a carriage return. The next byte shows what it means.
    after_return: bool,
    /// Whether the record begins with `\.`. Only its line end may follow.
    after_marker: bool,
    is_end: bool,
    /// For JSON Lines, whether only blanks follow the last record. Then no line feed ends a record.
    is_blank: bool,
    /// The last three bytes. At the end of a field, they show whether the field is `\N`.
    history: [u8; 3],
    now: Counts,
    at_end: Counts,
    reported: Counts,
}

impl RecordCutter {
    /// Returns a cutter. `checks_end_marker` is true if a `\.` alone on a line ends csv data too (before `PostgreSQL`
    /// 18).
    #[must_use]
    pub fn new(format: Format, delimiter: u8, checks_end_marker: bool) -> Self {
        Self {
            format,
            delimiter,
            checks_end_marker: checks_end_marker || format == Format::Text,
            line_end: None,
            in_quote: false,
            after_escape: false,
            after_return: false,
            after_marker: false,
            is_end: false,
            is_blank: format == Format::JsonLines,
            history: [b'\n'; 3],
            now: Counts::default(),
            at_end: Counts::default(),
            reported: Counts::default(),
        }
    }

    /// Returns a cutter for samples. It ignores end-of-data markers, so they are records of the sample.
    pub(crate) fn for_sample(format: Format, delimiter: u8) -> Self {
        Self { checks_end_marker: false, ..Self::new(format, delimiter, false) }
    }

    #[must_use]
    pub fn line_end(&self) -> Option<LineEnd> {
        self.line_end
    }

    /// Takes the next bytes. Returns where the last whole record in them ends.
    ///
    /// # Errors
    /// COPY would refuse the data: a line end differs from that of the first record, data follows the
    /// end-of-data marker, or a record is over 1 GB.
    pub fn feed(&mut self, data: &[u8]) -> Result<Cut, RecordError> {
        let start = self.now.bytes;
        with_widest(Feeding { cutter: self, data })?;
        if self.now.bytes - self.at_end.bytes > RECORD_LIMIT_BYTES {
            return Err(RecordError::RecordTooLong { record: self.at_end.records, line: self.at_end.lines });
        }
        Ok(self.report(start))
    }

    /// Takes only the first record of `data`, a header. The caller feeds the bytes after it again.
    ///
    /// # Errors
    /// As `feed`.
    pub fn feed_one(&mut self, data: &[u8]) -> Result<Cut, RecordError> {
        let start = self.now.bytes;
        with_widest(FeedingOne { cutter: self, data })?;
        Ok(self.report(start))
    }

    /// Returns the part that is left at the end of the object: a last record without a line end, or nothing.
    ///
    /// # Errors
    /// A quote is not closed, or a lone carriage return is in an object whose lines end with CR LF.
    pub fn finish(&mut self) -> Result<Cut, RecordError> {
        let start = self.now.bytes;
        self.settle_return()?;
        if self.in_quote {
            return Err(RecordError::UnterminatedQuote { record: self.at_end.records, line: self.at_end.lines });
        }
        // Here `\.` has no line end, so it is no marker: format text refuses it, and csv reads it as data.
        if std::mem::take(&mut self.after_marker) && self.format == Format::Text {
            return Err(self.marker_not_alone());
        }
        if !self.is_end && self.now.bytes > self.at_end.bytes && !self.is_blank {
            if self.format == Format::Tsv {
                self.note_null_field();
            }
            self.end_record();
        }
        Ok(self.report(start))
    }

    /// Returns the whole records that were found after the last cut and before an error.
    ///
    /// `end` counts from the end of the last cut.
    pub fn salvage(&mut self) -> Cut {
        let start = self.reported.bytes;
        self.report(start)
    }

    /// Begins again at the beginning of a record. `line_end` is how records end, if that is known.
    pub fn restart(&mut self, line_end: Option<LineEnd>) {
        *self = Self { line_end, ..Self::new(self.format, self.delimiter, self.checks_end_marker) };
    }

    /// Finds the first record with several lines and a wrong number of fields in a block of whole records. Returns
    /// where the record begins, and the error.
    ///
    /// If `ends_empty` is true, a record may have one more field, if that is blank.
    #[must_use]
    pub fn find_torn(&self, block: &[u8], expected: usize, ends_empty: bool) -> Option<(usize, RecordError)> {
        let line_end = self.line_end.unwrap_or(LineEnd::Lf);
        let reader = FieldReader::new(self.format, self.delimiter, block, line_end);
        let mut fields = Vec::new();
        let (mut start, mut record, mut line) = (0, 0, 0);
        while start < block.len() {
            let next = reader.read_record(start, &mut fields)?;
            if ends_empty {
                reader.drop_empty_end(&mut fields, expected);
            }
            let (lines, found) = (reader.count_lines(start, next), fields.len());
            let spanned = lines + u64::from(!reader.is_ended(next));
            if spanned > 1 && found != expected {
                return Some((start, RecordError::Torn { record, line, spanned, expected, found }));
            }
            (start, record, line) = (next, record + 1, line + lines);
        }
        None
    }

    pub(crate) fn in_quote(&self) -> bool {
        self.in_quote
    }

    /// Returns whether the last byte was a carriage return that may be half of a line end.
    pub(crate) fn after_return(&self) -> bool {
        self.after_return
    }

    /// Returns the number of whole records so far, and of the lines up to the end of the last one.
    pub(crate) fn whole(&self) -> (u64, u64) {
        (self.at_end.records, self.at_end.lines)
    }

    fn report(&mut self, start: u64) -> Cut {
        let (now, before) = (self.at_end, self.reported);
        self.reported = now;
        Cut {
            end: usize::try_from(now.bytes.saturating_sub(start)).unwrap_or(0),
            records: now.records - before.records,
            lines: now.lines - before.lines,
            server_lines: now.records - before.records + now.embedded - before.embedded,
            stray_backslashes: (now.backslashes - now.null_fields) - (before.backslashes - before.null_fields),
            is_end: self.is_end,
        }
    }

    // ---------------------------------------------------------------- byte by byte: the reference

    pub(crate) fn step(&mut self, byte: u8) -> Result<(), RecordError> {
        if self.after_return {
            if byte == b'\n' {
                self.line_end = Some(LineEnd::CrLf);
                self.after_return = false;
                self.now.lines += 1;
                self.remember(byte);
                self.end_record();
                return Ok(());
            }
            self.settle_return()?;
        }
        if self.is_end {
            return Err(RecordError::DataAfterEndMarker { record: self.at_end.records, line: self.now.lines });
        }
        let was_escaped = self.after_escape;
        let is_line_end = self.move_state(byte);
        self.is_blank &= matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.count(byte, is_line_end);
        if is_line_end {
            self.remember(byte);
            return self.take_line_end(byte);
        }
        if self.after_marker {
            // In csv, a line is data if it begins like the marker and has more bytes after it.
            self.after_marker = false;
            if self.format == Format::Text {
                return Err(self.marker_not_alone());
            }
        }
        self.look_for_marker(byte, was_escaped)?;
        self.remember(byte);
        Ok(())
    }

    /// Updates the state of quotes and escapes for `byte`. Returns whether the byte is a line end and not data.
    fn move_state(&mut self, byte: u8) -> bool {
        let is_line_end = byte == b'\n' || byte == b'\r';
        match self.format {
            Format::Tsv => is_line_end,
            Format::JsonLines => byte == b'\n',
            Format::Text => {
                let is_escaped = self.after_escape;
                self.after_escape = byte == b'\\' && !is_escaped;
                is_line_end && !is_escaped
            }
            Format::Csv { quote, escape } if quote == escape => {
                self.in_quote ^= byte == quote;
                is_line_end && !self.in_quote
            }
            Format::Csv { quote, escape } => {
                if self.in_quote && byte == escape {
                    self.after_escape = !self.after_escape;
                }
                if byte == quote && !self.after_escape {
                    self.in_quote = !self.in_quote;
                }
                if byte != escape {
                    self.after_escape = false;
                }
                is_line_end && !self.in_quote
            }
        }
    }

    fn count(&mut self, byte: u8, is_line_end: bool) {
        let numbered = if self.line_end == Some(LineEnd::Cr) { b'\r' } else { b'\n' };
        self.now.lines += u64::from(byte == numbered);
        if !is_line_end && matches!(self.format, Format::Csv { .. }) {
            // The server counts line feeds if the first line has ended with one. Otherwise it counts carriage returns,
            // also before the first line end is known.
            let counted = if self.line_end == Some(LineEnd::Lf) { b'\n' } else { b'\r' };
            self.now.embedded += u64::from(byte == counted);
        }
        if self.format == Format::Tsv {
            self.now.backslashes += u64::from(byte == b'\\');
            if self.separates(byte) {
                self.note_null_field();
            }
        }
    }

    fn separates(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }

    fn note_null_field(&mut self) {
        let [before, backslash, letter] = self.history;
        let is_null = self.separates(before) && backslash == b'\\' && letter == b'N';
        self.now.null_fields += u64::from(is_null);
    }

    fn remember(&mut self, byte: u8) {
        self.history = [self.history[1], self.history[2], byte];
        self.now.bytes += 1;
    }

    /// Looks for a `\.` alone on a line, which ends the data. If other bytes of the line precede the `\.`, format text
    /// refuses it, and csv reads it as data.
    fn look_for_marker(&mut self, byte: u8, was_escaped: bool) -> Result<(), RecordError> {
        if byte != b'.' || !self.checks_end_marker {
            return Ok(());
        }
        let offset = self.now.bytes - self.at_end.bytes;
        let starts_record = offset == 1 && self.history[2] == b'\\';
        match self.format {
            Format::Text if was_escaped && !starts_record => return Err(self.marker_not_alone()),
            Format::Text => self.after_marker = was_escaped,
            Format::Csv { .. } => self.after_marker = starts_record && !self.in_quote,
            Format::Tsv | Format::JsonLines => {}
        }
        Ok(())
    }

    fn take_line_end(&mut self, byte: u8) -> Result<(), RecordError> {
        match (byte, self.line_end) {
            (b'\r', None | Some(LineEnd::CrLf)) => self.after_return = true,
            (b'\r', Some(LineEnd::Lf)) => return Err(self.stray_return()),
            (b'\n', Some(LineEnd::Cr | LineEnd::CrLf)) => {
                return Err(RecordError::StrayNewline {
                    record: self.at_end.records,
                    // If lines end with CR LF, `count` has already counted this line feed as the end of a line.
                    line: self.now.lines - u64::from(self.line_end == Some(LineEnd::CrLf)),
                    is_csv: matches!(self.format, Format::Csv { .. }),
                });
            }
            _ if self.is_blank => {}
            (b'\n', None) => {
                self.line_end = Some(LineEnd::Lf);
                self.end_record();
            }
            _ => self.end_record(),
        }
        Ok(())
    }

    /// Decides whether a carriage return without a line feed is a line end or a stray carriage return.
    pub(crate) fn settle_return(&mut self) -> Result<(), RecordError> {
        if !std::mem::take(&mut self.after_return) {
            return Ok(());
        }
        if self.line_end == Some(LineEnd::CrLf) {
            return Err(self.stray_return());
        }
        self.end_with_return();
        Ok(())
    }

    fn end_with_return(&mut self) {
        self.after_return = false;
        if self.line_end.is_none() {
            // Line feeds were counted as lines until now. The carriage returns inside quotes, which are lines in this
            // file, were counted in `embedded`.
            self.now.lines = self.now.embedded;
        }
        self.line_end = Some(LineEnd::Cr);
        self.now.lines += 1;
        self.end_record();
    }

    pub(crate) fn end_record(&mut self) {
        if self.after_marker {
            self.after_marker = false;
            self.is_end = true;
            return;
        }
        self.now.records += 1;
        self.after_escape = false;
        self.at_end = self.now;
        self.is_blank = self.format == Format::JsonLines;
    }

    fn stray_return(&self) -> RecordError {
        RecordError::StrayCarriageReturn {
            record: self.at_end.records,
            line: self.now.lines,
            is_csv: matches!(self.format, Format::Csv { .. }),
        }
    }

    fn marker_not_alone(&self) -> RecordError {
        RecordError::EndMarkerNotAlone { record: self.at_end.records, line: self.now.lines }
    }

    // ---------------------------------------------------------------- 64 bytes at a time

    #[inline(always)]
    fn feed_words<L: Lanes>(&mut self, data: &[u8]) -> Result<(), RecordError> {
        for word in data.chunks(WORD) {
            if !self.take_word::<L>(word) {
                for &byte in word {
                    self.step(byte)?;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn feed_first<L: Lanes>(&mut self, data: &[u8]) -> Result<(), RecordError> {
        for word in data.chunks(WORD) {
            let before = self.clone();
            if self.take_word::<L>(word) {
                if self.at_end.records == before.at_end.records {
                    continue;
                }
                *self = before;
            }
            if self.step_to_end(word)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes bytes up to the end of a record. Returns whether a record ends in them.
    fn step_to_end(&mut self, bytes: &[u8]) -> Result<bool, RecordError> {
        for &byte in bytes {
            let before = self.clone();
            self.step(byte)?;
            if self.at_end.records > before.at_end.records {
                // A carriage return is known to stand alone only when the next byte is read. That byte belongs to the
                // next record, so take it back.
                if before.after_return && byte != b'\n' {
                    *self = before;
                    self.end_with_return();
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a whole word if nothing in it is unusual. Otherwise, changes nothing and returns false.
    ///
    /// Before the first line end is known, a word is unusual if it has a line end outside of quotes.
    #[inline(always)]
    fn take_word<L: Lanes>(&mut self, bytes: &[u8]) -> bool {
        let Ok(bytes) = <&[u8; WORD]>::try_from(bytes) else { return false };
        if self.is_end || self.after_marker || self.line_end == Some(LineEnd::Cr) {
            return false;
        }
        let lanes = L::load(bytes);
        let feeds = lanes.equal(b'\n');
        let returns = lanes.equal(b'\r');
        let Some(data) = self.data_mask(&lanes, feeds | returns) else { return false };
        let (ends, carriage_returns) = (feeds & !data.mask, returns & !data.mask);
        let expected = (carriage_returns << 1) | u64::from(self.after_return);
        let is_usual = match self.line_end {
            Some(LineEnd::CrLf) => expected == ends,
            Some(_) => carriage_returns == 0,
            None => ends | expected == 0,
        };
        if !is_usual || self.may_hold_marker(&lanes, ends) {
            return false;
        }
        let embedded = match self.format {
            Format::Csv { .. } if self.line_end == Some(LineEnd::Lf) => feeds & data.mask,
            Format::Csv { .. } => returns & data.mask,
            _ => 0,
        };
        let (backslashes, null_fields) = self.null_masks(&lanes, feeds | returns);
        self.in_quote = data.in_quote;
        self.after_escape = data.after_escape;
        self.after_return = carriage_returns >> LAST_BIT != 0;
        if self.format == Format::JsonLines {
            let blanks = feeds | returns | lanes.equal(b' ') | lanes.equal(b'\t');
            let behind = if ends == 0 { u64::MAX } else { !(u64::MAX >> ends.leading_zeros()) };
            self.is_blank = (self.is_blank || ends != 0) && !blanks & behind == 0;
        }
        self.advance(&Masks { ends, feeds, embedded, backslashes, null_fields });
        self.history = [bytes[WORD - 3], bytes[WORD - 2], bytes[WORD - 1]];
        true
    }

    #[inline(always)]
    fn advance(&mut self, masks: &Masks) {
        if masks.ends != 0 {
            let last = LAST_BIT - masks.ends.leading_zeros();
            self.at_end = self.now.plus(masks, u64::MAX >> (LAST_BIT - last), u64::from(last) + 1);
        }
        self.now = self.now.plus(masks, u64::MAX, WORD as u64);
    }

    /// Returns which line ends are data, and the state after the word. None if only the machine that works byte by byte
    /// can decide that.
    #[inline(always)]
    fn data_mask(&self, lanes: &impl Lanes, line_ends: u64) -> Option<DataMask> {
        match self.format {
            Format::Tsv => Some(DataMask { mask: 0, in_quote: false, after_escape: false }),
            Format::JsonLines if self.may_end_blank(lanes) => None,
            // In JSON, a carriage return is a blank.
            Format::JsonLines => {
                let mask = line_ends & !lanes.equal(b'\n');
                Some(DataMask { mask, in_quote: false, after_escape: false })
            }
            Format::Text => {
                let (escaped, after_escape) = escaped_bytes(lanes.equal(b'\\'), self.after_escape);
                if escaped & lanes.equal(b'.') != 0 {
                    return None;
                }
                Some(DataMask { mask: escaped & line_ends, in_quote: false, after_escape })
            }
            Format::Csv { quote, escape } => {
                if quote != escape && (self.after_escape || lanes.equal(escape) != 0) {
                    return None;
                }
                let carried = if self.in_quote { u64::MAX } else { 0 };
                let mask = prefix_xor(lanes.equal(quote)) ^ carried;
                Some(DataMask { mask, in_quote: mask >> LAST_BIT != 0, after_escape: false })
            }
        }
    }

    /// Returns whether a line feed in this word may end a line of blanks in JSON Lines.
    #[inline(always)]
    fn may_end_blank(&self, lanes: &impl Lanes) -> bool {
        let (feeds, returns) = (lanes.equal(b'\n'), lanes.equal(b'\r'));
        let blanks = feeds | lanes.equal(b' ') | lanes.equal(b'\t');
        let is_blank = |byte: u8| u64::from(matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        let before_one = (blanks << 1) | is_blank(self.history[2]);
        let before_two = ((blanks | returns) << 2) | is_blank(self.history[1]) | is_blank(self.history[2]) << 1;
        feeds & (before_one | (returns << 1 & before_two)) != 0
    }

    /// Returns whether a csv record in this word may begin with the marker. Either the record begins in this word with
    /// a backslash, or the backslash ended the word before, and this word begins with the byte after it.
    #[inline(always)]
    fn may_hold_marker(&self, lanes: &impl Lanes, ends: u64) -> bool {
        if !self.checks_end_marker || self.format == Format::Text {
            return false;
        }
        let offset = self.now.bytes - self.at_end.bytes;
        let starts = (ends << 1) | u64::from(offset == 0);
        (offset == 1 && self.history[2] == b'\\') || lanes.equal(b'\\') & starts != 0
    }

    /// Returns the backslashes and the ends of `\N` fields. Both are needed for tsv only, which may be sent as text.
    #[inline(always)]
    fn null_masks(&self, lanes: &impl Lanes, line_ends: u64) -> (u64, u64) {
        if self.format != Format::Tsv {
            return (0, 0);
        }
        let carried = self.history.map(|byte| (u64::from(self.separates(byte)), byte));
        let backslashes = lanes.equal(b'\\');
        if backslashes == 0 && self.history[1] != b'\\' && self.history[2] != b'\\' {
            return (0, 0);
        }
        let separators = lanes.equal(self.delimiter) | line_ends;
        let before = (separators << 3) | carried[0].0 | carried[1].0 << 1 | carried[2].0 << 2;
        let is = |index: usize, wanted: u8| u64::from(self.history[index] == wanted);
        let slashes = (backslashes << 2) | is(1, b'\\') | is(2, b'\\') << 1;
        let letters = (lanes.equal(b'N') << 1) | is(2, b'N');
        (backslashes, separators & letters & slashes & before)
    }
}

struct Feeding<'a> {
    cutter: &'a mut RecordCutter,
    data: &'a [u8],
}

impl Work for Feeding<'_> {
    type Output = Result<(), RecordError>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        self.cutter.feed_words::<L>(self.data)
    }
}

/// This struct is separate from `Feeding`, because cutting tsv takes 11 % longer if both are compiled as one.
struct FeedingOne<'a> {
    cutter: &'a mut RecordCutter,
    data: &'a [u8],
}

impl Work for FeedingOne<'_> {
    type Output = Result<(), RecordError>;

    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        self.cutter.feed_first::<L>(self.data)
    }
}

struct DataMask {
    mask: u64,
    in_quote: bool,
    after_escape: bool,
}

/// The masks of one word. Bit i is for byte i.
struct Masks {
    ends: u64,
    feeds: u64,
    embedded: u64,
    backslashes: u64,
    null_fields: u64,
}

impl Counts {
    #[inline(always)]
    fn plus(self, masks: &Masks, within: u64, bytes: u64) -> Self {
        let ones = |mask: u64| u64::from((mask & within).count_ones());
        Self {
            bytes: self.bytes + bytes,
            records: self.records + ones(masks.ends),
            lines: self.lines + ones(masks.feeds),
            embedded: self.embedded + ones(masks.embedded),
            backslashes: self.backslashes + ones(masks.backslashes),
            null_fields: self.null_fields + ones(masks.null_fields),
        }
    }
}

/// Returns the bytes that follow an unescaped backslash, and whether the first byte of the next word is such a byte.
#[inline(always)]
fn escaped_bytes(backslashes: u64, after_escape: bool) -> (u64, bool) {
    if backslashes == 0 {
        return (u64::from(after_escape), false);
    }
    let mut escaped = 0;
    let mut escaping = backslashes;
    if after_escape {
        escaped |= 1;
        escaping &= !1;
    }
    let mut carries = false;
    // Backslashes are rare, so this loop goes from one backslash to the next. A computation without a loop would be
    // slower.
    while escaping != 0 {
        let position = escaping.trailing_zeros();
        if position == LAST_BIT {
            carries = true;
            break;
        }
        escaped |= 2 << position;
        escaping &= !(3 << position);
    }
    (escaped, carries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Narrow;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
    const ESCAPED_CSV: Format = Format::Csv { quote: b'"', escape: b'\\' };

    type Ran = (Vec<Cut>, Option<RecordError>);

    fn by_bytes(format: Format, marks: bool, data: &[u8]) -> Ran {
        run(format, marks, data, 1)
    }

    fn run(format: Format, marks: bool, data: &[u8], piece: usize) -> Ran {
        let mut cutter = RecordCutter::new(format, b'\t', marks);
        let mut cuts = Vec::new();
        for part in data.chunks(piece) {
            match cutter.feed(part) {
                Ok(cut) => cuts.push(cut),
                Err(error) => return (cuts, Some(error)),
            }
        }
        match cutter.finish() {
            Ok(cut) => cuts.push(cut),
            Err(error) => return (cuts, Some(error)),
        }
        (cuts, None)
    }

    fn total(ran: &Ran) -> (u64, u64, u64, u64, bool, Option<RecordError>) {
        let (cuts, error) = ran;
        let sum = |of: fn(&Cut) -> u64| cuts.iter().map(of).sum::<u64>();
        if error.is_some() {
            return (0, 0, 0, 0, false, error.clone());
        }
        (
            sum(|cut| cut.records),
            sum(|cut| cut.lines),
            sum(|cut| cut.server_lines),
            sum(|cut| cut.stray_backslashes),
            cuts.iter().any(|cut| cut.is_end),
            None,
        )
    }

    /// A small linear congruential generator: the tests need variety, not randomness.
    fn noise(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).unwrap()
    }

    #[test]
    fn words_and_bytes_agree_on_noise() {
        let alphabets: [&[&[u8]]; 5] = [
            &[b"a", b"{bcdefghijklmnop}", b"\n", b"\r\n", b"\n\n", b" \n", b"\t", b"     "],
            &[b"a", b"bcdefghijklmnopq", b"\t", b"\n", b"\\N", b"\t\\N\t", b"\n\\N\n", b"\\", b"."],
            &[b"a", b"bcdefghijklmnopq", b"\"", b"\n", b"\"\"", b"\t", b"\n\\", b"\n\\.\n"],
            &[b"a", b"bcdefghijklmnop", b"\r\n", b"\"", b"\t\\N\t", b"\r\n\\N\t"],
            &[b"a", b"bcdefghijklmnop", b"\n", b"\r", b"\r\n", b"\"", b"\\"],
        ];
        let mut seed = 7;
        for round in 0..6000 {
            let alphabet = alphabets[round % alphabets.len()];
            let count = 5 + noise(&mut seed) % 200;
            let data: Vec<u8> = (0..count).flat_map(|_| alphabet[noise(&mut seed) % alphabet.len()].to_vec()).collect();
            for format in [CSV, ESCAPED_CSV, Format::Text, Format::Tsv, Format::JsonLines] {
                for marks in [false, true] {
                    let expected = total(&by_bytes(format, marks, &data));
                    let piece = 60 + noise(&mut seed) % 300;
                    assert_eq!(total(&run(format, marks, &data, piece)), expected, "{format:?} {data:?}");
                    let mut widest = RecordCutter::new(format, b'\t', marks);
                    let mut narrow = widest.clone();
                    assert_eq!(narrow.feed_words::<Narrow>(&data), widest.feed(&data).map(|_| ()));
                    assert_eq!((narrow.now, narrow.at_end), (widest.now, widest.at_end), "{format:?} {data:?}");
                }
            }
        }
    }

    fn first_of(cutter: &mut RecordCutter, data: &[u8], piece: usize) -> Result<(u64, Cut), RecordError> {
        let mut passed = 0;
        for part in data.chunks(piece) {
            let cut = cutter.feed_one(part)?;
            if cut.records > 0 {
                return Ok((passed + cut.end as u64, Cut { end: 0, ..cut }));
            }
            passed += part.len() as u64;
        }
        Ok((passed, cutter.finish().map(|cut| Cut { end: 0, ..cut })?))
    }

    #[test]
    fn first_records_by_words_and_by_bytes_agree_on_noise() {
        let long: &[u8] = b"abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghij";
        let alphabets: [&[&[u8]]; 3] = [
            &[b"a", long, b"\"", b"\"\n\"", b"\"\r\"", b"\"\r\n\"", b"\\", b"\t\\N\t", b"\n"],
            &[b"bcd", long, long, b"\"\n\"", b"\\\n", b"\\.", b"\r\n"],
            &[b"bcd", long, b"\\\\", b"\\\r", b"\"\r\"", b"\r"],
        ];
        let mut seed = 5;
        for round in 0..6000 {
            let alphabet = alphabets[round % alphabets.len()];
            let data: Vec<u8> = (0..20).flat_map(|_| alphabet[noise(&mut seed) % alphabet.len()].to_vec()).collect();
            for format in [CSV, ESCAPED_CSV, Format::Text, Format::Tsv, Format::JsonLines] {
                for known in [&b""[..], b"\n", b"\r\n"] {
                    let mut by_bytes = RecordCutter::new(format, b'\t', round % 2 == 0);
                    by_bytes.feed(known).unwrap();
                    let mut by_words = by_bytes.clone();
                    let expected = first_of(&mut by_bytes, &data, 1);
                    let piece = 60 + noise(&mut seed) % 300;
                    assert_eq!(first_of(&mut by_words, &data, piece), expected, "{format:?} {known:?} {data:?}");
                    if expected.is_ok() {
                        assert_eq!(by_words, by_bytes, "{format:?} {known:?} {data:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_of_blanks_belong_to_the_next_record_of_json_lines() {
        let ends = |data: &[u8], piece: usize| -> Vec<(usize, u64, u64)> {
            let (cuts, error) = run(Format::JsonLines, false, data, piece);
            assert_eq!(error, None);
            cuts.iter().filter(|cut| cut.records > 0).map(|cut| (cut.end, cut.records, cut.lines)).collect()
        };
        assert_eq!(ends(b"{}\n\n \r\n{\r}\r\n1", 64), [(12, 2, 4), (0, 1, 0)]);
        assert_eq!(ends(b"\n\n{}\n \n\n", 64), [(5, 1, 3)]);
        let long = format!("{}}}\n", "{".repeat(100)).repeat(3);
        assert_eq!(ends(format!("{long}\n\n{long}").as_bytes(), 5000), [(614, 6, 8)]);
    }

    #[test]
    fn cuts_behind_the_last_whole_record() {
        let mut cutter = RecordCutter::new(CSV, b',', false);
        let cut = cutter.feed(b"a,\"x\ny\"\nb,c\nd,").unwrap();
        assert_eq!((cut.end, cut.records, cut.lines), (12, 2, 3));
        let cut = cutter.finish().unwrap();
        assert_eq!((cut.end, cut.records), (0, 1));
    }

    #[test]
    fn a_return_at_a_buffer_end_waits_for_its_line_feed() {
        let mut cutter = RecordCutter::new(CSV, b',', false);
        assert_eq!(cutter.feed(b"a\r").unwrap().records, 0);
        let cut = cutter.feed(b"\nb\r\n").unwrap();
        assert_eq!((cut.end, cut.records), (4, 2));
        assert_eq!(cutter.line_end(), Some(LineEnd::CrLf));
    }

    #[test]
    fn a_lone_return_ends_the_record_before_the_next_byte() {
        let mut cutter = RecordCutter::new(Format::Text, b'\t', false);
        assert_eq!(cutter.feed(b"a\r").unwrap().records, 0);
        let cut = cutter.feed(b"b").unwrap();
        assert_eq!((cut.end, cut.records), (0, 1));
        assert_eq!(cutter.line_end(), Some(LineEnd::Cr));
    }

    #[test]
    fn returns_in_quotes_are_lines_of_a_file_that_ends_them_so() {
        assert_eq!(total(&run(CSV, false, b"\"a\rb\"\rc\r", 64)).1, 3);
        assert_eq!(total(&run(CSV, false, b"\"a\nb\"\rc\r", 64)).1, 2);
    }

    #[test]
    fn the_first_record_alone_leaves_the_rest() {
        for (data, end) in [(&b"a,b\nc"[..], 4), (b"a,b\r\nc", 5), (b"a,b\rc", 4)] {
            let mut cutter = RecordCutter::new(CSV, b',', false);
            assert_eq!(cutter.feed_one(data).unwrap().end, end);
            assert_eq!(cutter.feed(&data[end..]).unwrap().records, 0);
            assert_eq!(cutter.finish().unwrap().records, 1);
        }
    }

    #[test]
    fn mixed_line_ends_are_refused_with_their_line() {
        let (_, error) = run(CSV, false, b"a\nb\nc\r\nd\n", 64);
        assert_eq!(error, Some(RecordError::StrayCarriageReturn { record: 2, line: 2, is_csv: true }));
        let (_, error) = run(Format::Tsv, false, b"a\r\nb\n", 64);
        assert_eq!(error, Some(RecordError::StrayNewline { record: 1, line: 1, is_csv: false }));
        let (_, error) = run(Format::Tsv, false, b"a\rb\rc\nd\r", 64);
        assert_eq!(error, Some(RecordError::StrayNewline { record: 2, line: 2, is_csv: false }));
    }

    #[test]
    fn the_end_marker_ends_text_and_data_behind_it_is_refused() {
        let ran = run(Format::Text, false, b"a\nb\n\\.\n", 64);
        assert_eq!(total(&ran), (2, 2, 2, 0, true, None));
        let (_, error) = run(Format::Text, false, b"a\n\\.\nb\n", 64);
        assert_eq!(error, Some(RecordError::DataAfterEndMarker { record: 1, line: 2 }));
        let (_, error) = run(Format::Text, false, b"a\n\\.", 64);
        assert_eq!(error, Some(RecordError::EndMarkerNotAlone { record: 1, line: 1 }));
        assert_eq!(total(&run(CSV, true, b"a\n\\.", 64)).0, 2);
        let (_, error) = run(Format::Text, false, b"a\nb\\.\n", 64);
        assert_eq!(error, Some(RecordError::EndMarkerNotAlone { record: 1, line: 1 }));
    }

    #[test]
    fn a_record_that_spans_lines_and_has_another_number_of_fields_is_torn() {
        let mut cutter = RecordCutter::new(CSV, b',', false);
        cutter.feed(b"a,b\n").unwrap();
        let torn =
            |data: &[u8]| cutter.find_torn(data, 2, false).map(|(start, error)| (start, error.record(), error.line()));
        assert_eq!(torn(b"a\na,\"b\nc\"\nd,e,f\n"), None);
        assert_eq!(torn(b"a,b\n\"\n\",c\nd,\"e\nf\",g\n"), Some((10, 2, 3)));
        assert_eq!(torn(b"\"a\nb\""), Some((0, 0, 0)));
    }

    #[test]
    fn what_was_whole_before_an_error_can_be_had_and_the_rest_cut_anew() {
        let mut cutter = RecordCutter::new(CSV, b',', false);
        assert_eq!(cutter.feed(b"a\nb").unwrap().end, 2);
        assert!(cutter.feed(b"c\nd\n\"e\ne\"f\rg").is_err());
        let cut = cutter.salvage();
        assert_eq!((cut.end, cut.records, cut.lines), (5, 2, 2));
        cutter.restart(Some(LineEnd::Lf));
        assert_eq!(cutter.feed(b"f\ng\n").unwrap().records, 2);
        assert_eq!(cutter.line_end(), Some(LineEnd::Lf));
    }

    #[test]
    fn an_unterminated_quote_names_the_line_its_record_began() {
        let (_, error) = run(CSV, false, b"a\nb,\"c\nd\n", 64);
        assert_eq!(error, Some(RecordError::UnterminatedQuote { record: 1, line: 1 }));
    }
}
