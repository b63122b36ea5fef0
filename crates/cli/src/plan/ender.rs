//! preStop hooks that end the program themselves, as far as they are known to.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;

use super::command::{self, base};
use super::pause::{self, Pause};
use super::shell::{self, Command, Then};

/// Programs that end a server, with what each has to be told for it.
const ENDERS: [(&str, &[&str]); 7] = [
    ("nginx", &["-s quit", "-s stop"]),
    ("pg_ctl", &["stop"]),
    ("redis-cli", &["shutdown"]),
    ("mysqladmin", &["shutdown"]),
    ("apachectl", &["-k graceful-stop", "-k stop", "graceful-stop"]),
    ("httpd", &["-k graceful-stop", "-k stop"]),
    ("rabbitmqctl", &["stop", "shutdown"]),
];
/// Paths that end a server which is asked for them.
const PATHS: [&str; 1] = ["/quitquitquit"];

/// How long after its begin a hook asks the program to end; nothing if it is not known to.
pub(super) fn ends_after(handler: &LifecycleHandler) -> Option<Duration> {
    if let Some(get) = &handler.http_get {
        return get.path.as_deref().is_some_and(|path| PATHS.contains(&path)).then_some(Duration::ZERO);
    }
    let words = handler.exec.as_ref()?.command.as_deref()?;
    let Some(script) = command::script(words) else { return ends(words).then_some(Duration::ZERO) };
    let mut before = Duration::ZERO;
    for item in shell::parse(script)?.list {
        let [only] = item.pipeline.as_slice() else { return None };
        if ends(&only.words()?) {
            return Some(before);
        }
        match (pause::of(only), only, item.then) {
            (Pause::For(length), Command::Simple { .. }, Then::Next | Then::Line | Then::And) => before += length,
            // What comes before it may take any time, or keep it from being run.
            (..) => return None,
        }
    }
    None
}

fn ends(words: &[String]) -> bool {
    let Some((at, told)) = words.iter().enumerate().find_map(|(at, word)| {
        let (_, told) = ENDERS.iter().find(|(program, _)| *program == base(word))?;
        Some((at, *told))
    }) else {
        return false;
    };
    // Behind nothing but programs that become it: `gosu postgres pg_ctl`.
    let rest = format!(" {} ", words[at + 1..].join(" ").to_ascii_lowercase());
    at <= 2 && told.iter().any(|told| rest.contains(&format!(" {told} ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ExecAction;

    #[test]
    fn hooks_that_end_their_program_are_known_by_what_they_run() {
        let exec = |words: &[&str]| {
            let command = Some(words.iter().map(|word| (*word).to_owned()).collect());
            ends_after(&LifecycleHandler { exec: Some(ExecAction { command }), ..LifecycleHandler::default() })
        };
        let after = |secs: u64| Some(Duration::from_secs(secs));
        for (words, expected) in [
            (&["/usr/sbin/nginx", "-s", "quit"][..], after(0)),
            (&["nginx", "-s", "reload"], None),
            (&["sh", "-c", "sleep 5; nginx -s quit; while killall -0 nginx; do sleep 1; done"], after(5)),
            (&["sh", "-c", "sleep 5 && /usr/sbin/nginx -s quit"], after(5)),
            (&["sh", "-c", "gosu postgres pg_ctl stop -D /data -w -t 60 -m fast"], after(0)),
            (&["redis-cli", "-a", "secret", "SHUTDOWN", "SAVE"], after(0)),
            (&["redis-cli", "save"], None),
            (&["sh", "-c", "drain || nginx -s quit"], None),
            (&["sh", "-c", "until drained; do sleep 1; done; nginx -s quit"], None),
            (&["sleep", "5"], None),
        ] {
            assert_eq!(exec(words), expected, "{words:?}");
        }
    }
}
