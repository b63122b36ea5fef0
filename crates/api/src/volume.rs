//! The words of persistent volumes: annotations, finalizers and names that the server, the controllers and the node share.

/// The class that every cluster has from its first start, and who makes its volumes: the agent of the chosen node.
pub const LOCAL_PATH_CLASS: &str = "local-path";
/// The provisioner of [`LOCAL_PATH_CLASS`].
pub const LOCAL_PATH_PROVISIONER: &str = "adieu.dev/local-path";
/// The provisioner of classes whose volumes are made by people.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Marks the class of claims that name none.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The node that the scheduler chose for the first pod of a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who is to make a volume for the claim.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, as it was called before.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Who made the volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The claim and its volume were brought together; from then on a missing volume is a lost one.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The pair was chosen by a controller, and may be parted by it.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Keeps a volume until what it is made of is gone.
pub const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// A volume's label: the node whose agent makes and removes its directory.
pub const VOLUME_NODE: &str = "adieu.dev/node";
/// A volume's annotation, written by that agent: the directory was made, and never is again.
pub const DIRECTORY_MADE: &str = "adieu.dev/directory-made";
/// A node's annotation: where its agent makes directories of volumes.
pub const VOLUMES_DIRECTORY: &str = "adieu.dev/volumes-directory";
/// A node's annotation: how many bytes the disk of these directories has.
pub const VOLUMES_BYTES: &str = "adieu.dev/volumes-bytes";

/// The name of the claim that is made for an `ephemeral` volume of a pod.
pub fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The longest name of a file.
const FILE_NAME_MAX: usize = 255;

/// The directory of a volume, in its node's directory of volumes: `<volume>_<namespace>_<claim>`, cut where no file name is longer.
pub fn directory_name(volume: &str, namespace: &str, claim: &str) -> String {
    let mut name = format!("{volume}_{namespace}_{claim}");
    if let Some((end, _)) = name.char_indices().find(|(at, char)| at + char.len_utf8() > FILE_NAME_MAX) {
        name.truncate(end);
    }
    name
}

/// Whether a name is one that [`directory_name`] can have made for this volume: it leads nowhere else.
pub fn is_directory_of(volume: &str, name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    name.len() <= FILE_NAME_MAX
        && !volume.is_empty()
        && !volume.starts_with('.')
        && name.strip_prefix(volume).is_some_and(|rest| rest.starts_with('_'))
        && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_name_stays_one_plain_file_name() {
        let name = directory_name("pvc-1", "shop", "data-web-0");
        assert_eq!(name, "pvc-1_shop_data-web-0");
        assert!(is_directory_of("pvc-1", &name));
        let long = directory_name("pvc-1", &"n".repeat(63), &"c".repeat(253));
        assert!(long.len() == 255 && is_directory_of("pvc-1", &long));
        for other in ["pvc-1", "pvc-10_shop_data", "pvc-1_../x", "pvc-1_a/b", ".trash", "..", "", "pvc-1_\0"] {
            assert!(!is_directory_of("pvc-1", other), "{other:?}");
        }
        assert!(!is_directory_of("..", ".._") && !is_directory_of("", "_x"));
    }
}
