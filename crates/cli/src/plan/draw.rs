//! A plan for people: the timeline, the drawing of the budget, the verdict, the advice.

use std::fmt::Write as _;
use std::time::Duration;

use super::Plan;
use super::bars::{Bar, On};
use super::paint::{Ink, Paint};
use super::sentence::{reached, sentence, steering};
use super::story::{Fact, HookName, Seen, What};
use super::verdict::Word;
use super::words::{length, moment};

/// Columns of the drawing.
const WIDE: i64 = 60;
/// What stands above the timeline.
const HEAD: &str = "what happens   -> what Adieu does";
/// Columns of a paragraph.
const PARAGRAPH: usize = 68;

/// The whole plan as text.
pub(super) fn plan(plan: &Plan<'_>, paint: Paint) -> String {
    let mut page = Page { text: String::new(), paint };
    page.heading(plan);
    page.timeline(plan);
    page.budget(plan);
    page.verdict(plan);
    page.warnings(plan);
    page.text
}

struct Page {
    text: String,
    paint: Paint,
}

impl Page {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{}", text.trim_end()).expect("writing to a string does not fail");
    }

    fn heading(&mut self, plan: &Plan<'_>) {
        let pod = plan.pod;
        let title = match (pod.kind.as_str(), pod.replicas) {
            ("Pod", _) => format!("Pod {}", pod.name),
            (kind, Some(1)) | (kind, None) => format!("A pod of {kind} {}", pod.name),
            (kind, Some(replicas)) => format!("A pod of {kind} {} ({replicas} replicas)", pod.name),
        };
        let place = self.paint.ink(Ink::Faint, format!("  {}", pod.place));
        self.line(&format!("{}{place}", self.paint.ink(Ink::Strong, title)));
        if let Some(traffic) = &plan.traffic {
            self.labelled("traffic", &reached(traffic));
            self.labelled("", &steering(traffic, plan));
        }
        for (index, assumed) in plan.assumed.iter().enumerate() {
            self.labelled(if index == 0 { "assuming" } else { "" }, assumed);
        }
        if !plan.assumed.is_empty() {
            let hint = match plan.traffic {
                Some(_) => "say otherwise with --app, --hook and --traffic",
                None => "say otherwise with --app and --hook",
            };
            self.line(&format!("  {:8}  {}", "", self.paint.ink(Ink::Faint, hint)));
        }
        self.line("");
    }

    /// A paragraph beside a label.
    fn labelled(&mut self, label: &str, text: &str) {
        for (index, line) in wrapped(text, PARAGRAPH).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            self.line(&format!("  {label:8}  {line}"));
        }
    }

    fn timeline(&mut self, plan: &Plan<'_>) {
        let begin = if plan.from_the_start { 0 } else { plan.delete_position() };
        let told = plan.story.facts[begin..].iter();
        let mut told: Vec<_> = told.filter_map(|fact| Some((fact, sentence(fact, plan)?))).collect();
        // Why nothing else happens to a container whose hook runs.
        let in_hook = |(fact, _): &(&Fact, _)| matches!(fact.what, What::HookStarted { hook: HookName::PreStop });
        if let Some(last) = told.iter().rposition(in_hook) {
            let text = "  -- its stop signal comes after its hook".to_owned();
            told.insert(last + 1, (told[last].0, (text, None)));
        }
        let wide = told.iter().map(|(_, (text, _))| text.chars().count()).max().unwrap_or(0).max(HEAD.len());
        self.line(&self.paint.ink(Ink::Faint, format!("{:>9}  {HEAD:wide$}   kubectl get pod", "time")));
        let (mut time, mut shown): (Option<String>, Option<Seen>) = (None, None);
        for (fact, (text, ink)) in told {
            // A time or a row that has not changed is not said again.
            let at = Some(moment(fact.at_millis));
            let label = at.clone().filter(|_| at != time).unwrap_or_default();
            let seen = Some(fact.kubectl.clone());
            let row = seen.as_ref().filter(|_| seen != shown).map(|seen| format!("{} {}", seen.ready, seen.status));
            let row = self.paint.ink(Ink::Faint, row.unwrap_or_default().trim_start());
            let padding = " ".repeat(wide - text.chars().count());
            let text = ink.map_or_else(|| text.clone(), |ink| self.paint.ink(ink, &text));
            self.line(&format!("{label:>9}  {text}{padding}   {row}"));
            (time, shown) = (at, seen);
        }
        self.line("");
    }

    fn budget(&mut self, plan: &Plan<'_>) {
        let grace = i64::try_from(plan.story.budget().as_millis()).unwrap_or(i64::MAX);
        let last = plan.bars.iter().filter_map(|bar| bar.end).map(|end| end.at_millis).max().unwrap_or(0);
        let scale = Scale { whole: grace.max(last).max(1_000) };
        let wide = plan.bars.iter().map(|bar| bar.name.len()).max().unwrap_or(0).max("grace".len());
        let (labels, axis) = scale.axis(grace);
        self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {labels}", "grace").trim_end()));
        self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {axis}", "")));
        for bar in &plan.bars {
            let drawing = scale.bar(bar, self.paint);
            self.line(&format!("  {:wide$}  {drawing}", bar.name));
        }
        let legend = legend(&plan.bars, &scale);
        self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {legend}", "")));
        self.line("");
    }

    fn verdict(&mut self, plan: &Plan<'_>) {
        let ink = match plan.verdict.word {
            Word::Clean => Ink::Good,
            Word::Hurried => Ink::Doubtful,
            Word::Forced => Ink::Bad,
        };
        let word = self.paint.ink(ink, plan.verdict.word.text());
        let text = format!("{}{}: {}", plan.verdict.word.text(), plan.verdict.condition(), plan.verdict.because);
        for (index, line) in wrapped(&text, PARAGRAPH).iter().enumerate() {
            match line.strip_prefix(plan.verdict.word.text()).filter(|_| index == 0) {
                Some(rest) => self.line(&format!("  verdict: {word}{rest}")),
                None => self.line(&format!("           {line}")),
            }
        }
        for line in wrapped(plan.verdict.meaning, PARAGRAPH) {
            self.line(&self.paint.ink(Ink::Faint, format!("           {line}")));
        }
    }

    fn warnings(&mut self, plan: &Plan<'_>) {
        for warning in &plan.warnings {
            let whose = warning.container.as_ref().map_or_else(String::new, |name| format!("{name}: "));
            let place = match warning.line {
                Some(line) => format!("  {}:{line}", plan.pod.place.file),
                None => format!("  {}", warning.field),
            };
            self.line("");
            let label = self.paint.ink(Ink::Doubtful, "warning:");
            let finding = self.paint.ink(Ink::Strong, format!("{whose}{}", warning.finding));
            self.line(&format!("  {label} {finding}"));
            self.line(&self.paint.ink(Ink::Faint, format!("         [{}]{place}", warning.code)));
            self.paragraph("why", &warning.reason);
            self.paragraph("do", &warning.remedy);
        }
    }

    fn paragraph(&mut self, label: &str, text: &str) {
        for (index, line) in wrapped(text, PARAGRAPH).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            self.line(&format!("    {}  {line}", self.paint.ink(Ink::Faint, format!("{label:>3}"))));
        }
    }
}

/// From milliseconds to columns.
struct Scale {
    whole: i64,
}

impl Scale {
    fn column(&self, millis: i64) -> usize {
        let (millis, whole) = (i128::from(millis.clamp(0, self.whole)), i128::from(self.whole));
        usize::try_from((millis * i128::from(WIDE) + whole / 2) / whole).unwrap_or(0)
    }

    /// Labels and a ruler; the deadline ends the ruler with a bar.
    fn axis(&self, grace: i64) -> (String, String) {
        const STEPS: [i64; 15] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400];
        let step = STEPS.iter().map(|step| step * 1_000).find(|step| step * 7 >= self.whole);
        // Beyond a week nobody reads the days: the beginning and the end are enough.
        let step = step.unwrap_or(self.whole);
        let (deadline, mut at) = (self.column(grace), 0);
        let columns = usize::try_from(WIDE).unwrap_or(0);
        let (mut labels, mut ruler) = (String::new(), vec![b'-'; deadline + 1]);
        while at <= self.whole {
            let label = length(Duration::from_millis(at.unsigned_abs()));
            let column = self.column(at);
            if column >= labels.len() && column + label.len() <= columns + 4 {
                labels.push_str(&" ".repeat(column - labels.len()));
                labels.push_str(&label);
                labels.push(' ');
            }
            if let Some(tick) = ruler.get_mut(column) {
                *tick = b'+';
            }
            at = at.saturating_add(step);
            if at == i64::MAX {
                break;
            }
        }
        ruler[deadline] = b'|';
        (labels, String::from_utf8_lossy(&ruler).into_owned())
    }

    fn bar(&self, bar: &Bar, paint: Paint) -> String {
        let mut drawing = String::new();
        let mut drawn = 0;
        for span in &bar.spans {
            // Whatever took place at all is seen; but the barrier, as a rule, is a matter of milliseconds.
            let least = usize::from(span.to_millis > span.from_millis && span.on != On::Barrier);
            let to = self.column(span.to_millis).max(drawn + least);
            let (letter, ink) = match span.on {
                On::Barrier => (SERVING, Ink::Faint),
                On::PreStop => (HOOK, Ink::Hook),
                On::Turn => (TURN, Ink::Faint),
                On::Stopping => (STOPPING, Ink::Good),
            };
            drawing.push_str(&paint.ink(ink, letter.to_string().repeat(to.saturating_sub(drawn))));
            drawn = to.max(drawn);
        }
        if let Some(end) = bar.end {
            let (mark, ink) = if end.killed { (KILLED, Ink::Bad) } else { (EXITED, Ink::Strong) };
            let _ = write!(drawing, "{} {}", paint.ink(ink, mark), paint.ink(Ink::Faint, format!("exit {}", end.code)));
        }
        drawing
    }
}

const SERVING: char = '~';
const HOOK: char = '=';
const TURN: char = '.';
const STOPPING: char = '#';
const EXITED: char = 'o';
const KILLED: char = 'X';

/// What the letters of a drawing mean; only those that are in it.
fn legend(bars: &[Bar], scale: &Scale) -> String {
    let spent = |on: On| bars.iter().any(|bar| bar.spans.iter().any(|span| span.on == on));
    let moving =
        bars.iter().flat_map(|bar| &bar.spans).any(|span| span.on == On::Barrier && scale.column(span.to_millis) > 0);
    let ended = |killed: bool| bars.iter().any(|bar| bar.end.is_some_and(|end| end.killed == killed));
    let entries = [
        (moving, SERVING, "serves on while its traffic moves away"),
        (spent(On::PreStop), HOOK, "preStop hook"),
        (spent(On::Turn), TURN, "waits for its turn"),
        (spent(On::Stopping), STOPPING, "asked to exit"),
        (ended(false), EXITED, "exited"),
        (ended(true), KILLED, "killed"),
    ];
    let shown = entries.iter().filter(|(used, ..)| *used).map(|(_, letter, text)| format!("{letter} {text}"));
    shown.collect::<Vec<_>>().join("   ")
}

/// `text` in lines of at most `wide` columns.
fn wrapped(text: &str, wide: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= wide => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
