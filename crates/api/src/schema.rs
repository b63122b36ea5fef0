//! What is known about every published message: which fields it has, and how each one travels and merges.
//!
//! Three users share it: protobuf bodies (numbers and types), strategic merge (merge keys) and server-side apply
//! with its record of owners (list and map types). The facts are generated (`schema/table.rs`); this file is the
//! vocabulary they are written in, and the look-ups. It knows nothing about values: see [`crate::protobuf`],
//! [`crate::patch`] and [`crate::managed_fields`].

mod answers;
mod descriptions;
#[rustfmt::skip]
mod table;
mod termination_record;

pub(crate) use answers::{answer_of, list_meta};
pub(crate) use descriptions::Descriptions;

/// A kind that may be the body of a request.
pub(crate) struct Root {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    message: &'static Message,
}

/// One message: a JSON object with known fields.
pub(crate) struct Message {
    /// Where it is published: `io.k8s.api.core.v1`.
    pub(crate) package: &'static str,
    /// Its published name, for error texts and tests.
    pub(crate) name: &'static str,
    /// In the order of their numbers.
    pub(crate) fields: &'static [Field],
    /// Server-side apply owns it whole, wherever it stands.
    pub(crate) atomic: bool,
}

/// One field of a message.
pub(crate) struct Field {
    /// Number on the protobuf wire.
    pub(crate) number: u32,
    /// Name in JSON; empty when the fields of the message stand directly in its parent.
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) of: Type,
    pub(crate) presence: Presence,
    /// What strategic merge does with a list or an object.
    pub(crate) strategy: Strategy,
    /// The value a list key has when an element does not name it.
    pub(crate) default: Option<&'static str>,
}

/// How many values a field holds, and who may own what of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One value.
    One { atomic: bool },
    /// Fields of the parent, in a message of their own on the wire.
    Inline,
    /// A list, owned whole.
    List,
    /// A list of scalars, each owned by itself.
    Set,
    /// A list of objects told apart by these fields.
    Keyed(&'static [&'static str]),
    /// Free keys, one value each.
    Map { atomic: bool },
}

/// What a value looks like, on the wire and in JSON.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    Str,
    Int,
    Bool,
    /// Base64 in JSON.
    Bytes,
    /// A message holding one string; a string in JSON.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Seconds and nanoseconds; RFC 3339 in JSON.
    Time,
    /// The same with six decimals.
    MicroTime,
    /// A message holding JSON as bytes.
    Raw,
    /// A message holding a list of strings, the value of some maps.
    Strings,
    Msg(&'static Message),
}

/// What absence and zero mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Absent and zero differ.
    Optional,
    /// Zero is the same as absent, and is left out.
    Omitted,
    /// The field is part of every value: senders write it even when it is empty.
    Always,
}

/// How a list or an object in a strategic patch meets the one that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Objects are merged field by field; lists are replaced.
    Default,
    /// Replaced whole, even when it is an object.
    Replace,
    /// A list whose elements are matched by this field, or by their own value when it is empty.
    List(&'static str),
}

/// The message of a kind that may be sent to us.
pub(crate) fn message_of(group: &str, version: &str, kind: &str) -> Option<&'static Message> {
    let named = |root: &&Root| root.group == group && root.version == version && root.kind == kind;
    let published = table::ROOTS.iter().find(named).map(|root| root.message);
    published.or_else(|| termination_record::message_if(group, version, kind))
}

/// The options of a delete, which any group and version may label.
pub(crate) fn delete_options() -> &'static Message {
    message_of("", "v1", "DeleteOptions").expect("the table holds the delete options")
}

impl Message {
    /// The field a JSON name stands for, also where it belongs to an inlined message.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find_map(|field| match (field.shape, field.of) {
            (Shape::Inline, Type::Msg(inlined)) => inlined.field(name),
            _ => (field.name == name).then_some(field),
        })
    }

    /// The field a number on the wire stands for.
    pub(crate) fn numbered(&self, number: u32) -> Option<&'static Field> {
        self.fields.binary_search_by_key(&number, |field| field.number).ok().map(|at| &self.fields[at])
    }
}

impl Type {
    /// The message, for values that are objects with known fields.
    pub(crate) fn message(self) -> Option<&'static Message> {
        if let Self::Msg(message) = self { Some(message) } else { None }
    }
}

impl Field {
    const fn new(number: u32, name: &'static str, shape: Shape, of: Type) -> Self {
        Self { number, name, shape, of, presence: Presence::Optional, strategy: Strategy::Default, default: None }
    }

    /// The message its values are made of, if they are objects with known fields.
    pub(crate) fn message(&self) -> Option<&'static Message> {
        self.of.message()
    }

    const fn omitted(mut self) -> Self {
        self.presence = Presence::Omitted;
        self
    }

    const fn always(mut self) -> Self {
        self.presence = Presence::Always;
        self
    }

    const fn atomic(mut self) -> Self {
        self.shape = match self.shape {
            Shape::Map { .. } => Shape::Map { atomic: true },
            Shape::One { .. } | Shape::Inline | Shape::List | Shape::Set | Shape::Keyed(_) => {
                Shape::One { atomic: true }
            }
        };
        self
    }

    const fn keyed(mut self, keys: &'static [&'static str]) -> Self {
        self.shape = Shape::Keyed(keys);
        self
    }

    const fn set(mut self) -> Self {
        self.shape = Shape::Set;
        self
    }

    const fn merged(mut self, key: &'static str) -> Self {
        self.strategy = Strategy::List(key);
        self
    }

    const fn replaced(mut self) -> Self {
        self.strategy = Strategy::Replace;
        self
    }

    const fn defaulting(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }
}

const fn root(group: &'static str, version: &'static str, kind: &'static str, message: &'static Message) -> Root {
    Root { group, version, kind, message }
}

const fn message(package: &'static str, name: &'static str, fields: &'static [Field]) -> Message {
    Message { package, name, fields, atomic: false }
}

const fn atomic_message(package: &'static str, name: &'static str, fields: &'static [Field]) -> Message {
    Message { package, name, fields, atomic: true }
}

const fn one(number: u32, name: &'static str, of: Type) -> Field {
    Field::new(number, name, Shape::One { atomic: false }, of)
}

const fn inline(number: u32, of: Type) -> Field {
    Field::new(number, "", Shape::Inline, of)
}

const fn list(number: u32, name: &'static str, of: Type) -> Field {
    Field::new(number, name, Shape::List, of)
}

const fn map(number: u32, name: &'static str, of: Type) -> Field {
    Field::new(number, name, Shape::Map { atomic: false }, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;

    #[test]
    fn every_kind_we_serve_has_its_message() {
        for kind in Registry::built_in().kinds() {
            let message = message_of(&kind.group, &kind.version, &kind.kind);
            assert_eq!(message.map(|message| message.name), Some(kind.kind.as_str()));
        }
    }

    #[test]
    fn fields_are_found_by_name_also_when_inlined() {
        let pod = message_of("", "v1", "Pod").expect("pods are known");
        let volume = pod.field("spec").and_then(Field::message).and_then(|spec| spec.field("volumes"));
        let volume = volume.and_then(Field::message).expect("volumes are objects");
        assert_eq!(volume.field("emptyDir").and_then(Field::message).map(|m| m.name), Some("EmptyDirVolumeSource"));
        assert!(volume.field("volumeSource").is_none());
    }

    #[test]
    fn a_name_means_one_field_also_across_inlined_messages() {
        fn names(message: &'static Message) -> Vec<&'static str> {
            let inlined = |field: &'static Field| (field.shape == Shape::Inline).then(|| field.message()).flatten();
            message.fields.iter().flat_map(|field| inlined(field).map_or_else(|| vec![field.name], names)).collect()
        }
        fn descend(message: &'static Message) {
            let mut found = names(message);
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b), "{}: {found:?}", message.name);
            message.fields.iter().filter_map(Field::message).for_each(descend);
        }
        table::ROOTS.iter().for_each(|root| descend(root.message));
    }

    #[test]
    fn no_message_contains_itself_and_numbers_are_sorted() {
        // The protobuf reader descends as deep as the table does, so a loop would let a body choose the depth.
        fn descend(message: &'static Message, above: &mut Vec<&'static str>) {
            assert!(!above.contains(&message.name), "{} below {above:?}", message.name);
            assert!(message.fields.is_sorted_by_key(|field| field.number), "{}", message.name);
            above.push(message.name);
            message.fields.iter().filter_map(Field::message).for_each(|inner| descend(inner, above));
            above.pop();
        }
        for root in table::ROOTS {
            descend(root.message, &mut Vec::new());
        }
    }
}
