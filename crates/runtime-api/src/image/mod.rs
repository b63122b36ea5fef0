//! Images: what they are called, who may have them, and which may go.

mod credentials;
mod digest;
mod name;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use credentials::{Auth, Credential, Keyring, KeyringError};
pub use digest::{Digest, NotADigest};
pub use name::{ImageName, InvalidImageName};

/// An image that is present.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Image {
    /// `sha256:…` of its configuration.
    pub id: String,
    /// Names it can be asked for by, fully qualified (`docker.io/library/busybox:latest`).
    pub names: Vec<String>,
    /// Unpacked size.
    pub size_bytes: u64,
    /// `StopSignal` of its configuration, as a number.
    pub stop_signal: Option<u8>,
    /// `User` of its configuration, unparsed.
    pub user: Option<String>,
    /// Environment of its configuration.
    pub env: BTreeMap<String, String>,
}

impl Image {
    /// How the API names the image that a container runs: the repository `wanted` is of, pinned to its digest there; by
    /// its id if no registry ever told a digest.
    pub fn reference(&self, wanted: &str) -> String {
        let wanted = wanted.parse::<ImageName>().ok();
        let same = |name: &&String| match (&wanted, name.parse::<ImageName>()) {
            (Some(wanted), Ok(name)) => name.is_same_repository(wanted),
            _ => false,
        };
        let mut pinned = self.names.iter().filter(|name| name.contains('@'));
        pinned.clone().find(same).or_else(|| pinned.next()).unwrap_or(&self.id).clone()
    }
}

/// Where the image behind a name came from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Someone with access to this machine loaded it: the name is theirs, and no registry is asked about it.
    #[default]
    Archive,
    /// A registry gave it to whoever had one of these credentials (their fingerprints); to anyone if there are none.
    Registry {
        #[expect(missing_docs, reason = "told above")]
        credentials: BTreeSet<Digest>,
    },
}

impl Origin {
    /// What is known of a name after it was found again to stand for the same image.
    pub fn joined(self, before: &Self) -> Self {
        match (self, before) {
            (Self::Registry { credentials: new }, Self::Registry { credentials: old }) => {
                let open = new.is_empty() || old.is_empty();
                let credentials = if open { BTreeSet::new() } else { new.union(old).copied().collect() };
                Self::Registry { credentials }
            }
            (newest, _) => newest,
        }
    }
}

/// Which images may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prune {
    /// Only what no record needs: layers of a pull that was killed, downloads that nobody continues.
    Leftovers,
    /// Images without a name.
    Unnamed,
    /// Every image that no container uses.
    Unused,
    /// Images that no container uses or has used for a while, longest unused first, until enough is freed. What was loaded
    /// from an archive stays: nobody could bring it back.
    Free {
        /// How much is enough.
        bytes: u64,
        /// What is a while.
        unused_for: Duration,
    },
}

/// What was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// Names that stand for nothing now.
    pub names: Vec<String>,
    /// Images that are gone, by id.
    pub images: Vec<String>,
    /// Space gained.
    pub bytes: u64,
}

/// An image that was pulled.
#[derive(Clone, PartialEq, Debug)]
pub struct Pulled {
    /// The image.
    pub image: Image,
    /// Its repository and the digest the registry knows it by.
    pub reference: String,
    /// False if the registry said that what is here is the newest.
    pub is_new: bool,
}
