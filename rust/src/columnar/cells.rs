//! Gives access to the values of a decoded column by row, whatever their encoding.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{downcast_dictionary_array, downcast_run_array};
use arrow_array::{Array, ArrayRef, BinaryViewArray, FixedSizeBinaryArray, GenericBinaryArray};
use arrow_buffer::{i256, ArrowNativeType, BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use half::f16;

use super::kind::Kind;
use super::text::DAY_MS;
use super::FileError;

/// The values of a column that has been decoded.
pub struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

/// Integers of any width but unsigned ones of 64 bits, and counts of days or of units of time.
pub enum Ints {
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
}

impl Ints {
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

pub enum Decimals {
    D32(ScalarBuffer<i32>),
    D64(ScalarBuffer<i64>),
    D128(ScalarBuffer<i128>),
    D256(ScalarBuffer<i256>),
}

/// A decimal's digits: 128 bits, and more only if they need them.
pub enum Digits {
    Narrow(i128),
    Wide(i256),
}

impl Decimals {
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

/// Returns a row's place in values that are stored once.
type ToPlace<'a> = Box<dyn Fn(usize) -> usize + 'a>;
/// Returns where the items of a row's list are.
type ToItems<'a> = Box<dyn Fn(usize) -> Range<usize> + 'a>;

pub enum Values<'a> {
    Null,
    Bool(&'a BooleanBuffer),
    Bool8(Ints),
    Int(Ints),
    Unsigned(ScalarBuffer<u64>),
    Float16(ScalarBuffer<f16>),
    Float32(ScalarBuffer<f32>),
    Float64(ScalarBuffer<f64>),
    Decimal(Decimals, i8),
    /// Counts since 1970-01-01, and how many of them are a day.
    Date(Ints, i64),
    Time(Ints, TimeUnit),
    /// Whether they have a time zone comes last.
    Timestamp(Ints, TimeUnit, bool),
    Int96(&'a FixedSizeBinaryArray),
    Text(Strings<'a>),
    Json(Strings<'a>),
    Bytes(Strings<'a>),
    Uuid(&'a FixedSizeBinaryArray),
    List(ToItems<'a>, Box<Cells<'a>>),
    Map(ToItems<'a>, Box<(Cells<'a>, Cells<'a>)>),
    Struct(Vec<(&'a str, Cells<'a>)>),
    /// Those of a dictionary, or of runs.
    Shared(ToPlace<'a>, Box<Cells<'a>>),
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
    if let Some((place, values)) = find_shared(array) {
        return Ok(Values::Shared(place, Box::new(Cells::new(kind, values)?)));
    }
    Ok(match kind {
        Kind::Null => Values::Null,
        Kind::Bool => Values::Bool(array.as_boolean_opt().ok_or_else(|| mismatch(array))?.values()),
        Kind::Bool8 => Values::Bool8(find_ints(array)?),
        Kind::Int { bits: 64, is_signed: false } => Values::Unsigned(scalars(array)?),
        Kind::Int { bits, is_signed } => Values::Int(check_range(find_ints(array)?, *bits, *is_signed)?),
        Kind::Float { bits: 16 } => Values::Float16(scalars(array)?),
        Kind::Float { bits: 32 } => Values::Float32(scalars(array)?),
        Kind::Float { .. } => Values::Float64(scalars(array)?),
        Kind::Decimal { scale, .. } => Values::Decimal(find_decimals(array)?, *scale),
        Kind::Text => Values::Text(find_strings(array)?),
        Kind::Json => Values::Json(find_strings(array)?),
        Kind::Bytes | Kind::FixedBytes(_) => Values::Bytes(find_strings(array)?),
        Kind::Uuid => Values::Uuid(find_fixed(array, 16)?),
        Kind::Int96 => Values::Int96(find_fixed(array, 12)?),
        // Parquet has no dates of milliseconds: these are read as the days that they are stored as.
        Kind::Date64 if array.data_type() == &DataType::Date64 => Values::Date(find_ints(array)?, DAY_MS),
        Kind::Date32 | Kind::Date64 => Values::Date(find_ints(array)?, 1),
        Kind::Time(unit) => Values::Time(find_ints(array)?, *unit),
        Kind::Timestamp { unit, is_zoned } => Values::Timestamp(find_ints(array)?, *unit, *is_zoned),
        Kind::List(item) => {
            let (items, values) = find_lists(array)?;
            Values::List(items, Box::new(Cells::new(item, values)?))
        }
        Kind::Map(key, value) => {
            let maps = array.as_map_opt().ok_or_else(|| mismatch(array))?;
            let (keys, values) = (Cells::new(key, maps.keys())?, Cells::new(value, maps.values())?);
            Values::Map(to_items(maps.offsets()), Box::new((keys, values)))
        }
        Kind::Struct(fields) => {
            let parts = array.as_struct_opt().filter(|parts| parts.num_columns() == fields.len());
            let parts = fields.iter().zip(parts.ok_or_else(|| mismatch(array))?.columns());
            let parts = parts.map(|((name, kind), part)| Ok((name.as_str(), Cells::new(kind, part)?)));
            Values::Struct(parts.collect::<Result<_, FileError>>()?)
        }
        Kind::Unknown => return Err(mismatch(array)),
    })
}

fn mismatch(array: &dyn Array) -> FileError {
    FileError::Damaged(format!("a column was decoded as {}", array.data_type()))
}

/// Returns the values of an array of a fixed width, which are counts, numbers or the like.
fn scalars<T: ArrowNativeType>(array: &dyn Array) -> Result<ScalarBuffer<T>, FileError> {
    let data = array.to_data();
    let is_such = array.data_type().primitive_width() == Some(size_of::<T>());
    let values = data.buffers().first().filter(|_| is_such).ok_or_else(|| mismatch(array))?;
    Ok(ScalarBuffer::new(values.clone(), data.offset(), data.len()))
}

fn find_ints(array: &dyn Array) -> Result<Ints, FileError> {
    Ok(match (array.data_type(), array.data_type().primitive_width()) {
        (DataType::UInt8, _) => Ints::U8(scalars(array)?),
        (DataType::UInt16, _) => Ints::U16(scalars(array)?),
        (DataType::UInt32, _) => Ints::U32(scalars(array)?),
        (_, Some(1)) => Ints::I8(scalars(array)?),
        (_, Some(2)) => Ints::I16(scalars(array)?),
        (_, Some(4)) => Ints::I32(scalars(array)?),
        _ => Ints::I64(scalars(array)?),
    })
}

/// Returns integers if they fit their type, also if more bits are stored.
fn check_range(ints: Ints, bits: u32, is_signed: bool) -> Result<Ints, FileError> {
    if let (Ints::I32(values), ..32) = (&ints, bits) {
        let first = if is_signed { i32::MIN >> (32 - bits) } else { 0 };
        // Without a branch, several are looked at at once.
        if values.iter().fold(0, |odd, value| odd | value.wrapping_sub(first) >> bits) != 0 {
            return Err(FileError::Damaged(format!("an integer does not fit the {bits} bits of its type")));
        }
    }
    Ok(ints)
}

fn find_decimals(array: &dyn Array) -> Result<Decimals, FileError> {
    Ok(match array.data_type().primitive_width() {
        Some(4) => Decimals::D32(scalars(array)?),
        Some(8) => Decimals::D64(scalars(array)?),
        Some(32) => Decimals::D256(scalars(array)?),
        _ => Decimals::D128(scalars(array)?),
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

fn to_items<T: ArrowNativeType>(offsets: &[T]) -> ToItems<'_> {
    Box::new(|row| offsets[row].as_usize()..offsets[row + 1].as_usize())
}

fn to_viewed<'a, T: ArrowNativeType>(starts: &'a [T], sizes: &'a [T]) -> ToItems<'a> {
    Box::new(|row| starts[row].as_usize()..starts[row].as_usize() + sizes[row].as_usize())
}

fn find_lists(array: &dyn Array) -> Result<(ToItems<'_>, &dyn Array), FileError> {
    Ok(match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            (to_items(lists.offsets()), lists.values())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            (to_items(lists.offsets()), lists.values())
        }
        DataType::FixedSizeList(_, size) => {
            let size = size.as_usize();
            (Box::new(move |row| row * size..(row + 1) * size), array.as_fixed_size_list().values())
        }
        DataType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            (to_viewed(lists.offsets(), lists.sizes()), lists.values())
        }
        DataType::LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            (to_viewed(lists.offsets(), lists.sizes()), lists.values())
        }
        _ => return Err(mismatch(array)),
    })
}

/// Returns the values of a dictionary or of runs, and where the values of rows are in them.
fn find_shared(array: &dyn Array) -> Option<(ToPlace<'_>, &ArrayRef)> {
    downcast_dictionary_array!(
        array => {
            // A key has been checked, unless its row is null.
            let keys = array.keys().values();
            Some((Box::new(|row: usize| keys[row].as_usize()) as ToPlace<'_>, array.values()))
        },
        DataType::RunEndEncoded(..) => downcast_run_array!(
            array => Some((Box::new(|row: usize| array.get_physical_index(row)) as ToPlace<'_>, array.values())),
            _ => None
        ),
        _ => None
    )
}

/// Returns a type with other types in place of those that have no parts. Without `is_encoded`, it has no dictionaries and
/// runs.
pub fn with_leaves(data_type: &DataType, is_encoded: bool, leaf: &mut impl FnMut(&DataType) -> DataType) -> DataType {
    let mut part = |field: &FieldRef| {
        let data_type = with_leaves(field.data_type(), is_encoded, leaf);
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::List(item) => DataType::List(part(item)),
        DataType::LargeList(item) => DataType::LargeList(part(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(part(item), *size),
        DataType::ListView(item) => DataType::ListView(part(item)),
        DataType::LargeListView(item) => DataType::LargeListView(part(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(part(entries), *is_sorted),
        DataType::RunEndEncoded(ends, values) if is_encoded => DataType::RunEndEncoded(ends.clone(), part(values)),
        DataType::RunEndEncoded(_, values) => with_leaves(values.data_type(), is_encoded, leaf),
        DataType::Dictionary(keys, values) => match with_leaves(values, is_encoded, leaf) {
            values if is_encoded => DataType::Dictionary(keys.clone(), Box::new(values)),
            values => values,
        },
        other => leaf(other),
    }
}

/// Returns the type of byte strings that are stored as these texts are. They need not be UTF-8.
#[must_use]
pub fn as_bytes(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::Utf8View => DataType::BinaryView,
        other => other.clone(),
    }
}
