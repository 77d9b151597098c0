//! What is wrong with a record, or with what a rewriter is asked to do, in `PostgreSQL`'s own words where it has some.

use thiserror::Error;

use crate::json::JsonFault;

/// A record that COPY would refuse, or that is not what the caller said of the file.
///
/// `record` and `line` count from 0 at the first byte the cutter was fed, or the rewriter's block began with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("{} carriage return found in data", plainly(*is_csv))]
    StrayCarriageReturn { record: u64, line: u64, is_csv: bool },
    #[error("{} newline found in data", plainly(*is_csv))]
    StrayNewline { record: u64, line: u64, is_csv: bool },
    #[error("end-of-copy marker is not alone on its line")]
    EndMarkerNotAlone { record: u64, line: u64 },
    /// COPY drops such data without a word.
    #[error("data found after the end-of-copy marker")]
    DataAfterEndMarker { record: u64, line: u64 },
    #[error("unterminated CSV quoted field")]
    UnterminatedQuote { record: u64, line: u64 },
    #[error("record exceeds the server's limit of 1 GB")]
    RecordTooLong { record: u64, line: u64 },
    #[error("missing data for column {}: expected {expected} columns, found {found}", found + 1)]
    MissingColumns { record: u64, line: u64, expected: usize, found: usize },
    #[error("extra data after last expected column: expected {expected} columns, found {found}")]
    ExtraColumns { record: u64, line: u64, expected: usize, found: usize },
    /// Mostly a stray quote in its first line, and the next one some lines below.
    #[error("record spans {spanned} lines: expected {expected} columns, found {found}")]
    Torn { record: u64, line: u64, spanned: u64, expected: usize, found: usize },
    #[error("{fault}{}", name_value(name.as_deref()))]
    Json { record: u64, line: u64, fault: JsonFault, name: Option<String> },
}

impl RecordError {
    /// The index of the record.
    #[must_use]
    pub fn record(&self) -> u64 {
        self.place().0
    }

    /// The index of the line: the offending one for stray line ends and the marker, otherwise the record's first.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.place().1
    }

    fn place(&self) -> (u64, u64) {
        match *self {
            Self::StrayCarriageReturn { record, line, .. }
            | Self::StrayNewline { record, line, .. }
            | Self::EndMarkerNotAlone { record, line }
            | Self::DataAfterEndMarker { record, line }
            | Self::UnterminatedQuote { record, line }
            | Self::RecordTooLong { record, line }
            | Self::MissingColumns { record, line, .. }
            | Self::ExtraColumns { record, line, .. }
            | Self::Torn { record, line, .. }
            | Self::Json { record, line, .. } => (record, line),
        }
    }
}

/// Which value of a JSON object has a fault.
fn name_value(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(", in the value of \"{name}\""))
}

/// How `PostgreSQL` calls a line end that is neither quoted (csv) nor escaped (text).
fn plainly(is_csv: bool) -> &'static str {
    if is_csv {
        "unquoted"
    } else {
        "literal"
    }
}

/// Why records cannot be written again as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RewriterError {
    #[error(
        "COPY delimiter cannot be newline, carriage return, the quote of csv, or what belongs to an escape of text"
    )]
    UnusableDelimiter,
    #[error("a null string is needed for csv and text")]
    NoNull,
    #[error("COPY null string cannot hold the delimiter, a line end, the quote of csv, or an open escape of text")]
    UnusableNull,
    #[error("field {index} cannot be kept of {field_count}, counted from 0")]
    KeepBeyondFields { index: usize, field_count: usize },
    /// Text format compares before it unescapes, and has no escape that stands for nothing.
    #[error("an empty string cannot be told from null in text format with an empty null string")]
    EmptyConstant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_postgresql() {
        let error = RecordError::StrayNewline { record: 4, line: 7, is_csv: true };
        assert_eq!(error.to_string(), "unquoted newline found in data");
        assert_eq!((error.record(), error.line()), (4, 7));
        let error = RecordError::MissingColumns { record: 0, line: 0, expected: 3, found: 2 };
        assert_eq!(error.to_string(), "missing data for column 3: expected 3 columns, found 2");
    }
}
