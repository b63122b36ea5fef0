//! Archives written by the tools people use: built by umoci, copied by skopeo, loaded here.
//!
//! Needs `umoci`, `skopeo` and `busybox-static`, which the project's test set-up installs.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use runtime::image::ImageStore;

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program} ({error}); install it with the test set-up"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A busybox image of two layers, the second of which hides a file of the first.
fn build(dir: &Path) -> String {
    let layout = dir.join("layout").to_str().unwrap().to_owned();
    let image = format!("{layout}:busybox");
    run("umoci", &["init", "--layout", &layout]);
    run("umoci", &["new", "--image", &image]);
    let first = dir.join("first");
    run("umoci", &["unpack", "--image", &image, first.to_str().unwrap()]);
    let root = first.join("rootfs");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::create_dir(root.join("etc")).unwrap();
    fs::copy("/usr/bin/busybox", root.join("bin/busybox"))
        .or_else(|_| fs::copy("/bin/busybox", root.join("bin/busybox")))
        .unwrap();
    fs::hard_link(root.join("bin/busybox"), root.join("bin/again")).unwrap();
    std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
    std::os::unix::fs::lchown(root.join("bin/sh"), Some(5), Some(6)).unwrap();
    fs::write(root.join("etc/hidden"), "1").unwrap();
    run("umoci", &["repack", "--image", &image, first.to_str().unwrap()]);
    let second = dir.join("second");
    run("umoci", &["unpack", "--image", &image, second.to_str().unwrap()]);
    fs::remove_file(second.join("rootfs/etc/hidden")).unwrap();
    run("umoci", &["repack", "--image", &image, second.to_str().unwrap()]);
    run(
        "umoci",
        &[
            "config",
            "--image",
            &image,
            "--config.stopsignal",
            "SIGUSR1",
            "--config.entrypoint",
            "/bin/sh",
            "--config.cmd",
            "-c",
            "--config.cmd",
            "sleep 1000",
            "--config.env",
            "GREETING=hello",
            "--config.workingdir",
            "/tmp",
            "--config.user",
            "1000:1000",
            "--architecture",
            "amd64",
            "--os",
            "linux",
        ],
    );
    image
}

#[test]
fn images_of_umoci_and_skopeo_can_be_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let source = format!("oci:{}", build(dir.path()));
    run("skopeo", &["copy", "-q", &source, &format!("docker-archive:{}:example.com/bb:docker", path("docker.tar"))]);
    run("skopeo", &["copy", "-q", &source, &format!("oci-archive:{}:example.com/bb:oci", path("oci.tar"))]);
    run(
        "skopeo",
        &[
            "copy",
            "-q",
            "--dest-compress-format",
            "zstd",
            "--dest-compress",
            &source,
            &format!("oci:{}:example.com/bb:zstd", path("zstd")),
        ],
    );
    run("tar", &["-C", &path("zstd"), "-cf", &path("zstd.tar"), "."]);

    let store = ImageStore::open(&dir.path().join("store"), crate::image_support::program()).unwrap();
    let mut ids = Vec::new();
    for tag in ["docker", "oci", "zstd"] {
        let loaded = store.load(File::open(path(&format!("{tag}.tar"))).unwrap()).unwrap();
        assert_eq!(loaded.len(), 1);
        let stored = store.find(&format!("example.com/bb:{tag}")).unwrap();
        ids.push(stored.image.id.clone());
        assert_eq!(stored.image.stop_signal, Some(10));
        assert_eq!(stored.config.entrypoint, ["/bin/sh"]);
        assert_eq!(stored.config.cmd, ["-c", "sleep 1000"]);
        assert_eq!(stored.config.user.as_deref(), Some("1000:1000"));
        assert_eq!(stored.config.working_dir.as_deref(), Some("/tmp"));
        assert_eq!(stored.image.env["GREETING"], "hello");

        let [top, base] = stored.layers.as_slice() else { panic!("{:?}", stored.layers) };
        let program = fs::metadata(base.join("bin/busybox")).unwrap();
        assert_eq!((program.mode() & 0o777, program.nlink()), (0o755, 2));
        let link = fs::symlink_metadata(base.join("bin/sh")).unwrap();
        assert_eq!((link.uid(), link.gid()), (5, 6));
        assert!(Command::new(base.join("bin/busybox")).arg("true").status().unwrap().success());
        assert_eq!(fs::symlink_metadata(top.join("etc/hidden")).unwrap().rdev(), 0);
        assert!(!fs::symlink_metadata(top.join("etc/hidden")).unwrap().is_file());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "one image, three ways: {ids:?}");
    assert_eq!(store.list().len(), 1);
    assert_eq!(fs::read_dir(dir.path().join("store/layers")).unwrap().count(), 2, "layers are unpacked once");
}
