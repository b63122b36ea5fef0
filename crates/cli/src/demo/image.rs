//! The image of the demo: the program that is running, and nothing else. It is static, so it needs nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// What the image is called. Nobody serves such a name, so it can only come from here.
pub(super) const NAME: &str = "localhost/adieu-demo:1";
/// Where the program is in it.
pub(crate) const PROGRAM: &str = "/adieu";
/// Where a program says which loader it needs, if it needs one.
const HEADERS: u64 = 4096;

/// Writes the image of `program`, called `name`, to `archive`, as `docker save` would; answers the size of the program.
pub(crate) fn write(program: &Path, name: &str, archive: &Path) -> Result<u64> {
    let mut source = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut head = Vec::new();
    Read::by_ref(&mut source).take(HEADERS).read_to_end(&mut head)?;
    ensure!(
        !needs_loader(&head),
        "this program was not built to run on its own (it needs the C library of this machine), and its image holds \
         nothing else; build it with scripts/build"
    );
    let doing = || format!("cannot write the image to {}", archive.display());
    let mut unpacked = nameless(&archive.with_file_name(format!(".adieu-{}.layer", std::process::id())))?;
    let size = layer(&mut source, &mut unpacked).with_context(doing)?;
    let digest = digest(&mut unpacked).with_context(doing)?;
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": { "Entrypoint": [PROGRAM, "demo-app"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut tar = Builder::new(File::create(archive).with_context(doing)?);
    for (name, document) in [("manifest.json", manifest), ("config.json", config)] {
        let text = document.to_string();
        tar.append_data(&mut header(text.len() as u64, 0o644), name, text.as_bytes()).with_context(doing)?;
    }
    let bytes = unpacked.metadata().with_context(doing)?.len();
    unpacked.rewind().with_context(doing)?;
    tar.append_data(&mut header(bytes, 0o644), "layer.tar", &mut unpacked).with_context(doing)?;
    tar.into_inner().and_then(|mut file| file.flush()).with_context(doing)?;
    Ok(size)
}

/// A file of our own that loses its name at once: nobody else can write to it, and it goes with us however we end.
fn nameless(path: &Path) -> Result<File> {
    let doing = || format!("cannot make the file {}", path.display());
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path).with_context(doing)?;
    fs::remove_file(path).with_context(doing)?;
    Ok(file)
}

/// The only layer: the program, and the folders that a container expects.
fn layer(program: &mut File, out: &mut impl Write) -> Result<u64> {
    let size = program.metadata()?.len();
    program.rewind()?;
    let mut tar = Builder::new(out);
    for folder in ["dev/", "etc/", "proc/", "sys/", "tmp/"] {
        let mut header = header(0, 0o755);
        header.set_entry_type(EntryType::Directory);
        tar.append_data(&mut header, folder, io::empty())?;
    }
    tar.append_data(&mut header(size, 0o755), PROGRAM.trim_start_matches('/'), program.take(size))?;
    tar.finish()?;
    Ok(size)
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn digest(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        match file.read(&mut part)? {
            0 => break,
            count => hash.update(&part[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether the beginning of a program names a loader. It stands right behind the headers, or nowhere.
fn needs_loader(head: &[u8]) -> bool {
    [b"/ld-linux".as_slice(), b"/ld-musl".as_slice()]
        .iter()
        .any(|name| head.windows(name.len()).any(|part| part == *name))
}

/// What images call the machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn image_holds_the_program_and_names_its_layer_by_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let (program, archive) = (dir.path().join("program"), dir.path().join("image.tar"));
        std::fs::write(&program, b"\x7fELF and so on").unwrap();
        assert_eq!(write(&program, NAME, &archive).unwrap(), 14);
        let mut found = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(File::open(&archive).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            found.insert(name, bytes);
        }
        let config: serde_json::Value = serde_json::from_slice(&found["config.json"]).unwrap();
        let layer: String = Sha256::digest(&found["layer.tar"]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{layer}"));
        let mut layer = tar::Archive::new(found["layer.tar"].as_slice());
        let entries = layer.entries().unwrap().map(|entry| entry.unwrap());
        let program =
            entries.map(|entry| (entry.path().unwrap().to_string_lossy().into_owned(), entry.header().mode().unwrap()));
        assert!(program.into_iter().any(|entry| entry == ("adieu".to_owned(), 0o755)));
    }

    #[test]
    fn image_leaves_the_files_beside_it_alone_and_nothing_else_behind() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("program"), b"\x7fELF and so on").unwrap();
        std::fs::write(file("image.layer"), "of somebody else").unwrap();
        // A name that was itself that of the layer once.
        for name in ["image.tar", "other.layer"] {
            write(&file("program"), NAME, &file(name)).unwrap();
            let entries = tar::Archive::new(File::open(file(name)).unwrap()).entries().unwrap().count();
            assert_eq!(entries, 3, "{name}");
        }
        assert_eq!(std::fs::read_to_string(file("image.layer")).unwrap(), "of somebody else");
        write(&file("program"), NAME, &file("absent/image.tar")).unwrap_err();
        std::fs::create_dir(file("folder")).unwrap();
        write(&file("program"), NAME, &file("folder")).unwrap_err();
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["folder", "image.layer", "image.tar", "other.layer", "program"]);
    }

    #[test]
    fn layer_is_written_to_no_file_and_no_link_that_is_there_already() {
        let dir = tempfile::tempdir().unwrap();
        let (link, of_another) = (dir.path().join("link"), dir.path().join("of another"));
        std::os::unix::fs::symlink(&of_another, &link).unwrap();
        nameless(&link).unwrap_err();
        assert!(link.is_symlink() && !of_another.exists());
    }

    #[test]
    fn program_that_needs_a_loader_is_refused_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, b"\x7fELF.../lib64/ld-linux-x86-64.so.2").unwrap();
        let refused = write(&program, NAME, &dir.path().join("image.tar")).unwrap_err().to_string();
        assert!(refused.contains("scripts/build"), "{refused}");
    }
}
