//! Builds image archives, honest and hostile, byte by byte.

use std::io::Write as _;

use runtime::image::Digest;
use serde_json::{Value, json};
use tar::{EntryType, Header};

/// The program that unpacks layers.
pub fn program() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_BIN_EXE_shim-for-tests"))
}

/// A layer under construction: a tar stream whose headers are written as given, checks and all left out.
pub struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    pub fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// A regular file, 0644, owned by root.
    pub fn file(self, path: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, path, "", content.as_bytes(), |_| {})
    }

    pub fn directory(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, "", b"", |header| header.set_mode(0o755))
    }

    pub fn link(self, kind: EntryType, path: &str, target: &str) -> Self {
        self.entry(kind, path, target, b"", |_| {})
    }

    /// Any entry; `adjust` has the last word on its header.
    pub fn entry(
        mut self,
        kind: EntryType,
        path: &str,
        target: &str,
        content: &[u8],
        adjust: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header.set_size(content.len() as u64);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..path.len()].copy_from_slice(path.as_bytes());
        gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
        adjust(&mut header);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    /// Extended header records for the next entry.
    pub fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    pub fn tar(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A configuration document for these layers (plain tar streams, lowest first).
pub fn config(layers: &[Vec<u8>], process: Value) -> Value {
    let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer)).collect();
    json!({
        "architecture": "amd64", "os": "linux", "config": process,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
}

/// An archive as `docker save` writes it, from plain layers.
pub fn docker(names: &[&str], layers: &[Vec<u8>], process: Value) -> Vec<u8> {
    docker_with(names, layers, layers, &config(layers, process))
}

/// The same with the stored form of each layer and the configuration given.
pub fn docker_with(names: &[&str], layers: &[Vec<u8>], stored: &[Vec<u8>], config: &Value) -> Vec<u8> {
    let config = config.to_string();
    let config_name = format!("{}.json", Digest::of(config.as_bytes()).hex());
    let layer_names: Vec<_> = layers.iter().map(|layer| format!("{}.tar", Digest::of(layer).hex())).collect();
    let manifest = json!([{ "Config": config_name, "RepoTags": names, "Layers": layer_names }]);
    let mut members: Vec<_> = layer_names.iter().cloned().zip(stored.iter().map(|layer| layer.as_slice())).collect();
    let manifest = manifest.to_string();
    members.push((config_name, config.as_bytes()));
    members.push(("manifest.json".into(), manifest.as_bytes()));
    archive(&members)
}

pub fn archive(members: &[(String, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// An OCI layout under construction.
#[derive(Default)]
pub struct Layout {
    blobs: Vec<(String, Vec<u8>)>,
    index: Vec<Value>,
}

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl Layout {
    /// Adds a blob; returns its descriptor.
    pub fn blob(&mut self, media_type: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        self.blobs.push((format!("blobs/sha256/{}", digest.hex()), content.to_vec()));
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// Adds an image; returns the descriptor of its manifest.
    pub fn image(&mut self, config: &Value, stored: &[Vec<u8>]) -> Value {
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let layers: Vec<_> =
            stored.iter().map(|layer| self.blob("application/vnd.oci.image.layer.v1.tar+gzip", layer)).collect();
        let manifest = json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers });
        self.blob(OCI_MANIFEST, manifest.to_string().as_bytes())
    }

    /// Adds an index of manifests; returns its descriptor.
    pub fn nested(&mut self, manifests: &[Value]) -> Value {
        let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
        self.blob(OCI_INDEX, index.to_string().as_bytes())
    }

    /// Lists a descriptor in `index.json`.
    pub fn list(mut self, mut descriptor: Value, annotations: Value) -> Self {
        descriptor["annotations"] = annotations;
        self.index.push(descriptor);
        self
    }

    /// Changes one byte of a blob, keeping its name.
    pub fn damage(mut self, descriptor: &Value) -> Self {
        let name = format!("blobs/sha256/{}", descriptor["digest"].as_str().unwrap().trim_start_matches("sha256:"));
        let (_, content) = self.blobs.iter_mut().find(|(blob, _)| *blob == name).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        self
    }

    pub fn archive(self) -> Vec<u8> {
        let index = json!({ "schemaVersion": 2, "manifests": self.index }).to_string();
        let mut members = vec![("oci-layout".to_owned(), &br#"{"imageLayoutVersion":"1.0.0"}"#[..])];
        members.extend(self.blobs.iter().map(|(name, content)| (name.clone(), content.as_slice())));
        members.push(("index.json".into(), index.as_bytes()));
        archive(&members)
    }
}
