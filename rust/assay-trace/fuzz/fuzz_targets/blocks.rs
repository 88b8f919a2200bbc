#![no_main]
#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for format in ["blkparse", "msr", "alibaba"] {
        common::use_text(format, text);
    }
});
