//! What a pod's annotations ask for about its traffic. Unknown values act as if nothing had been said.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{BarrierMode, ContainerName, DrainSpec, LastEndpoint};

/// Reads the annotations of a pod.
pub(crate) fn drain_spec(pod: &Pod) -> DrainSpec {
    let said = |name: &str| pod.metadata.annotations.as_ref()?.get(&format!("adieu.dev/{name}")).map(String::as_str);
    let seconds = |name: &str| said(name).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let plain = DrainSpec::default();
    DrainSpec {
        barrier: match said("drain-barrier") {
            Some("local") => BarrierMode::Local,
            Some("acks") => BarrierMode::Acks,
            Some("quiet") => BarrierMode::Quiet,
            Some("off") => BarrierMode::Off,
            _ => plain.barrier,
        },
        barrier_cap: seconds("drain-barrier-seconds"),
        reserve: seconds("term-reserve-seconds"),
        budget: seconds("drain-budget-seconds"),
        enough: said("drain-min-connections").and_then(|text| text.parse().ok()).unwrap_or(plain.enough),
        signal: said("drain-signal").and_then(crate::signal_named),
        signal_to: said("drain-container").map(|name| ContainerName(name.to_owned())),
        elide_sleep: said("elide-sleep") == Some("true"),
        last_endpoint: match said("last-endpoint") {
            Some("hold") => LastEndpoint::Hold,
            Some("reject") => LastEndpoint::Reject,
            _ => plain.last_endpoint,
        },
        replacement_wait: seconds("replacement-wait-seconds"),
        restart_barrier: said("restart-barrier") != Some("off"),
    }
}

/// The annotations of ours that say nothing we understand, each with the reason; [`drain_spec`] passes them over.
pub fn unread_annotations(pod: &Pod) -> Vec<(String, String)> {
    let said = pod.metadata.annotations.iter().flatten();
    let ours = said.filter_map(|(name, text)| Some((name, name.strip_prefix("adieu.dev/")?, text.as_str())));
    ours.filter_map(|(name, short, text)| Some((name.clone(), objection(short, text)?))).collect()
}

fn objection(name: &str, text: &str) -> Option<String> {
    let one_of =
        |words: &[&str]| (!words.contains(&text)).then(|| format!("{text:?} is not one of: {}", words.join(", ")));
    match name {
        "drain-barrier" => one_of(&["auto", "local", "acks", "quiet", "off"]),
        "last-endpoint" => one_of(&["serve", "hold", "reject"]),
        "restart-barrier" | "redirect" => one_of(&["on", "off"]),
        "elide-sleep" => one_of(&["true", "false"]),
        "drain-barrier-seconds"
        | "term-reserve-seconds"
        | "drain-budget-seconds"
        | "replacement-wait-seconds"
        | "drain-idle-seconds"
        | "redirect-linger-seconds" => text.parse::<u64>().is_err().then(|| format!("{text:?} is no whole number")),
        "drain-ports" => {
            let wrong = text.split(',').find(|port| port.trim().parse::<u16>().is_err());
            wrong.map(|port| format!("{port:?} is no port"))
        }
        "drain-min-connections" => text.parse::<u32>().is_err().then(|| format!("{text:?} is no whole number")),
        "drain-signal" => crate::signal_named(text).is_none().then(|| format!("{text:?} is no signal such as SIGUSR1")),
        // Others have readers of their own.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::Signal;

    use super::*;

    #[test]
    fn annotations_are_read_and_nonsense_is_not() {
        let mut pod = Pod::default();
        assert_eq!(drain_spec(&pod), DrainSpec::default());
        let said = [
            ("drain-barrier", "acks"),
            ("drain-barrier-seconds", "3"),
            ("drain-budget-seconds", "1800"),
            ("drain-signal", "SIGUSR1"),
            ("drain-container", "app"),
            ("elide-sleep", "true"),
            ("last-endpoint", "reject"),
            ("restart-barrier", "off"),
            ("term-reserve-seconds", "soon"),
        ];
        let annotations = said.iter().map(|(name, text)| (format!("adieu.dev/{name}"), (*text).to_owned()));
        pod.metadata.annotations = Some(annotations.collect());
        let expected = DrainSpec {
            barrier: BarrierMode::Acks,
            barrier_cap: Some(Duration::from_secs(3)),
            budget: Some(Duration::from_secs(1800)),
            signal: Some(Signal(10)),
            signal_to: Some(ContainerName("app".to_owned())),
            elide_sleep: true,
            last_endpoint: LastEndpoint::Reject,
            restart_barrier: false,
            ..DrainSpec::default()
        };
        assert_eq!(drain_spec(&pod), expected);
        let objections = unread_annotations(&pod);
        assert_eq!(
            objections,
            [("adieu.dev/term-reserve-seconds".to_owned(), "\"soon\" is no whole number".to_owned())]
        );
    }
}
