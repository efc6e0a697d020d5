//! The command line: it reads arguments and puts the crates together.

fn main() {}
