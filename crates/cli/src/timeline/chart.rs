//! An end as bars on a line of time, and every step as a line of words.

use std::fmt::Write as _;

use api::TerminationRecord;
use api::termination::{TerminationStep, step};

/// One part of an end that lasts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bar {
    /// What it is: `drain`, `preStop app`, `stop app`.
    pub(super) label: String,
    /// Milliseconds after the first request.
    pub(super) from: i64,
    /// The same; none while it goes on.
    pub(super) to: Option<i64>,
    /// What to say of it.
    pub(super) remark: String,
    /// Which part of an end it is, for colours.
    pub(super) kind: BarKind,
}

/// The parts of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BarKind {
    /// New connections go elsewhere, open ones have their time.
    Drain,
    /// A hook runs.
    Hook,
    /// A process was asked to stop.
    Stop,
    /// The same, and it had to be killed.
    Killed,
    /// Nothing runs; what it had is removed.
    Clear,
}

impl BarKind {
    fn letter(self) -> char {
        match self {
            Self::Drain => '░',
            Self::Hook => '▒',
            Self::Stop | Self::Clear => '█',
            Self::Killed => '▓',
        }
    }
}

/// No end is longer: what says so cannot be drawn.
const LONGEST_MS: i64 = 1 << 40;

/// When a step was, within what can be drawn.
fn at(own: &TerminationStep) -> i64 {
    own.after_milliseconds.clamp(0, LONGEST_MS)
}

/// The parts that last, in the order they began.
pub(super) fn bars(record: &TerminationRecord) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let find = |from: usize, wanted: &dyn Fn(&TerminationStep) -> bool| {
        record.steps.iter().skip(from + 1).find(|step| wanted(step)).map(at)
    };
    let cut = record.steps.iter().position(|own| own.type_ == step::CUT_ASKED || own.type_ == step::DRAINED);
    if let Some(place) = cut {
        let drained = record.steps.iter().find(|own| own.type_ == step::DRAINED);
        bars.push(Bar {
            label: "drain".to_owned(),
            from: at(&record.steps[place]).min(0),
            to: drained.map(at),
            remark: record.barrier.clone(),
            kind: BarKind::Drain,
        });
    }
    for (place, own) in record.steps.iter().enumerate() {
        let from = at(own);
        let same = |other: &TerminationStep| other.container == own.container;
        match own.type_.as_str() {
            step::HOOK_STARTED => {
                let is_end =
                    |other: &TerminationStep| other.type_ == step::HOOK_ENDED && same(other) && other.hook == own.hook;
                let ended = record.steps.iter().skip(place + 1).find(|other| is_end(other));
                bars.push(Bar {
                    label: format!("{} {}", own.hook, own.container),
                    from,
                    to: ended.map(at),
                    remark: ended.map(|ended| ended.result.clone()).unwrap_or_default(),
                    kind: BarKind::Hook,
                });
            }
            step::SIGNAL_ASKED => {
                let exit = record.steps.iter().skip(place + 1).find(|other| other.type_ == step::EXITED && same(other));
                let killed = record.steps.iter().any(|other| other.type_ == step::KILL_ASKED && same(other));
                let code =
                    exit.and_then(|exit| exit.exit_code).map(|code| format!(", exit code {code}")).unwrap_or_default();
                let kill = if killed { ", KILL" } else { "" };
                bars.push(Bar {
                    label: format!("stop {}", own.container),
                    from,
                    to: exit.map(at),
                    remark: format!("{}{kill}{code}", own.signal),
                    kind: if killed { BarKind::Killed } else { BarKind::Stop },
                });
            }
            step::SANDBOX_REMOVAL_ASKED => bars.push(Bar {
                label: "clear up".to_owned(),
                from,
                to: find(place, &|other| other.type_ == step::SANDBOX_REMOVED),
                remark: String::new(),
                kind: BarKind::Clear,
            }),
            step::DELETE_ASKED => bars.push(Bar {
                label: "object".to_owned(),
                from,
                to: find(place, &|other| other.type_ == step::DELETED),
                remark: String::new(),
                kind: BarKind::Clear,
            }),
            _ => {}
        }
    }
    bars
}

/// How long the drawing is, in milliseconds: until the end, or until the last that happened.
pub(super) fn length(record: &TerminationRecord) -> i64 {
    let last = record.steps.last().map_or(0, at);
    record.took_milliseconds.unwrap_or(last).max(last).clamp(1, LONGEST_MS)
}

/// `pod/web-0 in shop, clean: …`
pub(super) fn title(namespace: &str, record: &TerminationRecord) -> String {
    let node = if record.node_name.is_empty() { String::new() } else { format!(" on {}", record.node_name) };
    let verdict = if record.verdict.is_empty() { String::new() } else { format!(", {}", record.verdict) };
    format!("pod/{} in namespace {namespace}{node}{verdict}", record.pod.name)
}

/// The whole drawing.
pub fn draw(namespace: &str, record: &TerminationRecord, remark: &str, width: usize) -> String {
    let mut out = format!("{}\n", title(namespace, record));
    if !record.summary.is_empty() {
        let _ = writeln!(out, "{}", record.summary);
    }
    if !remark.is_empty() {
        let _ = writeln!(out, "({remark})");
    }
    let (bars, length) = (bars(record), length(record));
    if !bars.is_empty() {
        let labels = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0).clamp(6, 28);
        let room = width.saturating_sub(labels + 34).clamp(20, 72);
        let _ = writeln!(
            out,
            "\n  {:labels$}  0{}{}",
            "",
            " ".repeat(room.saturating_sub(seconds(length).len() + 1)),
            seconds(length)
        );
        for bar in &bars {
            let place = |at: i64| {
                usize::try_from(at.clamp(0, length)).unwrap_or(0) * room / usize::try_from(length).unwrap_or(1)
            };
            let from = place(bar.from).min(room - 1);
            let to = place(bar.to.unwrap_or(length)).clamp(from + 1, room);
            let letters: String = std::iter::repeat_n(bar.kind.letter(), to - from).collect();
            let line = format!("{}{letters}{}", " ".repeat(from), " ".repeat(room - to));
            let took = match bar.to {
                Some(to) => seconds(to - bar.from),
                None => "goes on".to_owned(),
            };
            let label: String = bar.label.chars().take(labels).collect();
            let remark = if bar.remark.is_empty() { String::new() } else { format!("  {}", bar.remark) };
            let _ = writeln!(out, "  {label:labels$}  {line}  {took}{remark}");
        }
    }
    out.push('\n');
    for own in &record.steps {
        let _ = writeln!(out, "{}", step_text(own));
    }
    if record.omitted_steps > 0 {
        let _ = writeln!(out, "            {} more steps were not kept", record.omitted_steps);
    }
    out
}

/// `     0.006  SIGTERM to app`
pub fn step_text(own: &TerminationStep) -> String {
    let time = format!("{}.{:03}", at(own) / 1000, at(own) % 1000);
    let said = |words: String| if own.message.is_empty() { words } else { own.message.clone() };
    let mut words = match own.type_.as_str() {
        step::REQUESTED => said("asked to leave".to_owned()),
        step::CUT_ASKED => format!("-> {}", said("send new connections elsewhere".to_owned())),
        step::CUT => said("new connections go elsewhere".to_owned()),
        step::CONNECTIONS => format!("{} connections are open", own.connections.unwrap_or(0)),
        step::DRAINED => {
            let message = if own.message.is_empty() { String::new() } else { format!(": {}", own.message) };
            format!("new connections go elsewhere, or are not waited for ({}{message})", own.result)
        }
        step::HOOK_STARTED => format!("-> run the {} hook of {}", own.hook, own.container),
        step::HOOK_ENDED => {
            let message = if own.message.is_empty() { String::new() } else { format!(": {}", own.message) };
            format!("{} hook of {}: {}{message}", own.hook, own.container, own.result)
        }
        step::HOOK_CANCELLED => format!("-> end the {} hook of {}", own.hook, own.container),
        step::SIGNAL_ASKED => format!("-> {} to {}", own.signal, own.container),
        step::SIGNAL_DELIVERED => format!("{} to {}: {}", own.signal, own.container, own.result),
        step::KILL_ASKED => format!("-> SIGKILL to {}", own.container),
        step::SANDBOX_REMOVAL_ASKED => "-> remove the sandbox".to_owned(),
        step::SANDBOX_REMOVED => "the sandbox is gone".to_owned(),
        step::DELETE_ASKED => "-> delete the object".to_owned(),
        step::DELETED => "the object is gone".to_owned(),
        step::REBOOTED => "the machine was booted anew".to_owned(),
        other => said(other.to_owned()),
    };
    if own.type_ != step::CONNECTIONS
        && let Some(open) = own.connections
    {
        let _ = write!(words, " ({open} connections open)");
    }
    let mut line = format!("{time:>10}  {words}");
    for output in own.output.lines() {
        let _ = write!(line, "\n            | {output}");
    }
    line
}

/// `1.204 s`.
pub(super) fn seconds(millis: i64) -> String {
    format!("{}.{:03} s", millis / 1000, millis % 1000)
}
