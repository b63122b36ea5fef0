//! The Rust files of the tree, and the little that the chores need to know of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Every Rust file below `root` that is ours, with its text; paths are relative to `root`.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for top in ["app", "bench", "crates", "simulation", "tests", "xtask"] {
        collect(root, &root.join(top), "rs", &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Every `Cargo.toml` of a crate of ours, with its path below `root`.
pub(crate) fn manifests(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for top in ["app", "bench", "crates", "model", "simulation", "tests", "xtask"] {
        collect(root, &root.join(top), "toml", &mut files)?;
    }
    files.retain(|(path, _)| path.ends_with("Cargo.toml"));
    Ok(files)
}

/// Every session of kubectl that the end-to-end tests play, with its path below `root`.
pub(crate) fn session_files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    collect(root, &root.join("tests/e2e/sessions"), "txt", &mut files)?;
    files.sort();
    Ok(files)
}

/// The pages of docs/ and examples/, by their path below `root`.
pub(crate) fn pages(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for top in ["docs", "examples"] {
        collect(root, &root.join(top), "md", &mut files)?;
    }
    let mut pages: Vec<String> = files.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect();
    pages.sort();
    Ok(pages)
}

fn collect(root: &Path, dir: &Path, extension: &str, files: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, extension, files)?;
        } else if path.extension().is_some_and(|e| e == extension) {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.push((path.strip_prefix(root).unwrap_or(&path).to_owned(), text));
        }
    }
    Ok(())
}

/// The name of the function that a line declares.
pub(crate) fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start_matches("pub ").trim_start_matches("async ");
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// The names of all functions marked as tests.
pub(crate) fn test_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(name) = function_name(line)
            && std::mem::take(&mut marked)
        {
            names.push(name.to_owned());
        }
    }
    names
}
