#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| signalbox_rsvp::fuzz::rsvp_engine(data));
