#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corewire_testkit::rpc_fuzz::rpc_input(data));
