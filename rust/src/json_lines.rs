//! Writes JSON Lines as COPY text: the values of each record by name, or the whole record as the value of one column.
//!
//! Each line is a record, because strings in JSON have no raw line feeds. Lines without a value belong to the next
//! record.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use memchr::{memchr, memchr3};

use crate::changes::{Changed, Findings};
use crate::error::{RecordError, RewriterError};
use crate::fields::{Format, LineEnd};
use crate::json::{show_name, JsonFault, Kind, Scanner, Value};
use crate::kept::ColumnType;
use crate::rewrite::{escape_text, Rewriter, Tail};
use crate::types::{fitting, ColumnTypes, BOOLEAN, FLAGS, JSONB, KEPT};

const NULL: &[u8] = b"\\N";

/// Writes records for COPY. Several names may belong to one column. Names that are given without a column are skipped.
/// Names that are not given are errors, unless others are skipped.
#[derive(Clone, Debug)]
pub struct JsonRewriter {
    names: Names,
    /// The column of each name, None for a name that is skipped.
    columns: Vec<Option<usize>>,
    /// The numbers of names by their form in lower case, for names that records spell in another way.
    folded: HashMap<Vec<u8>, usize>,
    /// Whether each column has type json or jsonb. Such a column gets values as they are in the file.
    takes_json: Vec<bool>,
    is_whole: bool,
    skips_others: bool,
    /// Writes the constants that end each record.
    tail: Rewriter,
}

/// Names, in the order in which records usually have them.
#[derive(Clone, Debug, Default)]
struct Names {
    list: Vec<Vec<u8>>,
    index: HashMap<Vec<u8>, usize>,
}

impl Names {
    fn add(&mut self, name: Vec<u8>) -> usize {
        let number = self.list.len();
        self.list.push(name.clone());
        *self.index.entry(name).or_insert(number)
    }

    /// Removes all names after the first `count` ones.
    fn forget(&mut self, count: usize) {
        for name in self.list.drain(count..) {
            self.index.remove(&name);
        }
    }

    /// Returns the number of a name. `guess` is its probable number.
    fn find(&self, name: &[u8], guess: usize) -> Option<usize> {
        let is_guess = self.list.get(guess).is_some_and(|next| next == name);
        if is_guess {
            Some(guess)
        } else {
            self.index.get(name).copied()
        }
    }
}

/// Returns a name in lower case without blanks around it. Names that do not match exactly are compared in this form.
fn fold(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii();
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => text.to_lowercase().into_bytes(),
        _ => name.to_ascii_lowercase(),
    }
}

/// A fault of a record, and the name of the value that has it.
type Found = (JsonFault, Option<String>);

fn in_record(fault: JsonFault) -> Found {
    (fault, None)
}

impl JsonRewriter {
    /// Returns a rewriter. `names` have the numbers of their columns. Without names, the record is the value of the
    /// only column.
    ///
    /// # Errors
    /// As `Rewriter::new`.
    pub fn new(
        names: Vec<(Vec<u8>, Option<usize>)>,
        takes_json: Vec<bool>,
        constants: Vec<Option<Vec<u8>>>,
    ) -> Result<Self, RewriterError> {
        let is_whole = names.is_empty();
        let (mut known, mut columns, mut folded) = (Names::default(), Vec::new(), HashMap::new());
        for (name, column) in names {
            folded.entry(fold(&name)).or_insert(columns.len());
            known.add(name);
            columns.push(column.filter(|&column| column < takes_json.len()));
        }
        let tail = Rewriter::new(Format::Text, b'\t', vec![NULL.to_vec()], None, constants, None)?;
        Ok(Self { names: known, columns, folded, takes_json, is_whole, skips_others: false, tail })
    }

    /// Returns this rewriter. If `skips_others`, it skips the values of all names that it was not given.
    #[must_use]
    pub fn skipping_others(mut self, skips_others: bool) -> Self {
        self.skips_others = skips_others;
        self
    }

    /// Returns how each record of a block ends. `extra` are constants of this block, which follow those of all blocks.
    ///
    /// # Errors
    /// As `Rewriter::tail_with`.
    pub fn tail_with(&self, extra: Vec<Option<Vec<u8>>>) -> Result<Tail<'_>, RewriterError> {
        self.tail.tail_with(extra)
    }

    /// Returns whether at least one record of a block can be written.
    #[must_use]
    pub fn fits_any(&self, block: &[u8]) -> bool {
        let mut values = self.room();
        Records { block, at: 0 }.any(|(_, record)| self.read(record, &mut values).is_ok())
    }

    /// Writes the records of a block.
    ///
    /// # Errors
    /// A record is not a JSON object, or has a name that appears twice or belongs to no column.
    pub fn rewrite(&self, block: &[u8], tail: &Tail) -> Result<Vec<u8>, RecordError> {
        let mut output = Vec::with_capacity(block.len() + block.len() / 8);
        let mut values = self.room();
        for (number, (start, record)) in (0..).zip(Records { block, at: 0 }) {
            self.read(record, &mut values).map_err(|(fault, name)| RecordError::Json {
                record: number,
                line: LineEnd::Lf.count(&block[..start]),
                fault,
                name,
            })?;
            let begin = output.len();
            for (value, &takes_json) in values.iter().zip(&self.takes_json) {
                match value {
                    Some(value) => write_value(record, *value, takes_json, &mut output),
                    None => output.extend_from_slice(NULL),
                }
                output.push(b'\t');
            }
            if tail.bytes().is_empty() {
                output.truncate(output.len().saturating_sub(1).max(begin));
                output.push(b'\n');
            } else {
                output.extend_from_slice(tail.bytes());
            }
        }
        Ok(output)
    }

    /// Finds the first record that lacks the name of a column. Returns its line in the block, from 0, and the first
    /// column whose name it lacks.
    #[must_use]
    pub fn find_partial(&self, block: &[u8]) -> Option<(u64, usize)> {
        let mut values = self.room();
        Records { block, at: 0 }.find_map(|(start, record)| {
            self.read(record, &mut values).ok()?;
            let column = values.iter().position(Option::is_none)?;
            Some((LineEnd::Lf.count(&block[..start]), column))
        })
    }

    /// Finds values that columns of these types do not keep. Records that cannot be read are skipped.
    #[must_use]
    pub fn find_changes(&self, block: &[u8], columns: &[ColumnType]) -> Vec<Changed> {
        let (mut values, mut found) = (self.room(), Findings::default());
        for (start, record) in (Records { block, at: 0 }) {
            if self.read(record, &mut values).is_err() {
                continue;
            }
            for (index, (value, &kind)) in values.iter().zip(columns).enumerate() {
                let is_scalar = |value: &&Value| matches!(value.kind, Kind::Number | Kind::Plain | Kind::Escaped);
                if let Some(value) = value.as_ref().filter(is_scalar).filter(|_| kind != ColumnType::Other) {
                    let text = Scanner::new(record).text(*value);
                    found.note(index, kind, &text, || LineEnd::Lf.count(&block[..start]));
                }
            }
        }
        found.0
    }

    fn room(&self) -> Vec<Option<Value>> {
        vec![None; self.takes_json.len()]
    }

    /// Fills `values`, which has one item for each column, from a record.
    fn read(&self, record: &[u8], values: &mut [Option<Value>]) -> Result<(), Found> {
        values.fill(None);
        if self.is_whole {
            let value = Scanner::new(record).document().map_err(in_record)?;
            if record.first() != Some(&b'{') {
                return Err(in_record(JsonFault::NotObject));
            }
            values.fill(Some(value));
            return Ok(());
        }
        let (mut guess, mut skipped) = (0, Vec::new());
        read_object(record, |name, value| {
            let number = self.names.find(name, guess).or_else(|| self.folded.get(&fold(name)).copied());
            let Some(number) = number else {
                return if self.skips_others { Ok(()) } else { Err(JsonFault::Unknown { name: show_name(name) }) };
            };
            guess = number + 1;
            let was_seen = match self.columns[number] {
                Some(column) => values[column].replace(value).is_some(),
                None => {
                    skipped.contains(&number) || {
                        skipped.push(number);
                        false
                    }
                }
            };
            if was_seen {
                return Err(JsonFault::Repeated { name: show_name(name) });
            }
            Ok(())
        })
    }
}

/// Calls `note` with each name and value of an object.
fn read_object(record: &[u8], mut note: impl FnMut(&[u8], Value) -> Result<(), JsonFault>) -> Result<(), Found> {
    let mut scanner = Scanner::new(record);
    if record.first() != Some(&b'{') {
        // If the record is not JSON at all, return the error that says so.
        scanner.document().map_err(in_record)?;
        return Err(in_record(JsonFault::NotObject));
    }
    scanner.open(0).map_err(in_record)?;
    let mut is_first = true;
    while let Some(name) = scanner.next_name(is_first).map_err(in_record)? {
        is_first = false;
        let name = scanner.text(name);
        let value = scanner.value(1).map_err(|fault| (fault, Some(show_name(&name))))?;
        note(&name, value).map_err(in_record)?;
    }
    scanner.end().map_err(in_record)
}

/// The records of a block, each with its position. Blanks and the line end after a record are not part of it.
struct Records<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let rest = self.block.get(self.at..)?;
        let start = self.at + rest.iter().position(|byte| !is_blank(byte))?;
        let end = memchr(b'\n', &self.block[start..]).map_or(self.block.len(), |length| start + length);
        self.at = end;
        let line = &self.block[start..end];
        let length = line.len() - line.iter().rev().take_while(|byte| is_blank(byte)).count();
        Some((start, &line[..length]))
    }
}

fn write_value(record: &[u8], value: Value, takes_json: bool, output: &mut Vec<u8>) {
    let raw = &record[value.start..value.end];
    match value.kind {
        Kind::Null => output.extend_from_slice(NULL),
        Kind::Plain | Kind::Escaped if takes_json => {
            output.push(b'"');
            write_text(raw, output);
            output.push(b'"');
        }
        // These bytes need no escapes: a string without escapes has neither backslashes nor control characters.
        Kind::Boolean | Kind::Number | Kind::Plain => output.extend_from_slice(raw),
        Kind::Escaped => write_text(&Scanner::new(record).text(value), output),
        Kind::Nested => write_text(raw, output),
    }
}

fn write_text(text: &[u8], output: &mut Vec<u8>) {
    if memchr3(b'\\', b'\t', b'\r', text).is_none() && memchr(b'\n', text).is_none() {
        output.extend_from_slice(text);
    } else {
        escape_text(text, b'\t', output);
    }
}

/// Finds all names in the records of a block, in the order in which they first appear, and the types of their values.
///
/// The type of a string is that of its text. Only objects and arrays are jsonb. Records that cannot be read are
/// skipped, and so are names that are not in `only`, which has names in lower case without blanks around them.
#[must_use]
pub fn find_types(block: &[u8], wanted: u64, only: Option<&BTreeSet<Vec<u8>>>) -> Vec<(Vec<u8>, ColumnTypes)> {
    let mut names = Names::default();
    let mut columns: Vec<ColumnTypes> = Vec::new();
    let mut found: Vec<(usize, Value)> = Vec::new();
    for (start, record) in (Records { block, at: 0 }) {
        let (mut guess, known) = (0, names.list.len());
        found.clear();
        let is_read = read_object(record, |name, value| {
            let known = names.find(name, guess);
            if known.is_none() && only.is_some_and(|only| !only.contains(&fold(name))) {
                return Ok(());
            }
            let number = known.unwrap_or_else(|| names.add(name.to_vec()));
            guess = number + 1;
            found.push((number, value));
            Ok(())
        });
        if is_read.is_err() {
            names.forget(known);
            continue;
        }
        columns.resize_with(names.list.len(), || ColumnTypes::new(wanted));
        for &(number, value) in &found {
            let column = &mut columns[number];
            if column.fits & !FLAGS != 0 && value.kind != Kind::Null {
                let text = Scanner::new(record).text(value);
                let fits = column.fits & of_kind(value.kind);
                let left = fitting(&text, fits);
                column.take_value(|| Cow::Borrowed(&text), left, || LineEnd::Lf.count(&block[..start]));
            }
        }
    }
    names.list.into_iter().zip(columns).collect()
}

/// Returns the types that a kind of value may have. Columns that exist are sent its text, which decides.
fn of_kind(kind: Kind) -> u64 {
    match kind {
        Kind::Nested => JSONB | KEPT | FLAGS,
        Kind::Boolean => BOOLEAN | KEPT | FLAGS,
        _ => !JSONB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BIGINT, DATE, DOUBLE, INTEGER, NUMERIC, TIMESTAMP};

    /// Columns a, b and c, of which c is jsonb; the name s is skipped.
    fn rewriter(constants: &[Option<&str>]) -> JsonRewriter {
        let names = [("a", Some(0)), ("s", None), ("B", Some(1)), ("c", Some(2))];
        let names = names.iter().map(|(name, column)| (name.as_bytes().to_vec(), *column)).collect();
        let constants = constants.iter().map(|each| each.map(|text| text.as_bytes().to_vec())).collect();
        JsonRewriter::new(names, vec![false, false, true], constants).unwrap()
    }

    fn written(rewriter: &JsonRewriter, block: &str) -> Result<String, (String, u64, u64)> {
        let tail = rewriter.tail_with(Vec::new()).unwrap();
        let output = rewriter.rewrite(block.as_bytes(), &tail);
        output
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .map_err(|error| (error.to_string(), error.record(), error.line()))
    }

    #[test]
    fn values_go_to_their_columns() {
        let block = "{\"a\": 1.50, \"B\": \"x\\ty\\\\ \\u00e9\", \"c\": \"q\\n\"}\n\
                     \n{\"c\":{\"k\": [\"\\t\",\t1]} , \"s\":[], \"a\":true}\r\n{}\n{\"b\":null,\"c\":null,\"A\":\"\\\\N\"}  ";
        let expected = "1.50\tx\\ty\\\\ é\t\"q\\\\n\"\n\
                        true\t\\N\t{\"k\": [\"\\\\t\",\\t1]}\n\\N\t\\N\t\\N\n\\\\N\t\\N\t\\N\n";
        assert_eq!(written(&rewriter(&[]), block).unwrap(), expected);
        let constant = written(&rewriter(&[Some("k\t"), None]), "{\"a\":1}\n").unwrap();
        assert_eq!(constant, "1\t\\N\t\\N\tk\\t\t\\N\n");
    }

    #[test]
    fn a_whole_record_is_one_value() {
        let rewriter = JsonRewriter::new(Vec::new(), vec![true], vec![Some(b"f".to_vec())]).unwrap();
        assert_eq!(written(&rewriter, "{\"a\\\\b\": 1}\r\n{}").unwrap(), "{\"a\\\\\\\\b\": 1}\tf\n{}\tf\n");
        let error = written(&rewriter, "{}\n[1]\n").unwrap_err();
        assert_eq!(error, ("the record is not a JSON object".to_owned(), 1, 1));
        assert!(written(&rewriter, "{\"a\":{\"b\":1,\"b\":1}}").unwrap_err().0.starts_with("name \"b\" appears twice"));
    }

    #[test]
    fn a_fault_names_its_record_its_line_and_its_name() {
        for (block, message, record, line) in [
            ("{}\n\n{\"a\":1,\"x\":1}", "name \"x\" belongs to no column that is loaded", 1, 2),
            ("{\"a\":1,\"A\":2}", "name \"A\" appears twice", 0, 0),
            ("{\"s\":1,\"s\":2}", "name \"s\" appears twice", 0, 0),
            ("{\"a\":1,\"\\u0061\":2}", "name \"a\" appears twice", 0, 0),
            ("{}\n1\n", "the record is not a JSON object", 1, 1),
            ("{\"a\":\"\\ud800\"}", "half of a surrogate pair at byte 7 of the record, in the value of \"a\"", 0, 0),
            ("{\"a\":1\n}", "invalid JSON: a comma or the end of the object is expected at byte 7 of the record", 0, 0),
            ("{} {}", "invalid JSON: the end of the record is expected at byte 4 of the record", 0, 0),
        ] {
            assert_eq!(written(&rewriter(&[]), block), Err((message.to_owned(), record, line)), "{block}");
        }
        assert!(!rewriter(&[]).fits_any(b"1\n{\"x\":1}\n"));
        assert!(rewriter(&[]).fits_any(b"1\n\n{\"a\":1}\n"));
    }

    #[test]
    fn types_are_those_of_all_values_of_a_name() {
        let block = b"{\"n\":1,\"d\":\"2024-01-01\",\"j\":[1],\"z\":null}\n[]\n{\"y\":1,\"x\":}\n\
                      {\"j\":{},\"n\":\"3000000000\",\"m\":{}}\n{\"m\":\"{}\",\"b\":true}\n";
        let all = (1 << 10) - 1;
        let found = find_types(block, all, None);
        let of = |name: &str| &found.iter().find(|(each, _)| each == name.as_bytes()).unwrap().1;
        let names: Vec<_> = found.iter().map(|(name, _)| String::from_utf8(name.clone()).unwrap()).collect();
        assert_eq!(names.join(""), "ndjzmb");
        assert_eq!((of("n").fits, of("d").fits), (BIGINT | NUMERIC | DOUBLE, DATE | TIMESTAMP));
        let lost = &of("n").lost;
        assert_eq!((lost.last().unwrap().0 & INTEGER, lost.last().unwrap().1.line), (INTEGER, 3));
        assert_eq!((of("j").fits, of("m").fits, of("b").fits), (JSONB, 0, BOOLEAN));
        assert_eq!((of("z").fits, &of("z").first), (all, &None));
    }

    #[test]
    fn names_that_are_not_wanted_are_neither_written_nor_reported() {
        let block = "{\"x\":[1],\"a\":1,\"x\":2}\n{\"y\":1,\"A \":3}\n";
        let skipping = rewriter(&[]).skipping_others(true);
        assert_eq!(written(&skipping, block).unwrap(), "1\t\\N\t\\N\n3\t\\N\t\\N\n");
        assert!(written(&skipping, "{\"a\":1,\"A\":2}").is_err());
        let found = find_types(block.as_bytes(), 0, Some(&BTreeSet::from([b"a".to_vec()])));
        assert_eq!(found.iter().map(|(name, _)| name.as_slice()).collect::<Vec<_>>(), [&b"a"[..], b"A "]);
    }
}
