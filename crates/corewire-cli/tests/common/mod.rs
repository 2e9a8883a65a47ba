//! What the tests of `corewire bench` share.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The rows of a short benchmark, all of them valid.
pub(crate) fn bench(name: &str, arguments: &[&str]) -> Vec<Value> {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}.json"));
    let output = Command::new(env!("CARGO_BIN_EXE_corewire"))
        .arg("bench")
        .args(arguments)
        .args(["--warmup", "10ms", "--duration", "100ms", "--repeats", "1", "--json", json.to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    rows.as_array().unwrap().clone()
}
