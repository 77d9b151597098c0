//! Writes records as csv without quotes. `PostgreSQL` 19 scans a line of a COPY command by a faster loop up to its
//! first quote or backslash (`CopyReadLineText` in src/backend/commands/copyfromparse.c).
//!
//! The delimiter, the quote and the null of this csv are control characters. So commas, quotes and backslashes in
//! values are data. Only a value with a line end or with one of these control characters cannot be written.

use memchr::{memchr, memchr2, memchr_iter};

use crate::fields::{Field, Format, LineEnd};
use crate::rewrite::Rewriter;

/// The control characters of the csv that is written.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    pub delimiter: u8,
    pub quote: u8,
    pub null: u8,
}

/// Returns the records of a block, and their number. None if a record does not have as many fields as `columns`, or has
/// a value that cannot be written. The constants of the rewriter are not written.
#[must_use]
pub fn write_plain(
    rewriter: &Rewriter,
    block: &[u8],
    line_end: LineEnd,
    marks: Marks,
    columns: usize,
) -> Option<(Vec<u8>, usize)> {
    let reader = rewriter.reader(block, line_end);
    let mut output = Vec::with_capacity(block.len() + block.len() / 8);
    let mut fields = Vec::new();
    let (mut start, mut records, mut nulls) = (0, 0, 0);
    while start < block.len() {
        start = reader.read_record(start, &mut fields)?;
        rewriter.check_width(&reader, &mut fields, 0, || 0).ok()?;
        let kept = rewriter.keep.as_deref();
        if kept.map_or(fields.len(), <[usize]>::len) != columns {
            return None;
        }
        for column in 0..columns {
            let field = &fields[kept.map_or(column, |kept| kept[column])];
            if rewriter.is_null(block, field) {
                nulls += 1;
                output.push(marks.null);
            } else if has_code(rewriter.format, block, field) {
                return None;
            } else {
                output.extend_from_slice(&reader.value(field));
            }
            output.push(marks.delimiter);
        }
        *output.last_mut()? = b'\n';
        records += 1;
    }
    // If a value contains a line feed, a delimiter or a null, the output has more of these characters than were
    // written.
    let has_only = |byte: u8, count: usize| memchr_iter(byte, &output).count() == count;
    let is_plain = has_only(b'\n', records)
        && has_only(marks.delimiter, records * (columns - 1))
        && has_only(marks.null, nulls)
        && memchr2(b'\r', marks.quote, &output).is_none();
    is_plain.then_some((output, records))
}

/// Returns whether a field of format text has an escape such as `\351` or `\xe9`. Such an escape is a byte in the
/// encoding of the database, which may differ from the encoding of the file.
fn has_code(format: Format, block: &[u8], field: &Field) -> bool {
    if format != Format::Text || !field.is_special {
        return false;
    }
    let mut rest = &block[field.start..field.end];
    while let Some(at) = memchr(b'\\', rest) {
        if let Some(b'0'..=b'7' | b'x') = rest.get(at + 1) {
            return true;
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };
    const MARKS: Marks = Marks { delimiter: b'|', quote: b'~', null: b'-' };

    fn written(format: Format, null: &str, columns: usize, block: &str) -> Option<String> {
        let delimiter = if format == Format::Tsv { b'\t' } else { b',' };
        let rewriter = Rewriter::new(format, delimiter, vec![null.into()], None, Vec::new(), None).unwrap();
        let (output, records) = write_plain(&rewriter, block.as_bytes(), LineEnd::Lf, MARKS, columns)?;
        assert_eq!(records, memchr_iter(b'\n', &output).count());
        Some(String::from_utf8(output).unwrap())
    }

    #[test]
    fn quotes_and_escapes_are_decoded_and_nulls_have_a_mark() {
        for (format, null, block, expected) in [
            (CSV, "", "\"a\",b\n\"c,\"\"d\"\"\",\"\"\n,\"\"\"\"\n", "a|b\nc,\"d\"|\n-|\"\n"),
            (CSV, "NULL", "NULL,\"NULL\"\n,x\"y,z\"", "-|NULL\n|xy,z\n"),
            (Format::Csv { quote: b'"', escape: b'\\' }, "", "\"a\\\"\",\"b\\c\"\n", "a\"|b\\c\n"),
            (Format::Text, "\\N", "\\N,a\\\\b\nc\\,d,\\t\n", "-|a\\b\nc,d|\t\n"),
            (Format::Tsv, "\\N", "\\N\t\\a\nb\t\\\\N\n", "-|\\a\nb|\\\\N\n"),
        ] {
            assert_eq!(written(format, null, 2, block).as_deref(), Some(expected), "{block:?}");
        }
    }

    #[test]
    fn what_would_read_otherwise_is_not_written() {
        for (format, block) in [
            (CSV, "a,\"b\nc\"\n"),
            (CSV, "a,\"b\rc\"\n"),
            (CSV, "a,b|c\n"),
            (CSV, "a,-\n"),
            (CSV, "a,b-c\n"),
            (CSV, "a,~\n"),
            (CSV, "a\n"),
            (CSV, "a,b,c\nd\n"),
            (CSV, "a,\"b\n"),
            (Format::Text, "a,\\n\n"),
            (Format::Text, "a,\\\n\n"),
            (Format::Text, "a,\\x41\n"),
            (Format::Text, "a,\\\\\\101\n"),
        ] {
            assert_eq!(written(format, "\\N", 2, block), None, "{block:?}");
        }
    }

    #[test]
    fn fields_are_left_out_and_records_end_in_any_way() {
        let rewriter = Rewriter::new(CSV, b',', vec![Vec::new()], Some(vec![2, 0]), Vec::new(), Some(3)).unwrap();
        for (line_end, block) in [(LineEnd::Lf, "a,b,\"c\"\nd,,"), (LineEnd::CrLf, "a,b,c\r\nd,,\r\n")] {
            let (output, records) = write_plain(&rewriter, block.as_bytes(), line_end, MARKS, 2).unwrap();
            assert_eq!((output, records), (b"c|a\n-|d\n".to_vec(), 2));
        }
        assert!(write_plain(&rewriter, b"a,b\n", LineEnd::Lf, MARKS, 2).is_none());
    }
}
