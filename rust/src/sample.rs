//! Cuts a sample into records and fields for the probe, which guesses a file's dialect.
//!
//! Records end as in `records.rs`, and fields as in `fields.rs`, so the probe sees the same records as the load. But
//! the format of a sample is only guessed. So bytes that COPY would refuse are not an error here: they are passed over
//! and reported.

use memchr::memchr;

use crate::error::RecordError;
use crate::fields::{Field, FieldReader, Format, LineEnd};
use crate::records::RecordCutter;

/// At most one in this many records with quotes may violate the rules of csv. With more violations, the sample is not
/// taken for csv.
const RECORDS_PER_STRAY: usize = 10;

/// The characters that decide where records and fields end.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub format: Format,
    pub delimiter: u8,
}

/// A record is the bytes from `start` to `end` of the sample, without the line end. `line` counts the sample's lines
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: usize,
    pub end: usize,
    pub line: u64,
}

/// A sample that was cut into records.
///
/// If `has_rest` is true, the last of `records` is not whole: the sample's end cuts it, or it has a quoted field that
/// begins at `open_quote` and never ends. `odd_line` is the first line that does not end as the first line does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub records: Vec<Record>,
    pub has_rest: bool,
    pub line_end: Option<LineEnd>,
    pub odd_line: Option<u64>,
    pub open_quote: Option<usize>,
}

/// A field. `value` is without quotes and escapes. `raw` are the bytes to compare with null strings, None if the field
/// is quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub value: Vec<u8>,
    pub raw: Option<Vec<u8>>,
}

impl Form {
    /// Cuts a sample into records. If the last record has no line end, it counts as whole only if `is_whole` is true.
    #[must_use]
    pub fn cut(self, data: &[u8], is_whole: bool) -> Sample {
        // Ignore a carriage return at the very end, because it may be half of a line end.
        let seen = if is_whole { data } else { data.strip_suffix(b"\r").unwrap_or(data) };
        let mut cutting = Cutting::new(self, data);
        for (at, &byte) in seen.iter().enumerate() {
            cutting.take(at, byte);
        }
        if cutting.cutter.after_return() {
            cutting.settle_return(seen.len());
        }
        cutting.finish(is_whole)
    }

    /// Returns how many fields a record, or the beginning of a record, has.
    #[must_use]
    pub fn count_fields(self, record: &[u8]) -> usize {
        let mut fields = Vec::new();
        let end = self.reader(record).read_record(0, &mut fields);
        fields.len() + usize::from(end.is_none())
    }

    /// Returns the fields of a record without its line end.
    ///
    /// # Errors
    /// A quoted field does not end.
    pub fn split(self, record: &[u8]) -> Result<Vec<Value>, RecordError> {
        let (reader, mut fields) = (self.reader(record), Vec::new());
        if reader.read_record(0, &mut fields).is_none() {
            return Err(RecordError::UnterminatedQuote { record: 0, line: 0 });
        }
        let is_csv = matches!(self.format, Format::Csv { .. });
        let to_value = |field: &Field| Value {
            value: reader.value(field).into_owned(),
            raw: (!(is_csv && field.is_special)).then(|| record[field.start..field.end].to_vec()),
        };
        Ok(fields.iter().map(to_value).collect())
    }

    /// Returns the index of the first field with a stray quote: inside a value that is not quoted, or behind a closing
    /// quote.
    #[must_use]
    pub fn find_stray_quote(self, record: &[u8]) -> Option<usize> {
        let mut fields = Vec::new();
        self.find_stray(record, &mut fields)
    }

    /// Returns whether the quotes of a sample's records enclose fields by the rules of csv, or are data.
    ///
    /// They enclose fields if hardly any record has a stray quote, and if one of these is true: some quoted field needs
    /// its quotes; all values of some column are quoted; all fields of the first record are quoted, and other records
    /// follow.
    #[must_use]
    pub fn encloses_fields(self, records: &[&[u8]]) -> bool {
        let Format::Csv { quote, .. } = self.format else { return false };
        let is_needed = |&byte: &u8| byte == self.delimiter || byte == b'\r' || byte == b'\n' || byte == quote;
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let (mut quoted_records, mut strays) = (0, 0);
        let (mut needs_quotes, mut has_quoted_header) = (false, false);
        for (index, record) in records.iter().enumerate() {
            quoted_records += usize::from(memchr(quote, record).is_some());
            if self.find_stray(record, &mut fields).is_some() {
                strays += 1;
                continue;
            }
            let is_first_of_many = index == 0 && records.len() > 1;
            has_quoted_header |= is_first_of_many && fields.iter().all(|field| field.is_special);
            columns.resize(columns.len().max(fields.len()), Column::default());
            for (column, field) in columns.iter_mut().zip(&fields) {
                let bytes = &record[field.start..field.end];
                needs_quotes |= field.is_special && bytes[1..bytes.len() - 1].iter().any(is_needed);
                // Ignore the first of several records, because a header may be quoted in another way than the values
                // below it.
                if !is_first_of_many && !bytes.is_empty() && bytes != b"\\N" {
                    column.has_quoted |= field.is_special;
                    column.has_plain |= !field.is_special;
                }
            }
        }
        let has_quoted_column = columns.iter().any(|column| column.has_quoted && !column.has_plain);
        strays * RECORDS_PER_STRAY <= quoted_records && (needs_quotes || has_quoted_column || has_quoted_header)
    }

    fn find_stray(self, record: &[u8], fields: &mut Vec<Field>) -> Option<usize> {
        let reader = self.reader(record);
        let end = reader.read_record(0, fields);
        let stray = fields.iter().position(|field| !reader.is_regular(field));
        stray.or(if end.is_none() { Some(fields.len()) } else { None })
    }

    fn reader(self, record: &[u8]) -> FieldReader<'_> {
        FieldReader::of_record(self.format, self.delimiter, record)
    }
}

/// Whether some values of a column are quoted, and whether some are not.
#[derive(Clone, Copy, Default)]
struct Column {
    has_quoted: bool,
    has_plain: bool,
}

/// The state of a cut: where the present record begins, and the records that were found before it.
struct Cutting<'a> {
    data: &'a [u8],
    cutter: RecordCutter,
    start: usize,
    /// The last carriage return that COPY refuses, if a line feed may follow.
    stray_return: Option<usize>,
    found: Sample,
}

impl<'a> Cutting<'a> {
    fn new(form: Form, data: &'a [u8]) -> Self {
        let cutter = RecordCutter::for_sample(form.format, form.delimiter);
        let found = Sample { records: Vec::new(), has_rest: false, line_end: None, odd_line: None, open_quote: None };
        Self { data, cutter, start: 0, stray_return: None, found }
    }

    fn take(&mut self, at: usize, byte: u8) {
        if byte != b'\n' && self.cutter.after_return() {
            self.settle_return(at);
        }
        let is_paired = byte == b'\n' && at > 0 && (self.cutter.after_return() || self.stray_return == Some(at - 1));
        let line = self.cutter.whole().1;
        let was_quoted = self.cutter.in_quote();
        if let Err(error) = self.cutter.step(byte) {
            self.pass_over(at, byte, &error);
        }
        self.note_end(line, at - usize::from(is_paired), at + 1);
        if self.cutter.in_quote() != was_quoted {
            self.found.open_quote = if was_quoted { None } else { Some(at) };
        }
    }

    /// Decides what a carriage return before `at` is, if no line feed follows it.
    fn settle_return(&mut self, at: usize) {
        let line = self.cutter.whole().1;
        match self.cutter.settle_return() {
            Ok(()) => self.note_end(line, at - 1, at),
            Err(error) => self.note_odd(error.line()),
        }
    }

    /// If the last step has ended a record, adds this record. The record ends at `end`, and the next one begins at
    /// `next`.
    fn note_end(&mut self, line: u64, end: usize, next: usize) {
        if self.cutter.whole().0 > self.found.records.len() as u64 {
            self.found.records.push(Record { start: self.start, end, line });
            self.start = next;
        }
    }

    /// Continues after a line end of another kind than the first.
    ///
    /// A lone line feed in a file with CR LF still ends a record, and so does a CR LF in any file. Any other such line
    /// end is data.
    fn pass_over(&mut self, at: usize, byte: u8, error: &RecordError) {
        let line_end = self.cutter.line_end();
        let is_second_half = byte == b'\n' && at == self.start && self.data[..at].ends_with(b"\r");
        self.note_odd(error.line() - u64::from(is_second_half));
        if byte == b'\r' {
            self.stray_return = Some(at);
        } else if line_end == Some(LineEnd::CrLf) {
            self.cutter.end_record();
        } else if is_second_half {
            self.start = at + 1;
        }
    }

    fn note_odd(&mut self, line: u64) {
        self.found.odd_line.get_or_insert(line);
    }

    fn finish(mut self, is_whole: bool) -> Sample {
        if self.start < self.data.len() {
            let line = self.cutter.whole().1;
            self.found.records.push(Record { start: self.start, end: self.data.len(), line });
            self.found.has_rest = !is_whole || self.cutter.in_quote();
        }
        Sample { line_end: self.cutter.line_end(), ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Form = Form { format: Format::Csv { quote: b'"', escape: b'"' }, delimiter: b',' };
    const ESCAPED_CSV: Form = Form { format: Format::Csv { quote: b'"', escape: b'\\' }, delimiter: b',' };
    const TEXT: Form = Form { format: Format::Text, delimiter: b'\t' };
    const TSV: Form = Form { format: Format::Tsv, delimiter: b'\t' };

    fn lines(form: Form, data: &str, is_whole: bool) -> Vec<(&str, u64)> {
        let sample = form.cut(data.as_bytes(), is_whole);
        sample.records.iter().map(|record| (&data[record.start..record.end], record.line)).collect()
    }

    fn values(form: Form, record: &[u8]) -> Vec<(String, bool)> {
        let fields = form.split(record).unwrap().into_iter();
        fields.map(|field| (String::from_utf8(field.value).unwrap(), field.raw.is_none())).collect()
    }

    #[test]
    fn records_are_those_that_the_cutter_of_a_load_finds() {
        let parts: [&[u8]; 9] = [b"a", b"bcd", b",", b"\t", b"\"", b"\\", b"\n", b"\r\n", b"\r"];
        let mut seed = 7_usize;
        let mut agreed = 0;
        for round in 0..8000 {
            let form = [CSV, ESCAPED_CSV, TEXT, TSV][round % 4];
            let line_end: &[u8] = [&b"\n"[..], b"\r\n", b"\r"][round % 3];
            let mut data = Vec::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                data.extend_from_slice(if seed >> 60 < 5 { line_end } else { parts[(seed >> 33) % parts.len()] });
            }
            let mut cutter = RecordCutter::new(form.format, form.delimiter, false);
            let sample = form.cut(&data, true);
            let cuts = cutter.feed(&data).and_then(|cut| Ok((cut, cutter.finish()?)));
            assert_eq!(sample.odd_line.is_some() || sample.has_rest, cuts.is_err(), "{form:?} {data:?}");
            if let Ok((cut, rest)) = cuts {
                assert_eq!(sample.records.len() as u64, cut.records + rest.records);
                assert_eq!(sample.line_end, cutter.line_end());
                agreed += 1;
            }
        }
        assert!(agreed > 1000, "{agreed}");
    }

    #[test]
    fn lines_in_quotes_are_counted() {
        assert_eq!(lines(CSV, "a\n\"b\nc\"\nd", true), [("a", 0), ("\"b\nc\"", 1), ("d", 3)]);
        assert_eq!(lines(ESCAPED_CSV, "\"a\\\"\nb\"\r\nc\r\n", true), [("\"a\\\"\nb\"", 0), ("c", 2)]);
        assert_eq!(lines(TEXT, "a\\\nb\nc\n", true), [("a\\\nb", 0), ("c", 2)]);
    }

    #[test]
    fn what_the_sample_cuts_off_is_not_whole() {
        for (form, data, records, has_rest) in [
            (CSV, "a\nb", 2, true),
            (CSV, "a\r\nb\r", 2, true),
            (CSV, "a\rb\r\r", 3, true),
            (CSV, "a\r", 1, true),
            (TEXT, "a\n", 1, false),
            (TSV, "", 0, false),
        ] {
            let sample = form.cut(data.as_bytes(), false);
            assert_eq!((sample.records.len(), sample.has_rest), (records, has_rest), "{data:?}");
        }
        let sample = CSV.cut(b"a\nb,\"\"\"c\nd", true);
        assert_eq!((sample.records.len(), sample.has_rest, sample.open_quote), (2, true, Some(6)));
    }

    #[test]
    fn other_line_ends_are_reported_and_passed_over() {
        for (data, records, odd_line) in [
            ("a\nb\r\nc\rd\n", vec![("a", 0), ("b", 1), ("c\rd", 2)], 1),
            ("a\r\nb\nc\rd\r\n", vec![("a", 0), ("b", 1), ("c\rd", 2)], 1),
            ("a\rb\r\nc\nd\r", vec![("a", 0), ("b", 1), ("c\nd", 2)], 1),
            ("a\r\nb\r", vec![("a", 0), ("b\r", 1)], 1),
        ] {
            assert_eq!(lines(TSV, data, true), records);
            assert_eq!(TSV.cut(data.as_bytes(), true).odd_line, Some(odd_line), "{data:?}");
        }
    }

    #[test]
    fn an_end_marker_is_a_record_like_any_other() {
        assert_eq!(lines(TEXT, "a\n\\.\nb\\.\n", true), [("a", 0), ("\\.", 1), ("b\\.", 2)]);
        assert_eq!(lines(CSV, "\\.\nb\n", true), [("\\.", 0), ("b", 1)]);
    }

    #[test]
    fn fields_are_counted_up_to_an_open_quote() {
        for (form, record, count) in [
            (CSV, "", 1),
            (CSV, "a,\"b,c\",d\ne,f", 4),
            (CSV, "a,\"b,c", 2),
            (ESCAPED_CSV, "\"a\\\",b\",c", 2),
            (TEXT, "a\\\tb\tc\\", 2),
            (TSV, "a\\\tb\n\tc", 3),
        ] {
            assert_eq!(form.count_fields(record.as_bytes()), count, "{record:?}");
        }
    }

    #[test]
    fn values_have_neither_quotes_nor_escapes() {
        let plain = |text: &str| (text.to_string(), false);
        let quoted = |text: &str| (text.to_string(), true);
        assert_eq!(values(CSV, b"a,\"b\"\"c\",x\"y,z\"w,"), [plain("a"), quoted("b\"c"), quoted("xy,zw"), plain("")]);
        assert_eq!(values(ESCAPED_CSV, b"\"a\\\"b\\c\\\\\",\\d"), [quoted("a\"b\\c\\"), plain("\\d")]);
        assert_eq!(values(TEXT, b"\\x41\\101\\q\\t\\x\t\\\t\\\\\\"), [plain("AAq\tx"), plain("\t\\")]);
        assert_eq!(values(TSV, b"\"a\\n\"\tb\n"), [plain("\"a\\n\""), plain("b\n")]);
        assert_eq!(TEXT.split(b"\\777").unwrap()[0].value, [0xff]);
        assert!(CSV.split(b"a,\"b").is_err());
    }

    #[test]
    fn a_quote_that_neither_begins_nor_ends_a_field_is_a_stray() {
        for (form, record, column) in [
            (CSV, "a,\"b\"\"\",c", None),
            (CSV, "a,b\"c\",d", Some(1)),
            (CSV, "\"a\"b,c", Some(0)),
            (CSV, "a,b,\"c", Some(2)),
            (ESCAPED_CSV, "\"a\\\"\",b", None),
            (ESCAPED_CSV, "\"a\"\"b\"", Some(0)),
        ] {
            assert_eq!(form.find_stray_quote(record.as_bytes()), column, "{record}");
        }
    }

    #[test]
    fn quotes_enclose_fields_if_they_are_needed_or_regular() {
        for (records, expected) in [
            (vec!["a,b", "\"x,y\",z"], true),
            (vec!["a,b", "\"x\",y", "\"z\",w"], true),
            (vec!["a,b", "\"x\",y", "z,w"], false),
            (vec!["\"a\",\"b\"", "x,y"], true),
            (vec!["\"a\",b", "x,y"], false),
            (vec!["\"a\",b"], true),
            (vec!["\"x,y\",z", "6\" pipe,w"], false),
            (vec!["a", "b"], false),
        ] {
            let bytes: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
            assert_eq!(CSV.encloses_fields(&bytes), expected, "{records:?}");
        }
    }
}
