//! The interface to Python. It converts values, registers functions, and releases the interpreter while it works on
//! bytes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::changes::{self, Changed};
use crate::doubts::{self, Guess};
use crate::encode::{self, Buffers as EncoderBuffers, Declined, Encoder, Kind as EncodedKind};
use crate::error::{RecordError as NativeRecordError, RewriterError};
use crate::escape;
use crate::fieldmask::Shape;
use crate::fields::{Format, LineEnd};
use crate::json;
use crate::json_lines::{self, JsonRewriter as NativeJsonRewriter};
use crate::kept::ColumnType;
use crate::lanes;
use crate::notation::{ColumnNotation, Notation, Notations};
use crate::plain::{write_plain, Marks};
use crate::python_columnar;
use crate::records::{Cut as NativeCut, RecordCutter as NativeCutter};
use crate::rewrite::Rewriter as NativeRewriter;
use crate::sample::{Form as NativeForm, Record as NativeRecord, Sample};
use crate::types::{self, ColumnTypes, Witness};

pyo3::create_exception!(penstock._native, RecordError, PyValueError);

impl From<NativeRecordError> for PyErr {
    fn from(error: NativeRecordError) -> Self {
        RecordError::new_err((error.to_string(), error.record(), error.line()))
    }
}

#[pyclass(frozen, get_all, module = "penstock._native")]
struct Cut {
    end: usize,
    records: u64,
    lines: u64,
    server_lines: u64,
    stray_backslashes: u64,
    is_end: bool,
}

impl From<NativeCut> for Cut {
    fn from(cut: NativeCut) -> Self {
        let NativeCut { end, records, lines, server_lines, stray_backslashes, is_end } = cut;
        Self { end, records, lines, server_lines, stray_backslashes, is_end }
    }
}

#[pyclass(module = "penstock._native")]
struct RecordCutter(NativeCutter);

#[pymethods]
impl RecordCutter {
    #[new]
    #[pyo3(signature = (*, format, delimiter, quote=None, escape=None, checks_end_marker=false))]
    fn new(
        format: &str,
        delimiter: &[u8],
        quote: Option<&[u8]>,
        escape: Option<&[u8]>,
        checks_end_marker: bool,
    ) -> PyResult<Self> {
        let format = to_format(format, quote, escape)?;
        Ok(Self(NativeCutter::new(format, to_byte(delimiter)?, checks_end_marker)))
    }

    fn feed(&mut self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<Cut> {
        let data = data.as_bytes();
        Ok(py.detach(|| self.0.feed(data))?.into())
    }

    fn feed_one(&mut self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<Cut> {
        let data = data.as_bytes();
        Ok(py.detach(|| self.0.feed_one(data))?.into())
    }

    fn finish(&mut self) -> PyResult<Cut> {
        Ok(self.0.finish()?.into())
    }

    fn salvage(&mut self) -> Cut {
        self.0.salvage().into()
    }

    #[pyo3(signature = (line_end))]
    fn restart(&mut self, line_end: Option<&str>) -> PyResult<()> {
        self.0.restart(line_end.map(to_line_end).transpose()?);
        Ok(())
    }

    /// `segments` are (buffer, start, end) runs that together hold whole records.
    #[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
    #[pyo3(signature = (segments, *, field_count, ends_empty))]
    fn find_torn(
        &self,
        py: Python<'_>,
        segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
        field_count: usize,
        ends_empty: bool,
    ) -> PyResult<Option<(usize, u64, u64, String)>> {
        let runs = to_runs(&segments)?;
        let found = py.detach(|| match runs.as_slice() {
            [run] => self.0.find_torn(run, field_count, ends_empty),
            runs => self.0.find_torn(&runs.concat(), field_count, ends_empty),
        });
        Ok(found.map(|(start, error)| (start, error.record(), error.line(), error.to_string())))
    }

    #[getter]
    fn line_end(&self) -> Option<&'static str> {
        self.0.line_end().map(name_line_end)
    }
}

#[pyclass(frozen, module = "penstock._native")]
struct Rewriter(NativeRewriter);

#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pymethods]
impl Rewriter {
    #[new]
    #[pyo3(signature = (*, format, delimiter, quote=None, escape=None, nulls, keep=None, constants=None, field_count=None, ends_empty=false))]
    #[allow(clippy::too_many_arguments)] // keyword-only, one for each fact of a dialect and a column map
    fn new(
        format: &str,
        delimiter: &[u8],
        quote: Option<&[u8]>,
        escape: Option<&[u8]>,
        nulls: Vec<Vec<u8>>,
        keep: Option<Vec<usize>>,
        constants: Option<Vec<Option<Vec<u8>>>>,
        field_count: Option<usize>,
        ends_empty: bool,
    ) -> PyResult<Self> {
        let format = to_format(format, quote, escape)?;
        let constants = constants.unwrap_or_default();
        NativeRewriter::new(format, to_byte(delimiter)?, nulls, keep, constants, field_count)
            .map(|rewriter| Self(rewriter.with_empty_end(ends_empty)))
            .map_err(to_value_error)
    }

    fn with_notations(&self, notations: Vec<Option<NamedNotation>>) -> PyResult<Self> {
        Ok(Self(self.0.clone().with_notations(to_notations(notations)?)))
    }

    fn fits_any(
        &self,
        py: Python<'_>,
        segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
        line_end: &str,
    ) -> PyResult<bool> {
        let line_end = to_line_end(line_end)?;
        let runs = to_runs(&segments)?;
        Ok(py.detach(|| match runs.as_slice() {
            [run] => self.0.fits_any(run, line_end),
            runs => self.0.fits_any(&runs.concat(), line_end),
        }))
    }

    /// `segments` are (buffer, start, end) runs that together hold whole records; `extra` are this call's constants.
    #[pyo3(signature = (segments, line_end, *, extra=None))]
    fn rewrite<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        extra: Option<Vec<Option<Vec<u8>>>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let line_end = to_line_end(line_end)?;
        let tail = self.0.tail_with(extra.unwrap_or_default()).map_err(to_value_error)?;
        let runs = to_runs(&segments)?;
        let rewritten = py.detach(|| match runs.as_slice() {
            [run] => self.0.rewrite(run, line_end, &tail),
            runs => self.0.rewrite(&runs.concat(), line_end, &tail),
        })?;
        Ok(PyBytes::new(py, &rewritten))
    }

    /// `marks` are the delimiter, the quote and the null of what is written.
    #[pyo3(signature = (segments, line_end, records, *, marks, columns))]
    fn write_plain<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        records: usize,
        marks: [u8; 3],
        columns: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line_end = to_line_end(line_end)?;
        let [delimiter, quote, null] = marks;
        let marks = Marks { delimiter, quote, null };
        let runs = to_runs(&segments)?;
        let written = py.detach(|| write_plain(&self.0, &join(&runs), line_end, marks, columns));
        Ok(written.filter(|(_, count)| *count == records).map(|(rows, _)| PyBytes::new(py, &rows)))
    }

    /// `segments` are (buffer, start, end) runs that together hold whole records.
    #[pyo3(signature = (segments, line_end, *, wanted, forced))]
    fn find_types<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        wanted: u64,
        forced: Vec<bool>,
    ) -> PyResult<Vec<Types<'py>>> {
        let line_end = to_line_end(line_end)?;
        let runs = to_runs(&segments)?;
        let found = py.detach(|| match runs.as_slice() {
            [run] => types::find_types(&self.0, run, line_end, wanted, &forced),
            runs => types::find_types(&self.0, &runs.concat(), line_end, wanted, &forced),
        });
        Ok(found.iter().map(|column| to_types(py, column)).collect())
    }

    /// `columns` are the types of the columns that are kept, and their limits (`ColumnType::named`).
    #[pyo3(signature = (segments, line_end, *, columns, forced))]
    fn find_changes<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        columns: Vec<(String, i32)>,
        forced: Vec<bool>,
    ) -> PyResult<Vec<Change<'py>>> {
        let (line_end, columns) = (to_line_end(line_end)?, to_column_types(&columns)?);
        let runs = to_runs(&segments)?;
        let found = py.detach(|| changes::find_changes(&self.0, &join(&runs), line_end, &columns, &forced));
        Ok(found.iter().map(|each| to_change(py, each)).collect())
    }
}

/// The notation of a column: the column, the name of the notation (`Notation::named`), the separators of groups of
/// digits, and whether a quoted null string is null.
type NamedNotation = (String, String, Vec<Vec<u8>>, bool);

fn to_notations(given: Vec<Option<NamedNotation>>) -> PyResult<Notations> {
    let read = |(column, name, separators, is_forced): NamedNotation| {
        let notation = Notation::named(&name, separators).ok_or_else(|| PyValueError::new_err("no such notation"))?;
        Ok(ColumnNotation { column, name, notation, is_forced })
    };
    given.into_iter().map(|each| each.map(read).transpose()).collect()
}

/// A change: the index of the column, bits of `kept.rs`, the number of values, and the line and the bytes of the first
/// one.
type Change<'py> = (usize, u8, u64, u64, Bound<'py, PyBytes>);

fn to_change<'py>(py: Python<'py>, found: &Changed) -> Change<'py> {
    (found.column, found.change, found.count, found.line, PyBytes::new(py, &found.value))
}

fn to_column_types(columns: &[(String, i32)]) -> PyResult<Vec<ColumnType>> {
    let found: Option<_> = columns.iter().map(|(name, limit)| ColumnType::named(name, *limit)).collect();
    found.ok_or_else(|| PyValueError::new_err("no such type of column"))
}

fn to_types<'py>(py: Python<'py>, column: &ColumnTypes) -> Types<'py> {
    let to_seen = |seen: &Witness| (seen.line, PyBytes::new(py, &seen.value));
    let lost = column.lost.iter().map(|(bits, seen)| (*bits, to_seen(seen))).collect();
    (column.fits, column.first.as_ref().map(to_seen), lost)
}

/// The rewriter of JSON Lines, with the methods of `Rewriter`. It ignores arguments about line ends.
#[pyclass(frozen, module = "penstock._native")]
struct JsonRewriter(NativeJsonRewriter);

#[allow(clippy::needless_pass_by_value, unused_variables)] // arguments that come from Python are owned by the call
#[pymethods]
impl JsonRewriter {
    #[new]
    #[pyo3(signature = (*, names, takes_json, constants=None, skips_others=false))]
    fn new(
        names: Vec<(Vec<u8>, Option<usize>)>,
        takes_json: Vec<bool>,
        constants: Option<Vec<Option<Vec<u8>>>>,
        skips_others: bool,
    ) -> PyResult<Self> {
        let rewriter = NativeJsonRewriter::new(names, takes_json, constants.unwrap_or_default());
        rewriter.map(|rewriter| Self(rewriter.skipping_others(skips_others))).map_err(to_value_error)
    }

    fn fits_any(
        &self,
        py: Python<'_>,
        segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
        line_end: &str,
    ) -> PyResult<bool> {
        let runs = to_runs(&segments)?;
        Ok(py.detach(|| self.0.fits_any(&join(&runs))))
    }

    fn find_partial(
        &self,
        py: Python<'_>,
        segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
    ) -> PyResult<Option<(u64, usize)>> {
        let runs = to_runs(&segments)?;
        Ok(py.detach(|| self.0.find_partial(&join(&runs))))
    }

    /// `segments` are (buffer, start, end) runs that together hold whole records; `extra` are this call's constants.
    #[pyo3(signature = (segments, line_end, *, extra=None))]
    fn rewrite<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        extra: Option<Vec<Option<Vec<u8>>>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let tail = self.0.tail_with(extra.unwrap_or_default()).map_err(to_value_error)?;
        let runs = to_runs(&segments)?;
        let rewritten = py.detach(|| self.0.rewrite(&join(&runs), &tail))?;
        Ok(PyBytes::new(py, &rewritten))
    }

    #[pyo3(signature = (segments, line_end, *, columns, forced))]
    fn find_changes<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        columns: Vec<(String, i32)>,
        forced: Vec<bool>,
    ) -> PyResult<Vec<Change<'py>>> {
        let columns = to_column_types(&columns)?;
        let runs = to_runs(&segments)?;
        let found = py.detach(|| self.0.find_changes(&join(&runs), &columns));
        Ok(found.iter().map(|each| to_change(py, each)).collect())
    }
}

fn join<'a>(runs: &[&'a [u8]]) -> Cow<'a, [u8]> {
    match runs {
        [run] => Cow::Borrowed(run),
        runs => Cow::Owned(runs.concat()),
    }
}

/// Returns the names in records of JSON Lines, and the types of their values. `segments` are (buffer, start, end) runs.
/// If `only` is given, names that it does not have in lower case are skipped.
#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pyfunction]
#[pyo3(signature = (segments, *, wanted, only=None))]
fn find_json_types<'py>(
    py: Python<'py>,
    segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
    wanted: u64,
    only: Option<BTreeSet<Vec<u8>>>,
) -> PyResult<Vec<(Bound<'py, PyBytes>, Types<'py>)>> {
    let runs = to_runs(&segments)?;
    let found = py.detach(|| json_lines::find_types(&join(&runs), wanted, only.as_ref()));
    Ok(found.iter().map(|(name, column)| (PyBytes::new(py, name), to_types(py, column))).collect())
}

/// Returns where the object or array that begins a text ends, None if it does not end.
#[pyfunction]
fn find_json_end(text: &[u8]) -> Option<usize> {
    json::find_end(text)
}

type Seen<'py> = (u64, Bound<'py, PyBytes>);
type Types<'py> = (u64, Option<Seen<'py>>, Vec<(u64, Seen<'py>)>);

/// Returns what a column of a type with a limit (`ColumnType::named`) does not keep of a value, as bits of `kept.rs`.
#[pyfunction]
fn find_change(value: &[u8], name: &str, limit: i32) -> PyResult<u8> {
    let column = ColumnType::named(name, limit).ok_or_else(|| PyValueError::new_err("no such type of column"))?;
    Ok(if column.keeps(value, true) { 0 } else { column.change(value) })
}

/// Returns the types of `wanted` that accept a value, and those whose canonical form the value has.
#[pyfunction]
fn recognize(value: &[u8], wanted: u64) -> (u64, u64) {
    (types::fitting(value, wanted), types::canonical(value) & wanted)
}

#[pyclass(frozen, get_all, module = "penstock._native")]
struct Record {
    start: usize,
    end: usize,
    line: u64,
    text: Py<PyBytes>,
}

#[pyclass(frozen, get_all, module = "penstock._native")]
struct Records {
    whole: Py<PyTuple>,
    pieces: Py<PyTuple>,
    line_end: Option<&'static str>,
    odd_line: Option<u64>,
    open_quote: Option<usize>,
}

impl Records {
    fn new(py: Python<'_>, data: &[u8], sample: &Sample, first_line: u64) -> PyResult<Self> {
        let to_record = |record: &NativeRecord| {
            let text = PyBytes::new(py, &data[record.start..record.end]).unbind();
            Py::new(py, Record { start: record.start, end: record.end, line: first_line + record.line, text })
        };
        let pieces: Vec<_> = sample.records.iter().map(to_record).collect::<PyResult<_>>()?;
        let pieces = PyTuple::new(py, pieces)?;
        let whole = pieces.get_slice(0, pieces.len() - usize::from(sample.has_rest));
        Ok(Self {
            whole: whole.unbind(),
            pieces: pieces.unbind(),
            line_end: sample.line_end.map(name_line_end),
            odd_line: sample.odd_line.map(|line| first_line + line),
            open_quote: sample.open_quote,
        })
    }
}

thread_local! {
    static BUFFERS: RefCell<EncoderBuffers> = RefCell::default();
}

#[pyclass(frozen, module = "penstock._native")]
struct BinaryEncoder {
    encoder: Encoder,
    columns: usize,
}

/// Why a block is not encoded: the first record that cannot be encoded, its column, and the rule.
type Refusal = (usize, Option<usize>, &'static str);
/// The number of records (or the first one that cannot be encoded), the values of each column with their bytes, and why
/// the block is not encoded.
type Examined = (usize, Vec<(u64, u64)>, Option<Refusal>);

#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pymethods]
impl BinaryEncoder {
    #[new]
    #[pyo3(signature = (*, format, delimiter, quote=None, null, kinds, column_types=None))]
    fn new(
        format: &str,
        delimiter: &[u8],
        quote: Option<&[u8]>,
        null: Vec<u8>,
        kinds: Vec<String>,
        column_types: Option<Vec<(String, i32)>>,
    ) -> PyResult<Self> {
        let shape =
            Shape { format: to_format(format, quote, quote)?, delimiter: to_byte(delimiter)?, line_end: LineEnd::Lf };
        let columns = kinds.len();
        let kinds: Option<Vec<_>> = kinds.iter().map(|name| EncodedKind::named(name)).collect();
        let kinds = kinds.filter(|kinds| !kinds.is_empty());
        let kinds = kinds.ok_or_else(|| PyValueError::new_err("no columns, or a kind that is not encoded"))?;
        let column_types = to_column_types(&column_types.unwrap_or_default())?;
        Ok(Self { encoder: Encoder::new(shape, null, kinds).keeping(column_types), columns })
    }

    /// `segments` are (buffer, start, end) runs that together hold whole records.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
        line_end: &str,
        records: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line_end = to_line_end(line_end)?;
        let runs = to_runs(&segments)?;
        BUFFERS.with_borrow_mut(|buffers| {
            let encoded = py.detach(|| self.encoder.encode(&runs, line_end, buffers));
            Ok(encoded.ok().filter(|(_, count)| *count == records).map(|(rows, _)| PyBytes::new(py, rows)))
        })
    }

    fn examine(
        &self,
        py: Python<'_>,
        segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
        line_end: &str,
    ) -> PyResult<Examined> {
        let line_end = to_line_end(line_end)?;
        let runs = to_runs(&segments)?;
        BUFFERS.with_borrow_mut(|buffers| {
            Ok(py.detach(|| match self.encoder.encode(&runs, line_end, buffers) {
                Ok((rows, count)) => (count, encode::measure(rows, self.columns), None),
                Err(Declined { record, column, rule }) => (record, Vec::new(), Some((record, column, rule.name()))),
            }))
        })
    }
}

type Value<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

#[pyclass(frozen, module = "penstock._native")]
struct Form(NativeForm);

#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pymethods]
impl Form {
    #[new]
    #[pyo3(signature = (*, format, delimiter, quote=None, escape=None))]
    fn new(format: &str, delimiter: &[u8], quote: Option<&[u8]>, escape: Option<&[u8]>) -> PyResult<Self> {
        let format = to_format(format, quote, escape)?;
        Ok(Self(NativeForm { format, delimiter: to_byte(delimiter)? }))
    }

    #[getter]
    fn format(&self) -> &'static str {
        match self.0.format {
            Format::Csv { .. } => "csv",
            Format::Text => "text",
            Format::Tsv => "tsv",
            Format::JsonLines => "jsonl",
        }
    }

    #[getter]
    fn delimiter<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &[self.0.delimiter])
    }

    #[getter]
    fn quote<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match self.0.format {
            Format::Csv { quote, .. } => Some(PyBytes::new(py, &[quote])),
            _ => None,
        }
    }

    #[pyo3(signature = (data, *, is_whole, first_line=1))]
    fn cut(&self, py: Python<'_>, data: &Bound<'_, PyBytes>, is_whole: bool, first_line: u64) -> PyResult<Records> {
        let data = data.as_bytes();
        let sample = py.detach(|| self.0.cut(data, is_whole));
        Records::new(py, data, &sample, first_line)
    }

    fn count_fields(&self, record: &[u8]) -> usize {
        self.0.count_fields(record)
    }

    fn split<'py>(&self, py: Python<'py>, record: &[u8]) -> PyResult<Vec<Value<'py>>> {
        let to_bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let fields = self.0.split(record)?;
        Ok(fields.iter().map(|field| (to_bytes(&field.value), field.raw.as_deref().map(to_bytes))).collect())
    }

    fn find_stray_quote(&self, record: &[u8]) -> Option<usize> {
        self.0.find_stray_quote(record)
    }

    fn encloses_fields(&self, records: Vec<Bound<'_, PyBytes>>) -> bool {
        let records: Vec<&[u8]> = records.iter().map(PyBytesMethods::as_bytes).collect();
        self.0.encloses_fields(&records)
    }
}

/// Doubles `count` backslashes. The result is written to its place at once, because its size is known.
#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pyfunction]
#[pyo3(signature = (segments, *, delimiter, count))]
fn double_backslashes<'py>(
    py: Python<'py>,
    segments: Vec<(Bound<'py, PyBytes>, usize, usize)>,
    delimiter: &[u8],
    count: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let delimiter = to_byte(delimiter)?;
    let runs = to_runs(&segments)?;
    let length = runs.iter().map(|run| run.len()).sum::<usize>() + count;
    PyBytes::new_with(py, length, |output| {
        if py.detach(|| escape::double_backslashes(&runs, delimiter, output)) {
            Ok(())
        } else {
            Err(PyValueError::new_err("the count of backslashes is not that of the segments"))
        }
    })
}

/// `segments` are (buffer, start, end) runs that together hold whole records.
#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pyfunction]
#[pyo3(signature = (segments, *, is_csv, delimiter, line_end, nulls, with_backslashes))]
fn find_doubts(
    py: Python<'_>,
    segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
    is_csv: bool,
    delimiter: &[u8],
    line_end: &str,
    nulls: Vec<Vec<u8>>,
    with_backslashes: bool,
) -> PyResult<[(u64, u64); 6]> {
    let nulls: Vec<&[u8]> = nulls.iter().map(Vec::as_slice).collect();
    let (delimiter, line_end) = (to_byte(delimiter)?, to_line_end(line_end)?);
    let guess = Guess { is_csv, delimiter, line_end, nulls: &nulls };
    let runs = to_runs(&segments)?;
    let found = py.detach(|| doubts::find_doubts(&runs, guess, with_backslashes));
    let kinds = [found.quoted, found.escapes, found.others, found.strays, found.apostrophes, found.nulls];
    Ok(kinds.map(|doubt| (doubt.count, doubt.line)))
}

/// `segments` are (buffer, start, end) runs that together hold whole records.
#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pyfunction]
#[pyo3(signature = (segments, *, line_end))]
fn find_controls(
    py: Python<'_>,
    segments: Vec<(Bound<'_, PyBytes>, usize, usize)>,
    line_end: &str,
) -> PyResult<(u64, u64)> {
    let (runs, line_end) = (to_runs(&segments)?, to_line_end(line_end)?);
    Ok(py.detach(|| doubts::find_controls(&runs, line_end)))
}

#[allow(clippy::needless_pass_by_value)] // what map_err hands over
fn to_value_error(error: RewriterError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn to_runs<'a>(segments: &'a [(Bound<'_, PyBytes>, usize, usize)]) -> PyResult<Vec<&'a [u8]>> {
    segments
        .iter()
        .map(|(buffer, start, end)| buffer.as_bytes().get(*start..*end))
        .collect::<Option<_>>()
        .ok_or_else(|| PyValueError::new_err("a segment reaches beyond its buffer"))
}

fn to_byte(character: &[u8]) -> PyResult<u8> {
    match character {
        [byte] => Ok(*byte),
        _ => Err(PyValueError::new_err("expected a single byte")),
    }
}

fn to_format(format: &str, quote: Option<&[u8]>, escape: Option<&[u8]>) -> PyResult<Format> {
    match (format, quote, escape) {
        ("csv", Some(quote), Some(escape)) => Ok(Format::Csv { quote: to_byte(quote)?, escape: to_byte(escape)? }),
        ("text", None, None) => Ok(Format::Text),
        ("tsv", None, None) => Ok(Format::Tsv),
        ("jsonl", None, None) => Ok(Format::JsonLines),
        _ => Err(PyValueError::new_err("format is csv with quote and escape, or text, tsv or jsonl without")),
    }
}

fn to_line_end(line_end: &str) -> PyResult<LineEnd> {
    match line_end {
        "lf" => Ok(LineEnd::Lf),
        "crlf" => Ok(LineEnd::CrLf),
        "cr" => Ok(LineEnd::Cr),
        _ => Err(PyValueError::new_err("line_end is lf, crlf or cr")),
    }
}

fn name_line_end(line_end: LineEnd) -> &'static str {
    match line_end {
        LineEnd::Lf => "lf",
        LineEnd::CrLf => "crlf",
        LineEnd::Cr => "cr",
    }
}

#[pyfunction]
fn used_features() -> Vec<&'static str> {
    lanes::used_features()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NULL_WORDS", types::NULL_WORDS)?;
    module.add("RecordError", module.py().get_type::<RecordError>())?;
    module.add_class::<Cut>()?;
    module.add_class::<RecordCutter>()?;
    module.add_class::<Rewriter>()?;
    module.add_class::<BinaryEncoder>()?;
    module.add_class::<JsonRewriter>()?;
    module.add_class::<Form>()?;
    module.add_class::<Record>()?;
    module.add_class::<Records>()?;
    module.add_function(wrap_pyfunction!(double_backslashes, module)?)?;
    module.add_function(wrap_pyfunction!(recognize, module)?)?;
    module.add_function(wrap_pyfunction!(find_change, module)?)?;
    module.add_function(wrap_pyfunction!(find_json_types, module)?)?;
    module.add_function(wrap_pyfunction!(find_json_end, module)?)?;
    module.add_function(wrap_pyfunction!(find_doubts, module)?)?;
    module.add_function(wrap_pyfunction!(find_controls, module)?)?;
    module.add_function(wrap_pyfunction!(used_features, module)?)?;
    python_columnar::register(module)
}
