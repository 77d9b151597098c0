//! Columnar files for Python. What it does is in `columnar`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::create_exception;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyCapsule};

use crate::columnar::binary::{choose_wire, Reason};
use crate::columnar::file::{text_kind, Column, File};
use crate::columnar::kind::Kind;
use crate::columnar::rows::{Block, Form, RowError, Rows, Sent};
use crate::columnar::text::Target;
use crate::columnar::{FileError, Source};
use crate::python::RecordError;
use crate::stream;

create_exception!(penstock._native, ColumnarError, PyValueError);
create_exception!(penstock._native, EncryptedError, ColumnarError);

/// A function of Python that returns bytes, and what it has raised.
struct PythonSource {
    read_at: Py<PyAny>,
    failure: Mutex<Option<PyErr>>,
}

impl Source for PythonSource {
    fn read_at(&self, start: u64, length: usize) -> Option<Bytes> {
        Python::attach(|py| {
            let found =
                self.read_at.call1(py, (start, length)).and_then(|found| Ok(found.extract::<PyBackedBytes>(py)?));
            match found {
                Ok(found) => Some(Bytes::from_owner(found)),
                Err(failure) => {
                    *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                    None
                }
            }
        })
    }
}

impl PythonSource {
    fn explain(&self, error: FileError) -> PyErr {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.unwrap_or_else(|| match error {
            FileError::Encrypted => EncryptedError::new_err(error.to_string()),
            error => ColumnarError::new_err(error.to_string()),
        })
    }
}

/// A column that is to be read: its number in the file, whether byte strings are texts, and the names of the table's
/// type and of the type below its domains.
type Wanted = (usize, bool, Option<String>, Option<String>);

#[pyclass(frozen, module = "penstock._native")]
pub struct ColumnarDecoder {
    file: Arc<File>,
    source: Arc<PythonSource>,
}

impl ColumnarDecoder {
    fn column(&self, index: usize) -> PyResult<&Column> {
        self.file.columns.get(index).ok_or_else(|| PyIndexError::new_err("no such column"))
    }

    fn kind(&self, index: usize, is_text: bool) -> PyResult<Kind> {
        let kind = &self.column(index)?.kind;
        Ok(is_text.then(|| text_kind(kind)).flatten().unwrap_or_else(|| kind.clone()))
    }
}

#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pymethods]
impl ColumnarDecoder {
    #[new]
    #[pyo3(signature = (read_at, *, size_bytes, is_parquet))]
    fn new(py: Python<'_>, read_at: Py<PyAny>, size_bytes: u64, is_parquet: bool) -> PyResult<Self> {
        let source = Arc::new(PythonSource { read_at, failure: Mutex::default() });
        let opened = py.detach(|| File::open(source.clone(), size_bytes, is_parquet));
        Ok(Self { file: Arc::new(opened.map_err(|error| source.explain(error))?), source })
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.file.rows
    }

    #[getter]
    fn parts(&self) -> usize {
        self.file.parts.len()
    }

    #[getter]
    fn columns(&self) -> Vec<(&str, &str, Option<String>, bool, u64)> {
        let describe = |column: &Column| column.kind.sql_type();
        let columns = self.file.columns.iter();
        columns.map(|each| (&each.name[..], &each.type_name[..], describe(each), each.is_untold, each.bytes)).collect()
    }

    fn holds_texts(&self, py: Python<'_>, column: usize) -> PyResult<Option<bool>> {
        self.column(column)?;
        py.detach(|| self.file.holds_texts(column)).map_err(|error| self.source.explain(error))
    }

    #[pyo3(signature = (column, kept, *, is_text))]
    fn may_differ(&self, column: usize, kept: (String, i32), is_text: bool) -> PyResult<bool> {
        Ok(self.kind(column, is_text)?.may_differ(&kept.0, kept.1))
    }

    #[pyo3(signature = (column, type_name, *, is_text))]
    fn fits_binary(&self, column: usize, type_name: &str, is_text: bool) -> PyResult<bool> {
        Ok(choose_wire(&self.kind(column, is_text)?, type_name).is_some())
    }

    #[pyo3(signature = (columns, ranges, *, is_binary, rejects, block_bytes))]
    fn read(
        &self,
        columns: Vec<Wanted>,
        ranges: Vec<(u64, u64)>,
        is_binary: bool,
        rejects: bool,
        block_bytes: usize,
    ) -> PyResult<ColumnarRows> {
        let (mut sent, mut wires) = (Vec::new(), Vec::new());
        for (column, is_text, declared, base) in columns {
            let kind = self.kind(column, is_text)?;
            wires.extend(choose_wire(&kind, declared.as_deref().unwrap_or_default()));
            sent.push(Sent { column, kind, target: Target::new(base.as_deref().unwrap_or_default()) });
        }
        if is_binary && wires.len() < sent.len() {
            return Err(PyValueError::new_err("a column has no binary format"));
        }
        let form = if is_binary { Form::Binary(wires) } else { Form::Text { rejects } };
        let rows = Mutex::new(Rows::new(self.file.clone(), sent, form, &ranges, block_bytes));
        Ok(ColumnarRows { rows, source: self.source.clone() })
    }
}

/// Rows, the number of the first one and of the one behind the last one, the name of their part, and the place of the
/// column with a fault and why.
type FoundRows<'py> = (Bound<'py, PyBytes>, u64, u64, String, Option<(usize, String)>);

#[pyclass(frozen, module = "penstock._native")]
pub struct ColumnarRows {
    rows: Mutex<Rows>,
    source: Arc<PythonSource>,
}

#[pymethods]
impl ColumnarRows {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<FoundRows<'py>>> {
        let found = py.detach(|| self.rows.lock().unwrap_or_else(PoisonError::into_inner).next_block());
        let found = found.map_err(|error| match error {
            RowError::File(error) => self.source.explain(error),
            RowError::Value(fault) => {
                let is_range = matches!(fault.reason, Reason::OutOfRange(_) | Reason::TooLong);
                let value = String::from_utf8_lossy(&fault.value).into_owned();
                RecordError::new_err((fault.reason.to_string(), fault.row, fault.column, value, fault.part, is_range))
            }
        })?;
        Ok(found.map(|Block { data, start, end, part, fault }| {
            let fault = fault.map(|(column, reason)| (column, reason.to_string()));
            (PyBytes::new(py, &data), start, end, part, fault)
        }))
    }
}

/// Copies a stream of the Arrow C stream interface to a new Arrow file.
#[allow(clippy::needless_pass_by_value)] // arguments that come from Python are owned by the call
#[pyfunction]
#[pyo3(signature = (capsule, path))]
pub fn write_stream(py: Python<'_>, capsule: Bound<'_, PyCapsule>, path: PathBuf) -> PyResult<()> {
    let to_error = |error: FileError| ColumnarError::new_err(error.to_string());
    let taken = stream::take(&capsule)?.map_err(|error| to_error(FileError::Damaged(error.to_string())))?;
    py.detach(|| stream::write(taken, &path)).map_err(to_error)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ColumnarError", module.py().get_type::<ColumnarError>())?;
    module.add("EncryptedError", module.py().get_type::<EncryptedError>())?;
    module.add_class::<ColumnarDecoder>()?;
    module.add_class::<ColumnarRows>()?;
    module.add_function(wrap_pyfunction!(write_stream, module)?)
}
