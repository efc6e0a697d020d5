//! How much processor time a proxy has used: all its processes, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The processor time of a process and all its living descendants, with what ended children left to them.
pub fn of_tree(root: u32) -> Duration {
    let mut parents = BTreeMap::new();
    let mut used = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(line) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // proc(5): the command's name, in parentheses, may hold anything.
        let Some((_, fields)) = line.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
        let ticks: u64 = [11, 12, 13, 14].into_iter().filter_map(number).sum();
        parents.insert(pid, number(1).unwrap_or(0) as u32);
        used.insert(pid, ticks);
    }
    let is_below = |mut pid: u32| {
        while pid != root {
            match parents.get(&pid) {
                Some(parent) if *parent != 0 => pid = *parent,
                _ => return false,
            }
        }
        true
    };
    let ticks: u64 = used
        .iter()
        .filter(|(pid, _)| is_below(**pid))
        .map(|(_, ticks)| ticks)
        .sum();
    Duration::from_millis(ticks * MILLISECONDS_PER_TICK)
}

// USER_HZ is 100 on every Linux that Rust supports.
const MILLISECONDS_PER_TICK: u64 = 10;
