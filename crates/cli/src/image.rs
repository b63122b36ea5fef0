//! `adieu image`: works on the store of images, whether or not an instance runs on it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use runtime::Image;
use runtime::embedded::{image_uses, registries_file};
use runtime::image::{ImageName, ImageStore, Keyring, Patience, Prune, Pulled, Puller, Removed, Use};
use serde_json::{Value, json};

use crate::progress::{self, Screen};
use crate::table::{age, aligned};
use crate::{ImageCommand, Output};

/// The images of a data directory, and who uses them.
pub struct Images {
    /// The images.
    pub store: ImageStore,
    /// Where the instance that they belong to keeps everything.
    pub data_dir: PathBuf,
}

/// Does what was asked at `now`, writing for people (or programs) to `out`; a pull shows its progress on `screen`.
pub fn run(
    images: &Images,
    command: &ImageCommand,
    out: &mut impl Write,
    screen: Screen,
    now: Timestamp,
) -> Result<()> {
    let users = || image_uses(&images.data_dir);
    let store = &images.store;
    match command {
        ImageCommand::Pull { name, output } => {
            let pulled = pull(images, name, screen)?;
            tell_pulled(name, &pulled, *output, out)
        }
        ImageCommand::Load { archive, output } => load(store, archive, *output, out),
        ImageCommand::Ls { output } => list(&listed(store, &users()?), *output, now, out),
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
        return print(
            &json!({ "image": document(&pulled.image), "reference": pulled.reference, "isNew": pulled.is_new }),
            out,
        );
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
        return print(&loaded.iter().map(document).collect::<Vec<_>>(), out);
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

/// An image in a list.
struct Listed {
    image: Image,
    /// When it was made, if it says so.
    created: Option<Timestamp>,
    /// Who uses it.
    used_by: Vec<String>,
}

fn listed(store: &ImageStore, uses: &[Use]) -> Vec<Listed> {
    let listed = |image: Image| {
        let configuration = store.configuration(&image.id).ok();
        let configuration: Option<Value> = configuration.and_then(|text| serde_json::from_slice(&text).ok());
        let created = configuration.and_then(|configuration| configuration["created"].as_str()?.parse().ok());
        Listed { created, used_by: users_of(&image, uses), image }
    };
    store.list().into_iter().map(listed).collect()
}

fn users_of(image: &Image, uses: &[Use]) -> Vec<String> {
    uses.iter().filter(|found| found.image == image.id).map(|found| found.by.clone()).collect()
}

/// An image for programs.
fn document(image: &Image) -> Value {
    let Image { id, names, size_bytes, stop_signal, user, env } = image;
    json!({ "id": id, "names": names, "sizeBytes": size_bytes, "stopSignal": stop_signal, "user": user, "env": env })
}

fn list(images: &[Listed], output: Output, now: Timestamp, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        let document = |listed: &Listed| {
            let mut document = document(&listed.image);
            document["created"] = json!(listed.created);
            document["usedBy"] = json!(listed.used_by);
            document
        };
        return print(&images.iter().map(document).collect::<Vec<_>>(), out);
    }
    if images.is_empty() {
        return Ok(writeln!(out, "no images yet; get one with: adieu image pull NAME, or adieu image load FILE")?);
    }
    let mut rows = vec![["NAME", "ID", "SIZE", "AGE", "USED BY"].map(str::to_owned).to_vec()];
    for Listed { image, created, used_by } in images {
        let age = created.map_or_else(|| "-".to_owned(), |created| age(now.duration_since(created)));
        let users = match used_by.len() {
            0 => "-".to_owned(),
            1 => "1 container".to_owned(),
            many => format!("{many} containers"),
        };
        for name in shown(&image.names) {
            rows.push(vec![name, short(&image.id), size(image.size_bytes), age.clone(), users.clone()]);
        }
    }
    Ok(out.write_all(aligned(&rows).as_bytes())?)
}

fn inspect(store: &ImageStore, name: &str, uses: &[Use], output: Output, out: &mut impl Write) -> Result<()> {
    let stored = store.find(name)?;
    let configuration: Value = serde_json::from_slice(&store.configuration(name)?)?;
    let image = &stored.image;
    let users = users_of(image, uses);
    if output == Output::Json {
        let mut all = document(image);
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
    for user in &users {
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
    use super::*;

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
    fn list_of_images_tells_their_age_and_who_uses_them_and_programs_read_one_kind_of_names() {
        let image = Image {
            id: format!("sha256:{}", "ab".repeat(32)),
            names: vec!["a:1".to_owned()],
            size_bytes: 1500,
            stop_signal: Some(3),
            user: None,
            env: std::collections::BTreeMap::new(),
        };
        let created = "2026-01-01T00:00:00Z".parse().ok();
        let images = [
            Listed { image: image.clone(), created, used_by: vec!["pod default/a (container app)".to_owned()] },
            Listed { image, created: None, used_by: Vec::new() },
        ];
        let told = |output| {
            let mut out = Vec::new();
            list(&images, output, "2026-01-11T00:00:00Z".parse().expect("a moment"), &mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let expected = "NAME   ID             SIZE     AGE   USED BY\n\
                        a:1    abababababab   1.5 kB   10d   1 container\n\
                        a:1    abababababab   1.5 kB   -     -\n";
        assert_eq!(told(Output::Table), expected);
        let document: Value = serde_json::from_str(&told(Output::Json)).expect("JSON");
        assert_eq!(document[0]["usedBy"][0], "pod default/a (container app)");
        let keys = document[0].as_object().expect("an object").keys();
        let odd: Vec<_> = keys.filter(|key| key.contains('_')).collect();
        assert!(odd.is_empty(), "{odd:?}");
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
