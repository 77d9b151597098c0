//! Copies a table in memory to an Arrow IPC file.
//!
//! The table comes as a stream of the Arrow C stream interface: a capsule of Python with a pointer to a C struct, whose
//! functions make other C structs with pointers to the values. There is no way to read these without unsafe code. What
//! the structs promise cannot be checked; what can be (offsets, indices, views, runs, UTF-8) is.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_ipc::writer::FileWriter;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use pyo3::{Bound, PyResult};

use crate::columnar::{guard, FileError};

/// The most rows of a record batch in the copy. A record batch is read as a whole, and polars makes batches of millions.
const BATCH_ROWS: usize = 65_536;

/// A stream, and the metadata of the values of its columns' dictionaries, which the reader of streams leaves out.
pub struct Stream {
    batches: RecordBatchStreamReader,
    of_dictionaries: Vec<HashMap<String, String>>,
}

/// Takes the stream out of its capsule, which has none any more.
///
/// # Errors
///
/// If the capsule has another name, or the stream no struct as its schema.
pub fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<Result<Stream, ArrowError>> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the Arrow PyCapsule interface, a capsule of this name has a valid stream, or one that is released.
    // `from_raw` moves it out and leaves a released one behind, so the capsule's destructor does not release it again.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast::<FFI_ArrowArrayStream>()) };
    let mut schema = FFI_ArrowSchema::empty();
    let mut of_dictionaries = Vec::new();
    if let (Some(get_schema), Some(_)) = (stream.get_schema(), stream.release()) {
        // SAFETY: the stream is not released, and the schema has room for the one that it makes.
        if unsafe { get_schema(&raw mut stream, &raw mut schema) } == 0 {
            let of_dictionary = |column: &FFI_ArrowSchema| column.dictionary().and_then(|each| each.metadata().ok());
            of_dictionaries = schema.children().map(|column| of_dictionary(column).unwrap_or_default()).collect();
        }
    }
    Ok(RecordBatchStreamReader::try_new(stream).map(|batches| Stream { batches, of_dictionaries }))
}

/// Writes the rows of a stream to a new file. Columns with dictionaries are decoded, because a stream may have many
/// dictionaries for a column and a file only one.
///
/// # Errors
///
/// If the stream fails or has damaged values, or the file cannot be written.
pub fn write(stream: Stream, path: &Path) -> Result<(), FileError> {
    guard(move || {
        let told = stream.batches.schema();
        let mut of_dictionaries = stream.of_dictionaries.into_iter();
        let fields = told.fields().iter().map(|field| {
            let mut metadata = field.metadata().clone();
            metadata.extend(of_dictionaries.next().unwrap_or_default());
            let field = field.as_ref().clone().with_metadata(metadata);
            match field.data_type() {
                DataType::Dictionary(_, values) => field.clone().with_data_type(values.as_ref().clone()),
                _ => field,
            }
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let file = BufWriter::new(File::create(path).map_err(FileError::damaged)?);
        let mut writer = FileWriter::try_new(file, &schema).map_err(FileError::damaged)?;
        for batch in stream.batches {
            let batch = batch.map_err(FileError::damaged)?;
            for (start, field) in (0..batch.num_columns()).zip(schema.fields()) {
                let checked = batch.column(start).to_data().validate_full();
                checked.map_err(|error| FileError::Damaged(format!("column \"{}\": {error}", field.name())))?;
            }
            // Each slice of values with views inside has the bytes of all rows, and the writer writes all that it has. So
            // such a batch is not cut, and is read back as a whole.
            let has_views = batch.columns().iter().any(|column| has_views_inside(column.data_type()));
            let rows = if has_views { batch.num_rows() } else { BATCH_ROWS };
            for start in (0..batch.num_rows()).step_by(rows.max(1)) {
                let part = batch.slice(start, rows.min(batch.num_rows() - start));
                let columns = part.columns().iter().map(decode).collect::<Result<Vec<_>, _>>();
                let part = columns.and_then(|columns| RecordBatch::try_new(schema.clone(), columns));
                part.and_then(|part| writer.write(&part)).map_err(|error| explain(&error, &schema))?;
            }
        }
        writer.finish().map_err(FileError::damaged)
    })
}

/// Returns the error of a batch that cannot be written. It names the first column with dictionaries inside of its values.
fn explain(error: &ArrowError, schema: &Schema) -> FileError {
    let column = schema.fields().iter().find(|field| find(field.data_type(), is_dictionary));
    let column = column.map_or_else(String::new, |field| format!("column \"{}\": ", field.name()));
    FileError::Damaged(format!("{column}{error}"))
}

fn is_dictionary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(..))
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

fn has_views_inside(data_type: &DataType) -> bool {
    !is_view(data_type) && find(data_type, is_view)
}

/// Returns whether a type, or a type inside of it, is wanted.
fn find(data_type: &DataType, is_wanted: fn(&DataType) -> bool) -> bool {
    if is_wanted(data_type) {
        return true;
    }
    match data_type {
        DataType::RunEndEncoded(_, part)
        | DataType::List(part)
        | DataType::LargeList(part)
        | DataType::FixedSizeList(part, _)
        | DataType::ListView(part)
        | DataType::LargeListView(part)
        | DataType::Map(part, _) => find(part.data_type(), is_wanted),
        DataType::Struct(parts) => parts.iter().any(|part| find(part.data_type(), is_wanted)),
        _ => false,
    }
}

/// Returns a column with values in place of a dictionary, and without the bytes of other rows than its own.
fn decode(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let Some(column) = column.as_any_dictionary_opt() {
        return decode(&arrow_select::take::take(column.values(), column.keys(), None)?);
    }
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    })
}
