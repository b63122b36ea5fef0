//! What a person sees of a demo or drill while it runs: on a terminal a line that moves below those that are done, elsewhere one line per
//! step.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::load::Counts;
use crate::progress;

/// Where the count of requests ends in a line that has the room.
const WIDTH: usize = 120;
/// What turns while something is under way.
const TURNS: [char; 4] = ['-', '\\', '|', '/'];

/// Shows how far it is. Who does not read it holds up nothing.
pub(crate) struct Screen<W> {
    kind: progress::Screen,
    began: Instant,
    counts: Box<dyn Fn() -> Option<Counts>>,
    state: Mutex<State<W>>,
}

struct State<W> {
    out: W,
    doing: Option<String>,
    turn: usize,
    is_drawn: bool,
}

impl<W: Write> Screen<W> {
    /// Writes to `out`. `counts` tells those of the load, once there are any.
    pub(crate) fn new(kind: progress::Screen, counts: impl Fn() -> Option<Counts> + 'static, out: W) -> Self {
        let state = Mutex::new(State { out, doing: None, turn: 0, is_drawn: false });
        Self { kind, began: Instant::now(), counts: Box::new(counts), state }
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is under way.
    pub(crate) fn begin(&self, doing: impl Into<String>) {
        self.state().doing = Some(doing.into());
        self.draw();
    }

    /// It is done, and this came of it.
    pub(crate) fn done(&self, what: impl AsRef<str>) {
        self.state().doing = None;
        self.line('✓', what.as_ref());
    }

    /// It failed, or was called off.
    pub(crate) fn failed(&self, what: impl AsRef<str>) {
        self.state().doing = None;
        self.line('✗', what.as_ref());
    }

    /// Something to read that is no step.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        let mut state = self.state();
        state.clear();
        let _ = writeln!(state.out, "{}", text.as_ref());
        let _ = state.out.flush();
    }

    /// Moves the line that moves.
    pub(crate) fn draw(&self) {
        if self.kind != progress::Screen::Terminal {
            return;
        }
        let counted = self.counted();
        let mut state = self.state();
        let Some(doing) = state.doing.clone() else { return };
        state.clear();
        state.turn = (state.turn + 1) % TURNS.len();
        let turn = TURNS[state.turn];
        let width = terminal_width();
        let line = line(self.began.elapsed(), turn, &format!("{doing} …"), &counted, width);
        // Without an end, so that the next one takes its place: it must not go round.
        let _ = write!(state.out, "{}", line.chars().take(width.saturating_sub(1)).collect::<String>());
        let _ = state.out.flush();
        state.is_drawn = true;
    }

    fn line(&self, mark: char, what: &str) {
        let counted = self.counted();
        let mut state = self.state();
        state.clear();
        let width = if self.kind == progress::Screen::Terminal { terminal_width() } else { WIDTH };
        let _ = writeln!(state.out, "{}", line(self.began.elapsed(), mark, what, &counted, width));
        let _ = state.out.flush();
    }

    fn counted(&self) -> String {
        (self.counts)().map_or_else(String::new, |counts| result(&counts))
    }
}

impl<W: Write> State<W> {
    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(self.out, "\r\x1b[2K");
        }
    }
}

/// How wide the terminal is, if it says so.
fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(80)
}

fn line(since: Duration, mark: char, what: &str, counted: &str, width: usize) -> String {
    let line = format!("{:5.1} s  {mark} {what}", since.as_secs_f64());
    if counted.is_empty() {
        return line;
    }
    let end = width.saturating_sub(1).min(WIDTH);
    let gap = end.saturating_sub(line.chars().count() + counted.len()).max(2);
    format!("{line}{}{counted}", " ".repeat(gap))
}

/// `48,211 requests, 0 lost`.
pub(crate) fn result(counts: &Counts) -> String {
    format!("{} requests, {} lost", number(counts.asked()), number(counts.lost()))
}

/// A number with a comma before each three digits.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: progress::Screen) -> String {
        let mut out = Vec::new();
        let screen = Screen::new(kind, || None, &mut out);
        screen.begin("rolling out");
        screen.draw();
        screen.done("rolled out");
        drop(screen);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn demo_on_a_terminal_moves_one_line_and_elsewhere_prints_each_step_once() {
        let piped = shown(progress::Screen::Lines);
        assert_eq!(piped.lines().count(), 1, "{piped:?}");
        assert!(piped.ends_with("s  ✓ rolled out\n") && !piped.contains('\x1b'), "{piped:?}");
        let drawn = shown(progress::Screen::Terminal);
        assert!(drawn.contains("rolling out …\r\x1b[2K") && drawn.ends_with("✓ rolled out\n"), "{drawn:?}");
        assert_eq!(drawn.lines().count(), 1, "{drawn:?}");
    }

    #[test]
    fn numbers_have_a_comma_before_each_three_digits() {
        let numbers = [0, 7, 999, 1000, 48_211, 1_234_567].map(number);
        assert_eq!(numbers, ["0", "7", "999", "1,000", "48,211", "1,234,567"]);
    }
}
