#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_node::fuzz::casp_dns(data));
