//! Reads a segment line by line, however it was left.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// A reader of lines that does not let a file without line ends fill the memory.
pub(crate) struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
    /// Where the line read last begins.
    start: u64,
    end: u64,
}

/// What comes next in a segment.
pub(crate) enum Next<'l> {
    /// A line, without its line end.
    Line(&'l [u8]),
    /// Bytes without a line end: the line that a killed writer was at.
    Torn,
    /// Nothing more.
    End,
}

impl Lines {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file: BufReader::with_capacity(64 * 1024, file),
            line: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// Reads on.
    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        self.start = self.end;
        let length = (&mut self.file)
            .take(MOST)
            .read_until(b'\n', &mut self.line)?;
        self.end += length as u64;
        Ok(match self.line.split_last() {
            None => Next::End,
            Some((b'\n', line)) => Next::Line(line),
            Some(_) => Next::Torn,
        })
    }

    /// Where the line read last begins.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

/// The longest line there is. A request's head is bounded far below it.
const MOST: u64 = 4 * 1024 * 1024;
