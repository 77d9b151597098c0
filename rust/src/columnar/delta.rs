//! Checks the lengths of byte strings in delta encodings before the decoder takes memory for as many as they claim.
//!
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>

use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::encrypted::{take_varint, unfold};

/// The most lengths of a page. The decoder takes memory for all of them at once.
const MOST_LENGTHS: u64 = 64 << 20;

/// Returns how many bytes the values of a page repeat of the values before them. None if the page has more lengths than
/// values, too many, or damaged ones. `levels` are the greatest repetition and definition level.
pub(crate) fn count_repeated(page: &Page, levels: [i16; 2]) -> Option<u64> {
    let (most, mut repeated) = (MOST_LENGTHS.min(page.num_values().into()), 0);
    match page.encoding() {
        Encoding::DELTA_BYTE_ARRAY => {
            let lengths = read_numbers(find_values(page, levels)?, most, Some(&mut repeated))?;
            read_numbers(lengths, most, None)?;
        }
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            read_numbers(find_values(page, levels)?, most, None)?;
        }
        _ => {}
    }
    Some(repeated)
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

/// Returns what follows numbers in the encoding `DELTA_BINARY_PACKED`, and adds them to a sum. None if they are more than
/// `most`, or damaged, or if one that is added is negative.
fn read_numbers<'a>(mut bytes: &'a [u8], most: u64, mut sum: Option<&mut u64>) -> Option<&'a [u8]> {
    let (block, parts, count) = (take_varint(&mut bytes)?, take_varint(&mut bytes)?, take_varint(&mut bytes)?);
    let mut number = unfold(take_varint(&mut bytes)?);
    let in_part = block.checked_div(parts)?;
    if count > most || in_part == 0 {
        return None;
    }
    if let (Some(sum), true) = (&mut sum, count > 0) {
        **sum = sum.checked_add(u64::try_from(number).ok()?)?;
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let least = unfold(take_varint(&mut bytes)?);
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        bytes = rest;
        for &width in widths {
            // Parts behind the last number have a width, and no bytes.
            let here = in_part.min(left);
            if here == 0 {
                break;
            }
            // The last part may be cut.
            let length = usize::try_from(in_part.checked_mul(u64::from(width))?.div_ceil(8)).ok()?.min(bytes.len());
            let (packed, rest) = bytes.split_at(length);
            bytes = rest;
            if let Some(sum) = &mut sum {
                for at in 0..here {
                    number = number.wrapping_add(least).wrapping_add(unpack(packed, at, width)?);
                    **sum = sum.checked_add(u64::try_from(number).ok()?)?;
                }
            }
            left -= here;
        }
    }
    Some(bytes)
}

/// Returns a number of so many bits. What has been cut is 0.
fn unpack(packed: &[u8], at: u64, width: u8) -> Option<i64> {
    let start = at.checked_mul(u64::from(width))?;
    let bytes = packed.get(usize::try_from(start / 8).ok()?..).unwrap_or_default();
    let mut word = [0; 16];
    let length = bytes.len().min(word.len());
    word[..length].copy_from_slice(&bytes[..length]);
    let number = u128::from_le_bytes(word) >> (start % 8) & ((1 << width.min(64)) - 1);
    u64::try_from(number).ok().map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_that_are_packed() {
        // Three lengths (0, 5 and 11) by blocks of 128 in 4 parts, of which the first has one bit for each.
        let prefixes = [0x80, 1, 4, 3, 0, 10, 1, 0, 0, 0, 2, 0, 0, 0];
        let none = [0x80, 1, 4, 0, 0];
        let count = |num_values, buf: &[u8]| {
            let (encoding, buf) = (Encoding::DELTA_BYTE_ARRAY, buf.to_vec().into());
            let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
            let page =
                Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics: None };
            count_repeated(&page, [0, 0])
        };
        assert_eq!(count(3, &[&prefixes[..], &none].concat()), Some(16));
        assert_eq!(count(2, &[&prefixes[..], &none].concat()), None);
        assert_eq!(count(3, &prefixes), None);
    }
}
