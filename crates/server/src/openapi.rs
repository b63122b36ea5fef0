//! The OpenAPI documents of the kinds that are served. They take a moment to make and are small to keep, so they are made
//! when first asked for, compressed, and kept until the kinds change.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use api::discovery as documents;
use api::{Registry, Status};
use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::respond;

/// The documents of the registry that was asked about last.
#[derive(Default)]
pub(crate) struct OpenApiCache(Mutex<Option<Arc<OpenApi>>>);

impl OpenApiCache {
    pub(crate) fn get(&self, registry: &Arc<Registry>) -> Arc<OpenApi> {
        // All servers of a process publish the same about the built-in kinds.
        static BUILT_IN: LazyLock<Arc<OpenApi>> = LazyLock::new(|| Arc::new(OpenApi::of(Registry::built_in())));
        if registry.generation() == BUILT_IN.registry.generation() {
            return Arc::clone(&BUILT_IN);
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(openapi) if openapi.registry.generation() == registry.generation() => Arc::clone(openapi),
            _ => Arc::clone(kept.insert(Arc::new(OpenApi::of(registry)))),
        }
    }
}

/// What is published about the kinds of one registry.
pub(crate) struct OpenApi {
    registry: Arc<Registry>,
    v2: OnceCell<OpenApiV2>,
    v3: OnceCell<OpenApiV3>,
}

impl OpenApi {
    fn of(registry: &Arc<Registry>) -> Self {
        Self { registry: Arc::clone(registry), v2: OnceCell::new(), v3: OnceCell::new() }
    }

    pub(crate) async fn v2(&self) -> Result<&OpenApiV2, Status> {
        made_once(&self.v2, &self.registry, OpenApiV2::of).await
    }

    pub(crate) async fn v3(&self) -> Result<&OpenApiV3, Status> {
        made_once(&self.v3, &self.registry, OpenApiV3::of).await
    }
}

/// The documents of OpenAPI v3, and which there are.
pub(crate) struct OpenApiV3 {
    pub(crate) index: Vec<u8>,
    /// By what follows `/openapi/v3/`.
    pub(crate) documents: BTreeMap<String, Bytes>,
}

impl OpenApiV3 {
    fn of(registry: &Registry) -> Self {
        let (mut documents, mut index) = (BTreeMap::new(), Vec::new());
        for document in documents::openapi_v3(registry) {
            let bytes = respond::to_bytes(&document.value);
            index.push((document.path(), documents::fingerprint(&bytes)));
            documents.insert(document.path(), compress(&bytes));
        }
        Self { index: respond::to_bytes(&documents::openapi_v3_index(&index)), documents }
    }
}

/// The document of OpenAPI v2, for clients from before v3, in both spellings.
pub(crate) struct OpenApiV2 {
    pub(crate) json: Bytes,
    pub(crate) protobuf: Bytes,
}

impl OpenApiV2 {
    fn of(registry: &Registry) -> Self {
        let mut document = documents::OpenApiV2::default();
        documents::openapi_v3(registry).for_each(|each| document.add(&each));
        let document = document.finish();
        Self {
            json: compress(&respond::to_bytes(&document)),
            protobuf: compress(&documents::openapi_v2_protobuf(&document)),
        }
    }
}

/// Makes it beside the threads that answer, which would all stand still if they waited for it.
async fn made_once<'a, T: Send + 'static>(
    cell: &'a OnceCell<T>,
    registry: &Arc<Registry>,
    make: fn(&Registry) -> T,
) -> Result<&'a T, Status> {
    let making = || async move {
        let registry = Arc::clone(registry);
        let made = tokio::task::spawn_blocking(move || make(&registry)).await;
        made.map_err(|_| Status::internal("the OpenAPI documents cannot be made"))
    };
    cell.get_or_try_init(making).await
}

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("memory takes what is written to it").into()
}
