//! A registry read from a file that changes.
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]

use corewire_discovery::{
    Change, Endpoint, FileOptions, FileRegistry, RegisterOptions, Registry, RegistryError,
};
use futures_lite::future::block_on;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A directory of the test's own that goes with it.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, new) = (self.0.join(name), self.0.join("new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A registry that only looks when it is told to.
fn open(path: PathBuf) -> Result<FileRegistry, RegistryError> {
    let options = FileOptions { poll_interval: Duration::from_secs(3600), ..FileOptions::default() };
    FileRegistry::with_options(path, options)
}

fn listed(registry: &FileRegistry, service: &str) -> Vec<String> {
    let snapshot = block_on(registry.discover(service)).unwrap();
    let mut all: Vec<_> =
        snapshot.iter().map(|e| format!("{}={}*{}", e.instance(), e.address(), e.weight())).collect();
    all.sort();
    all
}

const TOML: &str = r#"
    [[endpoints]]
    service = "Echo"
    address = "10.0.0.1:7000"

    [[endpoints]]
    service = "Echo"
    instance = "b"
    address = "[::1]:7000"
    weight = 0
    zone = "eu"
    tags = ["x", "a"]
"#;

#[test]
fn toml_and_json_say_the_same() {
    let dir = Dir::new("formats");
    let json = r#"{"endpoints": [{"service": "Echo", "address": "10.0.0.1:7000"},
        {"service": "Echo", "instance": "b", "address": "[::1]:7000", "weight": 0, "zone": "eu", "tags": ["x", "a"]}]}"#;
    for path in [dir.write("r.toml", TOML), dir.write("r.json", json)] {
        let registry = open(path).unwrap();
        assert_eq!(listed(&registry, "Echo"), ["10.0.0.1:7000=10.0.0.1:7000*100", "b=[::1]:7000*0"]);
        let snapshot = registry.catalog().snapshot("Echo");
        let b = snapshot.iter().find(|e| &**e.instance() == "b").unwrap();
        assert_eq!((b.zone(), b.tags().len()), (Some("eu"), 2));
        assert_eq!(block_on(registry.services()).unwrap(), ["Echo".into()]);
    }
}

#[test]
fn a_bad_entry_is_left_out_and_the_others_serve() {
    let dir = Dir::new("entries");
    let path = dir.write(
        "r.json",
        r#"{"endpoints": [
            {"service": "s", "instance": "good", "address": "h:1", "from a later version": true},
            {"service": "s", "instance": "no address"},
            {"service": "s", "instance": "bad/name", "address": "h:1"},
            {"service": "s", "instance": "heavy", "address": "h:1", "weight": 65536},
            {"service": "s", "instance": "negative", "address": "h:1", "weight": -1},
            {"service": "", "instance": "x", "address": "h:1"},
            {"service": "s", "instance": "port", "address": "h:0"},
            {"service": "s", "instance": "good", "address": "second:1"},
            {"service": "s", "instance": "twin", "address": "h:1"},
            7, null, [], "text"
        ]}"#,
    );
    assert_eq!(listed(&open(path).unwrap(), "s"), ["good=h:1*100", "twin=h:1*100"]);
    let toml =
        "endpoints = [{service = 's', address = 'h:1'}, 3, {service = 's'}, {address = 'h:1', service = 5}]";
    assert_eq!(listed(&open(dir.write("r.toml", toml)).unwrap(), "s"), ["h:1=h:1*100"]);
}

#[test]
fn a_change_of_the_file_is_told_as_single_changes() {
    let dir = Dir::new("changes");
    let path = dir.write("r.toml", TOML);
    let registry = open(path).unwrap();
    let mut watch = block_on(registry.watch("Echo")).unwrap();
    assert!(matches!(watch.try_next().unwrap().change, Change::Reset(snapshot) if snapshot.len() == 2));
    let changed = TOML.replace("weight = 0", "weight = 7").replace("10.0.0.1", "10.0.0.2");
    dir.write("r.toml", &changed);
    assert!(registry.reload().unwrap());
    let kinds: Vec<_> = std::iter::from_fn(|| watch.try_next())
        .map(|event| match event.change {
            Change::Added(e) => format!("+{}", e.instance()),
            Change::Removed(e) => format!("-{}", e.instance()),
            Change::Updated { before, after } => format!("{}->{}", before.weight(), after.weight()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["+10.0.0.2:7000", "0->7", "-10.0.0.1:7000"]);
    registry.reload().unwrap();
    assert!(watch.try_next().is_none(), "the same again is no change");
}

#[test]
fn a_file_that_is_broken_or_gone_leaves_the_last_good_state() {
    let dir = Dir::new("broken");
    let path = dir.write("r.toml", TOML);
    let registry = open(path.clone()).unwrap();
    dir.write("r.toml", &TOML[..TOML.len() / 2 + 10]);
    dir.write("r.toml", "[[endpoints]\nservice =");
    assert!(matches!(registry.reload(), Err(RegistryError::BadSource { .. })));
    assert_eq!(listed(&registry, "Echo").len(), 2);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(registry.reload(), Err(RegistryError::Unreachable { .. })));
    assert_eq!(listed(&registry, "Echo").len(), 2);
    dir.write("r.toml", "");
    registry.reload().unwrap();
    assert_eq!(listed(&registry, "Echo").len(), 0, "an empty file is a valid list of nothing");
}

#[test]
fn a_file_that_cannot_be_read_at_the_start_is_an_error_or_waited_for() {
    let dir = Dir::new("start");
    let missing = dir.0.join("r.json");
    let error = open(missing.clone()).unwrap_err();
    assert!(matches!(&error, RegistryError::Unreachable { kind: "file", .. }), "{error}");
    assert!(error.to_string().contains("r.json"));
    assert!(matches!(open(dir.write("r.yaml", "")), Err(RegistryError::BadSource { .. })));
    assert!(matches!(open(dir.write("bad.json", "[")), Err(RegistryError::BadSource { .. })));
    let tiny = FileOptions { file_bytes_max: 10, ..FileOptions::default() };
    let large = FileRegistry::with_options(dir.write("large.toml", TOML), tiny);
    assert!(large.unwrap_err().to_string().contains("the limit is 10"));

    let waiting = FileOptions {
        wait_for_file: true,
        poll_interval: Duration::from_millis(2),
        ..FileOptions::default()
    };
    let registry = FileRegistry::with_options(missing, waiting).unwrap();
    let mut watch = block_on(registry.watch("s")).unwrap();
    assert!(matches!(watch.try_next().unwrap().change, Change::Reset(snapshot) if snapshot.is_empty()));
    dir.write("r.json", r#"{"endpoints": [{"service": "s", "address": "h:1"}]}"#);
    let event = watch.recv_timeout(Duration::from_secs(30)).expect("the file is looked at by itself");
    assert!(matches!(event.change, Change::Added(_)));
    drop(registry);
    let ended = std::iter::from_fn(|| watch.recv_timeout(Duration::from_secs(30))).count();
    assert_eq!(ended, 0, "the watch ends with its registry");
}

#[test]
fn nobody_registers_in_a_file() {
    let dir = Dir::new("read-only");
    let registry = open(dir.write("r.toml", TOML)).unwrap();
    let endpoint = Arc::new(Endpoint::new("s", "i", "h:1").unwrap());
    let refused = block_on(registry.register(endpoint, RegisterOptions::new())).unwrap_err();
    assert!(matches!(refused, RegistryError::ReadOnly { kind: "file" }));
}
