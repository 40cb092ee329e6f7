//! How large the zone is: as the flag says, and larger when the controller role lacks room, up to a limit.
//!
//! While nginx reloads, the old and the new zone exist side by side, and the journal is as large as what is in use. So
//! the default limit is a quarter of the memory that this role may use.
//!
//! The memory limit is that of the control group (cgroup v2 `memory.max`, v1 `memory.limit_in_bytes`), or the machine's.

use crate::options::Options;
use std::fs;

const MIB: u64 = 1 << 20;

/// The sizes that the zone may have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    least: u64,
    most: u64,
}

impl Sizes {
    /// As the options and the machine say it.
    pub fn of(options: &Options) -> Self {
        let least = options.zone_bytes;
        let most = options.zone_bytes_max.unwrap_or_else(|| memory_limit() / 4);
        Sizes { least, most: most.max(least) }
    }

    /// The size for a need of `wanted` bytes; 0: there is no special need.
    pub fn choose(self, wanted: u64) -> u64 {
        (wanted.div_ceil(MIB) * MIB).clamp(self.least, self.most)
    }

    /// Says once that a need is above the limit.
    pub fn report(self, wanted: u64) {
        if wanted > self.most {
            tracing::error!(
                "the zone needs {} MiB and may have {} MiB: the newest objects of the largest namespaces are not \
                 served: raise --zone-size-max and the memory limit",
                wanted.div_ceil(MIB),
                self.most / MIB
            );
        }
    }
}

/// What the large buffers of a worker's requests may take: a quarter of the memory for all workers.
pub fn buffer_bytes(workers: usize) -> u64 {
    let share = memory_limit() / 4 / (workers.max(1) as u64);
    (share / MIB * MIB).clamp(64 * MIB, 1024 * MIB)
}

/// Memory that this process and nginx may use, in bytes.
fn memory_limit() -> u64 {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    group.into_iter().chain(machine_memory()).min().unwrap_or(256 * MIB)
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_grows_up_to_a_quarter_of_the_memory_where_no_flag_says_more() {
        let of = |least, most| {
            Sizes::of(&Options { zone_bytes: least, zone_bytes_max: most, ..Options::default() })
        };
        let quarter = memory_limit() / 4;
        assert_eq!(of(MIB, None).choose(u64::MAX / 2), quarter);
        assert_eq!(of(MIB, Some(5 * MIB)).choose(u64::MAX / 2), 5 * MIB);
        assert_eq!(of(2 * quarter, None).choose(0), 2 * quarter, "never below its least size");
    }

    #[test]
    fn a_zone_is_as_large_as_needed_and_never_beyond_its_limit() {
        let sizes = Sizes { least: 64 * MIB, most: 256 * MIB };
        assert_eq!(sizes.choose(0), 64 * MIB);
        assert_eq!(sizes.choose(100 * MIB + 1), 101 * MIB);
        assert_eq!(sizes.choose(u64::MAX / 2), 256 * MIB);
        assert!(memory_limit() >= 256 * MIB);
    }
}
