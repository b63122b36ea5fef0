//! Manifests as people keep them: files, several documents each, lists of objects; every mistake with its place.
//!
//! What a pod may look like is `api`'s to say: a pod or a pod template is decoded, defaulted and validated exactly as
//! if it were applied. Kinds that `api` does not know are read by their published types.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::located::Located;
use super::workload::{self, Template};

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// The pods that come of it, in the order of the files.
    pub(super) pods: Vec<PlannedPod>,
    /// The Services, for which pods they send traffic to.
    pub(super) services: Vec<Service>,
    /// What was left alone, in a sentence each.
    pub(super) skipped: Vec<String>,
}

/// A pod that will come of a manifest.
#[derive(Debug)]
pub(super) struct PlannedPod {
    /// As the API would store it: defaults filled in.
    pub(super) pod: Pod,
    /// `Pod`, or the kind that makes it.
    pub(super) kind: String,
    /// The name in the manifest.
    pub(super) name: String,
    /// How many there will be, where the manifest says.
    pub(super) replicas: Option<i64>,
    /// Where it is written.
    pub(super) place: Place,
    /// The document, for the lines of its fields.
    document: Located,
    /// Where the pod is within the document; empty for a pod.
    prefix: &'static str,
}

impl PlannedPod {
    /// A field of the pod as it is called in the manifest.
    pub(super) fn path_of(&self, field: &str) -> String {
        joined(self.prefix, field)
    }

    /// The line of a field of the pod.
    pub(super) fn line_of(&self, field: &str) -> u64 {
        self.document.line_of(&self.path_of(field))
    }
}

/// A Service, reduced to whom it sends traffic.
#[derive(Debug)]
pub(super) struct Service {
    /// Its name.
    pub(super) name: String,
    /// In which namespace.
    pub(super) namespace: String,
    /// The labels it looks for.
    pub(super) selector: BTreeMap<String, String>,
}

impl Service {
    /// Whether it sends traffic to that pod.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        !self.selector.is_empty()
            && self.namespace == namespace
            && self.selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    }
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file as it was named, or `standard input`.
    pub(super) file: String,
    /// Counted from 1; 0 if nobody knows.
    pub(super) line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

/// Everything that is wrong with what was read.
#[derive(Debug, Default, thiserror::Error)]
pub(super) struct Mistakes(Vec<(Place, String)>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "mistake" } else { "mistakes" };
        write!(f, "{} {plural} in the manifests", self.0.len())?;
        self.0.iter().try_for_each(|(place, text)| write!(f, "\n  {place}: {text}"))
    }
}

const DEFAULT_NAMESPACE: &str = "default";
const STANDARD_INPUT: &str = "standard input";

/// Reads every file (`-` is `stdin`), or says everything that is wrong with them.
pub(super) fn read(files: &[impl AsRef<Path>], stdin: &mut dyn Read) -> Result<Manifests> {
    let (mut manifests, mut mistakes) = (Manifests::default(), Mistakes::default());
    for path in files.iter().map(AsRef::as_ref) {
        let (file, text) = if path == Path::new("-") {
            let mut text = String::new();
            stdin.read_to_string(&mut text).context("cannot read standard input")?;
            (STANDARD_INPUT.to_owned(), text)
        } else {
            let file = path.display().to_string();
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
            (file, text)
        };
        Reader { file: &file, manifests: &mut manifests, mistakes: &mut mistakes }.read(&text);
    }
    if mistakes.0.is_empty() { Ok(manifests) } else { Err(mistakes.into()) }
}

struct Reader<'a> {
    file: &'a str,
    manifests: &'a mut Manifests,
    mistakes: &'a mut Mistakes,
}

impl Reader<'_> {
    fn read(&mut self, text: &str) {
        match serde_saphyr::from_multiple::<Located>(text) {
            Ok(documents) => documents.iter().for_each(|document| self.document(document)),
            Err(error) => {
                let line = error.location().map_or(0, |location| location.line());
                // The first line says what is wrong; the rest draws the text around it, names the place again, and
                // advises whoever calls the parser.
                let rendered = error.without_snippet().to_string();
                let sentence = rendered.lines().next().unwrap_or_default();
                let sentence = sentence.split(" at line ").next().unwrap_or_default();
                self.mistake(line, sentence.split(", set ").next().unwrap_or_default().to_owned());
            }
        }
    }

    fn document(&mut self, document: &Located) {
        let (api_version, kind) = (document.text("apiVersion"), document.text("kind"));
        if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
            self.mistake(document.line, format!("{missing}: required, so that we know what this is"));
        } else if (api_version, kind) == ("v1", "List") {
            let items = document.get("items").map_or(&[][..], Located::items);
            items.iter().for_each(|item| self.document(item));
        } else if (api_version, kind) == ("v1", "Service") {
            self.service(document);
        } else if let Some(template) = workload::template(api_version, kind) {
            self.workload(document, template);
        } else {
            let name = document.get("metadata").map_or("", |metadata| metadata.text("name"));
            let place = self.place(document.line);
            self.manifests.skipped.push(format!("{kind} {name} ({place}) has no pods of its own"));
        }
    }

    fn service(&mut self, document: &Located) {
        let value = document.value();
        let selector = value["spec"]["selector"].as_object().into_iter().flatten();
        self.manifests.services.push(Service {
            name: word(&value["metadata"]["name"]).to_owned(),
            namespace: namespace(&value),
            selector: selector.map(|(key, value)| (key.clone(), word(value).to_owned())).collect(),
        });
    }

    fn workload(&mut self, document: &Located, template: &'static Template) {
        let before = self.mistakes.0.len();
        let value = document.value();
        for (field, text) in template.complaints(&value) {
            self.complain(document, &field, &text);
        }
        let pod = match template.pod(&value) {
            Ok(pod) => pod,
            Err(complaints) => {
                for (field, text) in complaints {
                    self.complain(document, &field, &text);
                }
                return;
            }
        };
        if self.mistakes.0.len() > before {
            return;
        }
        self.manifests.pods.push(PlannedPod {
            pod,
            kind: template.kind.to_owned(),
            name: word(&value["metadata"]["name"]).to_owned(),
            replicas: template.replicas(&value),
            place: self.place(document.line),
            document: document.clone(),
            prefix: template.prefix,
        });
    }

    fn complain(&mut self, document: &Located, field: &str, text: &str) {
        let line = document.line_of(field);
        self.mistake(line, if field.is_empty() { text.to_owned() } else { format!("{field}: {text}") });
    }

    /// Two ways of looking may find the same thing; it is said once.
    fn mistake(&mut self, line: u64, text: String) {
        let mistake = (self.place(line), text);
        if !self.mistakes.0.contains(&mistake) {
            self.mistakes.0.push(mistake);
        }
    }

    fn place(&self, line: u64) -> Place {
        Place { file: self.file.to_owned(), line }
    }
}

/// `spec.template` + `spec.containers` -> `spec.template.spec.containers`.
pub(super) fn joined(prefix: &str, field: &str) -> String {
    match (prefix, field) {
        ("", field) => field.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, field) => format!("{prefix}.{field}"),
    }
}

/// A text, or nothing.
pub(super) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The namespace an object says it is in.
pub(super) fn namespace(value: &Value) -> String {
    match word(&value["metadata"]["namespace"]) {
        "" => DEFAULT_NAMESPACE.to_owned(),
        name => name.to_owned(),
    }
}
