//! Which name a synthetic address of a run stands for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use policies::{Host, Name};

/// The names that a run has asked for, each with an address of its own in both families.
///
/// An address is never given to a second name, so a connection always means the name that was asked for.
#[derive(Default)]
pub(crate) struct Names(Mutex<Table>);

#[derive(Default)]
struct Table {
    numbers: HashMap<Name, u32>,
    names: Vec<Name>,
}

/// The addresses of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Synthetic {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

/// What an address is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It stands for this name.
    Name(Host),
    /// It is in our range, but was never given out.
    Unassigned,
    /// It is not ours.
    Foreign,
}

impl Names {
    /// The addresses that stand for a name; none once the run has asked for as many names as it may.
    pub(crate) fn assign(&self, name: &Name) -> Option<Synthetic> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.numbers.get(name) {
            return Some(Synthetic::from(*number));
        }
        let number = u32::try_from(table.names.len())
            .ok()
            .filter(|number| *number < MOST)?;
        table.names.push(name.clone());
        table.numbers.insert(name.clone(), number);
        Some(Synthetic::from(number))
    }

    /// What an address stands for.
    pub(crate) fn meaning(&self, address: IpAddr) -> Meaning {
        let Some(number) = number(address.to_canonical()) else {
            return Meaning::Foreign;
        };
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(number)
            .ok()
            .and_then(|number| table.names.get(number))
            .map_or(Meaning::Unassigned, |name| {
                Meaning::Name(Host::Name(name.clone()))
            })
    }
}

impl From<u32> for Synthetic {
    fn from(number: u32) -> Self {
        Self {
            // The first address of the range looks like that of a network, so it is left out.
            v4: Ipv4Addr::from_bits(V4.to_bits() + 1 + number),
            v6: Ipv6Addr::from_bits(V6.to_bits() + 1 + u128::from(number)),
        }
    }
}

fn number(address: IpAddr) -> Option<u32> {
    match address {
        // 198.18.0.0/15.
        IpAddr::V4(address) => Some(address.to_bits() ^ V4.to_bits())
            .filter(|number| *number < 1 << 17)
            .map(|number| number.wrapping_sub(1)),
        // The /96.
        IpAddr::V6(address) => u32::try_from(address.to_bits() ^ V6.to_bits())
            .ok()
            .map(|number| number.wrapping_sub(1)),
    }
}

const MOST: u32 = 65_536;
// For benchmarks of network gear (RFC 2544), so no real host has it.
const V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
// A unique local prefix made up at random (RFC 4193).
const V6: Ipv6Addr = Ipv6Addr::new(0xfd5e, 0x8b1c, 0x27a4, 0, 0, 0, 0, 0);

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Host::parse(text).unwrap().name().unwrap().clone()
    }

    #[test]
    fn both_addresses_lead_back_to_their_name() {
        let names = Names::default();
        for text in ["a.test", "b.test"] {
            let synthetic = names.assign(&name(text)).unwrap();
            let meaning = Meaning::Name(Host::parse(text).unwrap());
            assert_eq!(names.meaning(synthetic.v4.into()), meaning);
            assert_eq!(names.meaning(synthetic.v6.into()), meaning);
        }
    }

    #[test]
    fn a_name_keeps_its_address() {
        let names = Names::default();
        let first = names.assign(&name("a.test"));
        names.assign(&name("b.test"));
        assert_eq!(names.assign(&name("a.test")), first);
    }

    #[test]
    fn an_address_that_was_never_given_out_means_nothing() {
        let names = Names::default();
        names.assign(&name("a.test"));
        assert_eq!(
            names.meaning("198.18.0.2".parse().unwrap()),
            Meaning::Unassigned
        );
        assert_eq!(
            names.meaning("198.18.0.0".parse().unwrap()),
            Meaning::Unassigned
        );
        assert_eq!(names.meaning("1.1.1.1".parse().unwrap()), Meaning::Foreign);
    }

    #[test]
    fn names_are_bounded() {
        let names = Names::default();
        for number in 0..MOST {
            assert!(names.assign(&name(&format!("n{number}.test"))).is_some());
        }
        assert_eq!(names.assign(&name("one-more.test")), None);
        assert!(names.assign(&name("n7.test")).is_some());
    }
}
