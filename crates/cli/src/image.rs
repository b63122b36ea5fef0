//! `adieu image`: works on the store of images, whether or not an instance runs on it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use runtime::Image;
use runtime::image::ImageStore;

use crate::{ImageCommand, Output};

/// Does what was asked, writing for people (or programs) to `out`.
pub fn run(store: &ImageStore, command: &ImageCommand, out: &mut impl Write) -> Result<()> {
    match command {
        ImageCommand::Load { archive } => load(store, archive, out),
        ImageCommand::Ls { output } => list(&store.list(), *output, out),
    }
}

fn load(store: &ImageStore, archive: &Path, out: &mut impl Write) -> Result<()> {
    let reader: Box<dyn Read> = if archive == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(archive).with_context(|| format!("cannot open {}", archive.display()))?)
    };
    for image in store.load(reader)? {
        let name = image.names.first().cloned().unwrap_or_else(|| image.id.clone());
        writeln!(out, "loaded {name} ({})", size(image.size_bytes))?;
    }
    Ok(())
}

fn list(images: &[Image], output: Output, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        serde_json::to_writer_pretty(&mut *out, images)?;
        return Ok(writeln!(out)?);
    }
    if images.is_empty() {
        return Ok(writeln!(out, "no images yet; load one with: adieu image load FILE")?);
    }
    let rows: Vec<(String, String, String)> = images
        .iter()
        .flat_map(|image| shown(&image.names).into_iter().map(|name| (name, short(&image.id), size(image.size_bytes))))
        .collect();
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max("NAME".len());
    writeln!(out, "{:width$}   {:12}   SIZE", "NAME", "ID")?;
    for (name, id, size) in rows {
        writeln!(out, "{name:width$}   {id:12}   {size}")?;
    }
    Ok(())
}

/// The names of an image a person would use: its tags. One that is pinned to a digest says the same again, and is shown
/// only where there is no other.
fn shown(names: &[String]) -> Vec<String> {
    let tags: Vec<String> = names.iter().filter(|name| !name.contains('@')).cloned().collect();
    match (tags.is_empty(), names.is_empty()) {
        (false, _) => tags,
        (true, false) => names.to_vec(),
        (true, true) => vec!["<none>".to_owned()],
    }
}

fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}

/// Sizes as people say them.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut unit = UNITS[0];
    let mut tenths = bytes / 100;
    for next in &UNITS[1..] {
        if tenths < 10_000 {
            break;
        }
        tenths /= 1000;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::{shown, size};

    #[test]
    fn an_image_with_a_tag_is_listed_once() {
        let [tag, pinned] =
            ["docker.io/library/busybox:latest", "docker.io/library/busybox@sha256:ab"].map(str::to_owned);
        assert_eq!(shown(&[tag.clone(), pinned.clone()]), [tag]);
        assert_eq!(shown(std::slice::from_ref(&pinned)), [pinned]);
        assert_eq!(shown(&[]), ["<none>"]);
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(0), "0.0 kB");
        assert_eq!(size(1_500), "1.5 kB");
        assert_eq!(size(12_345_678), "12.3 MB");
        assert_eq!(size(4_000_000_000), "4.0 GB");
    }
}
