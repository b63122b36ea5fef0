//! `adieu image`: works on the store of images, whether or not an instance runs on it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use runtime::Image;
use runtime::embedded::{image_uses, registries_file};
use runtime::image::{ImageName, ImageStore, Keyring, Patience, Prune, Pulled, Puller, Removed, Use};
use serde_json::{Value, json};

use crate::progress::{self, Screen};
use crate::{ImageCommand, Output};

/// The images of a data directory, and who uses them.
pub struct Images {
    /// The images.
    pub store: ImageStore,
    /// Where the instance that they belong to keeps everything.
    pub data_dir: PathBuf,
}

/// Does what was asked, writing for people (or programs) to `out`; a pull shows its progress on `screen`.
pub fn run(images: &Images, command: &ImageCommand, out: &mut impl Write, screen: Screen) -> Result<()> {
    let users = || image_uses(&images.data_dir);
    let store = &images.store;
    match command {
        ImageCommand::Pull { name, output } => {
            let pulled = pull(images, name, screen)?;
            tell_pulled(name, &pulled, *output, out)
        }
        ImageCommand::Load { archive, output } => load(store, archive, *output, out),
        ImageCommand::Ls { output } => list(&store.list(), *output, out),
        ImageCommand::Inspect { name, output } => inspect(store, name, &users()?, *output, out),
        ImageCommand::Rm { names, output } => {
            let mut removed = Removed::default();
            for name in names {
                let one = store.remove(name, &users)?;
                removed.names.extend(one.names);
                removed.images.extend(one.images);
                removed.bytes += one.bytes;
            }
            tell_removed(&removed, *output, out)
        }
        ImageCommand::Prune { all, output } => {
            let which = if *all { Prune::Unused } else { Prune::Unnamed };
            tell_removed(&store.prune(which, &users)?, *output, out)
        }
    }
}

fn pull(images: &Images, name: &str, screen: Screen) -> Result<Pulled> {
    let parsed: ImageName = name.parse()?;
    let keyring = Keyring::of_this_user().context("docker's own configuration cannot be used")?;
    let puller = Puller::new(images.store.clone(), registries_file(&images.data_dir), Patience::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (tell, told) = tokio::sync::watch::channel(runtime::image::Progress::default());
        let pull = puller.pull(&parsed, &keyring, &tell);
        Ok(progress::shown(pull, told, screen).await?)
    })
}

fn tell_pulled(name: &str, pulled: &Pulled, output: Output, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        return print(&json!({ "image": pulled.image, "reference": pulled.reference, "isNew": pulled.is_new }), out);
    }
    let verb = if pulled.is_new { "pulled" } else { "is up to date:" };
    match pulled.is_new {
        true => writeln!(out, "{verb} {name} ({})", size(pulled.image.size_bytes))?,
        false => writeln!(out, "{name} {verb} its registry has nothing newer")?,
    }
    Ok(writeln!(out, "  {}", pulled.reference)?)
}

fn load(store: &ImageStore, archive: &Path, output: Output, out: &mut impl Write) -> Result<()> {
    let loaded = if archive == Path::new("-") {
        store.load(io::stdin().lock())?
    } else if archive.is_dir() {
        store.load_layout(archive)?
    } else {
        let file = File::open(archive).with_context(|| format!("cannot open {}", archive.display()))?;
        store.load(Box::new(file) as Box<dyn Read>)?
    };
    if output == Output::Json {
        return print(&loaded, out);
    }
    tell_loaded(&loaded, out)
}

/// A line for every name: an archive may give one image several.
fn tell_loaded(loaded: &[Image], out: &mut impl Write) -> Result<()> {
    for image in loaded {
        let names = if image.names.is_empty() { vec![image.id.clone()] } else { shown(&image.names) };
        for name in names {
            writeln!(out, "loaded {name} ({})", size(image.size_bytes))?;
        }
    }
    Ok(())
}

fn list(images: &[Image], output: Output, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        return print(images, out);
    }
    if images.is_empty() {
        return Ok(writeln!(out, "no images yet; get one with: adieu image pull NAME, or adieu image load FILE")?);
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

fn inspect(store: &ImageStore, name: &str, uses: &[Use], output: Output, out: &mut impl Write) -> Result<()> {
    let stored = store.find(name)?;
    let configuration: Value = serde_json::from_slice(&store.configuration(name)?)?;
    let image = &stored.image;
    let users: Vec<&str> = uses.iter().filter(|found| found.image == image.id).map(|found| found.by.as_str()).collect();
    if output == Output::Json {
        let mut all = serde_json::to_value(image)?;
        all["configuration"] = configuration;
        all["usedBy"] = json!(users);
        return print(&all, out);
    }
    let mut row = |label: &str, value: &str| match value.is_empty() {
        true => Ok(()),
        false => writeln!(out, "{label:12} {value}"),
    };
    row("id", &image.id)?;
    for name in &image.names {
        row("name", name)?;
    }
    row("size", &size(image.size_bytes))?;
    row("made", configuration["created"].as_str().unwrap_or_default())?;
    let text = |key: &str| configuration[key].as_str().unwrap_or_default().to_owned();
    row("for", &format!("{}/{}", text("os"), text("architecture")))?;
    row("entrypoint", &stored.config.entrypoint.join(" "))?;
    row("command", &stored.config.cmd.join(" "))?;
    row("user", stored.config.user.as_deref().unwrap_or_default())?;
    row("folder", stored.config.working_dir.as_deref().unwrap_or_default())?;
    row("stop signal", configuration["config"]["StopSignal"].as_str().unwrap_or_default())?;
    for (key, value) in &stored.config.env {
        row("variable", &format!("{key}={value}"))?;
    }
    for layer in configuration["rootfs"]["diff_ids"].as_array().into_iter().flatten() {
        row("layer", layer.as_str().unwrap_or_default())?;
    }
    for user in users {
        row("used by", user)?;
    }
    Ok(())
}

fn tell_removed(removed: &Removed, output: Output, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        return print(removed, out);
    }
    for name in removed.names.iter().filter(|name| !name.contains('@')) {
        writeln!(out, "removed {name}")?;
    }
    if removed.names.is_empty() {
        for id in &removed.images {
            writeln!(out, "removed {}", short(id))?;
        }
    }
    if removed.images.is_empty() && removed.names.is_empty() && removed.bytes == 0 {
        return Ok(writeln!(out, "nothing to remove")?);
    }
    Ok(writeln!(out, "{} freed", size(removed.bytes))?)
}

fn print(value: &(impl serde::Serialize + ?Sized), out: &mut impl Write) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
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
pub(crate) fn size(bytes: u64) -> String {
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
    use super::{Image, shown, size, tell_loaded};

    #[test]
    fn every_name_of_an_archive_is_told() {
        let image = |names: &[&str]| Image {
            id: "sha256:ab".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            size_bytes: 1500,
            stop_signal: None,
            user: None,
            env: std::collections::BTreeMap::new(),
        };
        let mut told = Vec::new();
        tell_loaded(&[image(&["a:1", "a:2", "a@sha256:cd"]), image(&[])], &mut told).expect("memory takes all");
        let told = String::from_utf8(told).expect("text");
        assert_eq!(told, "loaded a:1 (1.5 kB)\nloaded a:2 (1.5 kB)\nloaded sha256:ab (1.5 kB)\n");
    }

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
