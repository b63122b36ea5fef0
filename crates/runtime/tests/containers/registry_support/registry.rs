//! A real registry on loopback (Debian's docker-registry), and images to put into it.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code, reason = "shared by several tests")]
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// `correct horse`, as htpasswd would write it.
const HTPASSWD: &str = "rider:$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n";
pub const USER: &str = "rider";
pub const PASSWORD: &str = "correct horse";

/// A running registry; ends with this value.
pub struct Registry {
    child: Child,
    pub dir: tempfile::TempDir,
    pub port: u16,
    credentials: Option<String>,
}

/// How a registry is to be.
#[derive(Default)]
pub struct Options {
    pub htpasswd: bool,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The `auth.token` section.
    pub token: Option<Value>,
}

impl Registry {
    pub fn start() -> Self {
        Self::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = serde_json::json!({
            "version": 0.1,
            "log": { "level": "info", "accesslog": { "disabled": true } },
            "storage": { "filesystem": { "rootdirectory": dir.path().join("data") }, "delete": { "enabled": true } },
            "http": { "addr": "127.0.0.1:0" },
        });
        if options.htpasswd {
            fs::write(dir.path().join("htpasswd"), HTPASSWD).unwrap();
            config["auth"]["htpasswd"] = serde_json::json!({ "realm": "stable", "path": dir.path().join("htpasswd") });
        }
        if let Some((certificate, key)) = &options.tls {
            config["http"]["tls"] = serde_json::json!({ "certificate": certificate, "key": key });
        }
        if let Some(token) = &options.token {
            config["auth"]["token"] = token.clone();
        }
        let file = dir.path().join("config.yml");
        // JSON is YAML.
        fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new(program())
            .arg("serve")
            .arg(&file)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {} ({error}); run scripts/setup test", program().display()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let port = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the registry ended:\n{}", said.join("\n"))).unwrap();
            if let Some((_, after)) = line.split_once("listening on 127.0.0.1:") {
                break after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
            }
            said.push(line);
        };
        // It must never wait for someone to read what it says.
        std::thread::spawn(move || lines.for_each(drop));
        let needs = options.htpasswd || options.token.is_some();
        Self { child, dir, port, credentials: needs.then(|| format!("{USER}:{PASSWORD}")) }
    }

    /// `127.0.0.1:PORT/NAME`.
    pub fn name(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }

    /// Puts an OCI archive into the registry under `name`.
    pub fn push(&self, archive: &[u8], name: &str) {
        let file = self.dir.path().join("push.tar");
        fs::write(&file, archive).unwrap();
        self.copy(&format!("oci-archive:{}", file.display()), name);
    }

    /// Puts the set-up's image (`busybox`, `nginx`) into the registry.
    pub fn push_image(&self, image: &str, name: &str) {
        let file = workspace().join("target/images").join(format!("{image}.tar"));
        let kind = if image == "busybox" { "docker-archive" } else { "oci-archive" };
        self.copy(&format!("{kind}:{}", file.display()), name);
    }

    pub fn copy(&self, from: &str, name: &str) {
        let to = format!("docker://{}", self.name(name));
        let mut command = Command::new("skopeo");
        command.args(["copy", "--quiet", "--all", "--insecure-policy", "--dest-tls-verify=false"]);
        command.args(self.credentials.iter().flat_map(|both| ["--dest-creds", both]));
        let output = command.args([from, &to]).output().unwrap();
        assert!(output.status.success(), "skopeo: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Where the registry keeps a blob.
    pub fn blob(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = self.dir.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn program() -> PathBuf {
    workspace().join("target/tools/docker-registry/usr/bin/docker-registry")
}
