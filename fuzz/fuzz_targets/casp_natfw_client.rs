#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_casp::fuzz::casp_natfw_client(data));
