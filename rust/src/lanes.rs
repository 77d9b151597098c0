//! Compares 64 bytes at a time with a byte. The result is a mask of 64 bits.
//!
//! Every build has lanes of 128 bits. x86-64 processors since 2013 also have AVX2, with lanes of 256 bits. Whether the
//! processor has AVX2 is found out when the program runs.

use wide::u8x16;

/// How many bytes a word has. A mask has one bit for each of them.
pub const WORD: usize = 64;

const LANE: usize = 16;

/// A word whose bytes have been loaded for comparisons.
pub trait Lanes {
    #[must_use]
    fn load(bytes: &[u8; WORD]) -> Self;

    /// Returns the mask of the bytes that are equal to `byte`. Bit i is for byte i.
    #[must_use]
    fn equal(&self, byte: u8) -> u64;

    /// Returns the mask of the bytes that are not ASCII.
    #[must_use]
    fn high(&self) -> u64;
}

/// Sets each bit for which the number of set bits, from the lowest bit up to this bit, is odd. Applied to a mask of
/// quotes, this gives the mask of the bytes inside quotes.
#[inline(always)]
pub(crate) fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Work that is done word by word. A function that `run` calls for each word must be `#[inline(always)]`. Otherwise it
/// is compiled without AVX2.
pub trait Work {
    type Output;

    fn run<L: Lanes>(self) -> Self::Output;
}

/// Does the work with the widest lanes that this processor has. With the feature portable-lanes, only lanes that all
/// processors have are used.
pub fn with_widest<W: Work>(work: W) -> W::Output {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-lanes")))]
    let work = match avx2::with_avx2(work) {
        Ok(output) => return output,
        Err(work) => work,
    };
    work.run::<Narrow>()
}

/// The features of this processor that the core was compiled for, or has found and uses.
#[must_use]
pub fn used_features() -> Vec<&'static str> {
    let mut found = Vec::new();
    for (name, is_compiled) in [
        ("sse4.2", cfg!(target_feature = "sse4.2")),
        ("popcnt", cfg!(target_feature = "popcnt")),
        ("neon", cfg!(target_feature = "neon")),
    ] {
        found.extend(is_compiled.then_some(name));
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-lanes")))]
    if avx2::is_there() {
        found.extend(["avx2", "bmi1", "bmi2", "lzcnt"]);
    }
    found
}

/// Four lanes of 128 bits: SSE2, NEON, or the instructions that the compiler uses on processors without these.
pub struct Narrow([u8x16; WORD / LANE]);

impl Lanes for Narrow {
    #[inline(always)]
    fn load(bytes: &[u8; WORD]) -> Self {
        Self(std::array::from_fn(|lane| u8x16::new(std::array::from_fn(|index| bytes[lane * LANE + index]))))
    }

    #[inline(always)]
    fn equal(&self, byte: u8) -> u64 {
        let wanted = u8x16::splat(byte);
        let mut mask = 0;
        for (lane, bytes) in self.0.iter().enumerate() {
            mask |= u64::from(bytes.simd_eq(wanted).to_bitmask()) << (lane * LANE);
        }
        mask
    }

    #[inline(always)]
    fn high(&self) -> u64 {
        self.0.iter().enumerate().fold(0, |mask, (lane, bytes)| mask | u64::from(bytes.to_bitmask()) << (lane * LANE))
    }
}

/// Of the lanes, this module alone has unsafe code. The compiler cannot know whether the processor has AVX2.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-lanes")))]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::{__m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8};

    use super::{Lanes, Work, WORD};

    /// Two lanes of 256 bits. The type is private, so that only `run_with_avx2` can use it, on processors that have
    /// AVX2.
    struct Wide([__m256i; 2]);

    pub fn is_there() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
    }

    pub fn with_avx2<W: Work>(work: W) -> Result<W::Output, W> {
        if is_there() {
            // SAFETY: the processor has the features for which the function is compiled. The condition above has
            // checked this.
            Ok(unsafe { run_with_avx2(work) })
        } else {
            Err(work)
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn run_with_avx2<W: Work>(work: W) -> W::Output {
        work.run::<Wide>()
    }

    impl Lanes for Wide {
        #[inline(always)]
        fn load(bytes: &[u8; WORD]) -> Self {
            let (low, high) = bytes.split_at(WORD / 2);
            // SAFETY: only `run_with_avx2` uses this type. 32 bytes are read of each half, which has 32 bytes.
            unsafe { Self([_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())]) }
        }

        #[inline(always)]
        fn equal(&self, byte: u8) -> u64 {
            // SAFETY: only `run_with_avx2` uses this type.
            let (low, high) = unsafe {
                let wanted = _mm256_set1_epi8(byte.cast_signed());
                (
                    _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.0[0], wanted)).cast_unsigned(),
                    _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.0[1], wanted)).cast_unsigned(),
                )
            };
            u64::from(low) | u64::from(high) << (WORD / 2)
        }

        #[inline(always)]
        fn high(&self) -> u64 {
            // SAFETY: only `run_with_avx2` uses this type.
            let [low, high] = unsafe { self.0.map(|half| _mm256_movemask_epi8(half).cast_unsigned()) };
            u64::from(low) | u64::from(high) << (WORD / 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Masks<'a>(&'a [u8; WORD], u8);

    impl Work for Masks<'_> {
        type Output = (u64, u64);

        fn run<L: Lanes>(self) -> (u64, u64) {
            let lanes = L::load(self.0);
            (lanes.equal(self.1), lanes.high())
        }
    }

    #[test]
    fn lanes_of_every_width_tell_the_same() {
        let mut bytes = [0; WORD];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(index * 37 % 7 + if index % 5 == 0 { 0xf9 } else { 0 }).unwrap_or(0xff);
        }
        let mask_of =
            |is_set: &dyn Fn(u8) -> bool| bytes.iter().rev().fold(0, |mask, &byte| mask << 1 | u64::from(is_set(byte)));
        for wanted in 0..=u8::MAX {
            let expected = (mask_of(&|byte| byte == wanted), mask_of(&|byte| !byte.is_ascii()));
            assert_eq!(Masks(&bytes, wanted).run::<Narrow>(), expected, "{wanted}");
            assert_eq!(with_widest(Masks(&bytes, wanted)), expected, "{wanted}");
        }
    }
}
