//! The kinds of values that columns of files have, their types in `PostgreSQL`, and how they are sent.

use arrow_schema::{DataType, Field, TimeUnit};

/// What a column's values are, whatever their encoding and layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool,
    /// The extension bool8: a byte that is not 0 is true.
    Bool8,
    Int {
        bits: u32,
        is_signed: bool,
    },
    Float {
        bits: u32,
    },
    Decimal {
        precision: u8,
        scale: i8,
    },
    Text,
    Json,
    Bytes,
    /// Byte strings of one length.
    FixedBytes(i32),
    Uuid,
    Date32,
    Date64,
    Time(TimeUnit),
    Timestamp {
        unit: TimeUnit,
        is_zoned: bool,
    },
    /// Parquet's timestamps of 96 bits.
    Int96,
    List(Box<Kind>),
    Struct(Vec<(String, Kind)>),
    Map(Box<Kind>, Box<Kind>),
    /// Values that cannot be loaded.
    Unknown,
}

/// What a Parquet file says about a leaf of a column, and Arrow's type does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    Plain,
    /// The kind, whatever Arrow's type is.
    Told(Kind),
    /// BINARY without a logical type, which some writers use for texts.
    Untold,
}

const EXTENSION: &str = "ARROW:extension:name";

/// Returns the kind of a field. `next_leaf` is called once for each leaf, in the order of the file.
pub fn find_kind(field: &Field, next_leaf: &mut impl FnMut() -> Leaf) -> Kind {
    let extension = field.metadata().get(EXTENSION).map_or("", String::as_str);
    let kind = find_plain_kind(field.data_type(), next_leaf);
    match (extension, &kind) {
        ("arrow.uuid", Kind::FixedBytes(16)) => Kind::Uuid,
        ("arrow.json", Kind::Text) => Kind::Json,
        ("arrow.bool8", Kind::Int { bits: 8, is_signed: true }) => Kind::Bool8,
        // The storage of pandas' own extensions is something else than the value: a period is the number of one.
        _ if extension.starts_with("pandas.") => Kind::Unknown,
        _ => kind,
    }
}

fn find_plain_kind(data_type: &DataType, next_leaf: &mut impl FnMut() -> Leaf) -> Kind {
    match data_type {
        DataType::Dictionary(_, values) => find_plain_kind(values, next_leaf),
        DataType::RunEndEncoded(_, values) => find_kind(values, next_leaf),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Kind::List(Box::new(find_kind(item, next_leaf))),
        DataType::Struct(fields) => {
            Kind::Struct(fields.iter().map(|each| (each.name().clone(), find_kind(each, next_leaf))).collect())
        }
        DataType::Map(entries, _) => match find_kind(entries, next_leaf) {
            Kind::Struct(parts) => {
                let mut parts = parts.into_iter().map(|(_, kind)| Box::new(kind));
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(key), Some(value), None) => Kind::Map(key, value),
                    _ => Kind::Unknown,
                }
            }
            _ => Kind::Unknown,
        },
        _ => match next_leaf() {
            Leaf::Told(kind) => kind,
            Leaf::Plain | Leaf::Untold => find_leaf_kind(data_type),
        },
    }
}

fn find_leaf_kind(data_type: &DataType) -> Kind {
    let int = |bits, is_signed| Kind::Int { bits, is_signed };
    match data_type {
        DataType::Null => Kind::Null,
        DataType::Boolean => Kind::Bool,
        DataType::Int8 => int(8, true),
        DataType::Int16 => int(16, true),
        DataType::Int32 => int(32, true),
        DataType::Int64 => int(64, true),
        DataType::UInt8 => int(8, false),
        DataType::UInt16 => int(16, false),
        DataType::UInt32 => int(32, false),
        DataType::UInt64 => int(64, false),
        DataType::Float16 => Kind::Float { bits: 16 },
        DataType::Float32 => Kind::Float { bits: 32 },
        DataType::Float64 => Kind::Float { bits: 64 },
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Kind::Decimal { precision: *precision, scale: *scale },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Kind::Bytes,
        DataType::FixedSizeBinary(width) => Kind::FixedBytes(*width),
        DataType::Date32 => Kind::Date32,
        DataType::Date64 => Kind::Date64,
        DataType::Time32(unit) | DataType::Time64(unit) => Kind::Time(*unit),
        DataType::Timestamp(unit, zone) => Kind::Timestamp { unit: *unit, is_zoned: zone.is_some() },
        _ => Kind::Unknown,
    }
}

impl Kind {
    /// Returns whether values have parts.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::List(_) | Self::Struct(_) | Self::Map(..))
    }

    /// Returns the type of a column that has all these values. None if they cannot be loaded.
    #[must_use]
    pub fn sql_type(&self) -> Option<String> {
        let name = match self {
            Self::Bool | Self::Bool8 => "boolean",
            Self::Int { bits: 8, .. } | Self::Int { bits: 16, is_signed: true } => "smallint",
            Self::Int { bits: 16, .. } | Self::Int { bits: 32, is_signed: true } => "integer",
            Self::Int { bits: 32, .. } | Self::Int { is_signed: true, .. } => "bigint",
            Self::Int { .. } => "numeric(20,0)",
            Self::Float { bits: 64 } => "double precision",
            Self::Float { .. } => "real",
            Self::Date32 | Self::Date64 => "date",
            Self::Time(_) => "time without time zone",
            Self::Timestamp { is_zoned: true, .. } => "timestamp with time zone",
            Self::Timestamp { .. } | Self::Int96 => "timestamp without time zone",
            Self::Null | Self::Text => "text",
            Self::Bytes | Self::FixedBytes(_) => "bytea",
            Self::Uuid => "uuid",
            Self::Json => "jsonb",
            Self::Decimal { precision, scale } => {
                // Before PostgreSQL 15, a scale cannot be negative.
                let (precision, scale) = (i16::from(*precision), i16::from(*scale));
                return Some(format!("numeric({},{})", (precision - scale.min(0)).max(scale), scale.max(0)));
            }
            Self::List(item) => {
                let name = item.sql_type()?;
                return Some(if item.is_nested() { "jsonb".into() } else { format!("{name}[]") });
            }
            Self::Map(key, value) => {
                key.sql_type()?;
                value.sql_type()?;
                "jsonb"
            }
            Self::Struct(fields) => {
                for (at, (name, kind)) in fields.iter().enumerate() {
                    kind.sql_type()?;
                    // JSON would keep only one of two fields with the same name.
                    if fields[..at].iter().any(|(other, _)| other == name) {
                        return None;
                    }
                }
                "jsonb"
            }
            Self::Unknown => return None,
        };
        Some(name.to_owned())
    }

    /// Returns whether a column of a type may change values. `name` and `limit` are the type and its limit as
    /// `penstock.loading.copy.payload` has them. Such values are sent as text and checked.
    #[must_use]
    pub fn may_differ(&self, name: &str, limit: i32) -> bool {
        // A varchar may change a text: the server cuts blanks that exceed its length. This change is not checked.
        if name == "other" || name == "varchar" {
            return false;
        }
        // A type without a limit keeps microseconds. Nanoseconds that do not fit are refused.
        let is_rounded = |unit| limit >= 0 && limit < count_decimals(unit).cast_signed();
        match self {
            Self::Float { bits } => name != "float8" && (name != "float4" || *bits == 64),
            Self::Decimal { scale, .. } => name != "numeric" || i32::from(*scale).max(0) > limit,
            Self::Int { .. } if name == "numeric" => limit < 0,
            Self::Int { bits, .. } => match name {
                "float4" => *bits > 24,
                "float8" => *bits > 53,
                _ => false,
            },
            Self::Time(unit) => !matches!(name, "time" | "timetz") || is_rounded(*unit),
            Self::Timestamp { unit, is_zoned: true } => name != "timestamptz" || is_rounded(*unit),
            Self::Timestamp { unit, .. } => !matches!(name, "timestamp" | "timestamptz") || is_rounded(*unit),
            Self::Int96 => !matches!(name, "timestamp" | "timestamptz") || is_rounded(TimeUnit::Microsecond),
            Self::Text => true,
            _ => false,
        }
    }
}

/// Returns how many decimals of a second a unit has.
pub(crate) fn count_decimals(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Returns the name of a field's type.
#[must_use]
pub fn name_type(field: &Field) -> String {
    let extension = field.metadata().get(EXTENSION).map(|name| format!("extension<{name}>"));
    extension.unwrap_or_else(|| field.data_type().to_string())
}
