//! Manifests as people keep them: several documents, lists of objects, pods and what makes pods, Services.
//!
//! What an object may look like is `api`'s to say: it is decoded, defaulted and validated exactly as if it were
//! applied. Kinds that have no pods are named and left alone.

use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};

use super::checked::{checked, joined};
use super::documents::{self, Source};
use super::live;
use super::located::Located;
use super::mistakes::{Mistakes, SourceLocation};
use super::workload::{self, OtherObject, Template};

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    /// The pods that come of it, in the order of the files.
    pub(super) pods: Vec<PlannedPod>,
    /// The Services, for which pods they send traffic to, and where each is written.
    pub(super) services: Vec<(SourceLocation, Service)>,
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
    /// Its maker as the API would store it; the pod itself if nobody makes it.
    pub(super) owner: Value,
    /// Where it is written.
    pub(super) place: SourceLocation,
    /// The document, for the lines of its fields.
    document: Located,
    /// Where the pod is within the document; empty for a pod.
    prefix: &'static str,
}

impl PlannedPod {
    /// It is there to be over one day.
    pub(super) fn is_job(&self) -> bool {
        matches!(self.kind.as_str(), "Job" | "CronJob")
    }

    /// A field of the pod as it is called in the manifest.
    pub(super) fn path_of(&self, field: &str) -> String {
        joined(self.prefix, field)
    }

    /// The line of a field of the pod.
    pub(super) fn line_of(&self, field: &str) -> u64 {
        self.document.line_of(&self.path_of(field))
    }
}

/// Reads every source, noting everything that is wrong.
pub(super) fn read(sources: &[Source], mistakes: &mut Mistakes) -> Manifests {
    let mut manifests = Manifests::default();
    for source in sources {
        let documents = documents::documents(source, mistakes);
        let mut reader = Reader { file: &source.name, manifests: &mut manifests, mistakes };
        documents.iter().for_each(|document| reader.document(document, None));
    }
    manifests
}

/// The same of objects that a cluster has, each with what it is called there.
pub(super) fn of_objects(objects: &[(String, Value)], mistakes: &mut Mistakes) -> Manifests {
    let mut manifests = Manifests::default();
    for (name, object) in objects {
        let mut reader = Reader { file: name, manifests: &mut manifests, mistakes };
        reader.document(&Located::nowhere(&live::manifest(object)), None);
    }
    manifests
}

struct Reader<'a> {
    file: &'a str,
    manifests: &'a mut Manifests,
    mistakes: &'a mut Mistakes,
}

impl Reader<'_> {
    /// One object; `listed` is what it is if it does not say so itself.
    fn document(&mut self, document: &Located, listed: Option<(&str, &str)>) {
        let (api_version, kind) = match (document.text("apiVersion"), document.text("kind"), listed) {
            ("", "", Some(listed)) => listed,
            (api_version, kind, _) => (api_version, kind),
        };
        if !document.is_map() {
            let text = format!("this is {}, and should be an object with apiVersion and kind", document.shape_word());
            self.mistake(document.line, "", text);
        } else if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
            let text = match document.get(missing) {
                Some(wrong) => format!("is {}, must be a text", wrong.shape_word()),
                None => "required, so that we know what this is".to_owned(),
            };
            self.mistake(document.line_of(missing), missing, text);
        } else if let Some(items) = document.get("items").filter(|_| kind.ends_with("List")) {
            let item = kind.strip_suffix("List").filter(|item| !item.is_empty()).map(|item| (api_version, item));
            items.items().iter().for_each(|object| self.document(object, item));
        } else if (api_version, kind) == ("v1", "Service") {
            self.service(document);
        } else if let Some(template) = workload::template(api_version, kind) {
            self.workload(document, template);
        } else {
            let name = document.get("metadata").map_or("", |metadata| metadata.text("name"));
            let place = self.place(document.line);
            let skipped = match workload::stranger(api_version, kind) {
                OtherObject::HasNoPods => format!("{kind} {name} ({place}) has no pods of its own"),
                OtherObject::Unknown => format!(
                    "{kind} {name} ({place}) is of a kind that is not known here ({api_version}); if it makes pods, they \
                     are not planned"
                ),
                OtherObject::Mistaken { field, message } => {
                    self.mistake(document.line_of(field), field, message);
                    return;
                }
            };
            self.manifests.skipped.push(skipped);
        }
    }

    fn service(&mut self, document: &Located) {
        let kind = api::built_in("", "v1", "services").expect("services are served");
        let (value, complaints) = checked(kind, &document.value());
        if complaints.is_empty() {
            match serde_json::from_value(value) {
                Ok(service) => self.manifests.services.push((self.place(document.line), service)),
                Err(error) => self.mistake(document.line, "", error.to_string()),
            }
        }
        for (field, text) in complaints {
            self.mistake(document.line_of(&field), &field, text);
        }
    }

    fn workload(&mut self, document: &Located, template: &'static Template) {
        // A typed list leaves the kind of its items to be understood.
        let mut value = document.value();
        value["kind"] = json!(template.kind);
        value["apiVersion"] = json!(template.api_version());
        match template.read(&value) {
            Ok((owner, pod)) => self.manifests.pods.push(PlannedPod {
                pod,
                kind: template.kind.to_owned(),
                name: name_of(&value),
                replicas: template.replicas(&owner),
                owner,
                place: self.place(document.line),
                document: document.clone(),
                prefix: template.prefix,
            }),
            Err(complaints) => {
                for (field, text) in complaints {
                    self.mistake(document.line_of(&field), &field, text);
                }
            }
        }
    }

    fn mistake(&mut self, line: u64, field: &str, text: impl Into<String>) {
        let place = self.place(line);
        self.mistakes.add(place, field, text);
    }

    fn place(&self, line: u64) -> SourceLocation {
        SourceLocation { file: self.file.to_owned(), line }
    }
}

/// `metadata.name`, or what it will begin with.
fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
        (Some(name), _) if !name.is_empty() => name.to_owned(),
        (_, Some(begin)) => format!("{begin}…"),
        (_, None) => String::new(),
    }
}
