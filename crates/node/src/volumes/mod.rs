//! Volumes a pod's containers mount, made on the node's disk, in its memory if the API gives them, or described to the
//! runtime, before the first container starts; and kept up to date while it runs.
//!
//! What cannot be made yet is said aloud, never ignored.

mod claims;
mod content;
mod local_directories;
mod ownership;
mod payload;
mod reclaim;
mod refresh;
mod watches;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, HostPathVolumeSource, Pod, Secret, Volume};
use kube::api::Api;
use runtime_api::{MemoryVolume, MountSource};
use timeline::Clock;
use tracing::warn;

use self::content::Reader;
pub use self::local_directories::LocalDirectories;
use self::payload::Payload;
pub use self::reclaim::keep_reclaimed;
pub use self::refresh::keep_fresh;
pub use self::watches::{Changes, Watches};
use crate::files::Files;
use crate::manifest::VolumeDirs;
use crate::translate::as_container;
use crate::translate::container::{self, Lookups, RunFacts, quantity_millis};

/// Why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A kind of volume that does not exist here yet.
    #[error("MountVolume.SetUp failed for volume {volume:?} : volumes of kind {kind} are not supported yet")]
    Unsupported { volume: String, kind: String },
    /// It refers to something that is not there.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {what}")]
    Missing { volume: String, what: String },
    /// The claim of it is not as it has to be.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
         volumes=[{volume}]: error processing PVC {claim}: {why}"
    )]
    Claim { volume: String, claim: String, why: String },
    /// Nobody could be asked.
    #[error("MountVolume.SetUp failed for volume {volume:?} : the API server does not answer")]
    Unanswered { volume: String, source: kube::Error },
    /// The disk said no.
    #[error("MountVolume.SetUp failed for volume {volume:?} : it cannot be written")]
    Disk { volume: String, source: io::Error },
}

/// A volume that can be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// What the runtime mounts.
    pub source: MountSource,
    /// What the API gave is the API's to change: containers only read it.
    pub read_only: bool,
}

/// What volumes are made with.
#[derive(Clone)]
pub struct Means {
    /// Who knows what is in them.
    pub client: kube::Client,
    /// What time it is.
    pub clock: Clock,
    /// Who waits for the disk.
    pub files: Files,
    /// The node's name.
    pub node_name: String,
    /// Where the node makes directories of persistent volumes, if it can.
    pub local: Option<Arc<LocalDirectories>>,
}

/// Makes every volume of `pod` in `dirs`; each is known by its name.
pub async fn prepare(
    means: &Means,
    pod: &Pod,
    facts: &RunFacts,
    dirs: &VolumeDirs,
) -> Result<BTreeMap<String, Prepared>, VolumeError> {
    let claimed = claims::prepare(means, pod, dirs).await?;
    let mut volumes = BTreeMap::new();
    let reader = Reader { means, pod, facts, written: None };
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let name = volume.name.clone();
        let prepared = if let Some(host) = &volume.host_path {
            host_path(means, &name, host).await?;
            Prepared { source: MountSource::Host(PathBuf::from(&host.path)), read_only: false }
        } else if let Some(claimed) = claimed.get(&name) {
            Prepared { source: MountSource::Host(claimed.path.clone()), read_only: claimed.read_only }
        } else if let Some(empty) = &volume.empty_dir {
            match empty.medium.as_deref() {
                Some("Memory") => Prepared { source: MountSource::Memory(name.clone()), read_only: false },
                None | Some("") => {
                    let path = dirs.disk.join(&name);
                    directory(means, &name, &path).await?;
                    open_to_all(means, &name, &path, fs_group(pod)).await?;
                    Prepared { source: MountSource::Host(path), read_only: false }
                }
                Some(medium) => {
                    return Err(VolumeError::Unsupported { volume: name, kind: format!("emptyDir on {medium}") });
                }
            }
        } else {
            let path = dirs.memory.join(&name);
            match reader.payload(volume).await {
                Ok(Some(payload)) => write(means, &name, payload, path.clone()).await?,
                Ok(None) => return Err(VolumeError::Unsupported { volume: name, kind: kind_of(volume) }),
                // While nobody can be asked, what an earlier run of the pod was given is as good as it gets.
                Err(VolumeError::Unanswered { .. }) if Payload::is_written(&path) => {
                    warn!(volume = name, "the API server does not answer; the volume stays as it was");
                }
                Err(error) => return Err(error),
            }
            Prepared { source: MountSource::Host(path), read_only: true }
        };
        volumes.insert(name, prepared);
    }
    Ok(volumes)
}

/// The volumes in memory that the runtime is to make with the sandbox.
pub fn in_memory(pod: &Pod) -> Vec<MemoryVolume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let memory = |volume: &Volume| {
        let empty = volume.empty_dir.as_ref().filter(|empty| empty.medium.as_deref() == Some("Memory"))?;
        let size = empty.size_limit.as_ref().and_then(quantity_millis).and_then(|n| u64::try_from(n / 1000).ok());
        Some(MemoryVolume { name: volume.name.clone(), size_bytes: size.filter(|n| *n > 0), group: fs_group(pod) })
    };
    volumes.filter_map(memory).collect()
}

/// The field of a volume that says what it is, as in the manifest.
fn kind_of(volume: &Volume) -> String {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let kinds = fields.as_object().into_iter().flat_map(|fields| fields.keys().filter(|field| *field != "name"));
    kinds.map(String::as_str).collect::<Vec<_>>().join(" and ")
}

/// The group that volumes of the pod belong to, if one was asked for.
fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// The user that every container of the pod runs as, if all of them say so.
fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut users = containers.map(|it| container::user(it.security_context.as_ref(), spec.security_context.as_ref()));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first)
}

/// Writes a volume off the async threads.
async fn write(means: &Means, volume: &str, payload: Payload, path: PathBuf) -> Result<(), VolumeError> {
    let now = crate::timestamp(&means.clock);
    let written = means.files.run("volumes.write", move || payload.write(&path, now)).await;
    written.map_err(|source| disk(volume, source))
}

/// Checks a path of the host, or makes it, as its type says.
async fn host_path(means: &Means, volume: &str, host: &HostPathVolumeSource) -> Result<(), VolumeError> {
    let found = means.files.file_type(Path::new(&host.path)).await.ok();
    match to_make(found, host) {
        Ok(None) => Ok(()),
        Ok(Some(Made::Directory)) => {
            means.files.make_dir(Path::new(&host.path)).await.map_err(|source| disk(volume, source))
        }
        Ok(Some(Made::File)) => {
            let path = host.path.clone();
            let made = means.files.run("volumes.host_path", move || std::fs::write(path, ""));
            made.await.map_err(|source| disk(volume, source))
        }
        Err(what) => Err(missing(volume, what)),
    }
}

/// What is made at a path of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    Directory,
    File,
}

/// What there is to make where `found` is, so that it is of the type that is asked for. Without a type anything is right, and a missing
/// directory is made, as container runtimes do.
fn to_make(found: Option<std::fs::FileType>, host: &HostPathVolumeSource) -> Result<Option<Made>, String> {
    let wanted = host.type_.as_deref().unwrap_or_default();
    let (called, fits): (&str, fn(&std::fs::FileType) -> bool) = match wanted {
        "Directory" | "DirectoryOrCreate" => ("directory", std::fs::FileType::is_dir),
        "File" | "FileOrCreate" => ("file", std::fs::FileType::is_file),
        "Socket" => ("socket file", |kind| kind.is_socket()),
        "CharDevice" => ("character device", |kind| kind.is_char_device()),
        "BlockDevice" => ("block device", |kind| kind.is_block_device()),
        _ => ("", |_| true),
    };
    match (found, wanted) {
        (Some(kind), _) if fits(&kind) => Ok(None),
        (None, "DirectoryOrCreate" | "") => Ok(Some(Made::Directory)),
        (None, "FileOrCreate") => Ok(Some(Made::File)),
        (Some(_), _) | (None, "Directory" | "File" | "Socket" | "CharDevice" | "BlockDevice") => {
            Err(format!("hostPath type check failed: {} is not a {called}", host.path))
        }
        (None, _) => Err(format!("hostPath {} does not exist", host.path)),
    }
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
    let ephemeral = spec.into_iter().flat_map(|s| s.ephemeral_containers.iter().flatten()).map(as_container);
    let others = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    for container in others.map(Cow::Borrowed).chain(ephemeral.map(Cow::Owned)) {
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
    api.get_opt(object).await.map_err(|error| refused(volume, &format!("{object:?} cannot be read"), error))
}

async fn directory(means: &Means, volume: &str, path: &Path) -> Result<(), VolumeError> {
    means.files.make_dir(path).await.map_err(|source| disk(volume, source))
}

/// An empty directory belongs to whoever runs in the pod; with `fsGroup`, to that group.
async fn open_to_all(means: &Means, volume: &str, path: &Path, group: Option<u32>) -> Result<(), VolumeError> {
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group)).map_err(|source| disk(volume, source))?;
    }
    let permissions = std::fs::Permissions::from_mode(mode);
    let path = path.to_owned();
    let set = means.files.run("volumes.open_to_all", move || std::fs::set_permissions(path, permissions));
    set.await.map_err(|source| disk(volume, source))
}

fn missing(volume: &str, what: String) -> VolumeError {
    VolumeError::Missing { volume: volume.to_owned(), what }
}

/// A question that was refused, or that nobody could be asked.
fn refused(volume: &str, what: &str, error: kube::Error) -> VolumeError {
    if matches!(error, kube::Error::Api(_)) {
        return missing(volume, format!("{what}: {error}"));
    }
    VolumeError::Unanswered { volume: volume.to_owned(), source: error }
}

fn disk(volume: &str, source: io::Error) -> VolumeError {
    VolumeError::Disk { volume: volume.to_owned(), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn host_path_is_made_where_its_type_says_so_or_there_is_none() {
        let host = |kind: &str| HostPathVolumeSource { path: "/x".into(), type_: Some(kind.into()) };
        let untyped = HostPathVolumeSource { path: "/x".into(), type_: None };
        let of = |path: &str| Some(std::fs::metadata(path).unwrap().file_type());
        for untyped in [&untyped, &host("")] {
            assert_eq!(to_make(None, untyped), Ok(Some(Made::Directory)));
            assert_eq!(to_make(of("/dev/null"), untyped), Ok(None));
        }
        assert_eq!(to_make(None, &host("DirectoryOrCreate")), Ok(Some(Made::Directory)));
        assert_eq!(to_make(None, &host("FileOrCreate")), Ok(Some(Made::File)));
        assert_eq!(to_make(of("/"), &host("Directory")), Ok(None));
        let refusal = Err("hostPath type check failed: /x is not a directory".to_owned());
        assert_eq!(to_make(None, &host("Directory")), refusal);
        assert_eq!(to_make(of("/dev/null"), &host("DirectoryOrCreate")), refusal);
    }
}
