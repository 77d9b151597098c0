//! Sixty-four bytes at a time: which of them equal a byte, as a mask of 64 bits.

use wide::u8x16;

/// How many bytes one mask tells of.
pub const WORD: usize = 64;

const LANE: usize = 16;

/// One word of bytes, ready to be compared.
pub struct Lanes([u8x16; WORD / LANE]);

impl Lanes {
    #[must_use]
    pub fn load(bytes: &[u8; WORD]) -> Self {
        Self(std::array::from_fn(|lane| u8x16::new(std::array::from_fn(|index| bytes[lane * LANE + index]))))
    }

    /// The mask of the bytes equal to `byte`, bit i for byte i.
    #[must_use]
    pub fn equal(&self, byte: u8) -> u64 {
        let wanted = u8x16::splat(byte);
        let mut mask = 0;
        for (lane, bytes) in self.0.iter().enumerate() {
            mask |= u64::from(bytes.simd_eq(wanted).to_bitmask()) << (lane * LANE);
        }
        mask
    }
}
