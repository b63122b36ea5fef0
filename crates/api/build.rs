//! Collects what Kubernetes says about each field of the messages in `src/schema/table.rs`, for `kubectl explain`.
//!
//! The words are the doc comments of the very `k8s-openapi` that this crate is built with, so they are never older than
//! its types, and they are not kept here a second time. What is written is a compressed list of names and texts,
//! `descriptions.gz`; `src/schema/descriptions.rs` reads it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Described too, although no request consists of them.
const ALSO: &[&str] = &[
    ".Quantity",
    ".IntOrString",
    ".meta.v1.ListMeta",
    ".meta.v1.Status",
    ".meta.v1.StatusDetails",
    ".meta.v1.StatusCause",
];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/schema/table.rs");
    let table = fs::read_to_string("src/schema/table.rs")?;
    let mut texts = BTreeMap::new();
    for file in rust_files(&sources()?)? {
        collect(&fs::read_to_string(&file)?, &table, &mut texts);
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptions.gz");
    let mut compressed = flate2::write::GzEncoder::new(fs::File::create(out)?, flate2::Compression::best());
    for (name, text) in &texts {
        // Units and records end with characters that no text contains.
        write!(compressed, "{name}\x1f{text}\x1e")?;
    }
    compressed.finish()?;
    Ok(())
}

/// Where the types of the chosen Kubernetes version are. The build script of `k8s-openapi` tells which those are, in a
/// variable named after its own version, as 0x00_01_MM_00.
fn sources() -> Outcome<PathBuf> {
    let told = std::env::vars().find_map(|(name, value)| {
        let own = name.strip_prefix("DEP_K8S_OPENAPI_")?.strip_suffix("_VERSION")?.replace('_', ".");
        Some((own, value))
    });
    let (own, version) = told.ok_or("k8s-openapi does not tell its version")?;
    let minor = version.parse::<u32>()? >> 8 & 0xff;
    let package = match in_registry(&own) {
        Some(package) => package,
        None => in_metadata(&own)?,
    };
    Ok(package.join("src").join(format!("v1_{minor}")))
}

/// Cargo unpacks what it downloads below its home, one folder for each registry.
fn in_registry(version: &str) -> Option<PathBuf> {
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home)?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    let mut packages = registries.flatten().map(|each| each.path().join(format!("k8s-openapi-{version}")));
    packages.find(|package| package.is_dir())
}

/// Wherever else it comes from, cargo knows; but it wants to see every package before it answers.
fn in_metadata(version: &str) -> Outcome<PathBuf> {
    let output = Command::new(std::env::var("CARGO")?).args(["metadata", "--format-version=1"]).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata = String::from_utf8(output.stdout)?;
    let package = metadata.split_once(&format!("{{\"name\":\"k8s-openapi\",\"version\":\"{version}\""));
    let manifest = package.and_then(|(_, rest)| rest.split_once("\"manifest_path\":\"")?.1.split('"').next());
    let manifest = manifest.ok_or("cargo does not know k8s-openapi")?;
    Ok(Path::new(manifest).parent().ok_or("a manifest lies in a folder")?.to_owned())
}

fn rust_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The texts of one generated file: of its message, and of each field by its name in JSON.
fn collect(source: &str, table: &str, texts: &mut BTreeMap<String, String>) {
    let Some(name) = source.lines().next().and_then(|line| line.strip_prefix("// Generated from definition ")) else {
        return;
    };
    let known =
        name.rsplit_once('.').is_some_and(|(package, name)| table.contains(&format!("(\"{package}\", \"{name}\"")));
    if !known && !ALSO.iter().any(|also| name.ends_with(also)) {
        return;
    }
    let in_json: BTreeMap<&str, &str> = source.lines().filter_map(json_name).collect();
    let mut words: Vec<&str> = Vec::new();
    for line in source.lines() {
        let trimmed = line.trim_start();
        if let Some(comment) = trimmed.strip_prefix("///") {
            words.push(comment.strip_prefix(' ').unwrap_or(comment));
        } else if trimmed.starts_with("pub struct") || trimmed.starts_with("pub enum") {
            texts.insert(name.to_owned(), format!("\x1f{}", plain(&words)));
            words.clear();
        } else if let Some(field) = trimmed.strip_prefix("pub ").and_then(|rest| rest.split(':').next()) {
            if let Some(json) = in_json.get(field) {
                texts.insert(format!("{name}.{json}"), format!("{}\x1f{}", facts(trimmed), plain(&words)));
            }
            words.clear();
        } else if trimmed.starts_with("impl") {
            break;
        } else if !trimmed.starts_with("#[") {
            words.clear();
        }
    }
}

/// What the type of a field tells beyond its words: whether it must be given, and how wide a number is.
fn facts(declaration: &str) -> String {
    let kind = declaration.split_once(": ").map_or("", |(_, kind)| kind);
    // Every object has metadata here, whether it was sent or not.
    let required = !kind.starts_with("Option<") && !kind.contains("ObjectMeta");
    let width = if kind.contains("i32") {
        "int32"
    } else if kind.contains("i64") {
        "int64"
    } else {
        ""
    };
    format!("{}{width}", if required { "!" } else { "" })
}

/// `type_` and `type`, of `"type" => Field::Key_type_,`.
fn json_name(line: &str) -> Option<(&str, &str)> {
    let (json, rest) = line.trim_start().strip_prefix('"')?.split_once("\" => Field::Key_")?;
    Some((rest.trim_end_matches(','), json))
}

/// Without the escapes that Markdown needed.
fn plain(words: &[&str]) -> String {
    let mut text = words.join("\n");
    for escaped in ["<", ">", "[", "]", "*", "_", "`"] {
        text = text.replace(&format!("\\{escaped}"), escaped);
    }
    text.trim().to_owned()
}
