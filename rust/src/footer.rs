//! Reads the footer of a Parquet file: the sizes of its row groups and of their columns, and whether the file is
//! encrypted.
//!
//! Source: parquet-format's `parquet.thrift` (`FileMetaData`), in Thrift's compact protocol. pyarrow is not used for
//! this, because its accessors of a column's metadata can end the process: for encrypted columns, and for some damaged
//! footers.

use thiserror::Error;

const BYTE_ARRAY: i64 = 6;

/// The deepest nesting of structs that is read. The structs of valid footers are not nested so deep.
const MOST_DEPTH: usize = 32;

/// The types of Thrift's compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FooterError {
    #[error("the footer ends before its last field")]
    Truncated,
    #[error("the footer has a field of an unknown type")]
    UnknownType,
    #[error("the footer is nested too deep")]
    TooDeep,
    #[error("the footer has a column without metadata")]
    NoMetadata,
    #[error("the footer has a negative number of rows")]
    NegativeRows,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Whether any part of the file is encrypted.
    pub is_encrypted: bool,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub rows: i64,
    /// The size of the decompressed data.
    pub size_bytes: i64,
    pub chunks: Vec<Chunk>,
}

/// The part of a column that is in a row group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The names of the structs that contain the column, and its own name, separated by dots.
    pub path: String,
    /// Whether the values are byte strings of any length.
    pub has_strings: bool,
    /// Whether the values are looked up in a dictionary.
    pub has_dictionary: bool,
    pub values: i64,
    pub decompressed_bytes: i64,
    pub compressed_bytes: i64,
}

/// Returns the content of a footer. `bytes` are the footer without the last eight bytes of the file.
///
/// # Errors
///
/// The first part that is not valid.
pub fn read_footer(bytes: &[u8]) -> Result<Footer, FooterError> {
    let mut reader = Reader { bytes, depth: 0 };
    let mut footer = Footer::default();
    reader.read_struct(|reader, field, kind| {
        match (field, kind) {
            (4, LIST) => footer.groups = reader.read_structs(|reader| reader.read_group(&mut footer.is_encrypted))?,
            (8, STRUCT) => {
                footer.is_encrypted = true;
                reader.skip(kind)?;
            }
            _ => reader.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(footer)
}

struct Reader<'a> {
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    fn read_group(&mut self, is_encrypted: &mut bool) -> Result<Group, FooterError> {
        let mut group = Group::default();
        self.read_struct(|reader, field, kind| {
            match (field, kind) {
                (1, LIST) => group.chunks = reader.read_structs(|reader| reader.read_chunk(is_encrypted))?,
                (2, I64) => group.size_bytes = reader.number()?.max(0),
                (3, I64) => group.rows = reader.number()?,
                _ => reader.skip(kind)?,
            }
            Ok(())
        })?;
        if group.rows < 0 {
            return Err(FooterError::NegativeRows);
        }
        Ok(group)
    }

    fn read_chunk(&mut self, is_encrypted: &mut bool) -> Result<Chunk, FooterError> {
        let mut chunk = None;
        let mut is_hidden = false;
        self.read_struct(|reader, field, kind| {
            match (field, kind) {
                (3, STRUCT) => chunk = Some(reader.read_metadata()?),
                // The fields crypto_metadata and encrypted_column_metadata.
                (8, STRUCT) | (9, BINARY) => {
                    is_hidden = true;
                    reader.skip(kind)?;
                }
                _ => reader.skip(kind)?,
            }
            Ok(())
        })?;
        *is_encrypted |= is_hidden;
        match chunk {
            None if is_hidden => Ok(Chunk::default()),
            found => found.ok_or(FooterError::NoMetadata),
        }
    }

    fn read_metadata(&mut self) -> Result<Chunk, FooterError> {
        let mut chunk = Chunk::default();
        self.read_struct(|reader, field, kind| {
            match (field, kind) {
                (1, I32) => chunk.has_strings = reader.number()? == BYTE_ARRAY,
                (3, LIST) => chunk.path = reader.read_path()?,
                (5, I64) => chunk.values = reader.number()?.max(0),
                (6, I64) => chunk.decompressed_bytes = reader.number()?.max(0),
                (7, I64) => chunk.compressed_bytes = reader.number()?.max(0),
                (11, I64) => {
                    chunk.has_dictionary = true;
                    reader.skip(kind)?;
                }
                _ => reader.skip(kind)?,
            }
            Ok(())
        })?;
        Ok(chunk)
    }

    fn read_path(&mut self) -> Result<String, FooterError> {
        let (count, kind) = self.list()?;
        if kind != BINARY {
            return Err(FooterError::UnknownType);
        }
        let mut path = String::new();
        for index in 0..count {
            if index > 0 {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(self.binary()?));
        }
        Ok(path)
    }

    /// Calls `read` with the number and type of each field. `read` must read or skip the field.
    fn read_struct(
        &mut self,
        mut read: impl FnMut(&mut Self, i64, u8) -> Result<(), FooterError>,
    ) -> Result<(), FooterError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(FooterError::TooDeep);
        }
        let mut field = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                break;
            }
            field = if head >> 4 == 0 { self.number()? } else { field + i64::from(head >> 4) };
            read(self, field, head & 15)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn read_structs<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, FooterError>,
    ) -> Result<Vec<T>, FooterError> {
        let (count, kind) = self.list()?;
        if kind != STRUCT && count > 0 {
            return Err(FooterError::UnknownType);
        }
        // A wrong count does no harm: each element takes at least one byte, so reading ends when no bytes are left.
        (0..count).map(|_| read(self)).collect()
    }

    fn skip(&mut self, kind: u8) -> Result<(), FooterError> {
        match kind {
            TRUE | FALSE => {}
            BYTE => drop(self.byte()?),
            I16 | I32 | I64 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => drop(self.binary()?),
            LIST | SET => {
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    self.skip_element(kind)?;
                }
            }
            MAP => {
                let count = self.varint()?;
                if count > 0 {
                    let kinds = self.byte()?;
                    for _ in 0..count {
                        self.skip_element(kinds >> 4)?;
                        self.skip_element(kinds & 15)?;
                    }
                }
            }
            STRUCT => self.read_struct(|reader, _, kind| reader.skip(kind))?,
            _ => return Err(FooterError::UnknownType),
        }
        Ok(())
    }

    fn skip_element(&mut self, kind: u8) -> Result<(), FooterError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(FooterError::TooDeep);
        }
        // For a field, the type says whether a boolean is true, and no byte follows. In a list, a boolean takes a byte.
        self.skip(if kind == TRUE || kind == FALSE { BYTE } else { kind })?;
        self.depth -= 1;
        Ok(())
    }

    fn list(&mut self) -> Result<(u64, u8), FooterError> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Ok((count, head & 15))
    }

    fn binary(&mut self) -> Result<&'a [u8], FooterError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| FooterError::Truncated)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], FooterError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(FooterError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, FooterError> {
        Ok(self.take(1)?[0])
    }

    fn varint(&mut self) -> Result<u64, FooterError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(FooterError::Truncated)
    }

    /// Reads a signed number, whose sign is in its lowest bit.
    fn number(&mut self) -> Result<i64, FooterError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row group with one column "a.b", as pyarrow writes it, but without the parts that the reader skips.
    const CHUNK: &[u8] = &[
        0x3c, // 3: meta_data
        0x15, 0x0c, // 1: type, BYTE_ARRAY
        0x29, 0x28, 1, b'a', 1, b'b', // 3: path_in_schema
        0x26, 6, 0x16, 200, 1, 0x16, 80, // 5 to 7: num_values 3, 100 and 40 bytes
        0x46, 8, // 11: dictionary_page_offset
        0,
    ];

    fn footer(chunk: &[u8], rest: &[u8]) -> Vec<u8> {
        let group = [&[0x49, 0x1c, 0x19, 0x1c], chunk, &[0, 0x16, 220, 1, 0x16, 4, 0]].concat();
        [&group, rest, &[0]].concat()
    }

    #[test]
    fn groups_and_their_columns_are_read() {
        let chunk = Chunk {
            path: "a.b".into(),
            has_strings: true,
            has_dictionary: true,
            values: 3,
            decompressed_bytes: 100,
            compressed_bytes: 40,
        };
        let group = Group { rows: 2, size_bytes: 110, chunks: vec![chunk] };
        assert_eq!(read_footer(&footer(CHUNK, &[])), Ok(Footer { is_encrypted: false, groups: vec![group] }));
    }

    #[test]
    fn encryption_is_seen_in_the_file_and_in_a_column() {
        // The footer has 8: encryption_algorithm. The column has 8: crypto_metadata, and lacks its metadata.
        assert!(read_footer(&footer(CHUNK, &[0x4c, 0x1c, 0, 0])).unwrap().is_encrypted);
        assert!(read_footer(&footer(&[CHUNK, &[0x5c, 0x1c, 0, 0]].concat(), &[])).unwrap().is_encrypted);
        assert!(read_footer(&footer(&[0x8c, 0x1c, 0, 0], &[])).unwrap().is_encrypted);
        assert_eq!(read_footer(&footer(&[], &[])), Err(FooterError::NoMetadata));
    }

    #[test]
    fn whatever_is_cut_or_flipped_is_an_answer() {
        let whole = footer(CHUNK, &[0x4c, 0x1c, 0, 0]);
        for length in 0..whole.len() {
            assert!(read_footer(&whole[..length]).is_err());
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                drop(read_footer(&damaged));
            }
        }
        assert_eq!(read_footer(&[0x19; 99]), Err(FooterError::TooDeep));
        assert_eq!(read_footer(&[0x1c; 99]), Err(FooterError::TooDeep));
    }
}
