//! All kinds that are served at one moment. A registry never changes: adding or removing a kind makes another one, so
//! whoever holds one sees the same kinds from begin to end.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use super::{Kind, table};
use crate::discovery::METRICS;

/// How many kinds may be added.
const ADDED_MAX: usize = 2048;

/// Groups that are served, and that no kind of the table belongs to.
const RESERVED: [&str; 2] = [METRICS.0, "apiextensions.k8s.io"];

type Index = HashMap<Box<str>, Vec<Arc<Kind>>>;

/// The kinds of one moment, and how they are found.
pub struct Registry {
    generation: u64,
    /// In the order discovery lists them.
    kinds: Vec<Arc<Kind>>,
    by_plural: Index,
    by_kind: Index,
    /// Faces are not in it: objects of a collection belong to the kind that is stored.
    by_collection: HashMap<Arc<str>, Arc<Kind>>,
}

/// Why a kind cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedKind {
    /// Another kind has one of its names.
    #[error("{word:?} is already in use by {by}")]
    NameTaken {
        /// The name.
        word: String,
        /// Who has it.
        by: String,
    },
    /// There are enough.
    #[error("no more than {ADDED_MAX} kinds can be added")]
    Full,
}

impl Registry {
    /// The kinds that are always there, and no others.
    pub fn built_in() -> &'static Arc<Self> {
        static BUILT_IN: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(Registry::of(built_in_kinds())));
        &BUILT_IN
    }

    fn of(kinds: Vec<Arc<Kind>>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let (mut by_plural, mut by_kind, mut by_collection) = (Index::new(), Index::new(), HashMap::new());
        for kind in &kinds {
            by_plural.entry(kind.plural.as_str().into()).or_default().push(Arc::clone(kind));
            by_kind.entry(kind.kind.as_str().into()).or_default().push(Arc::clone(kind));
            if kind.face.is_none() {
                by_collection.insert(kind.shared_collection(), Arc::clone(kind));
            }
        }
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { generation, kinds, by_plural, by_kind, by_collection }
    }

    /// Tells this registry from every other one of the process.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Every kind, in the order discovery lists them.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// Every kind whose objects are stored as it shows them.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter().filter(|kind| kind.is_stored() && kind.face.is_none())
    }

    /// The kind served below `/apis/{group}/{version}/.../{plural}` (or `/api/{version}` for the core group).
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_plural.get(plural)?.iter().find(|kind| kind.group == group && kind.version == version)
    }

    /// The kind an object names with `apiVersion` and `kind`.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_kind.get(kind)?.iter().find(|kind| kind.group == group && kind.version == version)
    }

    /// The kind whose objects are in a collection of the store.
    pub fn by_collection(&self, collection: &str) -> Option<&Arc<Kind>> {
        self.by_collection.get(collection)
    }

    /// The kinds that have a short name.
    pub fn by_short_name<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.kinds.iter().filter(move |kind| kind.short_names.iter().any(|own| own == word))
    }

    /// The kinds of a category.
    pub fn in_category<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.kinds.iter().filter(move |kind| kind.categories.iter().any(|own| own == word))
    }

    /// These kinds and one more. Its group must be no built-in one, and its names free in it.
    pub fn with(&self, kind: Kind) -> Result<Self, RefusedKind> {
        let taken = |word: &str, by: &str| RefusedKind::NameTaken { word: word.to_owned(), by: by.to_owned() };
        let built_in = |other: &&Arc<Kind>| !other.is_added() && other.group == kind.group;
        if RESERVED.contains(&kind.group.as_str()) || self.kinds.iter().find(built_in).is_some() {
            return Err(taken(&kind.group, "built-in kinds"));
        }
        for other in self.kinds.iter().filter(|other| other.group == kind.group) {
            if let Some(word) = shared_name(&kind, other) {
                return Err(taken(word, &other.kind));
            }
        }
        if self.kinds.iter().filter(|kind| kind.is_added()).count() >= ADDED_MAX {
            return Err(RefusedKind::Full);
        }
        Ok(Self::of(self.kinds.iter().cloned().chain([Arc::new(kind)]).collect()))
    }

    /// These kinds without an added one, which is answered besides; `None` if there is none.
    pub fn without(&self, group: &str, plural: &str) -> Option<(Self, Arc<Kind>)> {
        let at = self.kinds.iter().position(|kind| kind.is_added() && kind.group == group && kind.plural == plural)?;
        let mut kinds = self.kinds.clone();
        let gone = kinds.remove(at);
        Some((Self::of(kinds), gone))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("generation", &self.generation).field("kinds", &self.kinds.len()).finish()
    }
}

/// A word that both kinds would be known by in their group.
fn shared_name<'a>(kind: &'a Kind, other: &Kind) -> Option<&'a str> {
    let resources = |word: &&str| {
        let mut own = other.short_names.iter().chain([&other.plural, &other.singular]);
        own.any(|own| own == word)
    };
    let kinds = |word: &&str| *word == other.kind || *word == other.list_kind();
    let words = [kind.plural.as_str(), &kind.singular].into_iter().chain(kind.short_names.iter().map(String::as_str));
    let shared = words.into_iter().find(resources);
    shared.or_else(|| [kind.kind.as_str(), kind.list_kind()].into_iter().find(kinds))
}

/// The table's rows as kinds, in its order. A face is given the kind it shows.
fn built_in_kinds() -> Vec<Arc<Kind>> {
    let is_stored = |row: &&table::Row| row.face.is_none();
    let stored: Vec<Arc<Kind>> = rows().filter(is_stored).map(|row| Arc::new(row.to_kind(None))).collect();
    let mut left = stored.clone().into_iter();
    let kind = |row: &'static table::Row| match row.face {
        None => left.next(),
        Some(face) => {
            let is_shown =
                |kind: &&Arc<Kind>| (kind.group.as_str(), kind.version.as_str(), kind.plural.as_str()) == face.of;
            let shown = stored.iter().find(is_shown).expect("a face shows a kind of the table");
            Some(Arc::new(row.to_kind(Some(Arc::clone(shown)))))
        }
    };
    rows().filter_map(kind).collect()
}

/// Every row: those that something here acts on, then those that are served as data.
fn rows() -> impl Iterator<Item = &'static table::Row> {
    table::ROWS.iter().chain(table::SERVED)
}
