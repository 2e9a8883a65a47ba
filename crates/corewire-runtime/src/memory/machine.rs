//! How much memory there is.

use std::fs;

/// Assumed where the system does not say.
const UNKNOWN: u64 = 4 << 30;
/// A limit below this is of no use: a few connections would reach it.
const LEAST: u64 = 64 << 20;

/// The default limit of a runtime in bytes: a quarter of what the process may use, which is the machine's memory or the
/// limit of the process's control group.
pub(crate) fn default_limit() -> usize {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = group_files(&groups).into_iter().filter_map(|file| fs::read_to_string(file).ok());
    let quarter = quarter_of(meminfo.as_deref(), limits);
    usize::try_from(quarter).unwrap_or(usize::MAX / 4)
}

/// The files that limit the process: those of its control group and of all above it.
fn group_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(mut path)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        loop {
            path = path.trim_end_matches('/');
            files.push(format!("{root}{path}/{name}"));
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
    }
    files
}

fn quarter_of(meminfo: Option<&str>, group_limits: impl Iterator<Item = String>) -> u64 {
    let total = meminfo.and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    // "max" is no number: no limit.
    let groups = group_limits.filter_map(|text| text.trim().parse::<u64>().ok()).min();
    let usable = match (total, groups) {
        (Some(total), Some(group)) => total.min(group),
        (total, group) => total.or(group).unwrap_or(UNKNOWN),
    };
    (usable / 4).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:         1000 kB\n";

    fn quarter(meminfo: Option<&str>, groups: &[&str]) -> u64 {
        quarter_of(meminfo, groups.iter().map(|&text| text.to_owned()))
    }

    #[test]
    fn the_limit_is_a_quarter_of_what_the_process_may_use() {
        assert_eq!(quarter(Some(MEMINFO), &[]), 4 << 30);
        assert_eq!(quarter(Some(MEMINFO), &["max\n"]), 4 << 30);
        assert_eq!(quarter(Some(MEMINFO), &["max\n", "2147483648\n"]), 512 << 20);
        assert_eq!(quarter(Some(MEMINFO), &["9223372036854771712\n"]), 4 << 30);
        assert_eq!(quarter(Some("nonsense"), &[]), 1 << 30);
        assert_eq!(quarter(None, &["1048576"]), LEAST);
        assert!(default_limit() >= LEAST as usize);
    }

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let files = group_files("0::/system.slice/some.service\n");
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/system.slice/some.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        let files = group_files("12:cpu,cpuacct:/x\n4:memory:/\n");
        assert_eq!(files, ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
    }
}
