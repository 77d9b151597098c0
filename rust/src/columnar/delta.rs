//! Checks the lengths of byte strings in delta encodings before the decoder takes memory for as many as they claim.
//!
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>

use parquet::basic::Encoding;
use parquet::column::page::Page;

/// Returns whether the values of a page have no more lengths than the page has values, if they have lengths. `levels` are
/// the greatest repetition and definition level.
pub(crate) fn has_plausible_lengths(page: &Page, levels: [i16; 2]) -> bool {
    let streams = match page.encoding() {
        Encoding::DELTA_BYTE_ARRAY => 2,
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        _ => return true,
    };
    let most = u64::from(page.num_values());
    let mut left = find_values(page, levels);
    for _ in 0..streams {
        left = left.and_then(|left| skip_numbers(left, most));
    }
    left.is_some()
}

/// Returns the bytes behind the levels.
fn find_values(page: &Page, levels: [i16; 2]) -> Option<&[u8]> {
    match page {
        Page::DataPageV2 { buf, rep_levels_byte_len, def_levels_byte_len, .. } => {
            buf.get(*rep_levels_byte_len as usize + *def_levels_byte_len as usize..)
        }
        Page::DataPage { buf, num_values, rep_level_encoding, def_level_encoding, .. } => {
            let mut left = &buf[..];
            for (most, encoding) in levels.into_iter().zip([rep_level_encoding, def_level_encoding]) {
                if most > 0 && *encoding == Encoding::RLE {
                    let (length, rest) = left.split_first_chunk::<4>()?;
                    left = rest.get(u32::from_le_bytes(*length) as usize..)?;
                } else if most > 0 {
                    // Bits without a length, as before version 2 of the format.
                    let bits = u64::from(16 - most.leading_zeros()) * u64::from(*num_values);
                    left = left.get(usize::try_from(bits.div_ceil(8)).ok()?..)?;
                }
            }
            Some(left)
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// Returns what follows numbers in the encoding `DELTA_BINARY_PACKED`. None if they are more than `most`, or damaged.
fn skip_numbers(mut bytes: &[u8], most: u64) -> Option<&[u8]> {
    let (block, parts, count) = (take_varint(&mut bytes)?, take_varint(&mut bytes)?, take_varint(&mut bytes)?);
    take_varint(&mut bytes)?;
    let in_part = block.checked_div(parts)?;
    if count > most || in_part == 0 {
        return None;
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        take_varint(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        bytes = rest;
        // Parts behind the last number have a width, and no bytes.
        for &width in widths {
            if left == 0 {
                break;
            }
            let length = in_part.checked_mul(u64::from(width))?.div_ceil(8);
            // The last part may be cut.
            bytes = bytes.get(usize::try_from(length).ok()?.min(bytes.len())..)?;
            left = left.saturating_sub(in_part);
        }
    }
    Some(bytes)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
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
