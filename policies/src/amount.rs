//! The amounts that a policy bounds, and how each is written.

use std::time::Duration;

use crate::reader::{Item, Value};
use crate::units::{Bytes, Span, parse_bytes, parse_duration};

/// Something of which a policy allows so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Amount {
    Ttl,
    Connections,
    Memory,
    Cpus,
    CpuTime,
    Wall,
    Processes,
    Disk,
    Output,
    FileSize,
    OpenFiles,
}

/// How an amount is written, and what its number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Milliseconds,
    Count { most: i64 },
    Thousandths,
}

impl Amount {
    pub(crate) const BUDGET: [Self; 2] = [Self::Ttl, Self::Connections];
    pub(crate) const LIMITS: [Self; 9] = [
        Self::Memory,
        Self::Cpus,
        Self::CpuTime,
        Self::Wall,
        Self::Processes,
        Self::Disk,
        Self::Output,
        Self::FileSize,
        Self::OpenFiles,
    ];

    /// The key within `[budget]` or `[limits]`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::CpuTime => "cpu_time",
            Self::Wall => "wall",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::FileSize => "file_size",
            Self::OpenFiles => "open_files",
        }
    }

    const fn unit(self) -> Unit {
        match self {
            Self::Ttl | Self::CpuTime | Self::Wall => Unit::Milliseconds,
            Self::Memory | Self::Disk | Self::Output | Self::FileSize => Unit::Bytes,
            Self::Connections => Unit::Count { most: 65_536 },
            Self::Processes => Unit::Count { most: 4_194_304 },
            Self::OpenFiles => Unit::Count { most: 1_048_576 },
            Self::Cpus => Unit::Thousandths,
        }
    }

    /// Reads the amount; what is wrong is reported.
    pub(crate) fn read(self, item: &Item<'_, '_>) -> Option<u64> {
        let found = match self.unit() {
            Unit::Count { most } => return u64::try_from(item.integer(1..=most)?.value).ok(),
            Unit::Thousandths => {
                let cpus = item.number()?.value;
                // NaN is not in the range either.
                (0.001..=4096.0)
                    .contains(&cpus)
                    .then(|| (cpus * 1000.0).round() as u64)
            }
            Unit::Bytes => bytes(item)?,
            Unit::Milliseconds => milliseconds(item)?,
        };
        let least = self.least();
        let amount = found.filter(|amount| *amount >= least);
        if amount.is_none() {
            let key = self.key();
            let what = match found {
                Some(amount) if amount > 0 => {
                    format!("`{key}` must be at least {}", self.show(least))
                }
                Some(_) | None => format!("`{key}` must be more than nothing"),
            };
            item.refuse(what, None);
        }
        amount
    }

    /// The least that can be kept: in less memory no program starts, and no sandbox is built around one.
    const fn least(self) -> u64 {
        match self {
            Self::Memory => 1 << 20,
            Self::Ttl
            | Self::Connections
            | Self::Cpus
            | Self::CpuTime
            | Self::Wall
            | Self::Processes
            | Self::Disk
            | Self::Output
            | Self::FileSize
            | Self::OpenFiles => 1,
        }
    }

    /// The amount as the file writes it, ready for TOML.
    pub(crate) fn show(self, amount: u64) -> String {
        match self.unit() {
            Unit::Count { .. } => amount.to_string(),
            Unit::Bytes => format!("\"{}\"", Bytes(amount)),
            Unit::Milliseconds => format!("\"{}\"", Span(Duration::from_millis(amount))),
            Unit::Thousandths => {
                let (whole, part) = (amount / 1000, amount % 1000);
                let text = format!("{whole}.{part:03}");
                let text = text.trim_end_matches('0');
                if text.ends_with('.') {
                    format!("{text}0")
                } else {
                    text.to_owned()
                }
            }
        }
    }
}

/// A string of bytes with a unit.
pub(crate) fn bytes(item: &Item<'_, '_>) -> Option<Option<u64>> {
    with_unit(item, "`512MiB`", parse_bytes)
}

/// A string of a time with a unit, in milliseconds. Centuries are a mistake, and overflow clocks.
pub(crate) fn milliseconds(item: &Item<'_, '_>) -> Option<Option<u64>> {
    with_unit(item, "`15m`", |text| {
        let time = parse_duration(text)?;
        let millis = u64::try_from(time.as_millis()).ok()?;
        (time <= MAX_TIME).then_some(millis)
    })
}

/// A string that a parser of units takes. The outer `None`: it is wrong, and reported.
pub(crate) fn with_unit<T>(
    item: &Item<'_, '_>,
    example: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<Option<T>> {
    let hint = Some(format!("write it with its unit, such as {example}"));
    let Value::Text(text) = &item.node().value else {
        return item.wrong_kind("a string with a unit", hint);
    };
    match parse(text) {
        Some(amount) => Some(Some(amount)),
        None => {
            let name = &item.key().text;
            item.refuse(format!("`{name}` is not an amount that can be read"), hint);
            None
        }
    }
}

const MAX_TIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
