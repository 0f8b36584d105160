#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_mapping::fuzz::pcp_message(data));
