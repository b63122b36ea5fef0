//! A corpus of hostile image archives, made here byte by byte: each is refused or harmless, as the host sees it.
//!
//! [SE-33] to [SE-47] of the security catalogue. Every archive is loaded into a store that stands beside a directory which is not
//! its business, and what that directory, `/etc` and the store itself look like afterwards is compared with before.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::image_support::{Layer, archive, config, docker, docker_with, gzip, program};
use runtime::image::{Digest, ImageStore, Limits};
use serde_json::{Value, json};
use tar::EntryType;

/// No archive takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMITS: Limits = Limits { bytes_max: 24 << 20, entries_max: 500 };

/// What must become of an archive.
enum Fate {
    /// It is refused in these words.
    Refused(&'static str),
    /// It is taken, and the files of its topmost layer are as they must be.
    Harmless(fn(&Path)),
    /// Either, as file systems differ.
    Either,
}

use Fate::{Either, Harmless, Refused};

struct Case {
    name: &'static str,
    archive: Vec<u8>,
    fate: Fate,
}

fn layer(name: &'static str, layer: Layer, fate: Fate) -> Case {
    Case { name, archive: docker(&["test/corpus:1"], &[layer.tar()], json!({})), fate }
}

/// A layer as it travels, which need not be what its address says.
fn blob(name: &'static str, plain: Vec<u8>, stored: Vec<u8>, fate: Fate) -> Case {
    let layers = [plain];
    let archive = docker_with(&["test/corpus:1"], &layers, &[stored], &config(&layers, json!({})));
    Case { name, archive, fate }
}

fn symlink(path: &str, target: &str) -> Layer {
    Layer::new().link(EntryType::Symlink, path, target)
}

fn owned_by(id: u64) -> Layer {
    Layer::new().entry(EntryType::Regular, "f", "", b"", |header| header.set_uid(id))
}

fn device(kind: EntryType, major: u32, minor: u32) -> Layer {
    Layer::new().entry(kind, "node", "", b"", |header| {
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
    })
}

fn xattr(name: &str, value: &[u8]) -> Layer {
    Layer::new().pax(&[(&format!("SCHILY.xattr.{name}"), value)]).file("f", "content")
}

fn content(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

fn has_no_xattr(top: &Path) {
    let mut names = [0u8; 1024];
    let length = rustix::fs::llistxattr(top.join("f"), &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    assert!(!names.contains("overlay") && !names.contains("selinux") && !names.contains("trusted"), "{names}");
}

fn names_and_paths(outside: &Path) -> Vec<Case> {
    let up = "../../../../../outside";
    let absolute = outside.join("new").display().to_string();
    let (deep, long) = ("d/".repeat(1024) + "f", "directory/".repeat(1000) + "f");
    let pax = |path: &[u8]| Layer::new().pax(&[("path", path)]).file("x", "content");
    vec![
        layer("path that climbs", Layer::new().file(&format!("{up}/new"), "x"), Refused("leads out")),
        layer("path that climbs in its middle", Layer::new().file("a/../../x", "x"), Refused("leads out")),
        layer("path that climbs behind a dot", Layer::new().file("./../x", "x"), Refused("leads out")),
        layer("directory above", Layer::new().directory(".."), Refused("leads out")),
        layer("absolute path", Layer::new().file(&absolute, "x"), Refused("absolute")),
        layer("absolute path of slashes", Layer::new().file("//etc/x", "x"), Refused("absolute")),
        layer("file without a name", Layer::new().file("", "x"), Refused("root directory")),
        layer("file for the root", Layer::new().file("./", "x"), Refused("root directory")),
        layer("link for the root", symlink(".", "/etc"), Refused("root directory")),
        layer("name of 300 bytes", pax("n".repeat(300).as_bytes()), Refused("File name too long")),
        layer("1025 levels", pax(deep.as_bytes()), Refused("1024 directories deep")),
        layer("path of 10 kB", pax(long.as_bytes()), Refused("longer than any")),
        layer("zero byte in a name", pax(b"a\0b"), Either),
        layer(
            "name that is no UTF-8",
            pax(b"a\xff\xfeb"),
            Harmless(|top| {
                use std::os::unix::ffi::OsStrExt;
                assert_eq!(content(top.join(std::ffi::OsStr::from_bytes(b"a\xff\xfeb"))), "content");
            }),
        ),
        layer(
            "name with a line end and an escape",
            Layer::new().file("a\nb\x1b[31mc", "content"),
            Harmless(|top| assert_eq!(content(top.join("a\nb\x1b[31mc")), "content")),
        ),
        layer("extended header of 5 MiB", pax(&vec![b'a'; 5 << 20]), Refused("a header in layer")),
        layer(
            "long name of 5 MiB",
            Layer::new().entry(EntryType::GNULongName, "././@LongLink", "", &vec![b'a'; 5 << 20], |_| {}).file("x", ""),
            Refused("a header in layer"),
        ),
        layer("long name of nothing", Layer::new().entry(EntryType::GNULongName, "x", "", b"name\0", |_| {}), Either),
        layer("file below a file", Layer::new().file("f", "").file("f/x", ""), Refused("not a directory")),
        layer("unknown kind", Layer::new().entry(EntryType::new(b'Q'), "f", "", b"", |_| {}), Refused("of a kind")),
        layer(
            "file, then directory, then link of one name",
            Layer::new().file("n", "x").directory("n").file("n/in", "x").link(EntryType::Symlink, "n", "/etc"),
            Harmless(|top| assert_eq!(fs::read_link(top.join("n")).unwrap(), Path::new("/etc"))),
        ),
    ]
}

fn symbolic_links(outside: &Path) -> Vec<Case> {
    let up = "../../../../../outside";
    let outside = outside.to_str().unwrap();
    let treasure = format!("{outside}/treasure");
    let nested = (0..41).fold(symlink("l0", "real"), |layer, number| {
        layer.link(EntryType::Symlink, &format!("l{}", number + 1), &format!("l{number}"))
    });
    let everybody =
        |layer: Layer, path: &str| layer.entry(EntryType::Regular, path, "", b"own", |header| header.set_mode(0o666));
    vec![
        layer("file through an absolute link", symlink("e", outside).file("e/new", "x"), Refused("symbolic link")),
        layer("file through a climbing link", symlink("e", up).file("e/new", "x"), Refused("symbolic link")),
        layer(
            "file through two links",
            symlink("e", up).link(EntryType::Symlink, "s", "e").file("s/new", "x"),
            Refused("symbolic link"),
        ),
        layer("directory through a link", symlink("e", outside).directory("e/d"), Refused("symbolic link")),
        layer(
            "link through a link",
            symlink("e", outside).link(EntryType::Symlink, "e/l", "x"),
            Refused("symbolic link"),
        ),
        layer("process's root", symlink("e", "/proc/self/root").file("e/tmp/new", "x"), Refused("symbolic link")),
        layer("process's files", symlink("e", "/proc/self/fd/0").file("e/new", "x"), Refused("symbolic link")),
        layer("cycle of links", symlink("a", "b").link(EntryType::Symlink, "b", "a").file("a/x", ""), Refused("link")),
        layer("link to itself", symlink("a", "a").file("a/x", ""), Refused("link")),
        layer("link to nowhere", symlink("e", "nowhere").file("e/x", ""), Refused("leads nowhere")),
        layer("42 links in a row", nested.file("l41/x", ""), Refused("symbolic link")),
        layer("link without a target", symlink("e", ""), Refused("link to nothing")),
        layer(
            "link with a target of 5 kB",
            Layer::new().pax(&[("linkpath", &[b'a'; 5000])]).link(EntryType::Symlink, "l", "x"),
            Refused("File name too long"),
        ),
        layer(
            "directory over a link keeps what the link led to (CVE-2026-33056)",
            symlink("d", outside).entry(EntryType::Directory, "d", "", b"", |header| header.set_mode(0o777)),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("d")).unwrap().is_dir())),
        ),
        layer(
            "directory over a link, with a dot",
            symlink("d", outside).entry(EntryType::Directory, "d/.", "", b"", |header| header.set_mode(0o777)),
            Either,
        ),
        layer(
            "file over a link keeps what the link led to (CVE-2021-32760)",
            everybody(symlink("a", &treasure), "a"),
            Harmless(|top| assert_eq!(content(top.join("a")), "own")),
        ),
        layer(
            "link inside the layer is followed",
            Layer::new().directory("sub").link(EntryType::Symlink, "d", "sub").file("d/f", "in"),
            Harmless(|top| assert_eq!(content(top.join("sub/f")), "in")),
        ),
    ]
}

fn hard_links(outside: &Path) -> Vec<Case> {
    let up = "../../../../../outside";
    let outside = outside.to_str().unwrap();
    let treasure = format!("{outside}/treasure");
    let hard = |path: &str, target: &str| Layer::new().link(EntryType::Link, path, target);
    let lower = Layer::new().file("of-lower", "x").tar();
    let across = docker(&["test/corpus:1"], &[lower, hard("l", "of-lower").tar()], json!({}));
    let many = (0..400)
        .fold(Layer::new().file("f", "x"), |layer, number| layer.link(EntryType::Link, &format!("l{number}"), "f"));
    vec![
        layer("hard link, absolute", hard("l", &treasure), Refused("absolute")),
        layer("hard link, climbing", hard("l", &format!("{up}/treasure")), Refused("leads out")),
        layer(
            "hard link through a link",
            symlink("e", outside).link(EntryType::Link, "l", "e/treasure"),
            Refused("symbolic link"),
        ),
        layer(
            "hard link to a directory",
            Layer::new().directory("d").link(EntryType::Link, "l", "d"),
            Refused("directory"),
        ),
        layer("hard link to itself", Layer::new().file("l", "x").link(EntryType::Link, "l", "l"), Refused("to itself")),
        layer("hard link to what comes later", hard("l", "later").file("later", "x"), Refused("does not hold")),
        Case { name: "hard link into another layer", archive: across, fate: Refused("does not hold") },
        layer("hard link to the root", hard("l", "."), Refused("root directory")),
        layer(
            "hard link whose other name is written anew",
            Layer::new().file("b", "kept").link(EntryType::Link, "a", "b").file("a", "new"),
            Harmless(|top| assert_eq!((content(top.join("b")), content(top.join("a"))), ("kept".into(), "new".into()))),
        ),
        layer(
            "hard link to a link, written through",
            symlink("s", &treasure).link(EntryType::Link, "l", "s").file("l", "own"),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("l")).unwrap().is_file())),
        ),
        layer("400 hard links", many, Harmless(|top| assert_eq!(fs::metadata(top.join("f")).unwrap().nlink(), 401))),
    ]
}

fn whiteouts(outside: &Path) -> Vec<Case> {
    let outside = outside.to_str().unwrap();
    let is_whiteout = |path: PathBuf| {
        let found = fs::symlink_metadata(path).unwrap();
        found.file_type().is_char_device() && found.rdev() == 0
    };
    assert!(!is_whiteout("/dev/null".into()));
    vec![
        layer("whiteout of nothing", Layer::new().file("a/.wh.", ""), Refused("whiteout of no file")),
        layer("whiteout of itself", Layer::new().file("a/.wh..", ""), Refused("whiteout of no file")),
        layer("whiteout of the parent", Layer::new().file("a/.wh...", ""), Refused("whiteout of no file")),
        layer("whiteout through a link", symlink("e", outside).file("e/.wh.treasure", ""), Refused("symbolic link")),
        layer("opaque through a link", symlink("e", outside).file("e/.wh..wh..opq", ""), Refused("symbolic link")),
        layer("whiteout in disguise", device(EntryType::Char, 0, 0), Refused("whiteout in disguise")),
        layer("opaque root", Layer::new().file(".wh..wh..opq", ""), Harmless(|top| assert!(top.is_dir()))),
        layer(
            "bookkeeping of aufs",
            Layer::new().file(".wh..wh.plnk", "").file(".wh..wh.aufs", ""),
            Harmless(|top| assert_eq!(fs::read_dir(top).unwrap().count(), 0)),
        ),
        layer(
            "whiteout of an own entry",
            Layer::new().file("own", "kept").file(".wh.own", ""),
            Harmless(|top| assert_eq!(content(top.join("own")), "kept")),
        ),
        layer(
            "whiteout with content",
            Layer::new().file(".wh.gone", "content"),
            Harmless(|top| {
                let found = fs::symlink_metadata(top.join("gone")).unwrap();
                assert!(found.file_type().is_char_device() && found.rdev() == 0);
            }),
        ),
        layer(
            "whiteout that is a link",
            symlink(".wh.gone", "/etc"),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("gone")).unwrap().file_type().is_char_device())),
        ),
    ]
}

fn devices_owners_and_attributes() -> Vec<Case> {
    let kept = |top: &Path| assert_eq!(content(top.join("f")), "content");
    vec![
        layer(
            "disk by its number",
            device(EntryType::Block, 8, 0),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("node")).unwrap().file_type().is_block_device())),
        ),
        layer(
            "memory of the machine",
            device(EntryType::Char, 1, 1),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("node")).unwrap().file_type().is_char_device())),
        ),
        layer("device of an absurd number", device(EntryType::Block, 2_097_151, 2_097_151), Either),
        layer(
            "named pipe",
            Layer::new().entry(EntryType::Fifo, "pipe", "", b"", |_| {}),
            Harmless(|top| assert!(fs::symlink_metadata(top.join("pipe")).unwrap().file_type().is_fifo())),
        ),
        layer("owner 2^32-1", owned_by(u64::from(u32::MAX)), Refused("cannot exist")),
        layer("owner 2^40", owned_by(1 << 40), Refused("cannot exist")),
        layer(
            "program that becomes root",
            Layer::new().entry(EntryType::Regular, "su", "", b"#!", |header| header.set_mode(0o4755)),
            Harmless(|top| assert_eq!(fs::metadata(top.join("su")).unwrap().mode() & 0o7777, 0o4755)),
        ),
        layer("mark of overlayfs: redirect", xattr("trusted.overlay.redirect", b"/etc"), Harmless(has_no_xattr)),
        layer("mark of overlayfs: metacopy", xattr("trusted.overlay.metacopy", b""), Harmless(has_no_xattr)),
        layer("mark of overlayfs of a user", xattr("user.overlay.whiteout", b"y"), Harmless(has_no_xattr)),
        layer("label of this machine", xattr("security.selinux", b"unconfined_t"), Harmless(has_no_xattr)),
        layer("capabilities that are none", xattr("security.capability", b"nonsense"), Either),
        layer("attribute without a name", xattr("", b"x"), Either),
        layer("attribute of no namespace", xattr("bogus.name", b"x"), Harmless(kept)),
        layer("attribute of 70 kB", xattr("user.large", &[b'x'; 70_000]), Either),
    ]
}

fn bombs() -> Vec<Case> {
    let mebibyte = gzip(&vec![0; 1 << 20]);
    let header = |size: u64, adjust: &dyn Fn(&mut tar::Header)| {
        let mut header = tar::Header::new_gnu();
        header.set_path("zeros").unwrap();
        header.set_size(size);
        header.set_mode(0o644);
        adjust(&mut header);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let honest = Layer::new().file("f", "content").tar();
    let zeros = [gzip(&header(1 << 30, &|_| {})), mebibyte.repeat(1025)].concat();
    let sparse = Layer::new().entry(EntryType::GNUSparse, "sparse", "", b"", |header| {
        header.as_gnu_mut().unwrap().set_real_size(1 << 40);
    });
    let pax_sparse = |key: &str, value: &[u8]| Layer::new().pax(&[(key, value)]).file("f", "0\n");
    let many = (0..501).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), ""));
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00].to_vec();
    let empty_members = [gzip(b"").repeat(20_000), gzip(&honest)].concat();
    // A file whose extended header says 1024 bytes and whose own header says none: what is in it is no entry of its own.
    let hidden = Layer::new().file("hidden", "x").tar();
    let two_sizes = Layer::new()
        .pax(&[("size", b"1024")])
        .entry(EntryType::Regular, "outer", "", &hidden[..1024], |header| header.set_size(0))
        .file("last", "x");
    vec![
        blob("gibibyte of zeros", honest.clone(), zeros, Refused("larger than 25165824 bytes")),
        layer("501 files", many, Refused("the number of files")),
        layer("hole of a tebibyte", sparse, Either),
        layer("sparse file of version 1.0", pax_sparse("GNU.sparse.major", b"1"), Refused("sparse file")),
        layer("sparse file of version 0.1", pax_sparse("GNU.sparse.map", b"0,1"), Refused("sparse file")),
        blob("zstd with a window of 2 GiB", honest.clone(), window, Refused("cannot be unpacked")),
        blob(
            "20000 empty members",
            honest.clone(),
            empty_members,
            Harmless(|top| assert_eq!(content(top.join("f")), "content")),
        ),
        blob(
            "garbage behind the end",
            honest.clone(),
            [gzip(&honest), b"garbage".to_vec()].concat(),
            Refused("cannot be unpacked"),
        ),
        blob("cut in the middle", honest.clone(), gzip(&honest)[..20].to_vec(), Refused("cannot be unpacked")),
        blob("compressed twice", honest.clone(), gzip(&gzip(&honest)), Refused("")),
        blob("another layer than it says", honest.clone(), Layer::new().file("g", "").tar(), Refused("does not match")),
        blob("entry of 2^62 bytes", honest.clone(), header(1 << 62, &|_| {}), Refused("")),
        blob("zeros without an entry", honest, vec![0; 4096], Refused("does not match")),
        layer(
            "two sizes of one entry (CVE-2025-62518)",
            two_sizes,
            Harmless(|top| {
                assert_eq!(fs::metadata(top.join("outer")).unwrap().len(), 1024);
                assert!(!top.join("hidden").exists(), "an entry that other readers do not see");
            }),
        ),
    ]
}

fn documents() -> Vec<Case> {
    let plain = Layer::new().file("f", "").tar();
    let config_text = config(std::slice::from_ref(&plain), json!({})).to_string();
    let config_name = format!("{}.json", Digest::of(config_text.as_bytes()).hex());
    let with = |manifest: String, extra: Vec<(String, &[u8])>| {
        let mut members =
            vec![(config_name.clone(), config_text.as_bytes()), ("manifest.json".into(), manifest.as_bytes())];
        members.extend(extra);
        archive(&members)
    };
    let manifest = |layers: Value| json!([{ "Config": config_name, "RepoTags": ["x"], "Layers": layers }]).to_string();
    let nested = "[".repeat(100_000);
    let large = vec![b' '; 17 << 20];
    let mut cycle = tar::Builder::new(Vec::new());
    for (name, text) in [(config_name.as_str(), config_text.as_str()), ("manifest.json", &manifest(json!(["a.tar"])))] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        cycle.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    for (name, target) in [("a.tar", "b.tar"), ("b.tar", "a.tar")] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        cycle.append_link(&mut header, name, target).unwrap();
    }
    let case = |name, archive, words| Case { name, archive, fate: Refused(words) };
    vec![
        case("manifest of 100000 levels", with(nested, vec![]), ""),
        case("manifest of 17 MiB", archive(&[("manifest.json".into(), &large[..])]), "larger than"),
        case("layer that is not there", with(manifest(json!(["absent.tar"])), vec![]), "names a member"),
        case("layer outside the archive", with(manifest(json!(["../../../etc/passwd"])), vec![]), "names a member"),
        case("layers that link to each other", cycle.into_inner().unwrap(), "names a member"),
        case(
            "more layers than its configuration",
            with(manifest(json!(["l.tar", "l.tar"])), vec![("l.tar".into(), &plain)]),
            "2 layers where its configuration has 1",
        ),
        case("empty archive", vec![0; 1024], "it is empty"),
    ]
}

/// Names, kinds, modes, owners, sizes and times of all below a directory.
fn snapshot(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let meta = fs::symlink_metadata(&path).unwrap();
            let (mode, owner, size) = (meta.mode(), (meta.uid(), meta.gid()), (meta.len(), meta.nlink()));
            found.push(format!("{} {mode:o} {owner:?} {size:?} {}", path.display(), meta.mtime_nsec()));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

fn unpackers_of(store: &Path) -> usize {
    let place = store.to_str().unwrap();
    let words = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let words = fs::read_dir("/proc").unwrap().flatten().filter_map(words);
    words.filter(|words| String::from_utf8_lossy(words).contains(place)).count()
}

#[test]
fn hostile_archive_is_refused_or_harmless_whatever_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (outside, place) = (dir.path().join("outside"), dir.path().join("store"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("treasure"), "untouched").unwrap();
    let cases: Vec<Case> = [
        names_and_paths(&outside),
        symbolic_links(&outside),
        hard_links(&outside),
        whiteouts(&outside),
        devices_owners_and_attributes(),
        bombs(),
        documents(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "each has a name of its own");
    assert!(cases.len() >= 60, "{} archives", cases.len());
    let before = (snapshot(&outside), snapshot(Path::new("/etc")));
    for Case { name, archive, fate } in cases {
        let _ = fs::remove_dir_all(&place);
        let store = ImageStore::open_with(&place, program(), LIMITS).unwrap();
        let begun = Instant::now();
        let loaded = store.load(archive.as_slice());
        assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", begun.elapsed());
        assert_eq!((snapshot(&outside), snapshot(Path::new("/etc"))), before, "{name}: something outside has changed");
        assert_eq!(unpackers_of(&place), 0, "{name}: who unpacked it is gone");
        assert_eq!(fs::read_dir(place.join("ingest")).unwrap().count(), 0, "{name}: nothing half done stays");
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o7777, 0o700, "{name}: its files are nobody else's");
        match (loaded, fate) {
            (Ok(images), Harmless(looks)) => looks(store.find(&images[0].id).unwrap().layers.last().unwrap()),
            (Err(error), Refused(words)) => {
                assert!(error.to_string().contains(words), "{name}: {error}");
                assert_eq!(store.list().len(), 0, "{name}");
                for part in ["layers", "images", "names"] {
                    assert_eq!(fs::read_dir(place.join(part)).unwrap().count(), 0, "{name}: {part} of a refused image");
                }
            }
            (Ok(_) | Err(_), Either) => {}
            (Ok(_), Refused(words)) => panic!("{name} was to be refused ({words}), and was taken"),
            (Err(error), Harmless(_)) => panic!("{name} was to be taken: {error}"),
        }
    }
}
