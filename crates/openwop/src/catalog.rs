//! The workflows of a host: read from a directory when it starts, and those that runs began with.
//!
//! A file that cannot be taken stops the start, with its name and what is wrong: a host that leaves
//! workflows out without a word would be found out by its callers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::definition::{DEFINITION_BYTES_MAX, Definition};

/// The most workflows of one host.
const WORKFLOWS_MAX: usize = 10_000;
/// The most definitions of earlier files that are kept in memory.
const EARLIER_MAX: usize = 1_000;

/// The workflows of a host.
#[derive(Debug, Default)]
pub struct Catalog {
    by_id: BTreeMap<String, Arc<Definition>>,
    by_digest: HashMap<String, Arc<Definition>>,
    /// Definitions that runs began with, and that no file has any more.
    earlier: Mutex<HashMap<String, Arc<Definition>>>,
    /// Those that are known to be in the store.
    kept: Mutex<HashSet<String>>,
}

/// Why workflows cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The directory or a file cannot be read.
    #[error("{} cannot be read: {why}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// A file is no workflow.
    #[error("{}: {why}", .path.display())]
    Wrong {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Two files have the same workflow.
    #[error("two workflows are called {0:?}")]
    Twice(String),
    /// There are too many.
    #[error("there are more than {WORKFLOWS_MAX} workflows")]
    TooMany,
}

impl Catalog {
    /// The workflows in `directory`: every file that ends in `.json`.
    ///
    /// # Errors
    /// A [`CatalogError`] that names the file.
    pub fn load(directory: &Path) -> Result<Self, CatalogError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |why| CatalogError::Unreadable { path, why }
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
            let path = entry.map_err(unreadable(directory))?.path();
            if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        let mut definitions = Vec::new();
        for path in paths {
            let file = fs::File::open(&path).map_err(unreadable(&path))?;
            let mut bytes = Vec::new();
            let bound = DEFINITION_BYTES_MAX as u64 + 1;
            file.take(bound).read_to_end(&mut bytes).map_err(unreadable(&path))?;
            let definition = Definition::parse(&bytes).map_err(|error| CatalogError::Wrong {
                path: path.clone(),
                why: error.to_string(),
            })?;
            definitions.push(definition);
        }
        Self::of(definitions)
    }

    /// These workflows.
    ///
    /// # Errors
    /// A [`CatalogError`] when there are too many, or two of one name.
    pub fn of(definitions: impl IntoIterator<Item = Definition>) -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for definition in definitions {
            let definition = Arc::new(definition);
            let (id, digest) = (definition.id.clone(), definition.digest.as_str().to_owned());
            catalog.by_digest.insert(digest, Arc::clone(&definition));
            if catalog.by_id.insert(id.clone(), definition).is_some() {
                return Err(CatalogError::Twice(id));
            }
        }
        if catalog.by_id.len() > WORKFLOWS_MAX {
            return Err(CatalogError::TooMany);
        }
        Ok(catalog)
    }

    /// The workflow of that name.
    #[must_use]
    pub fn workflow(&self, id: &str) -> Option<Arc<Definition>> {
        self.by_id.get(id).cloned()
    }

    /// All workflows, by name.
    pub fn workflows(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.by_id.values()
    }

    /// The definition of that digest, if it is known here.
    pub(crate) fn definition(&self, digest: &str) -> Option<Arc<Definition>> {
        let current = self.by_digest.get(digest).cloned();
        current.or_else(|| lock(&self.earlier).get(digest).cloned())
    }

    /// Remembers a definition of an earlier file.
    pub(crate) fn remember(&self, definition: Definition) -> Arc<Definition> {
        let definition = Arc::new(definition);
        let mut earlier = lock(&self.earlier);
        if earlier.len() >= EARLIER_MAX {
            earlier.clear();
        }
        earlier.insert(definition.digest.as_str().to_owned(), Arc::clone(&definition));
        definition
    }

    /// Whether the store is known to have the definition of that digest.
    pub(crate) fn is_kept(&self, digest: &str) -> bool {
        lock(&self.kept).contains(digest)
    }

    /// The store has it.
    pub(crate) fn keep(&self, digest: &str) {
        let mut kept = lock(&self.kept);
        if kept.len() < WORKFLOWS_MAX {
            kept.insert(digest.to_owned());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
