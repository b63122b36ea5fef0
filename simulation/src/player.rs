//! One fresh process per story.
//!
//! tokio seeds the order of its `select!`s and wake-ups from a counter of the whole process, so a story is the same every time only
//! in a process that has played no other. A player is such a process, which has one thread and plays nothing itself: for every
//! story it is told it forks, and the child plays.

#![allow(unsafe_code, reason = "fork, in a process that has one thread")]

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::flaws::Planted;
use crate::laws::{Broken, Law};
use crate::scenario::Scenario;
use crate::trace::render;
use crate::world::play;

/// A story that takes longer, in real seconds, is stuck.
const STORY_SECONDS_MAX: u32 = 60;

/// How a story went, as it is told between processes.
#[derive(Clone, Debug)]
pub struct StoryResult {
    /// The story.
    pub scenario: Scenario,
    /// What happened, line by line.
    pub trace: String,
    /// Every seam that was passed.
    pub seams: Vec<String>,
    /// The laws that were broken.
    pub broken: Vec<Broken>,
}

/// A process that plays stories, one after the other.
pub struct Player {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Player {
    /// Starts one: `program` is `simulate`.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut process = Command::new(program).arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let gone = || io::Error::other("a player without pipes");
        let orders = process.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(gone)?);
        Ok(Self { process, orders, answers })
    }

    /// Plays a story, with this bug in the agent.
    pub fn play(&mut self, scenario: &Scenario, flaw: Option<Planted>) -> io::Result<StoryResult> {
        let flaw = flaw.map_or("-".to_owned(), Planted::name);
        writeln!(self.orders, "{flaw} {scenario}")?;
        self.orders.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut broken: Vec<Broken> = list(&told["broken"])
            .iter()
            .map(|one| Broken {
                law: Law::named(&text(&one["law"])).unwrap_or(Law::TheNodeWorks),
                at: one["at"].as_u64().unwrap_or(0),
                who: text(&one["who"]),
                how: text(&one["how"]),
            })
            .collect();
        if let Some(how) = told["died"].as_str() {
            broken.push(Broken { law: Law::TheNodeWorks, at: 0, who: "-".to_owned(), how: how.to_owned() });
        }
        let seams = list(&told["seams"]).iter().map(text).collect();
        Ok(StoryResult { scenario: scenario.clone(), trace: text(&told["trace"]), seams, broken })
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays whatever standard input asks for, each in a child of this process, which must have one thread.
pub fn serve() -> io::Result<()> {
    let mut line = String::new();
    while io::stdin().lock().read_line(&mut line)? > 0 {
        // SAFETY: this process has one thread, so the child finds no lock held.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                // SAFETY: it only arms a timer of this process.
                unsafe { libc::alarm(STORY_SECONDS_MAX) };
                answer(&line)?;
                // SAFETY: ends the child, whose parent goes on with the same standard input.
                unsafe { libc::_exit(0) };
            }
            child if child < 0 => return Err(io::Error::last_os_error()),
            child => {
                let mut status = 0;
                // SAFETY: the status is ours to write.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                if status != 0 {
                    let died = format!("the story ended its process ({status})");
                    writeln!(io::stdout(), "{}", json!({ "died": died }))?;
                }
            }
        }
        line.clear();
    }
    Ok(())
}

fn answer(line: &str) -> io::Result<()> {
    let (flaw, text) = line.trim_end().split_once(' ').unwrap_or(("-", line));
    let scenario: Scenario = text.parse().map_err(io::Error::other)?;
    let flaw = Planted::named(flaw);
    be_quiet_of_planted_panics();
    let outcome = play(&scenario, flaw);
    let broken: Vec<Value> = outcome
        .broken
        .iter()
        .map(|one| json!({ "law": format!("{:?}", one.law), "at": one.at, "who": one.who, "how": one.how }))
        .collect();
    let told = json!({ "trace": render(&outcome.trace, None), "seams": outcome.seams, "broken": broken });
    writeln!(io::stdout(), "{told}")
}

/// They are nobody's mistake, and a backtrace takes longer than the story.
fn be_quiet_of_planted_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = panic.payload_as_str().unwrap_or_default();
        if !words.contains("as it was planted") {
            usual(panic);
        }
    }));
}
