//! `valetkey run --events`: what happens, as it happens, as lines of JSON in a file or pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use sdk::happening::{Happening, Missed};

use crate::failure::Failure;
use crate::output::{sanitised, say};

/// Where events go. Dropping it waits until all of them are written, or their reader is gone.
pub(crate) struct Events {
    teller: Teller,
    writer: Option<JoinHandle<()>>,
}

/// Tells events.
#[derive(Clone)]
pub(crate) struct Teller {
    /// Nothing ends it, so that nobody has to wait until the last teller is gone.
    queue: SyncSender<Option<Happening>>,
    missed: Arc<AtomicU64>,
}

impl Events {
    /// Opens a file, a pipe, or for `-` standard output, which has to be free for it: `is_json`.
    pub(crate) fn open(to: &Path, is_json: bool) -> Result<Self, Failure> {
        let writer = if to == Path::new("-") {
            if !is_json {
                let why = "`--events -` needs `--json`: else the command's output would be among the events";
                return Err(Failure::ours(why)
                    .named("events-need-json")
                    .hint("add `--json`, or name a file or pipe, such as `--events /dev/fd/3`"));
            }
            as_shown(io::stdout())
        } else {
            let cannot = |error: io::Error| {
                Failure::ours(format!("cannot write events to `{}`", to.display()))
                    .named("events-not-writable")
                    .because(error)
            };
            as_shown(open(to).map_err(cannot)?)
        };
        let (queue, happenings) = sync_channel(MOST_WAITING);
        let writer = std::thread::Builder::new()
            .name("events".into())
            .spawn(move || write(writer, &happenings))
            .map_err(|error| Failure::ours("cannot start a thread").because(error))?;
        let missed = Arc::default();
        Ok(Self {
            teller: Teller { queue, missed },
            writer: Some(writer),
        })
    }

    /// What tells events. What it tells after this was dropped is lost.
    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.teller.own_up();
        let _ = self.teller.queue.send(None);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Teller {
    /// Tells something, as soon as there is room: a reader that is slow slows the step down, as one of its output does.
    pub(crate) fn tell(&self, happening: Happening) {
        self.own_up();
        // An error: the writer has panicked, and nobody can be told.
        let _ = self.queue.send(Some(happening));
    }

    /// Tells something if there is room now, and else counts it: for those who must not wait.
    pub(crate) fn tell_now(&self, happening: Happening) {
        match self.queue.try_send(Some(happening)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Tells how much was left out.
    fn own_up(&self) {
        let events = self.missed.swap(0, Ordering::Relaxed);
        if events > 0 {
            let _ = self.queue.send(Some(Happening::Missed(Missed { events })));
        }
    }
}

/// Opens a file for its owner alone, or a pipe.
fn open(to: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    if is_descriptor(to) {
        // It is the caller's, who may have written to it before.
        return options.append(true).open(to);
    }
    // Where a run can write, it could have left a link to a file of the owner's.
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NOCTTY).bits().cast_signed())
        .open(to)
}

/// Whether it names something that the caller has opened: there, a link is what the kernel makes it.
fn is_descriptor(path: &Path) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    ["/dev/fd", "/proc/self/fd"].iter().any(|folder| {
        let rest = path.strip_prefix(folder).ok().and_then(Path::to_str);
        rest.is_some_and(is_number)
    })
}

/// Writes a line for each event until nobody tells any more. When it cannot, the rest is taken and dropped: nothing may
/// wait for a reader that is gone.
fn write(mut to: Box<dyn Write + Send>, happenings: &Receiver<Option<Happening>>) {
    let mut number = 0;
    let mut is_open = true;
    while let Ok(Some(happening)) = happenings.recv() {
        if !is_open {
            continue;
        }
        if !matches!(happening, Happening::Missed(_)) {
            number += 1;
        }
        let Ok(mut line) = happening.line(number) else {
            continue;
        };
        line.push('\n');
        if let Err(error) = to.write_all(line.as_bytes()).and_then(|()| to.flush()) {
            is_open = false;
            if error.kind() != ErrorKind::BrokenPipe {
                say(format_args!("note: no more events are written: {error}"));
            }
        }
    }
}

fn as_shown<W: Write + IsTerminal + Send + 'static>(to: W) -> Box<dyn Write + Send> {
    match to.is_terminal() {
        true => Box::new(Screen(to)),
        false => Box::new(to),
    }
}

/// A terminal, to which what a step wrote may do nothing.
struct Screen<W>(W);

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<String> = text.split('\n').map(sanitised).collect();
        self.0.write_all(lines.join("\n").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Events that wait to be written; each of the step's output has at most 8 KiB of it.
const MOST_WAITING: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_names_a_descriptor() {
        assert!(is_descriptor(Path::new("/dev/fd/3")));
        assert!(is_descriptor(Path::new("/proc/self/fd/12")));
        for other in [
            "/dev/fd/",
            "/dev/fd/3/x",
            "/dev/fd/../null",
            "events.jsonl",
            "-",
        ] {
            assert!(!is_descriptor(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told() {
        let (queue, happenings) = sync_channel(1);
        let teller = Teller {
            queue,
            missed: Arc::default(),
        };
        let event = || Happening::Missed(Missed { events: 0 });
        for _ in 0..3 {
            teller.tell_now(event());
        }
        assert_eq!(happenings.recv().unwrap(), Some(event()));
        std::thread::spawn(move || teller.tell(event()));
        let told: Vec<Happening> = happenings.iter().flatten().collect();
        assert_eq!(told, [Happening::Missed(Missed { events: 2 }), event()]);
    }
}
