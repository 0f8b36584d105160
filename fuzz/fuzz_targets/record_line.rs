#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = signalbox_record::Reader::<_, String>::new(data).map(Iterator::count);
});
