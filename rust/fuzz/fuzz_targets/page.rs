#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| penstock_native_fuzz::columnar::proofs::page(data));
