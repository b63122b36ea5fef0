//! Volumes a pod's containers mount, made on the node's disk before the first container starts.
//!
//! What cannot be made yet is said aloud, never ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Pod, Secret, Volume};
use kube::api::Api;
use tokio::fs;

use crate::translate::container::{Lookups, RunFacts, field};

/// The mode of files that were given none.
const DEFAULT_MODE: u32 = 0o644;

/// Why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A kind of volume that does not exist here yet.
    #[error("volume {volume:?}: this kind of volume is not supported yet")]
    Unsupported { volume: String },
    /// It refers to something that is not there.
    #[error("volume {volume:?}: {what}")]
    Missing { volume: String, what: String },
    /// The disk said no.
    #[error("volume {volume:?} cannot be written")]
    Disk { volume: String, source: io::Error },
}

/// A volume on the node's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// Where it is on the host.
    pub path: PathBuf,
    /// What the API gave is the API's to change: containers only read it.
    pub read_only: bool,
}

/// One file of a volume.
struct File {
    content: Vec<u8>,
    /// Its own mode, if it was given one.
    mode: Option<i32>,
}

/// Makes every volume of `pod` below `dir`.
pub async fn prepare(
    client: &kube::Client,
    pod: &Pod,
    facts: &RunFacts,
    dir: &Path,
) -> Result<BTreeMap<String, Prepared>, VolumeError> {
    let mut made = BTreeMap::new();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let prepared = one(client, namespace, pod, facts, volume, dir.join(&volume.name)).await?;
        made.insert(volume.name.clone(), prepared);
    }
    Ok(made)
}

async fn one(
    client: &kube::Client,
    namespace: &str,
    pod: &Pod,
    facts: &RunFacts,
    volume: &Volume,
    path: PathBuf,
) -> Result<Prepared, VolumeError> {
    let name = &volume.name;
    if let Some(host) = &volume.host_path {
        let exists = fs::try_exists(&host.path).await.unwrap_or(false);
        if !exists && host.type_.as_deref() == Some("DirectoryOrCreate") {
            fs::create_dir_all(&host.path).await.map_err(|source| disk(name, source))?;
        } else if !exists {
            return Err(missing(name, format!("hostPath {} does not exist", host.path)));
        }
        return Ok(Prepared { path: PathBuf::from(&host.path), read_only: false });
    }
    let (files, default_mode) = if let Some(empty) = &volume.empty_dir {
        if empty.medium.as_deref().is_some_and(|m| !m.is_empty()) {
            return Err(VolumeError::Unsupported { volume: name.clone() });
        }
        directory(name, &path).await?;
        let group = pod.spec.as_ref().and_then(|s| s.security_context.as_ref()?.fs_group);
        open_to_all(name, &path, group).await?;
        return Ok(Prepared { path, read_only: false });
    } else if let Some(source) = &volume.config_map {
        let found: Option<ConfigMap> = get(client, namespace, &source.name, name).await?;
        let data = found.map(config_map_files);
        let files = select(name, "configmap", &source.name, data, source.optional, source.items.as_deref())?;
        (files, source.default_mode)
    } else if let Some(source) = &volume.secret {
        let wanted = source.secret_name.clone().unwrap_or_default();
        let found: Option<Secret> = get(client, namespace, &wanted, name).await?;
        let data = found.map(secret_files);
        (select(name, "secret", &wanted, data, source.optional, source.items.as_deref())?, source.default_mode)
    } else if let Some(source) = &volume.downward_api {
        let mut files = BTreeMap::new();
        for item in source.items.iter().flatten() {
            let reference = item.field_ref.as_ref().ok_or_else(|| VolumeError::Unsupported { volume: name.clone() })?;
            let text = downward(pod, &reference.field_path, facts).map_err(|what| missing(name, what))?;
            files.insert(item.path.clone(), File { content: text.into_bytes(), mode: item.mode });
        }
        (files, source.default_mode)
    } else {
        return Err(VolumeError::Unsupported { volume: name.clone() });
    };
    directory(name, &path).await?;
    for (file, File { content, mode }) in files {
        if file.split('/').any(|part| part == ".." || part.is_empty()) {
            return Err(missing(name, format!("{file:?} is not a path inside the volume")));
        }
        let target = path.join(&file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).await.map_err(|source| disk(name, source))?;
        }
        fs::write(&target, content).await.map_err(|source| disk(name, source))?;
        let mode = mode.or(default_mode).and_then(|m| u32::try_from(m).ok()).unwrap_or(DEFAULT_MODE);
        let permissions = std::fs::Permissions::from_mode(mode);
        fs::set_permissions(&target, permissions).await.map_err(|source| disk(name, source))?;
    }
    Ok(Prepared { path, read_only: true })
}

/// Whole maps are allowed here, one `key="value"` a line, unlike in the environment.
fn downward(pod: &Pod, path: &str, facts: &RunFacts) -> Result<String, String> {
    let lines = |map: Option<&BTreeMap<String, String>>| {
        map.into_iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
    };
    match path {
        "metadata.labels" => Ok(lines(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Ok(lines(pod.metadata.annotations.as_ref())),
        other => field(pod, other, facts).map_err(|error| error.to_string()),
    }
}

fn select(
    volume: &str,
    what: &str,
    object: &str,
    found: Option<BTreeMap<String, Vec<u8>>>,
    optional: Option<bool>,
    items: Option<&[KeyToPath]>,
) -> Result<BTreeMap<String, File>, VolumeError> {
    let optional = optional == Some(true);
    let Some(data) = found else {
        return if optional {
            Ok(BTreeMap::new())
        } else {
            Err(missing(volume, format!("{what} {object:?} not found")))
        };
    };
    let Some(items) = items else {
        return Ok(data.into_iter().map(|(key, content)| (key, File { content, mode: None })).collect());
    };
    let mut chosen = BTreeMap::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                chosen.insert(item.path.clone(), File { content: content.clone(), mode: item.mode });
            }
            None if optional => {}
            None => return Err(missing(volume, format!("references non-existent {what} key: {}", item.key))),
        }
    }
    Ok(chosen)
}

/// The files a ConfigMap stands for.
fn config_map_files(map: ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.into_iter().flatten().map(|(k, v)| (k, v.into_bytes()));
    let binary = map.binary_data.into_iter().flatten().map(|(k, v)| (k, v.0));
    text.chain(binary).collect()
}

/// The files a Secret stands for.
fn secret_files(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.into_iter().flatten().map(|(k, v)| (k, v.0)).collect()
}

/// Reads every ConfigMap and Secret that the environment of some container of `pod` refers to.
pub async fn lookups(client: &kube::Client, pod: &Pod) -> kube::Result<Lookups> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut lookups = Lookups::default();
    let (maps, secrets) = environment_sources(pod);
    for name in maps {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        if let Some(found) = api.get_opt(&name).await? {
            lookups.config_maps.insert(name, as_text(config_map_files(found)));
        }
    }
    for name in secrets {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        if let Some(found) = api.get_opt(&name).await? {
            lookups.secrets.insert(name, as_text(secret_files(found)));
        }
    }
    Ok(lookups)
}

/// The names of the ConfigMaps and of the Secrets that environments refer to.
fn environment_sources(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let spec = pod.spec.as_ref();
    for container in spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers)) {
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
            secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            maps.extend(from.config_map_key_ref.as_ref().map(|r| r.name.clone()));
            secrets.extend(from.secret_key_ref.as_ref().map(|r| r.name.clone()));
        }
    }
    (maps, secrets)
}

/// Environments hold text; what is none is left out.
fn as_text(files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, String> {
    files.into_iter().filter_map(|(k, v)| Some((k, String::from_utf8(v).ok()?))).collect()
}

async fn get<K>(client: &kube::Client, namespace: &str, object: &str, volume: &str) -> Result<Option<K>, VolumeError>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.get_opt(object).await.map_err(|error| missing(volume, format!("{object:?} cannot be read: {error}")))
}

async fn directory(volume: &str, path: &Path) -> Result<(), VolumeError> {
    fs::create_dir_all(path).await.map_err(|source| disk(volume, source))
}

/// An empty directory belongs to whoever runs in the pod; with `fsGroup`, to that group.
async fn open_to_all(volume: &str, path: &Path, group: Option<i64>) -> Result<(), VolumeError> {
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    if let Some(group) = group.and_then(|g| u32::try_from(g).ok()) {
        std::os::unix::fs::chown(path, None, Some(group)).map_err(|source| disk(volume, source))?;
    }
    let permissions = std::fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).await.map_err(|source| disk(volume, source))
}

fn missing(volume: &str, what: String) -> VolumeError {
    VolumeError::Missing { volume: volume.to_owned(), what }
}

fn disk(volume: &str, source: io::Error) -> VolumeError {
    VolumeError::Disk { volume: volume.to_owned(), source }
}
