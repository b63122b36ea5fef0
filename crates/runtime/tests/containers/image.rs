//! Images: archives of both kinds go in, what a container needs comes out, and mischief stays out.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::image_support::{Layer, Layout, archive, config, docker, docker_with, gzip, zstd};
use runtime::image::{Digest, ImageError, ImageStore, Limits, StoredImage};
use serde_json::json;
use tar::EntryType;

fn store() -> (tempfile::TempDir, ImageStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&dir.path().join("images"), crate::image_support::program()).unwrap();
    (dir, store)
}

fn load(store: &ImageStore, archive: &[u8]) -> Result<Vec<runtime::Image>, ImageError> {
    store.load(archive)
}

fn top(stored: &StoredImage) -> &Path {
    &stored.layers[0]
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn a_docker_archive_is_found_by_every_name_it_goes_by() {
    let (_dir, store) = store();
    let layers = [Layer::new().file("hello", "world").tar()];
    let process =
        json!({ "Entrypoint": ["/bin/sh"], "Cmd": ["-c", "true"], "Env": ["A=1"], "User": "7", "StopSignal": "QUIT" });
    let loaded = load(&store, &docker(&["busybox:1.36", "localhost:5000/a/b"], &layers, process)).unwrap();

    let [image] = loaded.as_slice() else { panic!("{loaded:?}") };
    assert_eq!(image.names, ["docker.io/library/busybox:1.36", "localhost:5000/a/b:latest"]);
    assert_eq!((image.size_bytes, image.stop_signal, image.user.as_deref()), (5, Some(3), Some("7")));
    assert_eq!(image.env["A"], "1");
    let bare_id = image.id.trim_start_matches("sha256:");
    for name in ["busybox:1.36", "docker.io/library/busybox:1.36", "localhost:5000/a/b", &image.id, bare_id] {
        let stored = store.find(name).unwrap();
        assert_eq!(stored.image, *image, "{name}");
        assert_eq!((stored.config.entrypoint.len(), stored.config.cmd.len()), (1, 2));
        assert_eq!(fs::read_to_string(top(&stored).join("hello")).unwrap(), "world");
    }
    assert!(matches!(store.find("busybox"), Err(ImageError::Absent { name }) if name == "busybox"), "another tag");
    assert!(matches!(store.find("Not A Name"), Err(ImageError::Name { .. })));
    assert_eq!(store.list(), loaded);
}

#[test]
fn every_kind_of_entry_arrives_as_it_was() {
    let (_dir, store) = store();
    let owned = |header: &mut tar::Header| {
        header.set_uid(33);
        header.set_gid(44);
        header.set_mode(0o4755);
    };
    let device = |header: &mut tar::Header| {
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
    };
    let long = format!("deep/{}", "n".repeat(120));
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let layer = Layer::new()
        .entry(EntryType::Directory, "./", "", b"", |header| header.set_mode(0o711))
        .entry(EntryType::Directory, "sticky/", "", b"", |header| header.set_mode(0o1777))
        .pax(&[
            ("mtime", b"1600000000.5"),
            ("SCHILY.xattr.user.colour", b"blue"),
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ])
        .entry(EntryType::Regular, "sticky/program", "", b"#!", owned)
        .link(EntryType::Link, "sticky/again", "sticky/program")
        .link(EntryType::Symlink, "anywhere", "/etc/../../shadow")
        .entry(EntryType::Fifo, "pipe", "", b"", |_| {})
        .entry(EntryType::Char, "null", "", b"", device)
        .entry(EntryType::Block, "disk", "", b"", device)
        .pax(&[("path", long.as_bytes())])
        .file("short", "long")
        .file("twice", "first")
        .file("twice", "second")
        .link(EntryType::Symlink, "here", "sticky")
        .file("here/through", "a link that stays inside is a way like any other")
        .tar();
    load(&store, &docker(&["all"], &[layer], json!({}))).unwrap();

    let stored = store.find("all").unwrap();
    let root = top(&stored);
    let look = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
    assert_eq!(look(".").mode() & 0o7777, 0o711);
    assert_eq!((look("sticky").mode() & 0o7777, look("sticky").mtime()), (0o1777, 1_700_000_000));
    let program = look("sticky/program");
    assert_eq!((program.mode() & 0o7777, program.uid(), program.gid()), (0o4755, 33, 44));
    assert_eq!((program.mtime(), program.mtime_nsec()), (1_600_000_000, 500_000_000));
    assert_eq!((look("sticky/again").ino(), program.nlink()), (program.ino(), 2));
    let program = root.join("sticky/program");
    assert_eq!(xattr(&program, "user.colour").unwrap(), b"blue");
    assert_eq!(xattr(&program, "security.capability").unwrap(), capability);
    assert_eq!(xattr(&program, "trusted.overlay.opaque"), None, "marks of overlayfs are not the image's to set");
    assert_eq!(fs::read_link(root.join("anywhere")).unwrap(), PathBuf::from("/etc/../../shadow"));
    assert_eq!(look("anywhere").mtime(), 1_700_000_000);
    assert!(look("pipe").file_type().is_fifo());
    assert!(look("null").file_type().is_char_device() && look("null").rdev() == 0x103);
    assert!(look("disk").file_type().is_block_device() && look("disk").rdev() == 0x103);
    assert_eq!(fs::read_to_string(root.join(&long)).unwrap(), "long");
    assert_eq!(look("deep").mode() & 0o7777, 0o755, "a folder nobody mentioned");
    assert_eq!(fs::read_to_string(root.join("twice")).unwrap(), "second");
    assert!(root.join("sticky/through").exists());
}

#[test]
fn whiteouts_hide_what_lower_layers_have() {
    let (dir, store) = store();
    let lower = Layer::new()
        .file("gone", "1")
        .file("kept", "1")
        .file("folder/below", "1")
        .file("replaced/below", "1")
        .file("again/below", "1")
        .file("implied/below", "1")
        .tar();
    let upper = Layer::new()
        .file(".wh.gone", "")
        .file("folder/.wh..wh..opq", "")
        .file("folder/above", "2")
        .file(".wh.replaced", "")
        .directory("replaced")
        .file("replaced/above", "2")
        .directory("again")
        .file("again/above", "2")
        .file(".wh.again", "")
        .file(".wh.implied", "")
        .file("implied/above", "2")
        .file(".wh..wh.plnk", "bookkeeping")
        .tar();
    load(
        &store,
        &docker_with(
            &["w"],
            &[lower.clone(), upper.clone()],
            &[gzip(&lower), zstd(&upper)],
            &config(&[lower, upper], json!({})),
        ),
    )
    .unwrap();

    let stored = store.find("w").unwrap();
    let gone = fs::symlink_metadata(top(&stored).join("gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert_eq!(xattr(&top(&stored).join("folder"), "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(
        through_overlay(dir.path(), &stored.layers),
        ["again/above", "folder/above", "implied/above", "kept", "replaced/above"]
    );
}

/// The files that a container would see, read through a real overlay mount in a mount namespace of its own.
fn through_overlay(dir: &Path, layers: &[PathBuf]) -> Vec<String> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    let merged = dir.join("merged");
    fs::create_dir(&merged).unwrap();
    let lower: Vec<_> = layers.iter().map(|layer| layer.to_str().unwrap()).collect();
    let options = std::ffi::CString::new(format!("lowerdir={}", lower.join(":"))).unwrap();
    std::thread::spawn(move || {
        #[allow(unsafe_code, reason = "unshare is unsafe only for shared file descriptor tables")]
        // SAFETY: the descriptor table stays shared; only the mount namespace of this thread changes.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        let mut files = Vec::new();
        let mut folders = vec![merged.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => files.push(entry.path().strip_prefix(&merged).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        files.sort();
        files
    })
    .join()
    .unwrap()
}

#[test]
fn compression_inside_and_outside_makes_no_difference() {
    let layer = Layer::new().file("a", "same").tar();
    let padded = [layer.clone(), vec![0; 10_240]].concat();
    for (plain, stored) in
        [(&layer, layer.clone()), (&layer, gzip(&layer)), (&layer, zstd(&layer)), (&padded, gzip(&padded))]
    {
        let made = docker_with(
            &["x"],
            std::slice::from_ref(plain),
            &[stored],
            &config(std::slice::from_ref(plain), json!({})),
        );
        for outer in [made.clone(), gzip(&made), zstd(&made)] {
            let (_dir, store) = store();
            load(&store, &outer).unwrap();
            assert_eq!(fs::read_to_string(top(&store.find("x").unwrap()).join("a")).unwrap(), "same");
        }
    }
}

#[test]
fn an_oci_archive_is_named_by_its_annotations_and_its_digest() {
    let (_dir, store) = store();
    let layer = Layer::new().file("a", "1").tar();
    let mut layout = Layout::default();
    let manifest = layout.image(&config(std::slice::from_ref(&layer), json!({})), &[gzip(&layer)]);
    let digest = manifest["digest"].as_str().unwrap().to_owned();
    let made = layout
        .list(manifest.clone(), json!({ "org.opencontainers.image.ref.name": "quay.io/team/web:v1" }))
        .list(manifest, json!({ "io.containerd.image.name": "docker.io/library/web:v2", "org.opencontainers.image.ref.name": "v2" }))
        .archive();
    let loaded = load(&store, &made).unwrap();

    assert_eq!(loaded.len(), 1, "one image under two names: {loaded:?}");
    for name in ["quay.io/team/web:v1", "web:v2", &format!("web@{digest}"), &format!("quay.io/team/web:v9@{digest}")] {
        assert_eq!(store.find(name).unwrap().image, loaded[0], "{name}");
    }
    assert!(matches!(store.find("v2"), Err(ImageError::Absent { .. })), "a lone tag beside a full name is no name");
}

#[test]
fn an_index_of_many_machines_gives_the_image_for_this_one() {
    let (_dir, store) = store();
    let (here, there) = (Layer::new().file("arch", "amd64").tar(), Layer::new().file("arch", "arm64").tar());
    let mut layout = Layout::default();
    let mut arm_config = config(std::slice::from_ref(&there), json!({}));
    arm_config["architecture"] = json!("arm64");
    let mut arm = layout.image(&arm_config, &[gzip(&there)]);
    arm["platform"] = json!({ "os": "linux", "architecture": "arm64", "variant": "v8" });
    let mut amd = layout.image(&config(std::slice::from_ref(&here), json!({})), &[gzip(&here)]);
    amd["platform"] = json!({ "os": "linux", "architecture": "amd64" });
    let nested = layout.nested(&[arm.clone(), amd]);
    let named = json!({ "io.containerd.image.name": "docker.io/library/many:1" });
    load(&store, &layout.list(nested, named.clone()).archive()).unwrap();
    assert_eq!(fs::read_to_string(top(&store.find("many:1").unwrap()).join("arch")).unwrap(), "amd64");

    let mut layout = Layout::default();
    let mut arm = layout.image(&arm_config, &[gzip(&there)]);
    let bare = arm.clone();
    arm["platform"] = json!({ "os": "linux", "architecture": "arm64" });
    let only_arm = layout.list(arm, named.clone()).archive();
    let mut layout = Layout::default();
    layout.image(&arm_config, &[gzip(&there)]);
    let silent_arm = layout.list(bare, named).archive();
    for foreign in [only_arm, silent_arm] {
        let error = load(&store, &foreign).unwrap_err().to_string();
        assert!(error.contains("no image for linux/amd64, only for linux/arm64"), "{error}");
    }
}

#[test]
fn image_content_that_does_not_match_its_digest_is_refused() {
    let layer = Layer::new().file("a", "1").tar();
    let good = config(std::slice::from_ref(&layer), json!({}));
    let other = Layer::new().file("a", "2").tar();

    let (_dir, store) = store();
    let error = load(&store, &docker_with(&["x"], std::slice::from_ref(&layer), &[other], &good)).unwrap_err();
    assert!(matches!(&error, ImageError::Mismatch { what, .. } if what == "an unpacked layer"), "{error}");

    for part in ["manifest", "config", "layer"] {
        let mut layout = Layout::default();
        let manifest = layout.image(&good, std::slice::from_ref(&layer));
        let damaged = match part {
            "manifest" => manifest.clone(),
            "config" => json!({ "digest": Digest::of(good.to_string().as_bytes()) }),
            _ => json!({ "digest": Digest::of(&layer) }),
        };
        let error = load(&store, &layout.list(manifest, json!({})).damage(&damaged).archive()).unwrap_err();
        assert!(matches!(error, ImageError::Mismatch { .. }), "{part}: {error}");
    }

    let wrong_name = archive(&[
        (format!("{}.json", Digest::of(b"something else").hex()), good.to_string().as_bytes()),
        (
            "manifest.json".into(),
            json!([{ "Config": format!("{}.json", Digest::of(b"something else").hex()), "Layers": ["l"] }])
                .to_string()
                .as_bytes(),
        ),
        ("l".into(), &layer),
    ]);
    assert!(matches!(load(&store, &wrong_name), Err(ImageError::Mismatch { .. })));
    assert_eq!(store.list(), []);
    assert_nothing_half_done(&store, &_dir.path().join("images"));
}

#[test]
fn hostile_layers_are_refused_and_write_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("treasure"), "untouched").unwrap();
    let outside_text = outside.to_str().unwrap().to_owned();
    let treasure = format!("{outside_text}/treasure");
    // From ingest/N/HEX/fs up to the directory that holds both the store and `outside`.
    let up = "../../../../../outside";
    let (deep, long) = ("d/".repeat(1024) + "f", "directory/".repeat(1000) + "f");
    let (deep, long) = (deep.into_bytes(), long.into_bytes());
    let symlink = |target: &str| Layer::new().link(EntryType::Symlink, "exit", target);
    let hostile = [
        ("climbs", Layer::new().file(&format!("{up}/new"), "x"), "leads out"),
        ("climbs in the middle", Layer::new().file("a/../../x", "x"), "leads out"),
        ("absolute", Layer::new().file(&format!("{outside_text}/new"), "x"), "absolute"),
        ("through an absolute link", symlink(&outside_text).file("exit/new", "x"), "symbolic link"),
        ("through a climbing link", symlink(up).file("exit/new", "x"), "symbolic link"),
        (
            "through two links",
            symlink(up).link(EntryType::Symlink, "second", "exit").file("second/new", "x"),
            "symbolic link",
        ),
        ("a folder through a link", symlink(&outside_text).directory("exit/folder"), "symbolic link"),
        ("a link through a link", symlink(&outside_text).link(EntryType::Symlink, "exit/l", "x"), "symbolic link"),
        ("through a process link", symlink("/proc/self/root").file("exit/tmp/new", "x"), "symbolic link"),
        (
            "through a loop",
            Layer::new().link(EntryType::Symlink, "a", "b").link(EntryType::Symlink, "b", "a").file("a/x", ""),
            "symbolic link",
        ),
        ("through a link to nowhere", symlink("nowhere").file("exit/new", "x"), "leads nowhere"),
        ("below a file", Layer::new().file("f", "").file("f/x", ""), "not a directory"),
        ("hard link, absolute", Layer::new().link(EntryType::Link, "l", &treasure), "absolute"),
        ("hard link, climbing", Layer::new().link(EntryType::Link, "l", &format!("{up}/treasure")), "leads out"),
        (
            "hard link through a link",
            symlink(&outside_text).link(EntryType::Link, "l", "exit/treasure"),
            "symbolic link",
        ),
        ("hard link to nothing", Layer::new().link(EntryType::Link, "l", "absent"), "does not hold"),
        ("hard link to nothing below", Layer::new().link(EntryType::Link, "l", "absent/file"), "does not hold"),
        ("hard link to a folder", Layer::new().directory("d").link(EntryType::Link, "l", "d"), "to a directory"),
        ("hard link to itself", Layer::new().file("l", "x").link(EntryType::Link, "l", "l"), "to itself"),
        ("whiteout of the parent", Layer::new().file("a/.wh...", ""), "whiteout of no file"),
        ("whiteout of itself", Layer::new().file("a/.wh..", ""), "whiteout of no file"),
        ("whiteout through a link", symlink(&outside_text).file("exit/.wh.treasure", ""), "symbolic link"),
        ("opaque through a link", symlink(&outside_text).file("exit/.wh..wh..opq", ""), "symbolic link"),
        ("a file for the root", Layer::new().file("./", "x"), "root directory"),
        ("a link for the root", Layer::new().link(EntryType::Symlink, ".", &outside_text), "root directory"),
        (
            "nobody's",
            Layer::new().entry(EntryType::Regular, "f", "", b"", |header| header.set_uid(u64::from(u32::MAX))),
            "cannot exist",
        ),
        ("absurdly deep", Layer::new().pax(&[("path", &deep)]).file("x", "x"), "1024 directories deep"),
        (
            "a link to what is absurdly deep",
            Layer::new().pax(&[("linkpath", &deep)]).link(EntryType::Link, "l", "x"),
            "1024 directories deep",
        ),
        ("absurdly long", Layer::new().pax(&[("path", &long)]).file("x", "x"), "longer than any"),
        ("an unknown kind", Layer::new().entry(EntryType::new(b'Q'), "f", "", b"", |_| {}), "of a kind"),
    ];
    let before = snapshot(&outside);
    for (case, layer, why) in hostile {
        let store_dir = dir.path().join("store");
        let store = ImageStore::open(&store_dir, crate::image_support::program()).unwrap();
        let error = load(&store, &docker(&["evil"], &[layer.tar()], json!({}))).expect_err(case);
        assert!(matches!(error, ImageError::Hostile { .. }), "{case}: {error}");
        assert!(error.to_string().contains(why), "{case}: {error}");
        assert_eq!(snapshot(&outside), before, "{case}");
        assert_eq!(store.list(), [], "{case}");
        assert_nothing_half_done(&store, &store_dir);
    }
}

/// Names, sizes, links, times of all below a directory.
fn snapshot(dir: &Path) -> Vec<(PathBuf, u64, u64, i64, i64)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let meta = fs::symlink_metadata(&path).unwrap();
            found.push((path.clone(), meta.len(), meta.nlink(), meta.mtime(), meta.mtime_nsec()));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

fn assert_nothing_half_done(_store: &ImageStore, dir: &Path) {
    for part in ["ingest", "layers", "images", "names"] {
        assert_eq!(fs::read_dir(dir.join(part)).unwrap().count(), 0, "{part} should be empty");
    }
}

#[test]
fn a_link_may_be_replaced_but_is_never_followed() {
    let (_dir, store) = store();
    let layer = Layer::new()
        .link(EntryType::Symlink, "file", "/etc/hostname")
        .file("file", "own")
        .link(EntryType::Symlink, "folder", "/etc")
        .directory("folder")
        .file("folder/x", "own")
        .file("tree/deep/leaf", "x")
        .file("tree", "flat")
        .tar();
    load(&store, &docker(&["x"], &[layer], json!({}))).unwrap();
    let stored = store.find("x").unwrap();
    for (path, content) in [("file", "own"), ("folder/x", "own"), ("tree", "flat")] {
        assert!(fs::symlink_metadata(top(&stored).join(path)).unwrap().is_file());
        assert_eq!(fs::read_to_string(top(&stored).join(path)).unwrap(), content);
    }
    assert!(!Path::new("/etc/x").exists());
}

#[test]
fn bombs_end_at_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store =
        ImageStore::open_with(&path, crate::image_support::program(), Limits { bytes_max: 8 << 20, entries_max: 100 })
            .unwrap();
    let zeros = "\0".repeat(9 << 20);
    let large = Layer::new().file("zeros", &zeros).tar();
    let many = (0..101).fold(Layer::new(), |layer, number| layer.file(&format!("f{number}"), "")).tar();
    let header = Layer::new()
        .entry(EntryType::GNULongName, "././@LongLink", "", &vec![b'a'; 5 << 20], |_| {})
        .file("x", "")
        .tar();
    for (case, layer) in [("large", &large), ("many", &many), ("header", &header)] {
        let made = docker_with(
            &["x"],
            std::slice::from_ref(layer),
            &[gzip(layer)],
            &config(std::slice::from_ref(layer), json!({})),
        );
        let error = load(&store, &made).expect_err(case);
        assert!(matches!(error, ImageError::TooLarge { .. }), "{case}: {error}");
    }
    let error = load(&store, &gzip(&docker(&["x"], &[large], json!({})))).unwrap_err();
    assert!(matches!(&error, ImageError::TooLarge { what, .. } if what == "the archive"), "{error}");
    assert_nothing_half_done(&store, &path);
}

#[test]
fn file_that_is_no_image_archive_is_refused_with_a_hint() {
    let (_dir, store) = store();
    let junk = "not an archive, only words; ".repeat(40);
    for (input, why) in [
        (Vec::new(), "it is empty"),
        (junk.into_bytes(), "does not read as tar"),
        (Layer::new().file("etc/passwd", "").tar(), "no manifest.json and no index.json"),
        (archive(&[("manifest.json".into(), b"[]")]), "lists no image"),
        (b"BZh91AY&SY".to_vec(), "bzip2"),
    ] {
        let error = load(&store, &input).unwrap_err().to_string();
        assert!(error.starts_with("this is not an image archive: ") && error.contains(why), "{error}");
        assert!(error.contains("docker save"), "{error}");
    }
    let missing = archive(&[("manifest.json".into(), br#"[{"Config":"c.json","Layers":["l"]}]"#)]);
    assert!(load(&store, &missing).unwrap_err().to_string().contains("\"c.json\" that it does not hold"));
    let whole = docker(&["x"], &[Layer::new().file("a", "1").tar()], json!({}));
    let cut = gzip(&whole);
    assert!(matches!(load(&store, &cut[..cut.len() / 2]), Err(ImageError::Input { .. })));
}

#[test]
fn loading_twice_changes_nothing() {
    let (dir, store) = store();
    let made = docker(&["x"], &[Layer::new().file("a", "1").tar()], json!({}));
    let first = load(&store, &made).unwrap();
    let records = |part: &str| snapshot(&dir.path().join("images").join(part));
    let before = (records("images"), records("names"), records("layers"));
    assert_eq!(load(&store, &made).unwrap(), first);
    assert_eq!((records("images"), records("names"), records("layers")), before);
}

#[test]
fn layers_are_shared_and_a_name_moves_to_the_newest_image() {
    let (_dir, store) = store();
    let base = Layer::new().file("base", "1").tar();
    let load_one = |name: &str, top: &str| {
        load(&store, &docker(&[name], &[base.clone(), Layer::new().file("top", top).tar()], json!({})))
            .unwrap()
            .remove(0)
    };
    let old = load_one("app:1", "old");
    let new = load_one("app:1", "new");
    assert_ne!(old.id, new.id);
    assert_eq!(store.find("app:1").unwrap().image.id, new.id);
    let (old, new) = (store.find(&old.id).unwrap(), store.find(&new.id).unwrap());
    assert_eq!((old.image.names.len(), new.image.names.len()), (0, 1));
    assert_eq!(old.layers[1], new.layers[1]);
    assert_ne!(old.layers[0], new.layers[0]);
}

#[test]
fn an_archive_without_names_is_found_by_its_id_only() {
    let (_dir, store) = store();
    let layers = [Layer::new().file("a", "1").tar()];
    for made in [docker(&[], &layers, json!({})), docker(&["<none>:<none>"], &layers, json!({}))] {
        let image = load(&store, &made).unwrap().remove(0);
        assert_eq!(image.names, Vec::<String>::new());
        assert_eq!(store.find(&image.id).unwrap().image, image);
    }
}

#[test]
fn an_image_of_no_layers_is_an_image() {
    let (_dir, store) = store();
    load(&store, &docker(&["empty"], &[], json!({}))).unwrap();
    assert_eq!(store.find("empty").unwrap().layers, Vec::<PathBuf>::new());
}

#[test]
fn another_process_sees_what_was_loaded_at_once() {
    let (dir, store) = store();
    let other = ImageStore::open(&dir.path().join("images"), crate::image_support::program()).unwrap();
    assert!(matches!(other.find("x"), Err(ImageError::Absent { .. })));
    for tag in ["x:1", "x:2", "x:3"] {
        load(&store, &docker(&[tag], &[Layer::new().file("a", tag).tar()], json!({}))).unwrap();
        assert_eq!(other.find(tag).unwrap().image, store.find(tag).unwrap().image);
    }
    assert_eq!(other.list().len(), 3);
    assert_eq!(
        ImageStore::open(&dir.path().join("images"), crate::image_support::program()).unwrap().list(),
        store.list()
    );
}

#[test]
fn leftovers_of_a_crash_are_swept_but_not_a_load_under_way() {
    let (dir, store) = store();
    let root = dir.path().join("images");
    fs::create_dir_all(root.join("ingest/7/half/fs")).unwrap();
    let made = docker(&["x"], &[Layer::new().file("a", "1").tar()], json!({}));
    let (told, hears) = std::sync::mpsc::channel();
    let (go, waits) = std::sync::mpsc::channel::<()>();
    // A reader that stops in the middle until it is told to go on.
    struct Paused(std::io::Cursor<Vec<u8>>, std::sync::mpsc::Sender<()>, Option<std::sync::mpsc::Receiver<()>>);
    impl std::io::Read for Paused {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.position() > 0
                && let Some(waits) = self.2.take()
            {
                self.1.send(()).unwrap();
                waits.recv().unwrap();
            }
            let few = buffer.len().min(512);
            self.0.read(&mut buffer[..few])
        }
    }
    let loading = std::thread::spawn(move || store.load(Paused(std::io::Cursor::new(made), told, Some(waits))));
    hears.recv().unwrap();
    let other = ImageStore::open(&root, crate::image_support::program()).unwrap();
    assert_eq!(fs::read_dir(root.join("ingest")).unwrap().count(), 1, "only the load under way is left");
    go.send(()).unwrap();
    loading.join().unwrap().unwrap();
    assert!(other.find("x").is_ok());
    assert_eq!(fs::read_dir(root.join("ingest")).unwrap().count(), 0);
}

#[test]
fn a_damaged_image_is_left_out_and_loading_repairs_it() {
    let (dir, store) = store();
    let root = dir.path().join("images");
    let made = docker(&["x"], &[Layer::new().file("a", "1").tar()], json!({}));
    let image = load(&store, &made).unwrap().remove(0);
    let hex = image.id.trim_start_matches("sha256:").to_owned();
    let record = root.join("images").join(&hex).with_extension("json");
    let blob = root.join("blobs/sha256").join(&hex);
    let layer = store.find("x").unwrap().layers[0].parent().unwrap().to_owned();
    let damages: [&dyn Fn(); 3] = [&|| fs::write(&record, "{").unwrap(), &|| fs::write(&blob, "{}").unwrap(), &|| {
        fs::remove_dir_all(&layer).unwrap()
    }];
    for damage in damages {
        damage();
        let reopened = ImageStore::open(&root, crate::image_support::program()).unwrap();
        assert!(matches!(reopened.find("x"), Err(ImageError::Absent { .. })));
        assert_eq!(load(&reopened, &made).unwrap(), std::slice::from_ref(&image));
        assert!(reopened.find("x").is_ok());
    }
}

#[test]
fn only_root_may_look_into_the_store() {
    let (dir, _store) = store();
    assert_eq!(fs::metadata(dir.path().join("images")).unwrap().mode() & 0o777, 0o700);
}
