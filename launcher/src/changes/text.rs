//! Paths as text that every path can be read back from: bytes that are no UTF-8 as `\xHH`, a backslash as `\\`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as text.
pub fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The path that a text stands for; `None` for a text that [`escaped`] does not write.
pub fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(OsString::from_vec(bytes).into())
}

/// For `#[serde(with = …)]` of a path.
pub(crate) mod one {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::escaped(path))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(from)?;
        super::unescaped(&text).ok_or_else(|| de::Error::custom("a path with a broken escape"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_can_be_read_back() {
        for bytes in [
            b"plain/gr\xc3\xb6\xc3\x9fe".as_slice(),
            b"not\xff\xfeutf8\xc3",
            b"back\\slash\\x41",
            b"new\nline",
            b"",
        ] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            assert_eq!(unescaped(&escaped(&path)), Some(path));
        }
        assert_eq!(escaped(Path::new("src/main.rs")), "src/main.rs");
    }

    #[test]
    fn a_broken_escape_is_no_path() {
        for text in ["\\", "\\x4", "\\xgg", "\\n"] {
            assert_eq!(unescaped(text), None, "{text}");
        }
    }
}
