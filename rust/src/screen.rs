//! Records that COPY is certain to refuse, found before they are sent: it gives up a whole command for each.

use crate::fields::LineEnd;
use crate::rewrite::Rewriter;

/// What a table is known to refuse of the records of a file, whatever else is in them.
#[derive(Clone, Debug)]
pub struct Screen {
    /// How many fields a record has.
    pub width: usize,
    /// The indexes of the fields that must not be null.
    pub not_null: Vec<usize>,
    /// Whether the bytes must be UTF-8 without a NUL.
    pub is_utf8: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The offset in the record of the first byte of what is no character.
    Bytes(usize),
    /// How many fields there are instead.
    Width(usize),
    /// The index of a field that is null.
    Null(usize),
}

impl Screen {
    /// The records of `block` that have a fault, by their index; what follows a quote that stays open is let pass.
    ///
    /// COPY looks at the bytes before it looks for fields, and at their number before it looks at what they say.
    #[must_use]
    pub fn find_faults(&self, rewriter: &Rewriter, block: &[u8], line_end: LineEnd) -> Vec<(usize, Fault)> {
        let reader = rewriter.reader(block, line_end);
        let is_clean = !self.is_utf8 || invalid_byte(block).is_none();
        let mut found = Vec::new();
        let mut fields = Vec::new();
        let (mut start, mut record) = (0, 0);
        while start < block.len() {
            let Some(next) = reader.read_record(start, &mut fields) else {
                break;
            };
            let bytes = if is_clean { None } else { invalid_byte(&block[start..next]).map(Fault::Bytes) };
            let fault = bytes.or_else(|| (fields.len() != self.width).then_some(Fault::Width(fields.len())));
            let is_null = |&index: &usize| rewriter.is_null(block, &fields[index]);
            if let Some(fault) = fault.or_else(|| self.not_null.iter().copied().find(is_null).map(Fault::Null)) {
                found.push((record, fault));
            }
            start = next;
            record += 1;
        }
        found
    }
}

/// Where the first byte is that is no UTF-8, or the character that `PostgreSQL` has no place for.
fn invalid_byte(bytes: &[u8]) -> Option<usize> {
    let invalid = std::str::from_utf8(bytes).err().map(|error| error.valid_up_to());
    let valid = &bytes[..invalid.unwrap_or(bytes.len())];
    memchr::memchr(0, valid).or(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Format;

    const CSV: Format = Format::Csv { quote: b'"', escape: b'"' };

    fn faults(format: Format, block: &[u8], line_end: LineEnd) -> Vec<(usize, Fault)> {
        let nulls = vec![if format == CSV { Vec::new() } else { b"\\N".to_vec() }];
        let rewriter = Rewriter::new(format, b',', nulls, None, Vec::new(), None).unwrap();
        Screen { width: 2, not_null: vec![1], is_utf8: true }.find_faults(&rewriter, block, line_end)
    }

    #[test]
    fn records_of_another_width_are_found_and_delimiters_within_quotes_or_escapes_are_none() {
        let csv = b"1,2\n1\n\"1,\n1\",2\n1,2,3\n\n1,2";
        assert_eq!(faults(CSV, csv, LineEnd::Lf), [(1, Fault::Width(1)), (3, Fault::Width(3)), (4, Fault::Width(1))]);
        assert_eq!(faults(Format::Text, b"1\\,1,2\n1,2,", LineEnd::Lf), [(1, Fault::Width(3))]);
        assert_eq!(faults(Format::Tsv, b"1\\,2\r\n\\,1,2\r\n", LineEnd::CrLf), [(1, Fault::Width(3))]);
    }

    #[test]
    fn nulls_are_found_where_they_must_not_be() {
        assert_eq!(faults(CSV, b",2\n1,\n1,\"\"\n", LineEnd::Lf), [(1, Fault::Null(1))]);
        assert_eq!(faults(Format::Text, b"\\N,2\r1,\\N\r1,\\\\N\r", LineEnd::Cr), [(1, Fault::Null(1))]);
        assert_eq!(faults(Format::Tsv, b"1,\\N\n1,\\n\n", LineEnd::Lf), [(0, Fault::Null(1))]);
    }

    #[test]
    fn bytes_that_are_no_characters_are_found_in_their_record() {
        let csv = b"1,2\n\xe9,2\n1,\xc3\xa9\n1,\0\n1\xff\n\xed\xa0\x80,2\n";
        let bytes = [(1, Fault::Bytes(0)), (3, Fault::Bytes(2)), (4, Fault::Bytes(1)), (5, Fault::Bytes(0))];
        assert_eq!(faults(CSV, csv, LineEnd::Lf), bytes);
    }

    #[test]
    fn what_follows_an_open_quote_passes() {
        assert_eq!(faults(CSV, b"1\n1,\"2\n1\n", LineEnd::Lf), [(0, Fault::Width(1))]);
    }
}
