//! What a command has of the owner's terminal: a terminal of its own, the lines that are typed, or nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use launcher::{Started, Stdin, Terminal, WindowSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle as Task;

use crate::failure::Failure;
use crate::interruption::{INT, Interruption};
use crate::output::say;
use crate::raw::{self, Raw};
use crate::sequences::Allowed;

/// What commands have of the owner's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    /// Nothing: standard input is a file or a pipe, which the command gets, or it has none.
    None,
    /// Standard input is a terminal; the command gets the lines that are typed.
    Lines {
        /// Whether it is said how to have more.
        told: bool,
    },
    /// The command gets a terminal of its own, which takes every key and fills the window.
    Terminal,
}

impl Console {
    /// What a single command has, if a terminal was `asked` for or not.
    pub(crate) fn of_command(asked: bool, quiet: bool) -> Result<Self, Failure> {
        match (asked, raw::is_there()) {
            (true, true) => Ok(Self::Terminal),
            (true, false) => Err(Failure::ours("`-t` needs a terminal as standard input")
                .named("no-terminal")
                .hint("leave `-t` out: pipes and files are passed to the command as they are")),
            (false, true) => Ok(Self::Lines { told: !quiet }),
            (false, false) => Ok(Self::None),
        }
    }

    /// What the launcher is to give the command as its standard input, in the place of what was `planned`.
    pub(crate) fn stdin(self, planned: Stdin) -> Stdin {
        match (self, planned) {
            (Self::Lines { .. }, Stdin::InheritUnlessTerminal) => Stdin::Piped,
            (Self::Lines { .. } | Self::None | Self::Terminal, planned) => planned,
        }
    }

    /// The size of the terminal that the command is to have.
    pub(crate) fn window(self) -> Option<WindowSize> {
        match self {
            Self::Terminal => Some(raw::size()),
            Self::None | Self::Lines { .. } => None,
        }
    }

    /// What its output may do to our terminal.
    pub(crate) fn allowed(self) -> Allowed {
        match self {
            Self::Terminal => Allowed::Screen,
            Self::None | Self::Lines { .. } => Allowed::Lines,
        }
    }

    /// Connects a sandbox that was made so with the owner's terminal, for as long as the answer is held.
    pub(crate) fn attach(
        self,
        started: &mut Started,
        interruption: &Arc<Interruption>,
        runtime: &Runtime,
    ) -> Result<Attached, Failure> {
        let cannot = |error: io::Error| Failure::ours("the terminal cannot be used").because(error);
        let mut attached = Attached::default();
        let (asleep, wake) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| cannot(errno.into()))?;
        match (self, started.terminal.clone(), started.input.take()) {
            (Self::Terminal, Some(terminal), _) => {
                terminal.behave_like(io::stdin()).map_err(cannot)?;
                let _inside = runtime.enter();
                attached.sizes = Some(follow_size(terminal.clone()).map_err(cannot)?);
                attached.raw = Some(Raw::enter().map_err(cannot)?);
                let interruption = Arc::clone(interruption);
                attached.reader = Some(
                    reader(move || {
                        type_keys(&terminal, &asleep, &interruption);
                    })
                    .map_err(cannot)?,
                );
            }
            (Self::Lines { told }, _, Some(input)) => {
                launcher::ignore_background_reads();
                attached.reader =
                    Some(reader(move || pass_lines(input, &asleep, told)).map_err(cannot)?);
            }
            (Self::None | Self::Lines { .. } | Self::Terminal, _, _) => {}
        }
        attached.wake = Some(wake);
        Ok(attached)
    }
}

/// A sandbox connected with the owner's terminal. Dropping it disconnects them and puts the terminal back.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    raw: Option<Raw>,
    sizes: Option<Task<()>>,
    wake: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(sizes) = self.sizes.take() {
            sizes.abort();
        }
        self.wake = None;
        // Before the terminal is put back, so that no key of the owner's shell is read here.
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.raw = None;
    }
}

fn reader(read: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("keys".into()).spawn(read)
}

/// Keeps the sandbox's terminal as large as the owner's.
fn follow_size(terminal: Terminal) -> io::Result<Task<()>> {
    let mut changes = signal(SignalKind::window_change())?;
    // After listening began, so that no change is missed.
    terminal.resize(raw::size())?;
    Ok(tokio::spawn(async move {
        while changes.recv().await.is_some() {
            let _ = terminal.resize(raw::size());
        }
    }))
}

/// Passes keys on until the sandbox has ended or the owner's terminal is gone.
fn type_keys(terminal: &Terminal, asleep: &OwnedFd, interruption: &Interruption) {
    let (stdin, mut keys, mut way_out) = (io::stdin(), Vec::new(), WayOut::default());
    loop {
        let wanted = match keys.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        let mut waiting = [
            PollFd::new(asleep, PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(terminal.as_fd(), wanted),
        ];
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let [over, typed, room] = waiting.map(|waiting| !waiting.revents().is_empty());
        if over {
            return;
        }
        if typed {
            let mut bytes = [0; 4096];
            match rustix::io::read(&stdin, &mut bytes) {
                Ok(0) => return,
                Ok(length) => {
                    let bytes = &bytes[..length];
                    if way_out.is_asked(bytes, Instant::now()) {
                        interruption.end_at_once(INT);
                        return;
                    }
                    // A command that reads nothing must not keep us from reading the way out.
                    if keys.len() < MOST_KEYS {
                        keys.extend_from_slice(bytes);
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
        if room {
            match terminal.type_in(&keys) {
                Ok(taken) => drop(keys.drain(..taken)),
                Err(error) if is_for_later(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// Passes typed lines on until one side ends.
fn pass_lines(input: OwnedFd, asleep: &OwnedFd, mut told: bool) {
    let stdin = io::stdin();
    loop {
        // Somebody else's turn: looking at what is typed would be ready at once, again and again.
        let is_ours = raw::is_foreground();
        let mut waiting = vec![PollFd::new(asleep, PollFlags::IN)];
        if is_ours {
            waiting.push(PollFd::new(&stdin, PollFlags::IN));
            // Nothing is asked for: a reader that is gone is always told.
            waiting.push(PollFd::new(&input, PollFlags::empty()));
        }
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_AGAIN.subsec_nanos().into(),
        };
        match poll(&mut waiting, (!is_ours).then_some(&patience)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let is_ready = |place: usize| {
            let waiting: Option<&PollFd<'_>> = waiting.get(place);
            waiting.is_some_and(|waiting| !waiting.revents().is_empty())
        };
        if is_ready(0) || is_ready(2) {
            return;
        }
        if !is_ready(1) {
            continue;
        }
        let mut line = [0; 4096];
        match rustix::io::read(&stdin, &mut line) {
            // Ctrl-D.
            Ok(0) => return,
            Ok(length) => {
                if std::mem::take(&mut told) {
                    say(
                        "note: what you type goes to the command line by line; `valetkey run -t` gives it a terminal",
                    );
                }
                if write_all(&input, &line[..length]).is_err() {
                    return;
                }
            }
            // In the background since it was looked; it is looked again.
            Err(Errno::INTR | Errno::AGAIN | Errno::IO) if !raw::is_foreground() => {}
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The keys that end a command which takes all others: Ctrl-] three times within a second.
#[derive(Default)]
struct WayOut {
    pressed: Vec<Instant>,
}

impl WayOut {
    fn is_asked(&mut self, bytes: &[u8], now: Instant) -> bool {
        for byte in bytes {
            match *byte {
                WAY_OUT => self.pressed.push(now),
                _ => self.pressed.clear(),
            }
        }
        self.pressed
            .retain(|pressed| now - *pressed <= Duration::from_secs(1));
        self.pressed.len() >= 3
    }
}

const WAY_OUT: u8 = 0x1d;
const MOST_KEYS: usize = 1 << 20;
const LOOK_AGAIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_in_a_second_is_the_way_out_and_less_or_later_is_not() {
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let mut way_out = WayOut::default();
        assert!(!way_out.is_asked(b"\x1d\x1d", begin));
        assert!(!way_out.is_asked(b"x", after(1)));
        assert!(!way_out.is_asked(b"\x1d\x1d", after(2)));
        assert!(!way_out.is_asked(b"\x1d", after(1500)));
        assert!(way_out.is_asked(b"\x1d\x1d", after(1600)));
    }

    #[test]
    fn only_what_is_inherited_from_a_terminal_is_passed_line_by_line() {
        let lines = Console::Lines { told: false };
        assert_eq!(lines.stdin(Stdin::InheritUnlessTerminal), Stdin::Piped);
        assert_eq!(lines.stdin(Stdin::Null), Stdin::Null);
        assert_eq!(
            Console::None.stdin(Stdin::InheritUnlessTerminal),
            Stdin::InheritUnlessTerminal
        );
    }
}
