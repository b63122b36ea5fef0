//! A plan for people: the timeline, the drawing of the budget, the verdict, the advice.

use std::fmt::Write as _;
use std::time::Duration;

use super::Plan;
use super::bars::{Bar, End, On};
use super::duration_text::{length, moment};
use super::paint::{Ink, Paint};
use super::seen::Seen;
use super::sentence::{reached, sentence, steering};
use super::story::{Fact, FactKind, HookName};
use super::verdict::VerdictWord;

/// Columns of a terminal that nobody has made wider.
const SCREEN: usize = 80;
/// Columns of the drawing, at most and at least.
const WIDE: usize = 60;
const NARROW: usize = 20;
/// What stands behind a bar: ` exit 137`, and its end.
const BEHIND: usize = 10;
/// Columns of the time.
const TIME: usize = 9;
/// What stands above the rows of kubectl.
const KUBECTL: &str = "kubectl get pod";
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

/// A sentence about the manifests, beside the plans.
pub(super) fn aside(label: &str, text: &str) -> String {
    let lines = wrapped(&format!("{label}: {text}"), SCREEN - 2);
    lines.join("\n  ") + "\n"
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
        if pod.is_job() && !plan.bars.is_empty() {
            self.labelled(
                "job",
                "it ends by itself when its work is done, and is then asked nothing; shown is a delete while it works, as \
                 by a drain or an eviction",
            );
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
        let told = if plan.from_the_start { &plan.story.facts[..] } else { plan.story.departure() };
        let told = told.iter();
        let mut told: Vec<_> = told.filter_map(|fact| Some((fact, sentence(fact, plan)?))).collect();
        // Why nothing else happens to a container whose hook runs.
        let in_hook = |(fact, _): &(&Fact, _)| matches!(fact.what, FactKind::HookStarted { hook: HookName::PreStop });
        if let Some(last) = told.iter().rposition(in_hook) {
            let text = "  -- its stop signal comes after its hook".to_owned();
            told.insert(last + 1, (told[last].0, (text, None)));
        }
        // A time or a row that has not changed is not said again.
        let (mut time, mut shown): (Option<String>, Option<Seen>) = (None, None);
        let lines = told.into_iter().map(|(fact, (text, ink))| {
            let (at, seen) = (Some(moment(fact.at_millis)), Some(fact.kubectl.clone()));
            let label = at.clone().filter(|_| at != time).unwrap_or_default();
            let row = fact.kubectl.clone();
            let row = format!("{} {}", row.ready, row.status).trim_start().to_owned();
            let row = Some(row).filter(|_| seen != shown).unwrap_or_default();
            (time, shown) = (at, seen);
            (label, text, ink, row)
        });
        let lines: Vec<_> = lines.collect();
        // What has no row beside it may be as wide as the screen.
        let rows = lines.iter().map(|(.., row)| row.len()).max().unwrap_or(0).max(KUBECTL.len());
        let room = SCREEN.saturating_sub(TIME + 2 + 3 + rows).max(HEAD.len());
        let beside = lines.iter().filter(|(.., row)| !row.is_empty()).map(|(_, text, ..)| text.chars().count());
        let wide = beside.max().unwrap_or(0).clamp(HEAD.len(), room);
        self.line(&self.paint.ink(Ink::Faint, format!("{:>TIME$}  {HEAD:wide$}   {KUBECTL}", "time")));
        for (mut label, text, ink, mut row) in lines {
            let most = if row.is_empty() { SCREEN - TIME - 2 } else { wide };
            for text in indented(&text, most) {
                let padding = " ".repeat(wide.saturating_sub(text.chars().count()));
                let text = ink.map_or_else(|| text.clone(), |ink| self.paint.ink(ink, &text));
                let row = self.paint.ink(Ink::Faint, std::mem::take(&mut row));
                self.line(&format!("{:>TIME$}  {text}{padding}   {row}", std::mem::take(&mut label)));
            }
        }
        self.line("");
    }

    fn budget(&mut self, plan: &Plan<'_>) {
        if plan.bars.is_empty() {
            return;
        }
        let grace = i64::try_from(plan.story.grace.as_millis()).unwrap_or(i64::MAX);
        let last = plan.bars.iter().filter_map(|bar| bar.end).map(|end| end.at_millis).max().unwrap_or(0);
        let wide = plan.bars.iter().map(|bar| bar.name.len()).max().unwrap_or(0).max("grace".len());
        let columns = SCREEN.saturating_sub(2 + wide + 2 + BEHIND).clamp(NARROW, WIDE);
        let scale = Scale { whole: grace.max(last).max(1_000), columns };
        let (labels, axis) = scale.axis(grace);
        self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {labels}", "grace").trim_end()));
        self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {axis}", "")));
        for bar in &plan.bars {
            let drawing = scale.bar(bar, self.paint);
            self.line(&format!("  {:wide$}  {drawing}", bar.name));
        }
        let legend = legend(&plan.bars, &scale);
        let room = SCREEN.saturating_sub(2 + wide + 2).max(NARROW);
        for line in entries(&legend, room) {
            self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {line}", "")));
        }
        if plan.story.grace.is_zero() {
            let floor = "at grace 0, hooks have 1s all the same, and a program has 2s from its stop signal to SIGKILL";
            for line in wrapped(floor, room) {
                self.line(&self.paint.ink(Ink::Faint, format!("  {:wide$}  {line}", "")));
            }
        }
        self.line("");
    }

    fn verdict(&mut self, plan: &Plan<'_>) {
        let ink = match plan.verdict.word {
            VerdictWord::Clean => Ink::Good,
            VerdictWord::Hurried => Ink::Doubtful,
            VerdictWord::Forced => Ink::Bad,
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
            let finding = wrapped(&format!("{whose}{}", warning.finding), PARAGRAPH + 1);
            for (index, line) in finding.iter().enumerate() {
                let label = if index == 0 { label.as_str() } else { "        " };
                self.line(&format!("  {label} {}", self.paint.ink(Ink::Strong, line)));
            }
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
    columns: usize,
}

impl Scale {
    fn column(&self, millis: i64) -> usize {
        let (millis, whole) = (i128::from(millis.clamp(0, self.whole)), i128::from(self.whole));
        let columns = i128::try_from(self.columns).unwrap_or(0);
        usize::try_from((millis * columns + whole / 2) / whole).unwrap_or(0)
    }

    /// Labels and a ruler; the deadline ends the ruler with a bar. A grace of 0 begins it.
    fn axis(&self, grace: i64) -> (String, String) {
        const STEPS: [i64; 15] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400];
        let most = i64::try_from(self.columns / 8).unwrap_or(1);
        let step = STEPS.iter().map(|step| step * 1_000).find(|step| step * most >= self.whole);
        // Beyond a week nobody reads the days: the beginning and the end are enough.
        let step = step.unwrap_or(self.whole);
        let (deadline, mut at) = (self.column(grace), 0);
        let columns = self.columns;
        let length_of_ruler = if grace == 0 { columns } else { deadline };
        let (mut labels, mut ruler) = (String::new(), vec![b'-'; length_of_ruler + 1]);
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
            let (mark, ink) = match end {
                End { killed: true, .. } => (KILLED, Ink::Bad),
                End { signal: Some(_), .. } => (DIED, Ink::Doubtful),
                End { signal: None, .. } => (EXITED, Ink::Strong),
            };
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
const DIED: char = 'x';
const KILLED: char = 'X';

/// What the letters of a drawing mean; only those that are in it.
fn legend(bars: &[Bar], scale: &Scale) -> Vec<String> {
    let spent = |on: On| bars.iter().any(|bar| bar.spans.iter().any(|span| span.on == on));
    let moving =
        bars.iter().flat_map(|bar| &bar.spans).any(|span| span.on == On::Barrier && scale.column(span.to_millis) > 0);
    let ended = |how: fn(&End) -> bool| bars.iter().any(|bar| bar.end.as_ref().is_some_and(how));
    let entries = [
        (moving, SERVING, "serves on while its traffic moves away"),
        (spent(On::PreStop), HOOK, "preStop hook"),
        (spent(On::Turn), TURN, "waits for its turn"),
        (spent(On::Stopping), STOPPING, "asked to exit"),
        (ended(|end| end.signal.is_none()), EXITED, "exited"),
        (ended(|end| !end.killed && end.signal.is_some()), DIED, "died of its stop signal"),
        (ended(|end| end.killed), KILLED, "killed"),
    ];
    let shown = entries.iter().filter(|(used, ..)| *used).map(|(_, letter, text)| format!("{letter} {text}"));
    shown.collect()
}

/// The entries of a legend in lines of at most `wide` columns.
fn entries(entries: &[String], wide: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for entry in entries {
        match lines.last_mut() {
            Some(line) if line.len() + 3 + entry.len() <= wide => *line += &format!("   {entry}"),
            Some(_) | None => lines.push(entry.clone()),
        }
    }
    lines
}

/// A line of the timeline; what does not fit is put below it, a little to the right.
fn indented(text: &str, wide: usize) -> Vec<String> {
    if text.chars().count() <= wide {
        return vec![text.to_owned()];
    }
    let inset = text.len() - text.trim_start().len();
    let lines = wrapped(text, wide.saturating_sub(inset + 3));
    let at = |index: usize| if index == 0 { inset } else { inset + 3 };
    lines.iter().enumerate().map(|(index, line)| format!("{}{line}", " ".repeat(at(index)))).collect()
}

/// `text` in lines of at most `wide` columns.
fn wrapped(text: &str, wide: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= wide => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
