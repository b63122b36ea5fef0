//! From what `-f` names to single documents: files, folders, standard input; YAML streams cut where YAML cuts them.
//!
//! Each document is parsed on its own, so that a mistake in one hides none in another, and so that no number of
//! documents is too many.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_saphyr::Error as YamlError;

use super::located::Located;
use super::mistakes::{Mistakes, SourceLocation};

const STANDARD_INPUT: &str = "standard input";
/// What `kubectl` reads from a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A text and where it came from.
#[derive(Debug)]
pub(super) struct Source {
    /// The file as it was named, or `standard input`.
    pub(super) name: String,
    /// All of it.
    pub(super) text: String,
}

/// Reads everything that `-f` names; what cannot be read is a mistake.
pub(super) fn sources(paths: &[PathBuf], stdin: &mut dyn Read, mistakes: &mut Mistakes) -> Vec<Source> {
    let mut sources = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            let read = stdin.read_to_end(&mut bytes);
            sources.extend(source(STANDARD_INPUT.to_owned(), read.map(|_| bytes), mistakes));
        } else if path.is_dir() {
            for file in manifests_in(path, mistakes) {
                sources.extend(source(file.display().to_string(), fs::read(&file), mistakes));
            }
        } else {
            sources.extend(source(path.display().to_string(), fs::read(path), mistakes));
        }
    }
    sources
}

fn source(name: String, read: io::Result<Vec<u8>>, mistakes: &mut Mistakes) -> Option<Source> {
    let hint = match &name {
        name if name.starts_with("http://") || name.starts_with("https://") => {
            "; only files and folders are read: curl -s URL | adieu plan -f -"
        }
        name if name.contains(',') => "; give -f once for each file",
        _ => "",
    };
    let cannot = |why: &dyn std::fmt::Display| {
        (SourceLocation { file: name.clone(), line: 0 }, format!("cannot be read: {why}{hint}"))
    };
    let text = match read {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| cannot(&"it is not UTF-8 text")),
        Err(error) => Err(cannot(&error)),
    };
    match text {
        Ok(text) => Some(Source { name, text }),
        Err((place, why)) => {
            mistakes.add(place, "", why);
            None
        }
    }
}

/// The manifests of a folder, in the order of their names; not those of the folders in it.
fn manifests_in(folder: &Path, mistakes: &mut Mistakes) -> Vec<PathBuf> {
    let is_manifest = |path: &PathBuf| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| EXTENSIONS.contains(&end)) && !path.is_dir()
    };
    let place = SourceLocation { file: folder.display().to_string(), line: 0 };
    let files =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut files: Vec<PathBuf> = match files {
        Ok(files) => files.into_iter().filter(is_manifest).collect(),
        Err(error) => {
            mistakes.add(place, "", format!("cannot be read: {error}"));
            return Vec::new();
        }
    };
    if files.is_empty() {
        mistakes.add(place, "", format!("no manifest in this folder: no name ends in .{}", EXTENSIONS.join(", .")));
    }
    files.sort();
    files
}

/// The documents of a text; what is no YAML is a mistake.
pub(super) fn documents(source: &Source, mistakes: &mut Mistakes) -> Vec<Located> {
    let mut documents = Vec::new();
    for (lines_before, text) in pieces(&source.text) {
        match serde_saphyr::from_multiple::<Located>(text) {
            Ok(parsed) => documents.extend(parsed.into_iter().map(|document| document.moved_down(lines_before))),
            Err(error) => {
                let line = error.location().map_or(1, |location| location.line()) + lines_before;
                let hint = match text.contains("{{") {
                    true => "; this looks like a template: helm template CHART | adieu plan -f -",
                    false => "",
                };
                mistakes.add(SourceLocation { file: source.name.clone(), line }, "", sentence(&error) + hint);
            }
        }
    }
    documents
}

/// A stream cut at its `---` lines, each piece with the number of lines before it. Such a line is a marker wherever it
/// stands: no YAML text can contain it.
fn pieces(text: &str) -> Vec<(u64, &str)> {
    let mut pieces = Vec::new();
    let (mut begin, mut at, mut lines, mut lines_before) = (0, 0, 0, 0);
    for line in text.split_inclusive('\n') {
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_marker {
            pieces.push((lines_before, &text[begin..at]));
            (begin, lines_before) = (at, lines);
        }
        at += line.len();
        lines += 1;
    }
    pieces.push((lines_before, &text[begin..]));
    // Directives and comments before a marker are no document, nor is a marker alone.
    let says_something = |line: &str| !matches!(line.trim(), "" | "---") && !line.starts_with(['%', '#']);
    pieces.retain(|(_, piece)| piece.lines().any(says_something));
    pieces
}

/// What the parser says, without the text around it, the place (which is told anyway) and advice to programmers.
fn sentence(error: &YamlError) -> String {
    let rendered = error.without_snippet().to_string();
    let sentence = rendered.lines().next().unwrap_or_default();
    let sentence = sentence.split(" at line ").next().unwrap_or_default();
    let sentence = sentence.split(", set ").next().unwrap_or_default();
    match sentence.strip_prefix("budget breached: ") {
        Some(_) => {
            "too large or too deep for one document; anchors that repeat each other are a common cause".to_owned()
        }
        None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_at_its_markers_only() {
        let text = "# hello\n%YAML 1.2\n---\na: |\n  ---\n  b\n--- # two\nc: ---\n---\n---\n---d: 1\n";
        let pieces: Vec<_> = pieces(text);
        assert_eq!(pieces, [(2, "---\na: |\n  ---\n  b\n"), (6, "--- # two\nc: ---\n"), (9, "---\n---d: 1\n")]);
    }

    #[test]
    fn every_document_knows_its_lines_and_a_broken_one_hides_no_other() {
        let source =
            Source { name: "f".into(), text: "a: 1\n---\nb: [\n---\r\nc: 2\r\nd: 3\n---\ne: 1\ne: 2\n".into() };
        let mut mistakes = Mistakes::default();
        let documents = documents(&source, &mut mistakes);
        assert_eq!(documents.iter().map(|document| document.line).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(documents[1].line_of("d"), 6);
        let mistakes: Vec<String> = mistakes.all().iter().map(ToString::to_string).collect();
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        assert_eq!(mistakes[1], "f:9: duplicate mapping key: e");
    }
}
