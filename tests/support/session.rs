//! A person at a terminal: a program in a session of its own, what it shows, and keys.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A program whose terminal the test holds the other end of.
pub(crate) struct Session {
    child: Child,
    master: OwnedFd,
    // Held, so that the end of the program does not look like the end of the terminal.
    slave: OwnedFd,
    shown: String,
    // Up to here the test has looked.
    seen: usize,
}

impl Session {
    /// Starts a program in a window of 24 lines of 80 characters.
    pub(crate) fn start(program: &Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let stream = || File::from(slave.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(program.get_program())
            .args(program.get_args())
            .env_clear()
            .envs(
                program
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream());
        if let Some(folder) = program.get_current_dir() {
            command.current_dir(folder);
        }
        size(&master, 24, 80);
        Self {
            child: command.spawn().unwrap(),
            master,
            slave,
            shown: String::new(),
            seen: 0,
        }
    }

    /// Types.
    pub(crate) fn keys(&self, keys: &str) {
        let mut rest = keys.as_bytes();
        while !rest.is_empty() {
            let written = rustix::io::write(&self.master, rest).unwrap();
            rest = &rest[written..];
        }
    }

    /// Changes the window's size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        size(&self.master, rows, columns);
    }

    /// Waits until `text` is shown after what was waited for before.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(
                self.more(60),
                "it did not show {text:?}: {:?}",
                &self.shown[self.seen..]
            );
        }
    }

    /// Whether lines are edited and shown by the terminal, as a shell expects it.
    pub(crate) fn is_ordinary(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// The process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end; everything that was shown, and the exit code.
    pub(crate) fn ends(mut self) -> (String, Option<i32>) {
        // What it shows is read meanwhile, or it might wait for that for ever.
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            self.more(1);
        };
        while self.more(0) {}
        (self.shown, status.code())
    }

    /// Closes the window, and waits for the program's end.
    pub(crate) fn hang_up(self) -> Option<i32> {
        let Self {
            mut child,
            master,
            slave,
            ..
        } = self;
        drop((master, slave));
        child.wait().unwrap().code()
    }

    fn more(&mut self, seconds: i64) -> bool {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let mut waiting = [PollFd::new(&self.master, PollFlags::IN)];
        if !poll(&mut waiting, Some(&time)).is_ok_and(|ready| ready > 0) {
            return false;
        }
        let mut bytes = [0; 4096];
        let mut master = File::from(self.master.try_clone().unwrap());
        let length = master.read(&mut bytes).unwrap_or(0);
        self.shown
            .push_str(&String::from_utf8_lossy(&bytes[..length]));
        length > 0
    }
}

fn size(master: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size).unwrap();
}
