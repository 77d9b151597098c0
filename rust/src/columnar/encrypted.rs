//! Checks the footer of a Parquet file before it is decoded: whether it is whole, and whether the file is encrypted.
//!
//! The decoder ignores the fields that say that columns are encrypted, and takes memory for as many elements as a list
//! claims to have. The footer is in Thrift's compact protocol.

/// Where an element of the schema is, and the number of its children. A path has the numbers of fields, and 0 for what is
/// in a list.
const ELEMENT: &[i64] = &[2, 0];
const CHILDREN: &[i64] = &[2, 0, 5];
/// Where the header of a page has its length, decompressed.
const PAGE_BYTES: &[i64] = &[2];
/// `encryption_algorithm` of the file, and `crypto_metadata` and `encrypted_column_metadata` of a column chunk.
const SECRETS: [&[i64]; 3] = [&[8], &[4, 0, 1, 0, 8], &[4, 0, 1, 0, 9]];

/// The metadata of a column chunk, of which the fields from this one on are not needed: bloom filters and statistics.
const COLUMN: &[i64] = &[4, 0, 1, 0, 3];
const UNNEEDED: i64 = 14;

const BYTE: u8 = 3;
const STRUCT: u8 = 12;

/// Deeper values are not followed: footers have at most six levels.
const MOST_DEPTH: usize = 16;
/// The most groups of the schema in each other. The decoder goes through them recursively.
const MOST_GROUPS: usize = 64;

/// Returns whether a footer says that columns of the file are encrypted. None for what is no footer.
///
/// Fields of columns that the decoder reads and nobody needs get other numbers, so that it skips them: some writers have
/// given these numbers to fields of their own.
pub(crate) fn check_footer(footer: &mut [u8]) -> Option<bool> {
    let Reader { is_encrypted, unneeded, .. } = read_struct(footer)?;
    for at in unneeded {
        footer[at] |= 0xf0;
    }
    Some(is_encrypted)
}

/// Returns what reading a struct at the start of bytes finds. None if it is not whole: the decoder would go through as many
/// elements as a list claims to have.
pub(crate) fn read_struct(bytes: &[u8]) -> Option<Reader<'_>> {
    let most = i64::try_from(bytes.len()).ok()?;
    let mut reader = Reader { bytes, most, ..Reader::default() };
    reader.skip(STRUCT)?;
    Some(reader)
}

#[derive(Default)]
pub(crate) struct Reader<'a> {
    /// What has not been read.
    pub(crate) bytes: &'a [u8],
    /// The length of the footer: it has fewer elements than bytes.
    most: i64,
    path: Vec<i64>,
    is_encrypted: bool,
    /// The places of the first field in each column that is not needed. The numbers of others are counted from its.
    unneeded: Vec<usize>,
    /// How many children the element of the schema has, and how many each group around it has left.
    children: i64,
    groups: Vec<i64>,
    pub(crate) page_bytes: i64,
}

impl Reader<'_> {
    fn skip(&mut self, kind: u8) -> Option<()> {
        self.is_encrypted |= SECRETS.contains(&&self.path[..]);
        match kind {
            BYTE => self.take(1).map(drop),
            4..=6 => {
                let number = self.number()?;
                match &self.path[..] {
                    CHILDREN if number >= self.most => return None,
                    CHILDREN => self.children = number,
                    PAGE_BYTES => self.page_bytes = number,
                    _ => {}
                }
                Some(())
            }
            7 => self.take(8).map(drop),
            8 => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?).map(drop)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.skip_in(0, head & 15))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| self.skip_in(0, kinds >> 4).and_then(|()| self.skip_in(0, kinds & 15)))
            }
            STRUCT => {
                let mut field = 0;
                loop {
                    let (before, head) = (field, self.byte()?);
                    field = match head >> 4 {
                        _ if head == 0 && self.path == ELEMENT => return self.end_element(),
                        _ if head == 0 => return Some(()),
                        0 => self.number()?,
                        more => before + i64::from(more),
                    };
                    if before < UNNEEDED && field >= UNNEEDED && head >> 4 > 0 && self.path == COLUMN {
                        self.unneeded.push(usize::try_from(self.most).ok()? - self.bytes.len() - 1);
                    }
                    // A boolean's type says whether it is true.
                    if !matches!(head & 15, 1 | 2) {
                        self.skip_in(field, head & 15)?;
                    }
                }
            }
            _ => None,
        }
    }

    /// Counts an element of the schema, whose children follow. None if it is in too many groups.
    fn end_element(&mut self) -> Option<()> {
        if let Some(left) = self.groups.last_mut() {
            *left -= 1;
        }
        self.groups.push(std::mem::take(&mut self.children).max(0));
        while self.groups.pop_if(|left| *left == 0).is_some() {}
        (self.groups.len() <= MOST_GROUPS).then_some(())
    }

    /// Skips a value in another one. In a list or map, a boolean takes a byte.
    fn skip_in(&mut self, field: i64, kind: u8) -> Option<()> {
        if self.path.len() == MOST_DEPTH {
            return None;
        }
        self.path.push(field);
        self.skip(if kind <= 2 { BYTE } else { kind })?;
        self.path.pop();
        Some(())
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
        take_varint(&mut self.bytes)
    }

    /// Reads a signed number, whose sign is in its lowest bit.
    fn number(&mut self) -> Option<i64> {
        self.varint().map(unfold)
    }
}

/// Takes a number from the start of bytes: seven bits of each byte, the lowest first.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

/// Returns a signed number, whose sign is in the lowest bit of this one.
pub(crate) fn unfold(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_encrypted(footer: &[u8]) -> Option<bool> {
        check_footer(&mut footer.to_vec())
    }

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
    fn fields_that_are_not_needed_get_other_numbers() {
        let chunk = |head: u8| [&[0x3c, 0xd6, 2][..], &[head, 0x1c, 0, 0x15, 2, 0, 0]].concat();
        let mut found = footer(&chunk(0x29), &[]);
        assert_eq!(check_footer(&mut found), Some(false));
        assert_eq!(found, footer(&chunk(0xf9), &[]));
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

    #[test]
    fn groups_that_are_too_deep_are_refused() {
        let group = [0x35, 0, 0x18, 1, b'a', 0x15, 2, 0];
        let leaf = [0x15, 2, 0x25, 0, 0x18, 1, b'a', 0];
        let nested = |depth: u8| {
            // A root with a group in it, in which there are two trees.
            let root = [0x48, 1, b'r', 0x15, 2, 0, 0x35, 0, 0x18, 1, b'a', 0x15, 4, 0];
            let tree = [group.repeat(usize::from(depth) - 2), leaf.to_vec()].concat();
            [&[0x15, 2, 0x19, 0xfc, (2 * depth) | 128, depth >> 6][..], &root, &tree, &tree, &[0]].concat()
        };
        assert_eq!((is_encrypted(&nested(64)), is_encrypted(&nested(65))), (Some(false), None));
    }
}
