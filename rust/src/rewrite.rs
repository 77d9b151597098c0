//! Writes fields again for COPY: all nulls are written in the same way, fields are skipped, constants are appended, and
//! tsv becomes COPY text.
//!
//! `fields.rs` reads the fields. Constants and escapes are written by the rules of `CopyAttributeOutText` and
//! `CopyAttributeOutCSV` (src/backend/commands/copyto.c). A field that is kept is written with the bytes that were
//! read, so the server reads its quotes and escapes as they are in the file.

use std::borrow::Cow;

use memchr::memchr2;

use crate::error::{RecordError, RewriterError};
use crate::fields::{open_hexadecimal, Field, FieldReader, Format, LineEnd};
use crate::notation::{ColumnNotation, Notations};
use crate::types::is_quoted_null;

const TSV_NULL: &[u8] = b"\\N";

#[derive(Clone, Debug)]
pub struct Rewriter {
    pub(crate) format: Format,
    pub(crate) delimiter: u8,
    pub(crate) nulls: Vec<Vec<u8>>,
    /// How each null is written.
    null: Vec<u8>,
    pub(crate) keep: Option<Vec<usize>>,
    /// The number of fields that a record must have at least, so that it has all fields of `keep`.
    kept_width: usize,
    /// The end of each record: the constants and the line feed. Empty without constants.
    tail: Vec<u8>,
    field_count: Option<usize>,
    ends_empty: bool,
    /// Empty if all columns are sent as they are.
    pub(crate) notations: Notations,
}

/// The end of each record of one block: the constants and the line feed. Empty without constants.
#[derive(Debug)]
pub struct Tail<'a>(Cow<'a, [u8]>);

impl Tail<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl Rewriter {
    /// Returns a rewriter. `keep` are the indexes of the fields to write, None for all. `constants` follow them; None
    /// is null.
    ///
    /// Csv and format text write each null as the first of `nulls`, which must be the null string of COPY. Tsv writes
    /// `\N`. If `field_count` is given, every record must have this number of fields.
    ///
    /// # Errors
    /// COPY would refuse `delimiter` or the null string, or the format cannot express a constant.
    pub fn new(
        format: Format,
        delimiter: u8,
        nulls: Vec<Vec<u8>>,
        keep: Option<Vec<usize>>,
        constants: Vec<Option<Vec<u8>>>,
        field_count: Option<usize>,
    ) -> Result<Self, RewriterError> {
        let is_taken = match format {
            Format::Csv { quote, .. } => delimiter == quote,
            Format::Text | Format::Tsv | Format::JsonLines => delimiter == b'\\',
        };
        if is_taken || delimiter == b'\n' || delimiter == b'\r' {
            return Err(RewriterError::UnusableDelimiter);
        }
        let null = match format {
            Format::Tsv | Format::JsonLines => TSV_NULL.to_vec(),
            Format::Csv { .. } | Format::Text => nulls.first().ok_or(RewriterError::NoNull)?.clone(),
        };
        let kept_width = keep.iter().flatten().max().map_or(0, |index| index + 1);
        if let Some(field_count) = field_count.filter(|&count| count < kept_width) {
            return Err(RewriterError::KeepBeyondFields { index: kept_width - 1, field_count });
        }
        let mut rewriter = Self {
            format,
            delimiter,
            nulls,
            null,
            keep,
            kept_width,
            tail: Vec::new(),
            field_count,
            ends_empty: false,
            notations: Vec::new(),
        };
        if !rewriter.is_null_usable(constants.contains(&None)) {
            return Err(RewriterError::UnusableNull);
        }
        rewriter.tail = rewriter.encode_constants(constants)?;
        Ok(rewriter)
    }

    /// Returns the rewriter with a new rule: if `ends_empty` is true, a record may have one field more than
    /// `field_count`, which must be blank and is skipped.
    #[must_use]
    pub fn with_empty_end(self, ends_empty: bool) -> Self {
        Self { ends_empty, ..self }
    }

    /// Returns the rewriter with the notations of its columns.
    #[must_use]
    pub fn with_notations(self, notations: Notations) -> Self {
        Self { notations, ..self }
    }

    /// Returns whether at least one record of a block has the number of fields that the rewriter requires.
    #[must_use]
    pub fn fits_any(&self, block: &[u8], line_end: LineEnd) -> bool {
        let reader = self.reader(block, line_end);
        let (mut start, mut fields) = (0, Vec::new());
        while let Some(next) = reader.read_record(start, &mut fields).filter(|_| start < block.len()) {
            if self.check_width(&reader, &mut fields, 0, || 0).is_ok() {
                return true;
            }
            start = next;
        }
        false
    }

    /// Returns the end of each record of a block. `extra` are constants of this block. They follow the constants of all
    /// blocks.
    ///
    /// # Errors
    /// The format cannot express a constant.
    pub fn tail_with(&self, extra: Vec<Option<Vec<u8>>>) -> Result<Tail<'_>, RewriterError> {
        let extra = self.encode_constants(extra)?;
        if extra.is_empty() {
            return Ok(Tail(Cow::Borrowed(&self.tail)));
        }
        let mut tail = self.tail.clone();
        if let Some(line_end) = tail.last_mut() {
            *line_end = self.delimiter;
        }
        tail.extend_from_slice(&extra);
        Ok(Tail(Cow::Owned(tail)))
    }

    /// Writes the records of `block`, of which the last one may lack its line end. `tail` must be from this rewriter.
    ///
    /// # Errors
    /// A record has a wrong number of fields, a quote is not closed in `block`, or a value is not in the notation of
    /// its column.
    pub fn rewrite(&self, block: &[u8], line_end: LineEnd, tail: &Tail) -> Result<Vec<u8>, RecordError> {
        let reader = self.reader(block, line_end);
        let tail = tail.bytes();
        let mut output = Vec::with_capacity(block.len() + block.len() / 8 + tail.len());
        let mut fields = Vec::new();
        let (mut start, mut record) = (0, 0);
        while start < block.len() {
            let Some(next) = reader.read_record(start, &mut fields) else {
                return Err(RecordError::UnterminatedQuote { record, line: reader.line_at(start) });
            };
            self.check_width(&reader, &mut fields, record, || reader.line_at(start))?;
            let at = output.len();
            if self.notations.is_empty() {
                self.write_fields(block, &fields, &mut output);
            } else if let Err(refusal) = self.write_plain_fields(&reader, block, &fields, &mut output) {
                return Err(RecordError::Notation { record, line: reader.line_at(start), refusal });
            }
            self.end_record(at, tail, &mut output);
            start = next;
            record += 1;
        }
        Ok(output)
    }

    pub(crate) fn check_width(
        &self,
        reader: &FieldReader,
        fields: &mut Vec<Field>,
        record: u64,
        line: impl Fn() -> u64,
    ) -> Result<(), RecordError> {
        let expected = self.field_count.unwrap_or(self.kept_width);
        if self.ends_empty {
            reader.drop_empty_end(fields, expected);
        }
        let found = fields.len();
        if found < expected {
            return Err(RecordError::MissingColumns { record, line: line(), expected, found });
        }
        if self.field_count.is_some() && found > expected {
            return Err(RecordError::ExtraColumns { record, line: line(), expected, found });
        }
        Ok(())
    }

    fn write_fields(&self, block: &[u8], fields: &[Field], output: &mut Vec<u8>) {
        match &self.keep {
            None => fields.iter().for_each(|field| self.write_field(block, field, output)),
            Some(keep) => keep.iter().for_each(|&index| self.write_field(block, &fields[index], output)),
        }
    }

    /// Writes the fields of a record. In columns with a notation, values are written in their plain form. The error
    /// says which value has no plain form.
    fn write_plain_fields(
        &self,
        reader: &FieldReader,
        block: &[u8],
        fields: &[Field],
        output: &mut Vec<u8>,
    ) -> Result<(), String> {
        for index in 0..self.keep.as_ref().map_or(fields.len(), Vec::len) {
            let field = &fields[self.keep.as_ref().map_or(index, |keep| keep[index])];
            let is_forced_null = |column: &ColumnNotation| column.is_forced && is_quoted_null(self, reader, field);
            match self.notations.get(index) {
                Some(Some(column)) if !self.is_null(block, field) && !is_forced_null(column) => {
                    let value = reader.value(field);
                    let plain = column.notation.plain(&value);
                    let written = plain.and_then(|plain| self.write_value(&plain, column, output));
                    written.ok_or_else(|| column.refuse(&value))?;
                }
                _ => self.write_field(block, field, output),
            }
        }
        Ok(())
    }

    /// Writes a value so that COPY reads the same value. None if COPY would read it as null.
    fn write_value(&self, value: &[u8], column: &ColumnNotation, output: &mut Vec<u8>) -> Option<()> {
        match self.format {
            Format::Csv { .. } if value == self.null && column.is_forced => return None,
            Format::Csv { quote, escape } => {
                if value == self.null || memchr2(self.delimiter, quote, value).is_some() {
                    quote_csv(value, quote, escape, output);
                } else {
                    output.extend_from_slice(value);
                }
            }
            Format::Text | Format::Tsv | Format::JsonLines => self.encode_text(value, output).ok()?,
        }
        output.push(self.delimiter);
        Some(())
    }

    /// Ends the record that begins at `start` of the output.
    fn end_record(&self, start: usize, tail: &[u8], output: &mut Vec<u8>) {
        if tail.is_empty() {
            // Remove the delimiter after the last field. There is none if no field is kept.
            output.truncate(output.len().saturating_sub(1).max(start));
            self.quote_lone_marker(start, output);
            output.push(b'\n');
        } else {
            output.extend_from_slice(tail);
        }
    }

    fn write_field(&self, block: &[u8], field: &Field, output: &mut Vec<u8>) {
        let bytes = &block[field.start..field.end];
        if self.is_null(block, field) {
            output.extend_from_slice(&self.null);
        } else if field.is_special && self.format == Format::Tsv {
            escape_text(bytes, self.delimiter, output);
        } else if let Some((start, digits)) = self.open_hexadecimal(bytes, field) {
            // Complete the escape. In the file, the end of the record also ends the escape. In the output, a delimiter
            // follows, which may be a hexadecimal digit such as A.
            output.extend_from_slice(&bytes[..start]);
            output.extend_from_slice(if digits.is_empty() { b"x" } else { b"\\x0" });
            output.extend_from_slice(digits);
        } else {
            output.extend_from_slice(bytes);
        }
        output.push(self.delimiter);
    }

    fn open_hexadecimal<'a>(&self, bytes: &'a [u8], field: &Field) -> Option<(usize, &'a [u8])> {
        let is_digit = field.is_special && self.format == Format::Text && self.delimiter.is_ascii_hexdigit();
        if is_digit {
            open_hexadecimal(bytes)
        } else {
            None
        }
    }

    /// Returns whether a field stands for null. In csv, a quoted field never does.
    pub(crate) fn is_null(&self, block: &[u8], field: &Field) -> bool {
        let may_be_null = !(field.is_special && matches!(self.format, Format::Csv { .. }));
        may_be_null && self.nulls.iter().any(|null| null == &block[field.start..field.end])
    }

    /// Returns a reader of the fields of a block.
    pub(crate) fn reader<'a>(&self, block: &'a [u8], line_end: LineEnd) -> FieldReader<'a> {
        FieldReader::new(self.format, self.delimiter, block, line_end)
    }

    /// Quotes a `\.` that is alone on its line, as COPY TO does. Before `PostgreSQL` 18, a `\.` without quotes ends csv
    /// data too.
    fn quote_lone_marker(&self, start: usize, output: &mut Vec<u8>) {
        if let Format::Csv { quote, .. } = self.format {
            let is_one_field = self.delimiter != b'.' && self.delimiter != b'\\';
            if &output[start..] == b"\\." && is_one_field && self.null != b"\\." {
                output.splice(start.., [quote, b'\\', b'.', quote]);
            }
        }
    }

    // ---------------------------------------------------------------- what is known before the data

    /// Returns whether the null string would be read as exactly one field.
    ///
    /// In format text, no field can equal a null string that ends within an escape. COPY accepts such a null string,
    /// but a null must not be written with it.
    fn is_null_usable(&self, has_null_constant: bool) -> bool {
        let mut fields = Vec::new();
        let reader = self.reader(&self.null, LineEnd::Lf);
        let is_csv = matches!(self.format, Format::Csv { .. });
        let is_whole = reader.read_record(0, &mut fields).is_some();
        let end = fields.last().map_or(0, |field| field.end);
        let is_written = has_null_constant || self.nulls.len() > 1;
        is_whole
            && (end == self.null.len() || (self.format == Format::Text && !is_written))
            && fields.iter().all(|field| field.end == end && !(is_csv && field.is_special))
            && memchr2(b'\n', b'\r', &self.null).is_none()
    }

    fn encode_constants(&self, constants: Vec<Option<Vec<u8>>>) -> Result<Vec<u8>, RewriterError> {
        let mut tail = Vec::new();
        for constant in constants {
            match (constant, self.format) {
                (None, _) => tail.extend_from_slice(&self.null),
                (Some(value), Format::Csv { quote, escape }) => quote_csv(&value, quote, escape, &mut tail),
                (Some(value), Format::Text | Format::Tsv | Format::JsonLines) => self.encode_text(&value, &mut tail)?,
            }
            tail.push(self.delimiter);
        }
        if let Some(last) = tail.last_mut() {
            *last = b'\n';
        }
        Ok(tail)
    }

    /// Writes `value` with escapes. If the result would be read as the null string, the first character is escaped too.
    fn encode_text(&self, value: &[u8], output: &mut Vec<u8>) -> Result<(), RewriterError> {
        let start = output.len();
        escape_text(value, self.delimiter, output);
        if output[start..] != self.null {
            return Ok(());
        }
        let (&first, rest) = value.split_first().ok_or(RewriterError::EmptyConstant)?;
        output.truncate(start);
        if first.is_ascii() {
            output.extend_from_slice(format!("\\{first:03o}").as_bytes());
        } else {
            // An octal escape would replace only the first byte of the character. Its other bytes would be invalid in
            // the encoding.
            output.extend_from_slice(&[b'\\', first]);
        }
        escape_text(rest, self.delimiter, output);
        Ok(())
    }
}

fn quote_csv(value: &[u8], quote: u8, escape: u8, output: &mut Vec<u8>) {
    output.push(quote);
    for &byte in value {
        if byte == quote || byte == escape {
            output.push(escape);
        }
        output.push(byte);
    }
    output.push(quote);
}

pub(crate) fn escape_text(value: &[u8], delimiter: u8, output: &mut Vec<u8>) {
    for &byte in value {
        let letter = match byte {
            b'\x08' => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            b'\x0b' => b'v',
            b'\x0c' => b'f',
            b'\r' => b'r',
            _ if byte == b'\\' || byte == delimiter => byte,
            _ => {
                output.push(byte);
                continue;
            }
        };
        output.extend_from_slice(&[b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::Notation;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
    const ESCAPED_CSV: Format = Format::Csv { quote: b'"', escape: b'\\' };

    fn to_nulls(nulls: &[&str]) -> Vec<Vec<u8>> {
        nulls.iter().map(|null| null.as_bytes().to_vec()).collect()
    }

    fn plain(format: Format, delimiter: u8, nulls: &[&str]) -> Rewriter {
        Rewriter::new(format, delimiter, to_nulls(nulls), None, Vec::new(), None).unwrap()
    }

    fn with_constants(format: Format, null: &str, constants: &[Option<&str>]) -> Result<Rewriter, RewriterError> {
        let constants = constants.iter().map(|value| value.map(|value| value.as_bytes().to_vec())).collect();
        Rewriter::new(format, b',', to_nulls(&[null]), Some(vec![0]), constants, None)
    }

    fn written(rewriter: &Rewriter, block: &str, line_end: LineEnd) -> String {
        written_with(rewriter, block, line_end, &[])
    }

    fn written_with(rewriter: &Rewriter, block: &str, line_end: LineEnd, extra: &[Option<&str>]) -> String {
        let extra = extra.iter().map(|value| value.map(|value| value.as_bytes().to_vec())).collect();
        let tail = rewriter.tail_with(extra).unwrap();
        String::from_utf8(rewriter.rewrite(block.as_bytes(), line_end, &tail).unwrap()).unwrap()
    }

    fn refusal(rewriter: &Rewriter, block: &[u8], line_end: LineEnd) -> RecordError {
        rewriter.rewrite(block, line_end, &rewriter.tail_with(Vec::new()).unwrap()).unwrap_err()
    }

    fn with_comma(format: Format, delimiter: u8, null: &str, is_forced: bool) -> Rewriter {
        let notation = Notation::named("1234,5", Vec::new()).unwrap();
        let column = ColumnNotation { column: "price".into(), name: "1234,5".into(), notation, is_forced };
        Rewriter::new(format, delimiter, to_nulls(&[null]), Some(vec![2, 0]), Vec::new(), Some(3))
            .unwrap()
            .with_notations(vec![Some(column), None])
    }

    #[test]
    fn values_of_a_notation_are_written_plain() {
        for (format, delimiter, null, block, expected) in [
            (CSV, b';', "", "a;x;\"1,5\"\n\"b;\";;\n1,5;;-2\n", "1.5;a\n;\"b;\"\n-2;1,5\n"),
            (CSV, b'-', "2.5", "a-x-\"-1,5\"\nb-x-2,5\nc-x-2.5\n", "\"-1.5\"-a\n\"2.5\"-b\n2.5-c\n"),
            (Format::Text, b',', "2.5", "a,x,1\\,5\nb,x,2\\,5\nc,x,2.5\n", "1.5,a\n\\062.5,b\n2.5,c\n"),
            (Format::Tsv, b'\t', "\\N", "a\tx\t1,5\n\\\tx\t\\N\n", "1.5\ta\n\\N\t\\\\\n"),
        ] {
            let rewriter = with_comma(format, delimiter, null, false);
            assert_eq!(written(&rewriter, block, LineEnd::Lf), expected, "{block:?}");
        }
        assert_eq!(written(&with_comma(CSV, b';', "", true), "a;x;\"\"\n", LineEnd::Lf), "\"\";a\n");
    }

    #[test]
    fn other_values_of_a_notation_are_refused_with_their_line() {
        let refused = |value: &str| RecordError::Notation {
            record: 1,
            line: 2,
            refusal: format!("value \"{value}\" of column \"price\" is not written as 1234,5"),
        };
        let rewriter = with_comma(CSV, b';', "", false);
        assert_eq!(refusal(&rewriter, b"a;\"\n\";1\nb;x;1.5\n", LineEnd::Lf), refused("1.5"));
        assert_eq!(refusal(&rewriter, b"a;\"\n\";1\nb;x;\"\"\n", LineEnd::Lf), refused(""));
        // COPY would read the quoted value as null.
        let forced = with_comma(CSV, b';', "2.5", true);
        assert_eq!(refusal(&forced, b"a;\"\n\";1\nb;x;2,5\n", LineEnd::Lf), refused("2,5"));
    }

    #[test]
    fn one_blank_field_more_is_left_out() {
        let rewriter =
            Rewriter::new(CSV, b',', to_nulls(&[""]), None, Vec::new(), Some(2)).unwrap().with_empty_end(true);
        let tail = rewriter.tail_with(Vec::new()).unwrap();
        let written = rewriter.rewrite(b"1,a,\n2,b\n3,c,\"\n\"\n4,d, \n", LineEnd::Lf, &tail).unwrap();
        assert_eq!(written, b"1,a\n2,b\n3,c\n4,d\n");
        assert!(rewriter.rewrite(b"1,a,x\n", LineEnd::Lf, &tail).is_err());
        assert!(rewriter.rewrite(b"1,a,,\n", LineEnd::Lf, &tail).is_err());
        assert!(rewriter.rewrite(b"1,a,\"\"\"\"\n", LineEnd::Lf, &tail).is_err());
        assert!(!rewriter.fits_any(b"1,a,x\n1\n\"", LineEnd::Lf));
        assert!(rewriter.fits_any(b"1,a,x\n1,a,\n", LineEnd::Lf));
    }

    #[test]
    fn an_empty_block_stays_empty_and_a_last_line_end_is_added() {
        for rewriter in
            [plain(CSV, b',', &["", "-"]), plain(Format::Text, b',', &["-"]), plain(Format::Tsv, b',', &["\\N"])]
        {
            assert_eq!(written(&rewriter, "", LineEnd::Lf), "");
            assert_eq!(written(&rewriter, "a,b\nc,", LineEnd::Lf), "a,b\nc,\n");
            assert_eq!(written(&rewriter, "a,b\r\n\r\nc,d", LineEnd::CrLf), "a,b\n\nc,d\n");
            assert_eq!(written(&rewriter, "a,b\r\rc,d\r", LineEnd::Cr), "a,b\n\nc,d\n");
        }
    }

    #[test]
    fn several_nulls_become_the_first_unless_quoted() {
        let rewriter = plain(CSV, b',', &["", "NULL", "-"]);
        assert_eq!(written(&rewriter, "NULL,-,\"-\",--,-\"\"\n-\n", LineEnd::Lf), ",,\"-\",--,-\"\"\n\n");
        let rewriter = plain(Format::Text, b',', &["\\N", "NULL"]);
        assert_eq!(written(&rewriter, "NULL,N\\ULL,\\N\n", LineEnd::Lf), "\\N,N\\ULL,\\N\n");
    }

    #[test]
    fn tsv_doubles_each_backslash_but_those_of_nulls() {
        let block = "\\N\t\\Na\t\\\\N\t\\N\na\\\tb\\N\n\\N";
        let expected = "\\N\t\\\\Na\t\\\\\\\\N\t\\N\na\\\\\tb\\\\N\n\\N\n";
        assert_eq!(written(&plain(Format::Tsv, b'\t', &["\\N"]), block, LineEnd::Lf), expected);
        let rewriter = plain(Format::Tsv, b'\t', &["-"]);
        assert_eq!(written(&rewriter, "\\N\t-\ta\n", LineEnd::Lf), "\\\\N\t\\N\ta\n");
    }

    #[test]
    fn tsv_in_runs_and_by_fields_agree_on_noise() {
        let (runs, fields) = (plain(Format::Tsv, b'\t', &["\\N"]), plain(Format::Tsv, b'\t', &["\\N", "\\N"]));
        let parts = ["\\", "\\N", "N", "\t", "\n", "\r\n", "a", "\r"];
        let mut seed: u64 = 11;
        for _ in 0..5000 {
            let block: String = (0..12)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    parts[usize::try_from(seed >> 61).unwrap()]
                })
                .collect();
            for line_end in [LineEnd::Lf, LineEnd::CrLf] {
                assert_eq!(written(&runs, &block, line_end), written(&fields, &block, line_end), "{block:?}");
            }
        }
    }

    #[test]
    fn quotes_hide_delimiters_and_line_ends_even_in_mid_field() {
        let rewriter = Rewriter::new(CSV, b',', to_nulls(&[""]), Some(vec![1]), Vec::new(), Some(2)).unwrap();
        assert_eq!(written(&rewriter, "x\",\n\"y,\"a\"\"\n\"b\n1,2\n", LineEnd::Lf), "\"a\"\"\n\"b\n2\n");
        let rewriter = Rewriter::new(ESCAPED_CSV, b',', to_nulls(&[""]), Some(vec![1]), Vec::new(), Some(2)).unwrap();
        assert_eq!(written(&rewriter, "\"\\\",\\\\\",\"\\a\"\n\\,b\n", LineEnd::Lf), "\"\\a\"\nb\n");
    }

    #[test]
    fn a_backslash_in_text_takes_the_next_byte_along() {
        let rewriter =
            Rewriter::new(Format::Text, b'|', to_nulls(&["-"]), Some(vec![1, 0]), Vec::new(), Some(2)).unwrap();
        assert_eq!(written(&rewriter, "\\|x|\\\n\na|y\\", LineEnd::Lf), "\\\n|\\|x\ny|a\n");
    }

    #[test]
    fn widths_are_checked_with_the_line_of_the_record() {
        let rewriter = Rewriter::new(CSV, b',', to_nulls(&[""]), None, Vec::new(), Some(2)).unwrap();
        let error = refusal(&rewriter, b"\"\n\",b\nc\n", LineEnd::Lf);
        assert_eq!(error, RecordError::MissingColumns { record: 1, line: 2, expected: 2, found: 1 });
        let error = refusal(&rewriter, b"a,b\r\n\r\na,b,c,d", LineEnd::CrLf);
        assert_eq!(error, RecordError::MissingColumns { record: 1, line: 1, expected: 2, found: 1 });
        let error = refusal(&rewriter, b"a,b\ra,b,c,d\r", LineEnd::Cr);
        assert_eq!(error, RecordError::ExtraColumns { record: 1, line: 1, expected: 2, found: 4 });
        let error = refusal(&rewriter, b"a,b\na,\"b\n", LineEnd::Lf);
        assert_eq!(error, RecordError::UnterminatedQuote { record: 1, line: 1 });
    }

    #[test]
    fn constants_end_each_record_in_the_spelling_of_the_format() {
        let constants = [Some("a\\\",\n"), None, Some("")];
        let rewriter = with_constants(CSV, "", &constants).unwrap();
        assert_eq!(written(&rewriter, "x,y\nz", LineEnd::Lf), "x,\"a\\\"\",\n\",,\"\"\nz,\"a\\\"\",\n\",,\"\"\n");
        let rewriter = with_constants(ESCAPED_CSV, "", &constants[..1]).unwrap();
        assert_eq!(written(&rewriter, "x", LineEnd::Lf), "x,\"a\\\\\\\",\n\"\n");
        let rewriter = with_constants(Format::Tsv, "", &constants).unwrap();
        assert_eq!(written(&rewriter, "x", LineEnd::Lf), "x,a\\\\\"\\,\\n,\\N,\n");
    }

    #[test]
    fn constants_of_a_block_come_behind_those_of_all() {
        let rewriter = with_constants(CSV, "", &[Some("c")]).unwrap();
        let extra = [Some("3"), None, Some("a\"b")];
        assert_eq!(
            written_with(&rewriter, "x,y\r\n\"z\r\n\"", LineEnd::CrLf, &extra),
            "x,\"c\",\"3\",,\"a\"\"b\"\n\"z\r\n\",\"c\",\"3\",,\"a\"\"b\"\n"
        );
        assert_eq!(written(&rewriter, "x,y\n", LineEnd::Lf), "x,\"c\"\n");
        let rewriter = plain(Format::Text, b'|', &["0"]);
        assert_eq!(written_with(&rewriter, "\\\n|0\n", LineEnd::Lf, &[Some("7"), Some("0")]), "\\\n|0|7|\\060\n");
        let rewriter = plain(Format::Tsv, b'\t', &["\\N"]);
        assert_eq!(written_with(&rewriter, "\\.\n", LineEnd::Lf, &[Some("1")]), "\\\\.\t1\n");
        assert_eq!(written_with(&plain(CSV, b',', &[""]), "\\.\n", LineEnd::Lf, &[Some("1")]), "\\.,\"1\"\n");
    }

    #[test]
    fn a_constant_never_reads_as_null() {
        let rewriter = with_constants(Format::Text, "NULL", &[Some("NULL"), None]).unwrap();
        assert_eq!(written(&rewriter, "x", LineEnd::Lf), "x,\\116ULL,NULL\n");
        let rewriter = with_constants(Format::Text, "\u{e9}", &[Some("\u{e9}")]).unwrap();
        assert_eq!(written(&rewriter, "x", LineEnd::Lf), "x,\\\u{e9}\n");
        assert_eq!(with_constants(Format::Text, "", &[Some("")]).unwrap_err(), RewriterError::EmptyConstant);
    }

    #[test]
    fn a_kept_end_marker_is_quoted_where_it_would_stand_alone() {
        let rewriter = with_constants(CSV, "", &[]).unwrap();
        assert_eq!(written(&rewriter, "\\.,b\n\"\\.\",c\n", LineEnd::Lf), "\"\\.\"\n\"\\.\"\n");
    }

    #[test]
    fn hexadecimal_escapes_take_no_delimiter_along() {
        let moved = Rewriter::new(Format::Text, b'A', to_nulls(&["-"]), Some(vec![1, 0]), Vec::new(), Some(2)).unwrap();
        for (data, expected) in [
            (&b"\\x4AAb\n"[..], &b"bA\\x4A\n"[..]),
            (b"aA\\x4\n", b"\\x04Aa\n"),
            (b"aA\\x\n", b"xAa\n"),
            (b"aA\\\\x4\n", b"\\\\x4Aa\n"),
            (b"aA\\x41\n", b"\\x41Aa\n"),
        ] {
            let tail = moved.tail_with(Vec::new()).unwrap();
            assert_eq!(moved.rewrite(data, LineEnd::Lf, &tail).unwrap(), expected, "{data:?}");
        }
    }

    #[test]
    fn what_copy_would_refuse_is_refused() {
        let refused = |format, delimiter, null: &str, keep: Option<Vec<usize>>| {
            Rewriter::new(format, delimiter, to_nulls(&[null]), keep, Vec::new(), Some(2)).unwrap_err()
        };
        assert_eq!(refused(CSV, b'"', "", None), RewriterError::UnusableDelimiter);
        for delimiter in [b'\\', b'\n'] {
            assert_eq!(refused(Format::Text, delimiter, "", None), RewriterError::UnusableDelimiter);
        }
        for null in ["a,b", "\"", "a\r", "a\nb"] {
            assert_eq!(refused(CSV, b',', null, None), RewriterError::UnusableNull);
        }
        let written = with_constants(Format::Text, "a\\", &[None]);
        assert_eq!(written.unwrap_err(), RewriterError::UnusableNull);
        assert!(with_constants(Format::Text, "a\\", &[Some("x")]).is_ok());
        assert_eq!(refused(CSV, b',', "", Some(vec![2])), RewriterError::KeepBeyondFields { index: 2, field_count: 2 });
        let without = Rewriter::new(Format::Text, b',', Vec::new(), None, Vec::new(), None);
        assert_eq!(without.unwrap_err(), RewriterError::NoNull);
    }
}
