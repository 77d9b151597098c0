//! Checks that hold for any bytes: a file is read to its end, or is refused.
//!
//! They are searched and repeated as those of `crate::proofs` are. A file (rust/fuzz/template.parquet) is changed in one
//! place, so that what is changed is reached.

use std::sync::Arc;

use bytes::Bytes;

use super::binary::choose_wire;
use super::file::File;
use super::rows::{Form, Rows, Sent};
use super::text::Target;
use super::Source;

const TEMPLATE: &[u8] = include_bytes!("../../fuzz/template.parquet");
/// A damaged file may claim any number of rows.
const MOST_BLOCKS: usize = 50;

struct Memory(Bytes);

impl Source for Memory {
    fn read_at(&self, start: u64, length: usize) -> Option<Bytes> {
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(self.0.len());
        Some(self.0.slice(start..start.saturating_add(length).min(self.0.len())))
    }
}

/// Reads a file whose footer is these bytes.
///
/// # Panics
///
/// Never: a panic of a decoder is an error of the file.
pub fn footer(data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes();
    read(&[&TEMPLATE[..footer_place()], data, &length, b"PAR1"].concat(), true);
}

/// Reads a file in which these bytes are in the place of all pages of a column, which the first byte chooses.
///
/// # Panics
///
/// Never, as above.
pub fn page(data: &[u8]) {
    let Some((&column, pages)) = data.split_first() else {
        return;
    };
    let (mut changed, places) = (TEMPLATE.to_vec(), chunk_places());
    let (start, length) = places[usize::from(column) % places.len()];
    let length = length.min(pages.len());
    changed[start..start + length].copy_from_slice(&pages[..length]);
    read(&changed, true);
}

/// Reads an Arrow file.
///
/// # Panics
///
/// Never, as above.
pub fn arrow(data: &[u8]) {
    read(data, false);
}

fn footer_place() -> usize {
    let end = TEMPLATE.len() - 8;
    let length = u32::from_le_bytes(TEMPLATE[end..end + 4].try_into().unwrap_or_default());
    end - length as usize
}

fn chunk_places() -> Vec<(usize, usize)> {
    let footer = &TEMPLATE[footer_place()..TEMPLATE.len() - 8];
    let metadata = parquet::file::metadata::ParquetMetaDataReader::decode_metadata(footer);
    let chunks = metadata.into_iter().flat_map(|metadata| metadata.row_group(0).columns().to_vec());
    let places = chunks.map(|chunk| chunk.byte_range());
    places.map(|(start, length)| (usize::try_from(start).unwrap_or(0), usize::try_from(length).unwrap_or(0))).collect()
}

fn read(data: &[u8], is_parquet: bool) {
    let source = Arc::new(Memory(Bytes::copy_from_slice(data)));
    let Ok(file) = File::open(source, data.len() as u64, is_parquet).map(Arc::new) else {
        return;
    };
    for (column, told) in file.columns.iter().enumerate() {
        let Some(name) = told.kind.sql_type() else {
            continue;
        };
        let forms = choose_wire(&told.kind, &name).map(|wire| Form::Binary(vec![wire]));
        for form in forms.into_iter().chain([Form::Text { rejects: true }]) {
            let sent = vec![Sent { column, kind: told.kind.clone(), target: Target::new(&name) }];
            let mut rows = Rows::new(file.clone(), sent, form, &[(0, file.rows)], 4_096);
            let mut left = MOST_BLOCKS;
            while left > 0 && rows.next_block().is_ok_and(|block| block.is_some()) {
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn kept_inputs_hold() {
        crate::proofs::tests::hold("footer", super::footer);
        crate::proofs::tests::hold("page", super::page);
        crate::proofs::tests::hold("arrow", super::arrow);
    }

    #[test]
    fn the_template_is_read() {
        let footer = &super::TEMPLATE[super::footer_place()..super::TEMPLATE.len() - 8];
        assert!(super::chunk_places().len() > 12);
        super::footer(footer);
    }
}
