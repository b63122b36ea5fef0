//! What the client can read: the `Accept` header, and which form of an object it asks for.

use api::Status;
use http::{HeaderMap, header};

/// How objects are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As they are.
    Object,
    /// `meta.k8s.io` Table, for people.
    Table {
        /// Asked for as `v1beta1` by old clients.
        version: &'static str,
    },
    /// Metadata only.
    Partial,
    /// Aggregated discovery, on `/api` and `/apis` only.
    Discovery {
        /// `v2` or `v2beta1`.
        version: &'static str,
    },
}

/// What the bytes of an answer are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Media {
    Json,
    Yaml,
    /// Only for those who read nothing else: whoever lists it first reads JSON as well, which is what is stored.
    Protobuf,
}

/// The forms the client accepts, best first, and what the best of them is written in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Accept(Vec<Form>, Media);

impl Accept {
    pub(crate) fn parse(headers: &HeaderMap) -> Self {
        let text: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if text.iter().all(|line| line.trim().is_empty()) {
            return Self(vec![Form::Object], Media::Json);
        }
        let mut weighted: Vec<(u16, Form, Media)> =
            text.iter().flat_map(|line| line.split(',')).filter_map(|clause| parse_clause(clause.trim())).collect();
        if weighted.iter().any(|(.., media)| *media != Media::Protobuf) {
            weighted.retain(|(.., media)| *media != Media::Protobuf);
        }
        weighted.sort_by_key(|(quality, ..)| std::cmp::Reverse(*quality));
        let media = weighted.first().map_or(Media::Json, |(.., media)| *media);
        Self(weighted.into_iter().map(|(_, form, _)| form).collect(), media)
    }

    /// What answers are written in.
    pub(crate) fn media(&self) -> Media {
        self.1
    }

    /// The best form for an object or a list.
    pub(crate) fn for_objects(&self) -> Result<Form, Status> {
        let fits = |form: &&Form| !matches!(form, Form::Discovery { .. });
        self.0.iter().find(fits).copied().ok_or_else(Status::not_acceptable)
    }

    /// For an endpoint that can only answer with plain objects.
    pub(crate) fn plain(&self) -> Result<(), Status> {
        if self.0.contains(&Form::Object) { Ok(()) } else { Err(Status::not_acceptable()) }
    }

    /// The best form for a discovery document: aggregated or not.
    pub(crate) fn for_discovery(&self) -> Result<Form, Status> {
        // Discovery has no messages here: those who ask for it read JSON.
        let fits = |form: &&Form| match form {
            Form::Discovery { .. } | Form::Object => self.1 != Media::Protobuf,
            Form::Table { .. } | Form::Partial => false,
        };
        self.0.iter().find(fits).copied().ok_or_else(Status::not_acceptable)
    }
}

fn parse_clause(clause: &str) -> Option<(u16, Form, Media)> {
    let mut parts = clause.split(';').map(str::trim);
    let media = match parts.next()? {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        "application/vnd.kubernetes.protobuf" => Media::Protobuf,
        _ => return None,
    };
    let (mut transform, mut group, mut version, mut quality) = ("", "", "", 1000_u16);
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "as" => transform = value,
            "g" => group = value,
            "v" => version = value,
            "q" => quality = parse_quality(value),
            _ => {}
        }
    }
    if quality == 0 {
        return None;
    }
    let form = match (transform, group, version) {
        ("", _, _) => Form::Object,
        // Tables have no message anywhere.
        ("Table", _, _) if media == Media::Protobuf => return None,
        ("Table", "meta.k8s.io", "v1") => Form::Table { version: "v1" },
        ("Table", "meta.k8s.io", "v1beta1") => Form::Table { version: "v1beta1" },
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", _) => Form::Partial,
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery { version: "v2" },
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Form::Discovery { version: "v2beta1" },
        _ => return None,
    };
    Some((quality, form, media))
}

/// `0.5` as 500.
fn parse_quality(text: &str) -> u16 {
    match text.parse::<f32>() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000 first")]
        Ok(quality) => (quality.clamp(0.0, 1.0) * 1000.0) as u16,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn accept(text: &str) -> Accept {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, text.parse().unwrap());
        Accept::parse(&headers)
    }

    #[test]
    fn kubectl_gets_a_table_and_typed_clients_get_json() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(kubectl).for_objects().unwrap(), Form::Table { version: "v1" });
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!((accept(typed).for_objects().unwrap(), accept(typed).media()), (Form::Object, Media::Json));
        assert_eq!(accept("*/*").for_objects().unwrap(), Form::Object);
        assert_eq!(Accept::parse(&HeaderMap::new()).for_objects().unwrap(), Form::Object);
    }

    #[test]
    fn accept_header_without_a_supported_type_is_406() {
        assert_eq!(accept("application/cbor").for_objects().unwrap_err().code, 406);
        assert_eq!(accept("application/json;q=0").for_objects().unwrap_err().code, 406);
        assert!(accept("application/json;as=Table;v=v1;g=meta.k8s.io").plain().is_err());
    }

    #[test]
    fn protobuf_is_written_for_those_who_read_nothing_else() {
        let alone = accept("application/vnd.kubernetes.protobuf;stream=watch");
        assert_eq!((alone.for_objects().unwrap(), alone.media()), (Form::Object, Media::Protobuf));
        assert_eq!(alone.for_discovery().unwrap_err().code, 406);
        let either = accept("application/vnd.kubernetes.protobuf, */*;q=0.1");
        assert_eq!((either.for_objects().unwrap(), either.media()), (Form::Object, Media::Json));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(
            (accept(metadata).for_objects().unwrap(), accept(metadata).media()),
            (Form::Partial, Media::Protobuf)
        );
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
        assert_eq!(accept(table).for_objects().unwrap_err().code, 406);
    }

    #[test]
    fn quality_decides_before_order() {
        let text = "application/json;q=0.5, application/json;as=Table;g=meta.k8s.io;v=v1";
        assert_eq!(accept(text).for_objects().unwrap(), Form::Table { version: "v1" });
    }

    #[test]
    fn discovery_prefers_the_aggregated_form_when_asked() {
        let text = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(accept(text).for_discovery().unwrap(), Form::Discovery { version: "v2" });
        assert_eq!(accept(text).for_objects().unwrap(), Form::Object);
    }
}
