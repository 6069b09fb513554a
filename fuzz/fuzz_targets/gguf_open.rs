#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cann_node_fuzz::gguf_open(data);
});
