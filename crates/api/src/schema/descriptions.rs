//! What Kubernetes says about messages and their fields, as `build.rs` found it.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::termination_record;

/// Texts by name: `io.k8s.api.core.v1.PodSpec`, or the same with `.nodeName` behind it.
pub(crate) struct Descriptions {
    said: BTreeMap<String, Description>,
}

/// What is said about one message or field.
pub(crate) struct Description {
    /// In words.
    pub(crate) text: String,
    /// Whether a value without the field is refused.
    pub(crate) required: bool,
    /// `int32`, `int64`, or nothing.
    pub(crate) width: String,
}

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));

impl Descriptions {
    /// All of them, unpacked. They are needed when the documents are made, and not again.
    pub(crate) fn unpack() -> Self {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut text);
        read.expect("the build wrote what it reads");
        let mut said: BTreeMap<String, Description> = text.split('\x1e').filter_map(record).collect();
        let own = |text: &str| Description { text: text.to_owned(), required: false, width: String::new() };
        said.extend(termination_record::texts().map(|(name, text)| (name, own(text))));
        Self { said }
    }

    /// What is said about a message.
    pub(crate) fn message(&self, name: &str) -> Option<&Description> {
        self.said.get(name)
    }

    /// What is said about a field of a message.
    pub(crate) fn field(&self, message: &str, field: &str) -> Option<&Description> {
        self.said.get(&format!("{message}.{field}"))
    }
}

fn record(text: &str) -> Option<(String, Description)> {
    let mut units = text.splitn(3, '\x1f');
    let (name, facts, text) = (units.next()?, units.next()?, units.next()?);
    let width = facts.trim_start_matches('!').to_owned();
    Some((name.to_owned(), Description { text: text.to_owned(), required: facts.starts_with('!'), width }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn fields_are_described_by_their_names_in_json() {
        let descriptions = Descriptions::unpack();
        let grace = descriptions.field("io.k8s.api.core.v1.PodSpec", "terminationGracePeriodSeconds").unwrap();
        assert!(grace.text.contains("terminate gracefully") && !grace.required && grace.width == "int64");
        let kind = descriptions.field("io.k8s.api.core.v1.PodCondition", "type").unwrap();
        assert!(kind.text.starts_with("Type is the type of the condition") && kind.required, "{}", kind.text);
        let pod = descriptions.message("io.k8s.api.core.v1.Pod").unwrap();
        assert!(pod.text.starts_with("Pod is a collection of containers"), "{}", pod.text);
        assert!(!descriptions.field("io.k8s.api.core.v1.Pod", "metadata").unwrap().required);
        assert!(descriptions.field("io.k8s.api.core.v1.PodSpec", "node_name").is_none());
        assert!(
            descriptions.message("io.k8s.api.admissionregistration.v1.MutatingWebhook").is_none(),
            "not a message we read"
        );
    }
}
