#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corewire_testkit::kcp_fuzz::kcp(data));
