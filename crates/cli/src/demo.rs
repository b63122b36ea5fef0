//! `adieu demo`: a throwaway platform that shows what the real one is for. It runs a web server that knows nothing of leaving
//! well, puts it under load, replaces, deletes and crashes things, and counts the requests that were lost.
//!
//! Needs nothing but this program and root. Everything it makes is gone afterwards, however it ends ([`platform`]). The story is
//! told by `steps`; `app` and `crate::load` run in its pods.

pub mod app;
pub(crate) mod image;
mod manifests;
mod platform;
pub(crate) mod screen;
mod steps;
mod timeline;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::load::Counts;
use crate::progress;
use platform::Platform;
use screen::Screen;
use steps::{Outcome, Steps};

/// How often the line that moves is drawn.
pub(crate) const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// What shells answer of a program that a signal ended: this and the signal's number.
pub(crate) const SIGNALLED: u8 = 128;

/// `adieu demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
It takes about half a minute, disturbs no other instance on the machine, and removes what it made, also on Ctrl-C.
Exits with 0 if no request was lost.

Example:
  sudo adieu demo")]
pub struct DemoArgs {
    /// Where its folder is made, with room for three times this program
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
}

/// What the demo needs to know of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// This program.
    pub program: &'a Path,
    /// What is written to.
    pub screen: progress::Screen,
    /// Tells the time on the wall.
    pub now: fn() -> Timestamp,
}

/// Shows everything, writing to `out`.
pub fn run(args: &DemoArgs, surroundings: Surroundings<'_>, out: impl Write) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(show(args, surroundings, out));
    // Nothing of it is left to be waited for.
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

async fn show(args: &DemoArgs, surroundings: Surroundings<'_>, out: impl Write) -> Result<ExitCode> {
    // Before there is anything to remove.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let mut platform = Platform::new(surroundings.program, &args.dir)?;
    let counts = platform.root().join("counts");
    fs::create_dir(&counts)?;
    let counted = {
        let counts = counts.clone();
        move || Counts::read(&counts)
    };
    let screen = Screen::new(surroundings.screen, counted, out);
    let place = platform.root().display().to_string();
    screen.say(format!("adieu demo: everything is in {place} and on a network of its own, and is removed at the end"));
    let ended = {
        let steps = Steps { platform: &mut platform, screen: &screen, counts, now: surroundings.now };
        let mut steps = std::pin::pin!(steps.all());
        loop {
            tokio::select! {
                outcome = &mut steps => break Ok(outcome),
                number = signals.heard() => break Err(number),
                () = tokio::time::sleep(DRAWN_EVERY) => screen.draw(),
            }
        }
    };
    let (code, why) = judge(&screen, ended);
    screen.begin("removing everything");
    let mut removing = std::pin::pin!(platform.remove());
    let removed = loop {
        tokio::select! {
            removed = &mut removing => break removed,
            _ = signals.heard() => screen.say("still removing everything; that takes a few seconds"),
            () = tokio::time::sleep(DRAWN_EVERY) => screen.draw(),
        }
    };
    match &removed {
        Ok(()) => screen.done("everything is removed"),
        Err(_) => screen.failed("not everything could be removed"),
    }
    if let Some(why) = why {
        screen.say(format!("\n{why}"));
    }
    removed.map(|()| ExitCode::from(code))
}

/// Shows what came of it; answers the exit code, and what is said last.
fn judge<W: Write>(screen: &Screen<W>, ended: Result<Result<Outcome>, u8>) -> (u8, Option<String>) {
    match ended {
        Ok(Ok(Outcome { counts, stories })) => {
            screen.say(format!("\n{}", stories.join("\n")));
            for (reason, count) in &counts.lost {
                screen.say(format!("lost: {count} ({reason})"));
            }
            let is_good = counts.lost() == 0 && counts.answered() > 0;
            (u8::from(!is_good), Some(screen::result(&counts)))
        }
        Ok(Err(error)) => {
            screen.failed(format!("{error:#}"));
            (1, None)
        }
        Err(number) => {
            screen.failed("stopped");
            (SIGNALLED + number, None)
        }
    }
}

/// What ends a command that somebody started.
pub(crate) struct Signals {
    interrupt: Signal,
    term: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from here on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    pub(crate) async fn heard(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.term.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}
