//! How files that people write are read, so that every error points at its place.
//!
//! The steps: [`SourceText`] holds the text, [`parse_toml`] or [`parse_json`] make a tree of [`Node`]s that keep
//! their spans, a [`Section`] takes known keys out of a table and puts what is wrong into [`Findings`].
//!
//! ```ignore
//! let source = SourceText::new("secrets.toml", text);
//! let findings = Findings::default();
//! let root = parse_toml(&source, &findings);
//! let section = Section::open(&source, &findings, &root, "", &["source", "hosts"]);
//! let hosts = section.texts("hosts");
//! findings.into_result(())
//! ```

mod findings;
mod item;
mod section;
mod source;
#[cfg(test)]
mod tests;
mod tree;

pub use findings::Findings;
pub use item::{At, Item};
pub use section::Section;
pub use source::SourceText;
pub use tree::{Key, Node, Table, Value, parse_json, parse_toml};

/// The known word nearest to a wrong one, if one is near enough to be meant.
pub fn nearest<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Longer texts are no typing errors, and comparing them costs the product of the lengths.
    if wrong.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(wrong, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len().min(wrong.len()) / 4)
        .min()
        .map(|(_, word)| word)
}
