//! Sixty-four bytes at a time: which of them equal a byte, as a mask of 64 bits.
//!
//! Every build has lanes of 128 bits; x86-64 processors since 2013 also have AVX2's of 256, chosen while it runs.

use wide::u8x16;

/// How many bytes one mask tells of.
pub const WORD: usize = 64;

const LANE: usize = 16;

/// One word of bytes, ready to be compared.
pub trait Lanes {
    #[must_use]
    fn load(bytes: &[u8; WORD]) -> Self;

    /// The mask of the bytes equal to `byte`, bit i for byte i.
    #[must_use]
    fn equal(&self, byte: u8) -> u64;

    /// The mask of the bytes that are not ASCII.
    #[must_use]
    fn high(&self) -> u64;
}

/// For each bit, whether an odd number of bits are set up to and with it: inside quotes.
#[inline(always)]
pub(crate) fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Work on words. What `run` calls for each word must be `#[inline(always)]`, or it is compiled without AVX2.
pub trait Work {
    type Output;

    fn run<L: Lanes>(self) -> Self::Output;
}

/// Do the work with the widest lanes that this processor has; with the feature portable-lanes with those of all.
pub fn with_widest<W: Work>(work: W) -> W::Output {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-lanes")))]
    let work = match avx2::with_avx2(work) {
        Ok(output) => return output,
        Err(work) => work,
    };
    work.run::<Narrow>()
}

/// Four lanes of 128 bits: SSE2, NEON, or what the compiler makes of them elsewhere.
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

/// The one place with unsafe code: the compiler cannot know what processor it will run on.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-lanes")))]
#[allow(unsafe_code)]
mod avx2 {
    use std::arch::x86_64::{__m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8};

    use super::{Lanes, Work, WORD};

    /// Two lanes of 256 bits. Private, so that only `run_with_avx2` can name it and only where AVX2 is.
    struct Wide([__m256i; 2]);

    pub fn with_avx2<W: Work>(work: W) -> Result<W::Output, W> {
        let is_there = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        if is_there {
            // SAFETY: the processor has just been asked for what the function is compiled for.
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
            // SAFETY: `run_with_avx2` alone names this type; 32 bytes are read of each half, which has as many.
            unsafe { Self([_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())]) }
        }

        #[inline(always)]
        fn equal(&self, byte: u8) -> u64 {
            // SAFETY: `run_with_avx2` alone names this type.
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
            // SAFETY: `run_with_avx2` alone names this type.
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
