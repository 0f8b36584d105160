#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_qos::fuzz::qos_engine(data));
