//! Mistakes in probes and lifecycle hooks.

use serde_json::Value;

use super::{container::in_port_range, list, word};
use crate::status::Cause;

const PROBE_ACTIONS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK_ACTIONS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// What a stop signal may be, besides the real-time ones.
#[rustfmt::skip]
const SIGNALS: [&str; 34] = [
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO",
    "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP",
    "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM",
    "SIGWINCH", "SIGXCPU", "SIGXFSZ",
];

/// `SIGTERM`, `SIGRTMIN+3`, `SIGRTMAX-14`.
fn is_signal(name: &str) -> bool {
    let offset = |text: &str, sign: char, most: u8| {
        text.is_empty()
            || text.strip_prefix(sign).and_then(|n| n.parse::<u8>().ok()).is_some_and(|n| (1..=most).contains(&n))
    };
    SIGNALS.contains(&name)
        || name.strip_prefix("SIGRTMIN").is_some_and(|rest| offset(rest, '+', 15))
        || name.strip_prefix("SIGRTMAX").is_some_and(|rest| offset(rest, '-', 14))
}

/// What is wrong with the probe at `field`; `which` is `livenessProbe` and so on.
pub(super) fn probe(probe: &Value, which: &str, field: &str, causes: &mut Vec<Cause>) {
    action(probe, &PROBE_ACTIONS, field, causes);
    let numbers = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    for key in numbers {
        if let Some(number) = probe[key].as_i64().filter(|n| *n < 0) {
            let text = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("{field}.{key}"), number, text));
        }
    }
    if which != "readinessProbe"
        && let Some(number) = probe["successThreshold"].as_i64().filter(|n| *n != 1)
    {
        causes.push(Cause::invalid(format!("{field}.successThreshold"), number, "must be 1"));
    }
    if let Some(seconds) = probe["terminationGracePeriodSeconds"].as_i64() {
        let field = format!("{field}.terminationGracePeriodSeconds");
        if which == "readinessProbe" {
            causes.push(Cause::invalid(field, seconds, "must not be set for readinessProbes"));
        } else if seconds <= 0 {
            causes.push(Cause::invalid(field, seconds, "must be greater than 0"));
        }
    }
}

/// What is wrong with the hooks at `field`. A sleep must fit in the grace, and a stop signal needs to know whose
/// signals they are.
pub(super) fn lifecycle(lifecycle: &Value, spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    for hook in ["postStart", "preStop"] {
        let handler = &lifecycle[hook];
        if !handler.is_object() {
            continue;
        }
        let field = format!("{field}.{hook}");
        action(handler, &HOOK_ACTIONS, &field, causes);
        let grace = spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
        if let Some(seconds) = handler["sleep"]["seconds"].as_i64()
            && !(0..=grace).contains(&seconds)
        {
            let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            causes.push(Cause::invalid(format!("{field}.sleep"), seconds, &text));
        }
    }
    let signal = word(lifecycle, "stopSignal");
    if !signal.is_empty() {
        let field = format!("{field}.stopSignal");
        if word(&spec["os"], "name").is_empty() {
            causes.push(Cause::forbidden(field, "may not be set for containers with empty `spec.os.name`"));
        } else if !is_signal(signal) {
            causes.push(Cause::not_supported(field, signal, &SIGNALS));
        }
    }
}

/// Exactly one way to act, and that one complete.
fn action(handler: &Value, known: &[&str], field: &str, causes: &mut Vec<Cause>) {
    let mut chosen = known.iter().filter(|key| handler[**key].is_object());
    let Some(first) = chosen.next() else {
        causes.push(Cause::required(field, "must specify a handler type"));
        return;
    };
    for extra in chosen {
        causes.push(Cause::forbidden(format!("{field}.{extra}"), "may not specify more than 1 handler type"));
    }
    let body = &handler[*first];
    let field = format!("{field}.{first}");
    match *first {
        "exec" if list(body, "command").is_empty() => {
            causes.push(Cause::required(format!("{field}.command"), ""));
        }
        "httpGet" => {
            port(&body["port"], &field, causes);
            if !matches!(word(body, "scheme"), "HTTP" | "HTTPS") {
                let scheme = body["scheme"].clone();
                causes.push(Cause::not_supported(format!("{field}.scheme"), scheme, &["HTTP", "HTTPS"]));
            }
        }
        "tcpSocket" | "grpc" => port(&body["port"], &field, causes),
        _ => {}
    }
}

/// A number, or the name of a port.
fn port(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let field = format!("{field}.port");
    match (value.as_i64(), value.as_str()) {
        (Some(number), _) => in_port_range(&field, number, causes),
        (None, Some(name)) => {
            if let Some(text) = crate::rules::names::port_name(name) {
                causes.push(Cause::invalid(field, name, &text));
            }
        }
        (None, None) => causes.push(Cause::required(field, "")),
    }
}
