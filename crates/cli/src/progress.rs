//! What a person sees while an image is pulled: a line per layer that moves on a terminal, one line per step elsewhere.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use runtime::image::{LayerProgress, LayerState, Progress};
use tokio::sync::watch;

use crate::image::size;

/// Faster than this nobody reads.
const REDRAWN_AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// More lines than this do not fit on small terminals; the rest is told in one.
const LINES_MOST: usize = 16;
const BAR: usize = 24;

/// Where progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Screen {
    /// Lines can be drawn over.
    Terminal,
    /// Lines stay where they are: files, pipes, build logs.
    Lines,
}

impl Screen {
    /// What standard error is.
    pub fn of_stderr() -> Self {
        Self::of(&io::stderr())
    }

    /// What a stream is.
    pub fn of(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { Self::Terminal } else { Self::Lines }
    }
}

/// Waits for `work` and shows how far it is on standard error.
pub(crate) async fn shown<T>(work: impl Future<Output = T>, mut told: watch::Receiver<Progress>, screen: Screen) -> T {
    let mut view = View { screen, drawn: 0, said: Vec::new() };
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                view.show(&told.borrow(), &mut io::stderr());
                return done;
            }
            // The sender lives as long as the work.
            _ = told.changed() => {}
        }
        view.show(&told.borrow_and_update().clone(), &mut io::stderr());
        tokio::select! {
            done = &mut work => {
                view.show(&told.borrow(), &mut io::stderr());
                return done;
            }
            () = tokio::time::sleep(REDRAWN_AT_MOST_EVERY) => {}
        }
    }
}

struct View {
    screen: Screen,
    drawn: usize,
    said: Vec<&'static str>,
}

impl View {
    /// Progress that cannot be shown is no reason to fail.
    fn show(&mut self, progress: &Progress, out: &mut impl Write) {
        let _ = match self.screen {
            Screen::Terminal => self.draw(progress, out),
            Screen::Lines => self.say(progress, out),
        };
    }

    fn draw(&mut self, progress: &Progress, out: &mut impl Write) -> io::Result<()> {
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        let shown = progress.layers.len().min(LINES_MOST);
        for layer in &progress.layers[..shown] {
            text.push_str(&format!("\x1b[2K{}\n", line(layer)));
        }
        let rest = &progress.layers[shown..];
        if !rest.is_empty() {
            let done = rest.iter().filter(|layer| is_over(layer.state)).count();
            text.push_str(&format!("\x1b[2K  and {done} of {} more\n", rest.len()));
        }
        self.drawn = shown + usize::from(!rest.is_empty());
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn say(&mut self, progress: &Progress, out: &mut impl Write) -> io::Result<()> {
        self.said.resize(progress.layers.len(), "");
        for (said, layer) in self.said.iter_mut().zip(&progress.layers) {
            let word = word(layer.state);
            if *said != word && layer.state != LayerState::Waiting {
                *said = word;
                writeln!(out, "{}  {word} ({})", short(&layer.digest), size(layer.size_bytes))?;
            }
        }
        Ok(())
    }
}

fn is_over(state: LayerState) -> bool {
    matches!(state, LayerState::Done | LayerState::Present)
}

fn word(state: LayerState) -> &'static str {
    match state {
        LayerState::Waiting => "waiting",
        LayerState::Downloading { .. } => "downloading",
        LayerState::Unpacking => "unpacking",
        LayerState::Done => "done",
        LayerState::Present => "already here",
    }
}

fn line(layer: &LayerProgress) -> String {
    let LayerState::Downloading { done_bytes } = layer.state else {
        return format!("{}  {:13} {:>9}", short(&layer.digest), word(layer.state), size(layer.size_bytes));
    };
    let filled =
        usize::try_from(done_bytes.saturating_mul(BAR as u64) / layer.size_bytes.max(1)).unwrap_or(BAR).min(BAR);
    let (done, left) = ("█".repeat(filled), " ".repeat(BAR - filled));
    let told = format!("{} of {}", size(done_bytes), size(layer.size_bytes));
    format!("{}  downloading   {told:>20}  {done}{left}", short(&layer.digest))
}

fn short(digest: &str) -> &str {
    let hex = digest.trim_start_matches("sha256:");
    hex.get(..12).unwrap_or(hex)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn layer(number: u8, state: LayerState) -> LayerProgress {
        LayerProgress { digest: format!("sha256:{}", format!("{number}").repeat(64)), size_bytes: 2_000_000, state }
    }

    fn told(screen: Screen, states: &[Vec<LayerState>]) -> String {
        let mut view = View { screen, drawn: 0, said: Vec::new() };
        let mut out = Vec::new();
        for state in states {
            let layers = (1..).zip(state).map(|(number, state)| layer(number, *state)).collect();
            view.show(&Progress { layers }, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pull_progress_without_a_terminal_prints_each_step_once() {
        let steps = [
            vec![LayerState::Present, LayerState::Waiting],
            vec![LayerState::Present, LayerState::Downloading { done_bytes: 1 }],
            vec![LayerState::Present, LayerState::Downloading { done_bytes: 2 }],
            vec![LayerState::Present, LayerState::Done],
        ];
        assert_eq!(
            told(Screen::Lines, &steps),
            "111111111111  already here (2.0 MB)\n222222222222  downloading (2.0 MB)\n222222222222  done (2.0 MB)\n"
        );
    }

    #[test]
    fn pull_progress_on_a_terminal_redraws_its_lines() {
        let drawn = told(
            Screen::Terminal,
            &[
                vec![LayerState::Downloading { done_bytes: 1_000_000 }],
                vec![LayerState::Downloading { done_bytes: 9_000_000 }],
            ],
        );
        let half = "█".repeat(BAR / 2) + &" ".repeat(BAR / 2);
        assert!(drawn.contains(&half) && drawn.contains("\x1b[1A") && drawn.contains(&"█".repeat(BAR)), "{drawn:?}");
    }
}
