//! A secret that moves on again and again, of which no earlier value stays in the folder.
//!
//! A file of two places. The next value is written to the place that is free and synced, and only then the value before is
//! overwritten with zeros, in the same blocks, and synced. SQLite could not promise that: its write-ahead log keeps a page
//! as it was until somebody else's checkpoint. Killed at any point, the file holds the value before or the next one.
//! A file system that writes every block to a new place, or a disk that does so, may keep a copy below our reach.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use zeroize::Zeroizing;

use super::SealingKey;

/// The file, with the value that counts. To be used by one process at a time; whoever opens it sees to that.
pub(crate) struct Evolving<'k> {
    file: File,
    key: &'k SealingKey,
    place: Place,
    /// How often the value had moved on.
    pub(crate) number: u64,
    /// The value.
    pub(crate) value: Zeroizing<[u8; 32]>,
}

/// Where in the file a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Second,
}

impl<'k> Evolving<'k> {
    /// What a new file holds.
    pub(crate) fn first(key: &SealingKey, number: u64, value: &[u8; 32]) -> Option<Vec<u8>> {
        let mut bytes = slot(key, number, value)?;
        bytes.resize(2 * SLOT, 0);
        Some(bytes)
    }

    /// Reads the value that counts: of two, the newer one. None if there is none that this key opens.
    pub(crate) fn read(file: File, key: &'k SealingKey) -> io::Result<Option<Self>> {
        let mut newest: Option<(u64, Zeroizing<[u8; 32]>, Place)> = None;
        for place in [Place::First, Place::Second] {
            let mut bytes = Zeroizing::new([0; SLOT]);
            match file.read_exact_at(&mut bytes[..], place.offset()) {
                Ok(()) => {}
                // Shorter than it was made: what is missing holds nothing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                Err(error) => return Err(error),
            }
            if let Some((number, value)) = open(key, &bytes)
                && newest.as_ref().is_none_or(|(newest, ..)| number > *newest)
            {
                newest = Some((number, value, place));
            }
        }
        Ok(newest.map(|(number, value, place)| Self {
            file,
            key,
            place,
            number,
            value,
        }))
    }

    /// Moves on to a later value. When this returns, the one before is gone.
    pub(crate) fn replace(&mut self, number: u64, value: &[u8; 32]) -> io::Result<()> {
        let next = slot(self.key, number, value)
            .ok_or_else(|| io::Error::other("the value cannot be sealed"))?;
        self.file.write_all_at(&next, self.place.other().offset())?;
        self.file.sync_data()?;
        self.place = self.place.other();
        self.number = number;
        self.value.copy_from_slice(value);
        self.wipe()
    }

    /// Whether there is the one value only.
    pub(crate) fn is_tidy(&self) -> bool {
        let mut left = Zeroizing::new([0; SLOT]);
        self.file
            .read_exact_at(&mut left[..], self.place.other().offset())
            .is_ok_and(|()| left.iter().all(|byte| *byte == 0))
    }

    /// Overwrites what a process left that was killed while it moved on.
    pub(crate) fn tidy_up(&self) -> io::Result<()> {
        if self.is_tidy() { Ok(()) } else { self.wipe() }
    }

    fn wipe(&self) -> io::Result<()> {
        self.file
            .write_all_at(&[0; SLOT], self.place.other().offset())?;
        self.file.sync_data()
    }
}

impl Place {
    fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => SLOT as u64,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The number, then the value sealed under it; the rest is zero.
fn slot(key: &SealingKey, number: u64, value: &[u8; 32]) -> Option<Vec<u8>> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&key.seal(&name(number), value).ok()?);
    bytes.resize(SLOT, 0);
    Some(bytes)
}

fn open(key: &SealingKey, slot: &[u8; SLOT]) -> Option<(u64, Zeroizing<[u8; 32]>)> {
    let (number, rest) = slot.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(*number);
    let opened = key.open(&name(number), rest.get(..SEALED)?).ok()?;
    Some((number, Zeroizing::new(opened[..].try_into().ok()?)))
}

/// What a value is sealed as.
pub(crate) fn name(number: u64) -> String {
    format!("audit chain {number}")
}

/// No disk writes less than a block at once, so tearing one place does not touch the other.
const SLOT: usize = 4096;

/// A version, a nonce, the value, a tag.
pub(crate) const SEALED: usize = 1 + 12 + 32 + 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that holds the value 0 as number 0.
    fn file(key: &SealingKey) -> File {
        let file = tempfile::tempfile().unwrap();
        let first = Evolving::first(key, 0, &[0; 32]).unwrap();
        file.write_all_at(&first, 0).unwrap();
        file
    }

    fn key() -> SealingKey {
        SealingKey::new(&[7; 32]).unwrap()
    }

    fn bytes(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; 2 * SLOT];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn evolving<'k>(file: &File, key: &'k SealingKey) -> Evolving<'k> {
        let file = file.try_clone().unwrap();
        Evolving::read(file, key).unwrap().unwrap()
    }

    #[test]
    fn the_value_before_is_gone_once_it_was_replaced() {
        let (key, mut before) = (key(), Vec::new());
        let file = file(&key);
        for number in 0..4_u8 {
            let mut at = evolving(&file, &key);
            assert_eq!((at.number, at.value[0]), (number.into(), number));
            let used = if number % 2 == 0 { 0 } else { SLOT };
            before.push(bytes(&file)[used..][..8 + SEALED].to_vec());
            at.replace(u64::from(number) + 1, &[number + 1; 32])
                .unwrap();
            for old in &before {
                assert_eq!(memchr::memmem::find(&bytes(&file), &old[8..]), None);
            }
        }
    }

    #[test]
    fn killed_at_any_point_the_value_before_or_the_next_one_counts() {
        let key = key();
        let before = file(&key);
        let written = slot(&key, 1, &[1; 32]).unwrap();
        // Torn after each number of bytes of the new value, and before the old one is wiped.
        for torn in 0..=8 + SEALED {
            let file = file(&key);
            file.write_all_at(&bytes(&before), 0).unwrap();
            file.write_all_at(&written[..torn], SLOT as u64).unwrap();
            let is_whole = torn == 8 + SEALED;
            let mut at = evolving(&file, &key);
            assert_eq!(at.number, u64::from(is_whole), "{torn}");
            at.tidy_up().unwrap();
            let left = bytes(&file);
            let other = if is_whole {
                &left[..SLOT]
            } else {
                &left[SLOT..]
            };
            assert!(other.iter().all(|byte| *byte == 0), "{torn}");
            at.replace(9, &[9; 32]).unwrap();
            assert_eq!(evolving(&file, &key).value[0], 9);
        }
        // Torn while the old one is wiped.
        for torn in 0..=SLOT {
            let file = file(&key);
            file.write_all_at(&written, SLOT as u64).unwrap();
            file.write_all_at(&vec![0; torn], 0).unwrap();
            assert_eq!(evolving(&file, &key).number, 1);
        }
    }

    #[test]
    fn a_file_without_any_value_is_no_value() {
        let key = key();
        for bytes in [&b""[..], b"short", &[0; 2 * SLOT], &[0xff; 2 * SLOT]] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            assert!(Evolving::read(file, &key).unwrap().is_none());
        }
    }

    #[test]
    fn a_value_under_another_number_does_not_open() {
        let key = key();
        let file = file(&key);
        file.write_all_at(&5_u64.to_be_bytes(), 0).unwrap();
        assert!(Evolving::read(file, &key).unwrap().is_none());
    }
}
