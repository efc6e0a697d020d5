//! What a segment is written on: a file, or in tests one that loses and refuses what a disk may lose and refuse.

use std::fs::File;
use std::io::{self, Write};

/// Takes the bytes of a segment.
pub(crate) trait Medium: Send {
    /// Writes bytes at the end. On an error, a part of them may stand there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Takes away everything beyond a length.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Returns once everything before survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

/// Makes a medium of the file of a segment, which is open to append and locked.
pub(crate) type Laying = Box<dyn Fn(File) -> Box<dyn Medium> + Send>;

/// The file itself.
pub(crate) fn file() -> Laying {
    Box::new(|file| Box::new(file))
}

impl Medium for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
