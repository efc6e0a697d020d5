//! How amounts with units are written.

use std::fmt;
use std::time::Duration;

/// Reads bytes such as `512MiB`, `20MB`, `1.5GiB` or `4096B`; a unit is needed.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let scale = BYTE_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| *scale)?;
    scaled(number, scale)
}

/// Reads a time such as `15m`, `90s`, `250ms`, `1h30m` or `2d`; units fall in size and stand once each.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut largest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let letters = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len() - digits);
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..digits + letters];
        let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit)?.1;
        if scale >= largest {
            return None;
        }
        largest = scale;
        total = total.checked_add(number.checked_mul(scale)?)?;
        rest = &rest[digits + letters..];
    }
    (largest != u64::MAX).then(|| Duration::from_millis(total))
}

/// Reads money such as `5 USD` or `0.50 EUR`, in hundred-thousandths of the unit.
pub fn parse_money(text: &str) -> Option<Money> {
    let (amount, currency) = text.split_once(' ')?;
    let currency: [u8; 3] = currency.as_bytes().try_into().ok()?;
    if !currency.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    Some(Money {
        amount: scaled(amount, 100_000)?,
        currency,
    })
}

/// Reads a rate such as `50/s`, `100/m` or `1000/h`.
pub fn parse_rate(text: &str) -> Option<Rate> {
    let (count, per) = text.split_once('/')?;
    let per = match per {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" | "day" => 86_400,
        _ => return None,
    };
    let plain = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    let count = plain.then(|| count.parse().ok()).flatten()?;
    Some(Rate {
        count,
        per: Duration::from_secs(per),
    })
}

/// An amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// In hundred-thousandths of the currency's unit, so that a token's price is a whole number.
    pub amount: u64,
    /// The ISO 4217 code.
    pub currency: [u8; 3],
}

/// So many in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how long.
    pub per: Duration,
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.amount / 100_000, self.amount % 100_000);
        write!(f, "{whole}")?;
        if part != 0 {
            write!(f, ".{}", format!("{part:05}").trim_end_matches('0'))?;
        }
        write!(f, " {}", String::from_utf8_lossy(&self.currency))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            3600 => "h",
            _ => "d",
        };
        write!(f, "{}/{per}", self.count)
    }
}

/// Bytes as people write them: `512MiB`, or `1000B` where no binary unit fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = BYTE_UNITS
            .iter()
            .filter(|(name, _)| name.ends_with("iB"))
            .rfind(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
            .unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / scale)
    }
}

/// A time as people write it: `15m`, `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (name, scale) in TIME_UNITS {
            if rest >= *scale {
                write!(f, "{}{name}", rest / scale)?;
                rest %= scale;
            }
        }
        Ok(())
    }
}

/// The units of bytes, in the order of their size within each kind.
const BYTE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The units of time in milliseconds, the largest first.
const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

fn split_unit(text: &str) -> Option<(&str, &str)> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    Some((number.strip_suffix(' ').unwrap_or(number), unit))
}

/// A decimal number times a scale, exactly; `None` where the result is not whole or does not fit.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let plain = |digits: &str| {
        !digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit())
    };
    if !plain(whole) || !plain(part) || part.len() > 9 {
        return None;
    }
    let denominator = 10u128.pow(u32::try_from(part.len()).ok()?);
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = part.parse().ok()?;
    let total = (whole * denominator + part).checked_mul(u128::from(scale))?;
    (total % denominator == 0)
        .then(|| u64::try_from(total / denominator).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_their_unit() {
        let cases = [
            ("512MiB", Some(512 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("20MB", Some(20_000_000)),
            ("0B", Some(0)),
            ("5 MiB", Some(5 << 20)),
            ("512", None),
            ("512mib", None),
            ("-1MiB", None),
            ("1e3B", None),
            (".5MiB", None),
            ("99999999999TiB", None),
            ("0.3B", None),
            ("", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        let cases = [
            ("15m", Some(900_000)),
            ("1h30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("0s", Some(0)),
            ("15", None),
            ("m", None),
            ("30m1h", None),
            ("1m1m", None),
            ("1.5h", None),
            ("-5m", None),
            ("99999999999999999999d", None),
            ("9999999999999999d", None),
            ("", None),
            ("5µs", None),
        ];
        for (text, millis) in cases {
            assert_eq!(
                parse_duration(text),
                millis.map(Duration::from_millis),
                "{text}"
            );
        }
    }

    #[test]
    fn amounts_print_as_they_are_read() {
        for text in ["512MiB", "1000B", "3KiB", "0B"] {
            assert_eq!(Bytes(parse_bytes(text).unwrap()).to_string(), text);
        }
        for text in ["15m", "1h30m", "250ms", "1m30s", "0s", "2d"] {
            assert_eq!(Span(parse_duration(text).unwrap()).to_string(), text);
        }
        for text in ["5 USD", "0.5 EUR"] {
            assert_eq!(parse_money(text).unwrap().to_string(), text);
        }
        for text in ["50/s", "3/h"] {
            assert_eq!(parse_rate(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn money_and_rates_need_their_unit() {
        for text in ["5", "5USD", "5 usd", "-5 USD", "5 DOLLARS"] {
            assert_eq!(parse_money(text), None, "{text}");
        }
        for text in ["50", "/s", "50/", "50/w", "+5/s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
    }
}
