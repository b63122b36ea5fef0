//! Reads the type declarations of one Go file: just enough of the language for published API types.

use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// The declarations of one package.
pub(crate) struct Go {
    package: &'static str,
    /// Import name to the short name of the package.
    imports: BTreeMap<String, &'static str>,
    types: BTreeMap<String, Declared>,
    /// Structs that carry `kind` and `apiVersion`, in file order.
    kinds: Vec<String>,
}

/// What a type name stands for.
#[derive(Clone)]
pub(crate) enum Declared {
    Struct { fields: Vec<GoField>, atomic: bool },
    Alias(String),
}

/// One field, as its tags and markers describe it.
#[derive(Clone, Default)]
pub(crate) struct GoField {
    pub(crate) number: u32,
    pub(crate) json: String,
    pub(crate) go_type: String,
    pub(crate) inline: bool,
    pub(crate) omit_empty: bool,
    pub(crate) list_type: Option<String>,
    pub(crate) list_keys: Vec<String>,
    pub(crate) atomic: bool,
    pub(crate) strategy: String,
    pub(crate) merge_key: Option<String>,
    /// As written, quotes included.
    pub(crate) default: Option<String>,
}

impl GoField {
    /// Whether strategic merge is told `word` for this field.
    pub(crate) fn has_strategy(&self, word: &str) -> bool {
        self.strategy.split(',').any(|part| part == word)
    }
}

impl Go {
    pub(crate) fn parse(package: &'static str, text: &str, groups: &[(&'static str, &str, &str)]) -> Self {
        let mut go = Self { package, imports: BTreeMap::new(), types: BTreeMap::new(), kinds: Vec::new() };
        let mut markers: Vec<&str> = Vec::new();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if let Some(comment) = line.strip_prefix("//") {
                markers.push(comment.trim());
            } else if let Some(declaration) = line.strip_prefix("type ") {
                go.declare(declaration, &markers, &mut lines);
                markers.clear();
            } else {
                go.import(line, groups);
                markers.clear();
            }
        }
        go
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(String::as_str)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Declared> {
        self.types.get(name)
    }

    /// The package and the bare name a type is written with here.
    pub(crate) fn locate(&self, written: &str) -> Result<(String, String)> {
        match written.split_once('.') {
            None => Ok((self.package.to_owned(), written.to_owned())),
            Some((import, name)) => {
                let package =
                    self.imports.get(import).with_context(|| format!("{written}: {import} is not a group we read"))?;
                Ok(((*package).to_owned(), name.to_owned()))
            }
        }
    }

    fn import(&mut self, line: &str, groups: &[(&'static str, &str, &str)]) {
        let Some((name, path)) = line.strip_prefix("import ").unwrap_or(line).split_once(" \"k8s.io/") else { return };
        let path = path.trim_end_matches('"');
        for &(short, folder, _) in groups {
            if path.split_once('/').is_some_and(|(_, rest)| rest == folder) {
                self.imports.insert(name.to_owned(), short);
            }
        }
    }

    fn declare<'a>(&mut self, declaration: &'a str, markers: &[&str], lines: &mut impl Iterator<Item = &'a str>) {
        let Some((name, rest)) = declaration.split_once(' ') else { return };
        let rest = rest.trim_start_matches('=').trim();
        if rest == "struct {" {
            let (fields, is_kind) = fields_of(lines);
            if is_kind {
                self.kinds.push(name.to_owned());
            }
            let atomic = markers.contains(&"+structType=atomic");
            self.types.insert(name.to_owned(), Declared::Struct { fields, atomic });
        } else if !rest.starts_with("interface") && !rest.starts_with("struct") {
            self.types.insert(name.to_owned(), Declared::Alias(rest.to_owned()));
        }
    }
}

/// The tagged fields up to the closing brace, and whether the struct is a kind of its own.
fn fields_of<'a>(lines: &mut impl Iterator<Item = &'a str>) -> (Vec<GoField>, bool) {
    let (mut fields, mut is_kind, mut markers) = (Vec::new(), false, Vec::new());
    for line in lines {
        if line == "}" {
            break;
        } else if let Some(comment) = line.strip_prefix("//") {
            markers.push(comment.trim());
        } else if let Some((declaration, tags)) = line.split_once('`') {
            is_kind |= declaration.trim().ends_with("TypeMeta");
            fields.extend(field(declaration, tags, &markers));
            markers.clear();
        }
    }
    (fields, is_kind)
}

fn field(declaration: &str, tags: &str, markers: &[&str]) -> Option<GoField> {
    let number = tag(tags, "protobuf")?.split(',').nth(1)?.parse().ok()?;
    let json = tag(tags, "json")?;
    let mut options = json.split(',');
    let name = options.next()?.to_owned();
    let mut found = GoField {
        number,
        json: name,
        go_type: declaration.split_whitespace().last()?.to_owned(),
        strategy: tag(tags, "patchStrategy").unwrap_or_default().to_owned(),
        merge_key: tag(tags, "patchMergeKey").map(str::to_owned),
        ..GoField::default()
    };
    for option in options {
        found.inline |= option == "inline";
        found.omit_empty |= option == "omitempty" || option == "omitzero";
    }
    for marker in markers {
        match marker.split_once('=') {
            Some(("+listType", kind)) => found.list_type = Some(kind.to_owned()),
            Some(("+listMapKey", key)) => found.list_keys.push(key.to_owned()),
            Some(("+mapType" | "+structType", "atomic")) => found.atomic = true,
            Some(("+default", value)) => found.default = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(found)
}

/// The value of `name:"value"` among the tags of a field.
fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = tags;
    loop {
        let (key, after) = rest.split_once(":\"")?;
        let (value, after) = after.split_once('"')?;
        if key.trim() == name {
            return Some(value);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::{Declared, Go};

    #[test]
    fn tags_and_markers_of_a_field_are_read() {
        let go = Go::parse(
            "core",
            "type Pod struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\t// +listType=map\n\t// +listMapKey=ip\n\
             \tIPs []PodIP `json:\"ips,omitempty\" patchStrategy:\"merge\" patchMergeKey:\"ip\" protobuf:\"bytes,12,rep,name=ips\"`\n}\n",
            &[],
        );
        assert_eq!(go.kinds().collect::<Vec<_>>(), ["Pod"]);
        let Some(Declared::Struct { fields, atomic: false }) = go.find("Pod") else { panic!("Pod is a struct") };
        let [ips] = fields.as_slice() else { panic!("one tagged field") };
        assert_eq!((ips.number, ips.json.as_str(), ips.go_type.as_str()), (12, "ips", "[]PodIP"));
        assert_eq!((ips.list_type.as_deref(), ips.list_keys.as_slice()), (Some("map"), &["ip".to_owned()][..]));
        assert!(ips.omit_empty && !ips.inline && ips.has_strategy("merge"));
    }
}
