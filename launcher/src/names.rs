//! Many patterns of names, of which a name is compared with the few that it can match.

use std::collections::HashMap;

use crate::glob::name_matches;

/// Patterns with `*`, in lower case, in an order that counts.
pub(crate) struct Names {
    patterns: Vec<&'static [u8]>,
    /// Those without a star, by what they are.
    exact: HashMap<&'static [u8], usize>,
    /// Those that begin with something, by its first byte, and the others by their last.
    beginning: HashMap<u8, Vec<usize>>,
    ending: HashMap<u8, Vec<usize>>,
}

impl Names {
    pub(crate) fn new(patterns: impl IntoIterator<Item = &'static str>) -> Self {
        let mut names = Self {
            patterns: Vec::new(),
            exact: HashMap::new(),
            beginning: HashMap::new(),
            ending: HashMap::new(),
        };
        for (index, pattern) in patterns.into_iter().map(str::as_bytes).enumerate() {
            names.patterns.push(pattern);
            match pattern {
                _ if !pattern.contains(&b'*') => {
                    names.exact.entry(pattern).or_insert(index);
                }
                [b'*', .., last] => names.ending.entry(*last).or_default().push(index),
                [first, ..] => names.beginning.entry(*first).or_default().push(index),
                [] => {}
            }
        }
        names
    }

    /// The first pattern, by its place, that a name in lower case matches.
    pub(crate) fn first(&self, name: &[u8]) -> Option<usize> {
        let (first, last) = (name.first()?, name.last()?);
        let exact = self.exact.get(name).copied();
        let starred = [self.beginning.get(first), self.ending.get(last)];
        starred
            .into_iter()
            .flatten()
            .filter_map(|of| {
                let mut of = of.iter().copied();
                of.find(|index| name_matches(self.patterns[*index], name))
            })
            .chain(exact)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_matches_is_found_whatever_it_looks_like() {
        let patterns = ["*.json", "auth.json", ".env*", "*_key", ".*_history", "a*z"];
        let names = Names::new(patterns);
        for name in [
            "auth.json",
            "x.json",
            ".env",
            ".env.local",
            "env",
            "my_key",
            ".bash_history",
            "_history",
            "az",
            "abz",
            "ab",
            "*",
            ".*_history",
            "json",
            "x.jsonx",
            ".",
            "",
        ] {
            let by_hand = patterns
                .iter()
                .position(|pattern| name_matches(pattern.as_bytes(), name.as_bytes()));
            assert_eq!(names.first(name.as_bytes()), by_hand, "{name}");
        }
    }
}
