#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_ping::fuzz::nsis_message(data));
