//! Writes `crates/api/src/schema/table.rs`: every published message we read, field by field.
//!
//! The one source is the Go declarations that Kubernetes publishes as `k8s.io/api` and `k8s.io/apimachinery`: the
//! tags of a field carry its protobuf number, its JSON name, whether it is inlined, whether zero means absent, and how
//! strategic merge and server-side apply treat its lists and maps. Only those facts are taken, for the kinds of
//! [`GROUPS`] and whatever they reach. A new group is a row there.

mod go;

use anyhow::{Context, Result, bail};
use go::{Declared, Go, GoField};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Short name, folder below its repository, and API group. The first is the home of shared metadata.
const GROUPS: &[(&str, &str, &str)] = &[
    ("meta", "pkg/apis/meta/v1", ""),
    ("core", "core/v1", ""),
    ("apps", "apps/v1", "apps"),
    ("authentication", "authentication/v1", "authentication.k8s.io"),
    ("authorization", "authorization/v1", "authorization.k8s.io"),
    ("autoscaling", "autoscaling/v1", "autoscaling"),
    ("autoscaling2", "autoscaling/v2", "autoscaling"),
    ("batch", "batch/v1", "batch"),
    ("certificates", "certificates/v1", "certificates.k8s.io"),
    ("coordination", "coordination/v1", "coordination.k8s.io"),
    ("discovery", "discovery/v1", "discovery.k8s.io"),
    ("events", "events/v1", "events.k8s.io"),
    ("flowcontrol", "flowcontrol/v1", "flowcontrol.apiserver.k8s.io"),
    ("networking", "networking/v1", "networking.k8s.io"),
    ("node", "node/v1", "node.k8s.io"),
    ("policy", "policy/v1", "policy"),
    ("rbac", "rbac/v1", "rbac.authorization.k8s.io"),
    ("resource", "resource/v1", "resource.k8s.io"),
    ("scheduling", "scheduling/v1", "scheduling.k8s.io"),
    ("storage", "storage/v1", "storage.k8s.io"),
];

/// Kinds that never travel as the body of a request.
const NOT_SENT: &[&str] = &["PodStatusResult", "RangeAllocation", "SerializedReference", "List", "ComponentStatus"];

const USAGE: &str =
    "usage: cargo xtask schema-table <checkout of k8s.io/api> <checkout of k8s.io/apimachinery> <their version>";

/// Reads the two checkouts and replaces the table.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (Some(api), Some(machinery), Some(version)) = (arguments.next(), arguments.next(), arguments.next()) else {
        bail!(USAGE);
    };
    let table = generate(Path::new(&api), Path::new(&machinery), &version)?;
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/api/src/schema/table.rs");
    fs::write(&target, table).with_context(|| format!("cannot write {}", target.display()))
}

/// The whole generated file, from checkouts of the two repositories.
pub(crate) fn generate(api: &Path, machinery: &Path, version: &str) -> Result<String> {
    let mut packages = BTreeMap::new();
    for &(short, folder, _) in GROUPS {
        let root = if short == "meta" { machinery } else { api };
        let file = root.join(folder).join("types.go");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        packages.insert(short, Go::parse(short, &text, GROUPS));
    }
    let mut tables = Tables { packages, wanted: Vec::new(), seen: BTreeSet::new() };
    let roots = tables.roots();
    let mut messages = BTreeMap::new();
    while let Some((package, name)) = tables.wanted.pop() {
        let text = tables.message(&package, &name)?;
        messages.insert(constant(&package, &name), text);
    }
    Ok(render(version, &roots, &messages))
}

/// A root kind: API group, version, kind and the constant that holds its message.
struct Root {
    group: &'static str,
    version: &'static str,
    kind: String,
    constant: String,
}

struct Tables {
    packages: BTreeMap<&'static str, Go>,
    wanted: Vec<(String, String)>,
    seen: BTreeSet<(String, String)>,
}

impl Tables {
    fn roots(&mut self) -> Vec<Root> {
        let mut roots = Vec::new();
        for &(short, folder, group) in GROUPS {
            let kinds = self.packages[short].kinds().filter(|kind| is_sent(short, kind)).map(str::to_owned);
            for kind in kinds.collect::<Vec<_>>() {
                self.want(short, &kind);
                let version = folder.rsplit('/').next().unwrap_or(folder);
                roots.push(Root { group, version, constant: constant(short, &kind), kind });
            }
        }
        roots
    }

    fn want(&mut self, package: &str, name: &str) {
        let key = (package.to_owned(), name.to_owned());
        if self.seen.insert(key.clone()) {
            self.wanted.push(key);
        }
    }

    fn message(&mut self, package: &str, name: &str) -> Result<String> {
        let declared = self.packages[package].find(name).with_context(|| format!("no type {package}.{name}"))?.clone();
        let Declared::Struct { fields, atomic } = declared else { bail!("{package}.{name} is no struct") };
        let mut fields = fields;
        fields.sort_by_key(|field| field.number);
        let head = if atomic { "atomic_message" } else { "message" };
        let mut text = format!("{head}(\"{}\", \"{name}\", &[\n", published(package));
        for field in &fields {
            let line = self.field(package, field).with_context(|| format!("in {package}.{name}"))?;
            writeln!(text, "    {line},")?;
        }
        text.push_str("])");
        Ok(text)
    }

    fn field(&mut self, package: &str, field: &GoField) -> Result<String> {
        let mut go_type = field.go_type.as_str();
        let pointer = go_type.starts_with('*');
        go_type = go_type.trim_start_matches('*');
        let resolved = self.resolve(package, go_type)?;
        let (shape, kind) = match &resolved {
            Resolved::One(kind) if field.inline => ("inline", kind),
            Resolved::One(kind) => ("one", kind),
            Resolved::List(kind) => ("list", kind),
            Resolved::Map(kind) => ("map", kind),
        };
        let name = if field.inline { String::new() } else { format!(", \"{}\"", field.json) };
        let mut line = format!("{shape}({}{name}, {kind})", field.number);
        if !pointer && !field.inline {
            match (&resolved, field.omit_empty) {
                (Resolved::One(kind), true) if !kind.starts_with("Msg") => line.push_str(".omitted()"),
                (Resolved::One(_), _) | (Resolved::List(_), false) => line.push_str(".always()"),
                (Resolved::List(_) | Resolved::Map(_), _) => {}
            }
        }
        self.apply_rule(field, &resolved, &mut line);
        if field.has_strategy("replace") {
            line.push_str(".replaced()");
        } else if field.has_strategy("merge") {
            write!(line, ".merged(\"{}\")", field.merge_key.as_deref().unwrap_or_default())?;
        }
        if let Some(default) = field.default.as_ref().filter(|_| field.json == "protocol") {
            write!(line, ".defaulting({default})")?;
        }
        Ok(line)
    }

    /// How server-side apply sees the field. A list without a list type takes it from its merge strategy.
    fn apply_rule(&self, field: &GoField, resolved: &Resolved, line: &mut String) {
        let quoted = |keys: &[String]| keys.iter().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", ");
        match resolved {
            Resolved::List(_) => match field.list_type.as_deref() {
                Some("map") => line.push_str(&format!(".keyed(&[{}])", quoted(&field.list_keys))),
                Some("set") => line.push_str(".set()"),
                Some(_) => {}
                None if field.has_strategy("merge") => match &field.merge_key {
                    Some(key) => line.push_str(&format!(".keyed(&[\"{key}\"])")),
                    None => line.push_str(".set()"),
                },
                None => {}
            },
            Resolved::Map(_) | Resolved::One(_) if field.atomic => line.push_str(".atomic()"),
            Resolved::Map(_) | Resolved::One(_) => {}
        }
    }

    fn resolve(&mut self, package: &str, go_type: &str) -> Result<Resolved> {
        if go_type == "[]byte" {
            return Ok(Resolved::One("Bytes".into()));
        }
        if let Some(element) = go_type.strip_prefix("[]") {
            return match self.resolve(package, element.trim_start_matches('*'))? {
                Resolved::One(kind) => Ok(Resolved::List(kind)),
                Resolved::List(_) | Resolved::Map(_) => bail!("a list of {element}"),
            };
        }
        if let Some(rest) = go_type.strip_prefix("map[") {
            let (_, value) = rest.split_once(']').context("a map without a value")?;
            return match self.resolve(package, value)? {
                Resolved::One(kind) => Ok(Resolved::Map(kind)),
                Resolved::List(kind) if kind == "Str" => Ok(Resolved::Map("Strings".into())),
                Resolved::List(_) | Resolved::Map(_) => bail!("a map of {value}"),
            };
        }
        let scalar = match go_type {
            "string" | "types.UID" | "types.NodeName" => "Str",
            "int" | "int32" | "int64" => "Int",
            "bool" => "Bool",
            "resource.Quantity" => "Quantity",
            "intstr.IntOrString" => "IntOrString",
            "runtime.RawExtension" => "Raw",
            _ => "",
        };
        if !scalar.is_empty() {
            return Ok(Resolved::One(scalar.into()));
        }
        let (package, name) = self.packages[package].locate(go_type)?;
        match (package.as_str(), name.as_str()) {
            ("meta", "Time") => return Ok(Resolved::One("Time".into())),
            ("meta", "MicroTime") => return Ok(Resolved::One("MicroTime".into())),
            ("meta", "FieldsV1") => return Ok(Resolved::One("Raw".into())),
            _ => {}
        }
        match self.packages[package.as_str()].find(&name).with_context(|| format!("no type {package}.{name}"))?.clone()
        {
            Declared::Struct { .. } => {
                self.want(&package, &name);
                Ok(Resolved::One(format!("Msg(&{})", constant(&package, &name))))
            }
            Declared::Alias(target) => self.resolve(&package, &target),
        }
    }
}

enum Resolved {
    One(String),
    List(String),
    Map(String),
}

fn is_sent(package: &str, kind: &str) -> bool {
    let options = kind.ends_with("Options");
    let body = if package == "meta" { kind == "DeleteOptions" } else { !options && !kind.ends_with("List") };
    body && !NOT_SENT.contains(&kind)
}

/// The prefix of the names under which a package's types are published.
fn published(package: &str) -> String {
    let folder = GROUPS.iter().find(|(short, ..)| *short == package).map_or("", |(_, folder, _)| folder);
    let home = if package == "meta" { "io.k8s.apimachinery" } else { "io.k8s.api" };
    format!("{home}.{}", folder.replace('/', "."))
}

/// `("core", "PodSpec")` is `CORE_POD_SPEC`.
fn constant(package: &str, name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut text = package.to_uppercase();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(at + 1);
        let starts = letter.is_uppercase()
            && (before.is_none_or(|before| before.is_lowercase() || before.is_ascii_digit())
                || after.is_some_and(|after| after.is_lowercase()));
        if starts {
            text.push('_');
        }
        text.extend(letter.to_uppercase());
    }
    text
}

fn render(version: &str, roots: &[Root], messages: &BTreeMap<String, String>) -> String {
    let mut text = format!(
        "//! The published messages, field by field: protobuf number, JSON name, type, and how patches treat it.\n\
         //!\n\
         //! Facts of Kubernetes {version}, written by `cargo xtask schema-table`; the vocabulary is explained in\n\
         //! [`super`]. Do not edit.\n\n\
         use super::Type::{{Bool, Bytes, Int, IntOrString, MicroTime, Msg, Quantity, Raw, Str, Strings, Time}};\n\
         use super::{{Message, Root, atomic_message, inline, list, map, message, one, root}};\n\n\
         pub(super) static ROOTS: &[Root] = &[\n",
    );
    for Root { group, version, kind, constant } in roots {
        text.push_str(&format!("    root(\"{group}\", \"{version}\", \"{kind}\", &{constant}),\n"));
    }
    text.push_str("];\n");
    for (constant, body) in messages {
        text.push_str(&format!("\nstatic {constant}: Message = {body};\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::constant;

    #[test]
    fn constants_split_words_and_keep_acronyms_together() {
        assert_eq!(constant("core", "PodSpec"), "CORE_POD_SPEC");
        assert_eq!(constant("core", "CSIVolumeSource"), "CORE_CSI_VOLUME_SOURCE");
        assert_eq!(constant("core", "PodIP"), "CORE_POD_IP");
    }
}
