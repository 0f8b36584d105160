#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_mapping::fuzz::nat_pmp_message(data));
