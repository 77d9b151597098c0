//! Errors about a record, or about the arguments of a rewriter. If `PostgreSQL` has a message for an error, its words
//! are used.

use thiserror::Error;

use crate::json::JsonFault;

/// A record that COPY would refuse, or that contradicts what the caller has said about the file.
///
/// `record` and `line` count from 0, beginning with the first byte of the cutter's input or of the rewriter's block.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("{} carriage return found in data", plainly(*is_csv))]
    StrayCarriageReturn { record: u64, line: u64, is_csv: bool },
    #[error("{} newline found in data", plainly(*is_csv))]
    StrayNewline { record: u64, line: u64, is_csv: bool },
    #[error("end-of-copy marker is not alone on its line")]
    EndMarkerNotAlone { record: u64, line: u64 },
    /// Data after the end-of-data marker. COPY ignores such data without an error.
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
    /// A record over several lines with a wrong number of fields. Usually its first line has a stray quote, and the
    /// next quote is some lines below.
    #[error("record spans {spanned} lines: expected {expected} columns, found {found}")]
    Torn { record: u64, line: u64, spanned: u64, expected: usize, found: usize },
    /// A value that is not in the notation of its column.
    #[error("{refusal}")]
    Notation { record: u64, line: u64, refusal: String },
    #[error("{fault}{}", name_value(name.as_deref()))]
    Json { record: u64, line: u64, fault: JsonFault, name: Option<String> },
}

impl RecordError {
    /// Returns the index of the record.
    #[must_use]
    pub fn record(&self) -> u64 {
        self.place().0
    }

    /// Returns the index of the line. For stray line ends and for the end-of-data marker, this is the line with the
    /// error. For all other errors, it is the record's first line.
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
            | Self::Notation { record, line, .. }
            | Self::Json { record, line, .. } => (record, line),
        }
    }
}

/// Returns the words that say which value of a JSON object has a fault.
fn name_value(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(", in the value of \"{name}\""))
}

/// Returns `PostgreSQL`'s word for a line end that is neither quoted (csv) nor escaped (text).
fn plainly(is_csv: bool) -> &'static str {
    if is_csv {
        "unquoted"
    } else {
        "literal"
    }
}

/// Why a rewriter cannot be made with the given arguments.
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
    /// In format text, the server compares a value with the null string before it decodes escapes. So no escape can
    /// distinguish an empty string from null.
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
