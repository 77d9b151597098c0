//! Gives access to the values of a decoded column by row, whatever their encoding.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal128Type, Decimal256Type, Decimal32Type, Decimal64Type, Float16Type, Float32Type,
    Float64Type, Int16Type, Int32Type, Int64Type, Int8Type, RunEndIndexType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{
    Array, BinaryViewArray, FixedSizeBinaryArray, GenericBinaryArray, GenericListArray, GenericListViewArray,
    PrimitiveArray, RunArray,
};
use arrow_buffer::{i256, ArrowNativeType, BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, TimeUnit};
use half::f16;

use super::kind::Kind;
use super::FileError;

/// The values of a column that has been decoded.
pub struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

/// Integers of any width but unsigned ones of 64 bits, and counts of days or of units of time.
#[derive(Clone, Copy)]
pub enum Ints<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
}

impl Ints<'_> {
    #[inline]
    pub fn get(&self, row: usize) -> i64 {
        match self {
            Self::I64(values) => values[row],
            Self::I32(values) => i64::from(values[row]),
            Self::I16(values) => i64::from(values[row]),
            Self::I8(values) => i64::from(values[row]),
            Self::U8(values) => i64::from(values[row]),
            Self::U16(values) => i64::from(values[row]),
            Self::U32(values) => i64::from(values[row]),
        }
    }
}

#[derive(Clone, Copy)]
pub enum Decimals<'a> {
    D32(&'a [i32]),
    D64(&'a [i64]),
    D128(&'a [i128]),
    D256(&'a [i256]),
}

/// A decimal's digits: 128 bits, and more only if they need them.
pub enum Digits {
    Narrow(i128),
    Wide(i256),
}

impl Decimals<'_> {
    #[inline]
    pub fn get(&self, row: usize) -> Digits {
        Digits::Narrow(match self {
            Self::D128(values) => values[row],
            Self::D64(values) => i128::from(values[row]),
            Self::D32(values) => i128::from(values[row]),
            Self::D256(values) => match values[row].to_i128() {
                Some(value) => value,
                None => return Digits::Wide(values[row]),
            },
        })
    }
}

/// Texts or byte strings.
#[derive(Clone, Copy)]
pub enum Strings<'a> {
    Views(&'a BinaryViewArray),
    Small(&'a GenericBinaryArray<i32>),
    Large(&'a GenericBinaryArray<i64>),
    Fixed(&'a FixedSizeBinaryArray),
}

impl<'a> Strings<'a> {
    #[inline]
    pub fn get(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Views(values) => values.value(row),
            Self::Small(values) => values.value(row),
            Self::Large(values) => values.value(row),
            Self::Fixed(values) => values.value(row),
        }
    }
}

/// Where the values of each list are.
pub enum Spans<'a> {
    Small(&'a OffsetBuffer<i32>),
    Large(&'a OffsetBuffer<i64>),
    Fixed(usize),
    SmallViews(&'a [i32], &'a [i32]),
    LargeViews(&'a [i64], &'a [i64]),
}

impl Spans<'_> {
    pub fn get(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Self::Small(offsets) => offsets[row].as_usize()..offsets[row + 1].as_usize(),
            Self::Large(offsets) => offsets[row].as_usize()..offsets[row + 1].as_usize(),
            Self::Fixed(size) => row * size..(row + 1) * size,
            Self::SmallViews(starts, sizes) => starts[row].as_usize()..starts[row].as_usize() + sizes[row].as_usize(),
            Self::LargeViews(starts, sizes) => starts[row].as_usize()..starts[row].as_usize() + sizes[row].as_usize(),
        }
    }
}

type ToPhysical<'a> = Box<dyn Fn(usize) -> usize + 'a>;

pub enum Values<'a> {
    Null,
    Bool(&'a BooleanBuffer),
    Bool8(&'a [i8]),
    Int(Ints<'a>),
    Unsigned(&'a [u64]),
    Float16(&'a [f16]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(Decimals<'a>, i8),
    /// Days since 1970-01-01.
    Date(&'a [i32]),
    /// Milliseconds since 1970-01-01.
    Date64(&'a [i64]),
    Time(Ints<'a>, TimeUnit),
    Timestamp(&'a [i64], TimeUnit, bool),
    Int96(&'a FixedSizeBinaryArray),
    Text(Strings<'a>),
    Json(Strings<'a>),
    Bytes(Strings<'a>),
    Uuid(&'a FixedSizeBinaryArray),
    List(Spans<'a>, Box<Cells<'a>>),
    Map(Spans<'a>, Box<(Cells<'a>, Cells<'a>)>),
    Struct(Vec<(&'a str, Cells<'a>)>),
    /// Values that are stored once: those of a dictionary, or of runs. The function returns a row's place in them.
    Shared(ToPhysical<'a>, Box<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// Returns the cells of an array. Each text and byte string of the array is binary.
    ///
    /// # Errors
    ///
    /// If the array has another type than its kind says.
    pub fn new(kind: &'a Kind, array: &'a dyn Array) -> Result<Self, FileError> {
        Ok(Self { nulls: array.nulls(), values: find_values(kind, array)? })
    }

    /// Returns the cells that have the value of a row, and its place in them. None if it is null.
    #[inline]
    pub fn resolve(&self, row: usize) -> Option<(&Self, usize)> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        match &self.values {
            Values::Shared(place, values) => values.resolve(place(row)),
            Values::Null => None,
            _ => Some((self, row)),
        }
    }
}

fn find_values<'a>(kind: &'a Kind, array: &'a dyn Array) -> Result<Values<'a>, FileError> {
    match array.data_type() {
        DataType::Dictionary(keys, _) => return find_dictionary(kind, array, keys),
        DataType::RunEndEncoded(ends, _) => {
            return match ends.data_type() {
                DataType::Int16 => find_runs::<Int16Type>(kind, array),
                DataType::Int32 => find_runs::<Int32Type>(kind, array),
                _ => find_runs::<Int64Type>(kind, array),
            };
        }
        _ => {}
    }
    Ok(match kind {
        Kind::Null => Values::Null,
        Kind::Bool => Values::Bool(array.as_boolean_opt().ok_or_else(|| mismatch(array))?.values()),
        Kind::Bool8 => Values::Bool8(slice::<Int8Type>(array)?),
        Kind::Int { bits: 64, is_signed: false } => Values::Unsigned(slice::<UInt64Type>(array)?),
        Kind::Int { .. } => Values::Int(find_ints(array)?),
        Kind::Float { bits: 16 } => Values::Float16(slice::<Float16Type>(array)?),
        Kind::Float { bits: 32 } => Values::Float32(slice::<Float32Type>(array)?),
        Kind::Float { .. } => Values::Float64(slice::<Float64Type>(array)?),
        Kind::Decimal { scale, .. } => Values::Decimal(find_decimals(array)?, *scale),
        Kind::Text => Values::Text(find_strings(array)?),
        Kind::Json => Values::Json(find_strings(array)?),
        Kind::Bytes | Kind::FixedBytes(_) => Values::Bytes(find_strings(array)?),
        Kind::Uuid => Values::Uuid(find_fixed(array, 16)?),
        Kind::Int96 => Values::Int96(find_fixed(array, 12)?),
        Kind::Date32 => Values::Date(slice::<Date32Type>(array)?),
        // Parquet has no dates of milliseconds: these are read as the days that they are stored as.
        Kind::Date64 if array.data_type() == &DataType::Date32 => Values::Date(slice::<Date32Type>(array)?),
        Kind::Date64 => Values::Date64(slice::<Date64Type>(array)?),
        Kind::Time(unit) => Values::Time(find_times(array)?, *unit),
        Kind::Timestamp { unit, is_zoned } => Values::Timestamp(find_timestamps(array, *unit)?, *unit, *is_zoned),
        Kind::List(item) => {
            let (spans, values) = find_lists(array)?;
            Values::List(spans, Box::new(Cells::new(item, values)?))
        }
        Kind::Map(key, value) => {
            let maps = array.as_map_opt().ok_or_else(|| mismatch(array))?;
            let (keys, values) = (Cells::new(key, maps.keys())?, Cells::new(value, maps.values())?);
            Values::Map(Spans::Small(maps.offsets()), Box::new((keys, values)))
        }
        Kind::Struct(fields) => {
            let parts = array.as_struct_opt().ok_or_else(|| mismatch(array))?;
            if parts.num_columns() != fields.len() {
                return Err(mismatch(array));
            }
            let parts = fields.iter().zip(parts.columns());
            let parts = parts.map(|((name, kind), part)| Ok((name.as_str(), Cells::new(kind, part)?)));
            Values::Struct(parts.collect::<Result<_, FileError>>()?)
        }
        Kind::Unknown => return Err(mismatch(array)),
    })
}

fn mismatch(array: &dyn Array) -> FileError {
    FileError::Damaged(format!("a column was decoded as {}", array.data_type()))
}

fn slice<T: arrow_array::ArrowPrimitiveType>(array: &dyn Array) -> Result<&[T::Native], FileError> {
    let array: &PrimitiveArray<T> = array.as_primitive_opt().ok_or_else(|| mismatch(array))?;
    Ok(array.values())
}

fn find_ints(array: &dyn Array) -> Result<Ints<'_>, FileError> {
    Ok(match array.data_type() {
        DataType::Int8 => Ints::I8(slice::<Int8Type>(array)?),
        DataType::Int16 => Ints::I16(slice::<Int16Type>(array)?),
        DataType::Int32 => Ints::I32(slice::<Int32Type>(array)?),
        DataType::UInt8 => Ints::U8(slice::<UInt8Type>(array)?),
        DataType::UInt16 => Ints::U16(slice::<UInt16Type>(array)?),
        DataType::UInt32 => Ints::U32(slice::<UInt32Type>(array)?),
        _ => Ints::I64(slice::<Int64Type>(array)?),
    })
}

fn find_times(array: &dyn Array) -> Result<Ints<'_>, FileError> {
    Ok(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => Ints::I32(slice::<Time32SecondType>(array)?),
        DataType::Time32(_) => Ints::I32(slice::<Time32MillisecondType>(array)?),
        DataType::Time64(TimeUnit::Microsecond) => Ints::I64(slice::<Time64MicrosecondType>(array)?),
        _ => Ints::I64(slice::<Time64NanosecondType>(array)?),
    })
}

fn find_timestamps(array: &dyn Array, unit: TimeUnit) -> Result<&[i64], FileError> {
    match unit {
        TimeUnit::Second => slice::<TimestampSecondType>(array),
        TimeUnit::Millisecond => slice::<TimestampMillisecondType>(array),
        TimeUnit::Microsecond => slice::<TimestampMicrosecondType>(array),
        TimeUnit::Nanosecond => slice::<TimestampNanosecondType>(array),
    }
}

fn find_decimals(array: &dyn Array) -> Result<Decimals<'_>, FileError> {
    Ok(match array.data_type() {
        DataType::Decimal32(..) => Decimals::D32(slice::<Decimal32Type>(array)?),
        DataType::Decimal64(..) => Decimals::D64(slice::<Decimal64Type>(array)?),
        DataType::Decimal256(..) => Decimals::D256(slice::<Decimal256Type>(array)?),
        _ => Decimals::D128(slice::<Decimal128Type>(array)?),
    })
}

fn find_strings(array: &dyn Array) -> Result<Strings<'_>, FileError> {
    Ok(match array.data_type() {
        DataType::BinaryView => Strings::Views(array.as_binary_view()),
        DataType::Binary => Strings::Small(array.as_binary()),
        DataType::LargeBinary => Strings::Large(array.as_binary()),
        DataType::FixedSizeBinary(_) => Strings::Fixed(array.as_fixed_size_binary()),
        _ => return Err(mismatch(array)),
    })
}

fn find_fixed(array: &dyn Array, width: i32) -> Result<&FixedSizeBinaryArray, FileError> {
    let found = array.as_fixed_size_binary_opt().filter(|found| found.value_length() == width);
    found.ok_or_else(|| mismatch(array))
}

fn find_lists(array: &dyn Array) -> Result<(Spans<'_>, &dyn Array), FileError> {
    Ok(match array.data_type() {
        DataType::List(_) => {
            let lists: &GenericListArray<i32> = array.as_list();
            (Spans::Small(lists.offsets()), lists.values())
        }
        DataType::LargeList(_) => {
            let lists: &GenericListArray<i64> = array.as_list();
            (Spans::Large(lists.offsets()), lists.values())
        }
        DataType::FixedSizeList(_, size) => (Spans::Fixed(size.as_usize()), array.as_fixed_size_list().values()),
        DataType::ListView(_) => {
            let lists: &GenericListViewArray<i32> = array.as_list_view();
            (Spans::SmallViews(lists.offsets(), lists.sizes()), lists.values())
        }
        DataType::LargeListView(_) => {
            let lists: &GenericListViewArray<i64> = array.as_list_view();
            (Spans::LargeViews(lists.offsets(), lists.sizes()), lists.values())
        }
        _ => return Err(mismatch(array)),
    })
}

fn find_dictionary<'a>(kind: &'a Kind, array: &'a dyn Array, keys: &DataType) -> Result<Values<'a>, FileError> {
    fn find<'a, K: arrow_array::types::ArrowDictionaryKeyType>(
        kind: &'a Kind,
        array: &'a dyn Array,
        to_place: impl Fn(K::Native) -> usize + 'a,
    ) -> Result<Values<'a>, FileError> {
        let array = array.as_dictionary_opt::<K>().ok_or_else(|| mismatch(array))?;
        let keys = array.keys().values();
        Ok(Values::Shared(Box::new(move |row| to_place(keys[row])), Box::new(Cells::new(kind, array.values())?)))
    }
    // A negative key is beyond all values. It has been checked, unless its row is null.
    match keys {
        DataType::Int8 => find::<Int8Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
        DataType::Int16 => find::<Int16Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
        DataType::Int32 => find::<Int32Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
        DataType::Int64 => find::<Int64Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
        DataType::UInt8 => find::<UInt8Type>(kind, array, usize::from),
        DataType::UInt16 => find::<UInt16Type>(kind, array, usize::from),
        DataType::UInt32 => find::<UInt32Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
        _ => find::<UInt64Type>(kind, array, |key| usize::try_from(key).unwrap_or(usize::MAX)),
    }
}

fn find_runs<'a, R: RunEndIndexType>(kind: &'a Kind, array: &'a dyn Array) -> Result<Values<'a>, FileError> {
    let runs: &RunArray<R> = array.as_run_opt().ok_or_else(|| mismatch(array))?;
    let place = |row| runs.get_physical_index(row);
    Ok(Values::Shared(Box::new(place), Box::new(Cells::new(kind, runs.values())?)))
}

/// Returns the type in which arrays of a type are decoded: texts as byte strings, which need not be UTF-8.
#[must_use]
pub fn as_bytes(data_type: &DataType) -> DataType {
    let part =
        |field: &arrow_schema::FieldRef| Arc::new(field.as_ref().clone().with_data_type(as_bytes(field.data_type())));
    match data_type {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::Utf8View => DataType::BinaryView,
        DataType::List(item) => DataType::List(part(item)),
        DataType::LargeList(item) => DataType::LargeList(part(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(part(item), *size),
        DataType::ListView(item) => DataType::ListView(part(item)),
        DataType::LargeListView(item) => DataType::LargeListView(part(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(part(entries), *is_sorted),
        DataType::Dictionary(keys, values) => DataType::Dictionary(keys.clone(), Box::new(as_bytes(values))),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(ends.clone(), part(values)),
        other => other.clone(),
    }
}
