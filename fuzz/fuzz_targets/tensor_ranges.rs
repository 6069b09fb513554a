#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cann_node_fuzz::tensor_ranges(data);
});
