//! Checks the footer of a Parquet file before it is decoded: whether it is whole, and whether the file is encrypted.
//!
//! The decoder ignores the fields that say that columns are encrypted, and takes memory for as many elements as a list
//! claims to have. The footer is in Thrift's compact protocol.

const FILE_SCHEMA: i64 = 2;
const SCHEMA_CHILDREN: i64 = 5;
const FILE_GROUPS: i64 = 4;
const FILE_ALGORITHM: i64 = 8;
const GROUP_COLUMNS: i64 = 1;
/// `crypto_metadata` and `encrypted_column_metadata` of a column chunk.
const CHUNK_SECRETS: [i64; 2] = [8, 9];

const BYTE: u8 = 3;
const I32: u8 = 5;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Deeper values are not followed: footers have at most six levels.
const MOST_DEPTH: usize = 16;

/// Returns whether a footer says that columns of the file are encrypted. None for what is no footer.
pub(crate) fn is_encrypted(footer: &[u8]) -> Option<bool> {
    let most = i64::try_from(footer.len()).ok()?;
    Reader { bytes: footer, most, depth: 0, is_encrypted: false }.read_file()
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// The length of the footer: it has fewer elements than bytes.
    most: i64,
    depth: usize,
    is_encrypted: bool,
}

impl Reader<'_> {
    fn read_file(mut self) -> Option<bool> {
        self.read_struct(|reader, field, kind| match (field, kind) {
            (FILE_SCHEMA, LIST) => reader.read_structs(Self::read_element),
            (FILE_GROUPS, LIST) => reader.read_structs(Self::read_group),
            (FILE_ALGORITHM, STRUCT) => reader.note(kind),
            _ => reader.skip(kind),
        })?;
        Some(self.is_encrypted)
    }

    fn read_element(&mut self) -> Option<()> {
        self.read_struct(|reader, field, kind| match (field, kind) {
            (SCHEMA_CHILDREN, I32) => reader.number().filter(|&count| count < reader.most).map(drop),
            _ => reader.skip(kind),
        })
    }

    fn read_group(&mut self) -> Option<()> {
        self.read_struct(|reader, field, kind| match (field, kind) {
            (GROUP_COLUMNS, LIST) => {
                reader.read_structs(|reader| {
                    reader.read_struct(|reader, field, kind| {
                        if CHUNK_SECRETS.contains(&field) {
                            reader.note(kind)
                        } else {
                            reader.skip(kind)
                        }
                    })
                })
            }
            _ => reader.skip(kind),
        })
    }

    fn note(&mut self, kind: u8) -> Option<()> {
        self.is_encrypted = true;
        self.skip(kind)
    }

    /// Calls `read` with the number and type of each field. `read` must read or skip the field.
    fn read_struct(&mut self, mut read: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        self.depth += 1;
        let mut field = 0;
        while self.depth < MOST_DEPTH {
            let head = self.byte()?;
            if head == 0 {
                self.depth -= 1;
                return Some(());
            }
            field = if head >> 4 == 0 { self.number()? } else { field + i64::from(head >> 4) };
            read(self, field, head & 15)?;
        }
        None
    }

    fn read_structs(&mut self, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let (count, kind) = self.list()?;
        if kind != STRUCT {
            return if count == 0 { Some(()) } else { None };
        }
        (0..count).try_for_each(|_| read(self))
    }

    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            // A boolean's type says whether it is true.
            1 | 2 => Some(()),
            BYTE => self.take(1).map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8).map(drop),
            BINARY => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?).map(drop)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind))
            }
            MAP => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4)?;
                    self.skip_element(kinds & 15)
                })
            }
            STRUCT => self.read_struct(|reader, _, kind| reader.skip(kind)),
            _ => None,
        }
    }

    fn skip_element(&mut self, kind: u8) -> Option<()> {
        self.depth += 1;
        // In a list, a boolean takes a byte.
        let skipped = if self.depth < MOST_DEPTH { self.skip(if kind <= 2 { BYTE } else { kind }) } else { None };
        self.depth -= 1;
        skipped
    }

    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((count, head & 15))
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed number, whose sign is in its lowest bit.
    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with one row group and one column, as pyarrow writes it, but without the parts that are skipped.
    fn footer(chunk: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[0x49, 0x1c, 0x19, 0x1c], chunk, &[0, 0x16, 220, 1, 0], rest, &[0]].concat()
    }

    #[test]
    fn encryption_is_seen_in_the_file_and_in_a_column() {
        let chunk = [0x3c, 0x15, 0x0c, 0x29, 0x28, 1, b'a', 1, b'b', 0];
        assert_eq!(is_encrypted(&footer(&chunk, &[])), Some(false));
        assert_eq!(is_encrypted(&footer(&chunk, &[0x4c, 0x1c, 0, 0])), Some(true));
        assert_eq!(is_encrypted(&footer(&[&chunk[..], &[0x5c, 0x1c, 0, 0]].concat(), &[])), Some(true));
        assert_eq!(is_encrypted(&footer(&[0x8c, 0x1c, 0, 0], &[])), Some(true));
    }

    #[test]
    fn whatever_is_cut_or_flipped_is_an_answer() {
        let whole = footer(&[0x3c, 0x15, 0x0c, 0], &[0x4c, 0x1c, 0, 0]);
        for at in 0..whole.len() {
            assert_eq!(is_encrypted(&whole[..at]), None);
            for byte in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                is_encrypted(&damaged);
            }
        }
        assert_eq!((is_encrypted(&[0x19; 99]), is_encrypted(&[0x1c; 99])), (None, None));
    }
}
