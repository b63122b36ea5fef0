//! A plan for people: the timeline, the drawing of the budget, the verdict, the advice.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LifecycleHandler, PodSpec};

use super::Plan;
use super::bars::{Bar, On};
use super::paint::{Ink, Paint};
use super::story::{Fact, HookName, Seen, What};
use super::verdict::Word;
use super::words::{about, length, moment};

/// Columns of the drawing.
const WIDE: i64 = 60;
/// Columns of a paragraph.
const PARAGRAPH: usize = 96;

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
        if !plan.services.is_empty() {
            self.line(&format!("  traffic   from Service {}", plan.services.join(", ")));
        }
        for (index, assumed) in plan.assumed.iter().enumerate() {
            let label = if index == 0 { "assuming" } else { "" };
            let hint = if index == 0 { "  (say otherwise with --app and --hook)" } else { "" };
            self.line(&format!("  {label:8}  {assumed}{}", self.paint.ink(Ink::Faint, hint)));
        }
        self.line("");
    }

    fn timeline(&mut self, plan: &Plan<'_>) {
        let begin = if plan.from_the_start { 0 } else { plan.delete_position() };
        let told = plan.story.facts[begin..].iter();
        let told: Vec<_> = told.filter_map(|fact| Some((fact, sentence(fact, plan)?))).collect();
        let wide = told.iter().map(|(_, (text, _))| text.chars().count()).max().unwrap_or(0);
        self.line(&self.paint.ink(Ink::Faint, format!("{:>9}  {:wide$}   kubectl get pod", "time", "what happens")));
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
        let legend = legend(&plan.bars);
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
        self.line(&format!("  verdict: {word}: {}", plan.verdict.because));
    }

    fn warnings(&mut self, plan: &Plan<'_>) {
        for warning in &plan.warnings {
            let whose = warning.container.as_ref().map_or_else(String::new, |name| format!("{name}: "));
            let place = format!("  {}:{}", plan.pod.place.file, warning.line);
            self.line("");
            let label = self.paint.ink(Ink::Doubtful, "warning:");
            let finding = self.paint.ink(Ink::Strong, format!("{whose}{}", warning.finding));
            self.line(&format!("  {label} {finding}{}", self.paint.ink(Ink::Faint, place)));
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

/// A fact in words; none for what only programs want to know.
fn sentence(fact: &Fact, plan: &Plan<'_>) -> Option<(String, Option<Ink>)> {
    let name = fact.container.as_deref().unwrap_or_default();
    let millis = Duration::from_millis;
    let plain = |text: String| Some((text, None));
    let inked = |text: String, ink: Ink| Some((text, Some(ink)));
    match &fact.what {
        What::Begun => plain("the node begins to run the pod".to_owned()),
        What::Started => plain(format!("{name} starts")),
        What::Ready => plain("everything is Ready".to_owned()),
        What::DeleteRequested { grace_millis } => inked(
            format!("delete requested: {} of grace for all that follows", length(millis(*grace_millis))),
            Ink::Strong,
        ),
        What::RemovedAtOnce if plan.story.grace.is_zero() => {
            inked("deleted with grace 0: the object goes before its programs do".to_owned(), Ink::Strong)
        }
        What::RemovedAtOnce => inked("deleted: nothing was left to wait for".to_owned(), Ink::Strong),
        What::HookStarted { hook } => {
            let text = plan.pod.pod.spec.as_ref().and_then(|spec| hook_text(spec, name, *hook)).unwrap_or_default();
            inked(format!("  -> run {} hook of {name}: {text}", hook_name(*hook)), Ink::Hook)
        }
        What::HookFinished { hook, succeeded, took_millis } => {
            let how = if *succeeded { "finished" } else { "failed" };
            plain(format!("{} hook of {name} {how} after {}", hook_name(*hook), about(millis(*took_millis))))
        }
        What::HookAbandoned { hook, after_millis } => inked(
            format!(
                "  -> abandon {} hook of {name}, unfinished after {}",
                hook_name(*hook),
                about(millis(*after_millis))
            ),
            Ink::Bad,
        ),
        What::WaitsForTurn => plain(format!("  -- {name} waits: a sidecar outlives what it serves")),
        What::Signalled { signal, left_millis } => {
            inked(format!("  -> {signal} to {name}, {} until SIGKILL", about(millis(*left_millis))), Ink::Good)
        }
        What::GraceSpent => inked("the grace is spent".to_owned(), Ink::Doubtful),
        What::NoticeSpent => plain(format!("the 2s that {name} had after its stop signal are over")),
        What::Killed => inked(format!("  -> SIGKILL to {name}: it did not exit in time"), Ink::Bad),
        What::Exited { code, by_kill: true, .. } => plain(format!("{name} is dead, exit code {code}")),
        What::Exited { code, after_signal_millis: Some(after), .. } => {
            plain(format!("{name} exited with {code}, {} after its stop signal", about(millis(*after))))
        }
        What::Exited { code, after_signal_millis: None, .. } => plain(format!("{name} exited with {code}")),
        What::SandboxRemoved if fact.kubectl.ready.is_empty() => plain("nothing of it is left on the node".to_owned()),
        What::SandboxRemoved => None,
        What::Gone => inked(format!("the pod is gone, its last phase was {:?}", plan.story.phase), Ink::Strong),
    }
}

fn hook_name(hook: HookName) -> &'static str {
    match hook {
        HookName::PreStop => "preStop",
        HookName::PostStart => "postStart",
    }
}

/// What a hook does, in a few words.
fn hook_text(spec: &PodSpec, name: &str, hook: HookName) -> Option<String> {
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let lifecycle = containers.find(|container| container.name == name)?.lifecycle.as_ref()?;
    let handler = match hook {
        HookName::PreStop => lifecycle.pre_stop.as_ref(),
        HookName::PostStart => lifecycle.post_start.as_ref(),
    };
    handler.map(handler_text)
}

fn handler_text(handler: &LifecycleHandler) -> String {
    const MOST: usize = 34;
    if let Some(sleep) = &handler.sleep {
        return format!("sleep {}", length(reading::seconds(sleep.seconds)));
    }
    if let Some(get) = &handler.http_get {
        return format!("GET {}", get.path.as_deref().unwrap_or("/"));
    }
    let words = handler.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
    // Of `sh -c SCRIPT`, the script is what matters.
    let words = match words {
        [_, flag, script] if flag.starts_with('-') && flag.ends_with('c') => std::slice::from_ref(script),
        words => words,
    };
    let text = words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST - 3).chain("...".chars()).collect() }
}

/// From milliseconds to columns.
struct Scale {
    whole: i64,
}

impl Scale {
    fn column(&self, millis: i64) -> usize {
        usize::try_from((millis.clamp(0, self.whole) * WIDE + self.whole / 2) / self.whole).unwrap_or(0)
    }

    /// Labels and a ruler; the deadline ends the ruler with a bar.
    fn axis(&self, grace: i64) -> (String, String) {
        const STEPS: [i64; 15] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400];
        let step = STEPS.iter().find(|step| **step * 1_000 * 7 >= self.whole).copied().unwrap_or(604_800) * 1_000;
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
            at += step;
        }
        ruler[deadline] = b'|';
        (labels, String::from_utf8_lossy(&ruler).into_owned())
    }

    fn bar(&self, bar: &Bar, paint: Paint) -> String {
        let mut drawing = String::new();
        let mut drawn = 0;
        for span in &bar.spans {
            // Whatever took place at all is seen.
            let to = self.column(span.to_millis).max(drawn + usize::from(span.to_millis > span.from_millis));
            let (letter, ink) = match span.on {
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

const HOOK: char = '=';
const TURN: char = '.';
const STOPPING: char = '#';
const EXITED: char = 'o';
const KILLED: char = 'X';

/// What the letters of a drawing mean; only those that are in it.
fn legend(bars: &[Bar]) -> String {
    let spent = |on: On| bars.iter().any(|bar| bar.spans.iter().any(|span| span.on == on));
    let ended = |killed: bool| bars.iter().any(|bar| bar.end.is_some_and(|end| end.killed == killed));
    let entries = [
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
