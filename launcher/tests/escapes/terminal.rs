//! A: terminals and descriptors.

use launcher::Layer::{CallsOthers, CallsTerminal, Descriptors, Landlock, Session, Undumpable};

use super::{Open, Way, try_all};

#[test]
fn nothing_is_typed_into_a_terminal() {
    try_all(
        "escapes::terminal::nothing_is_typed_into_a_terminal",
        &[
            Way {
                row: "A1, 01: TIOCSTI",
                line: "./escape type 0x5412",
                closed: &["EPERM"],
                layers: &[CallsTerminal],
                // EIO: the kernel's own switch, off by default since 6.2.
                open: Open::Answers(&["ok", "EIO"]),
            },
            Way {
                row: "A2, 02: TIOCSTI with high bits",
                line: "./escape type 0x100005412",
                closed: &["EPERM"],
                layers: &[CallsTerminal],
                open: Open::Answers(&["ok", "EIO"]),
            },
            Way {
                row: "A3, 03: TIOCLINUX",
                line: "./escape type 0x541c",
                closed: &["EPERM"],
                layers: &[CallsTerminal],
                // It reaches the terminal, which is no console.
                open: Open::Answers(&["ENOTTY", "EINVAL"]),
            },
            Way {
                row: "52: a session of its own",
                line: "cut -d ' ' -f 6 /proc/self/stat",
                closed: &["2"],
                layers: &[Session],
                open: Open::Answers(&["0"]),
            },
        ],
    );
}

#[test]
fn no_descriptor_leads_out() {
    try_all(
        "escapes::terminal::no_descriptor_leads_out",
        &[
            Way {
                row: "A4, 05: descriptors of the caller",
                line: "./probe fds",
                closed: &["0 1 2"],
                layers: &[Descriptors],
                open: Open::Answers(&["0 1 2 *"]),
            },
            Way {
                row: "A4: from a folder that was left open",
                line: "./escape climb",
                closed: &["nothing"],
                layers: &[Descriptors, Landlock],
                open: Open::Answers(&["out"]),
            },
            Way {
                row: "A9, 47: descriptors of the first process",
                line: "./escape getfd 1",
                closed: &["EPERM"],
                layers: &[CallsOthers, Undumpable, Landlock],
                open: Open::Answers(&["ok"]),
            },
        ],
    );
}
