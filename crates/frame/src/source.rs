//! Where a controller's facts come from: lists and watches, already in its own words.

use futures::StreamExt as _;
use futures::stream::BoxStream;

/// What a source says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceUpdate<I> {
    /// The fact, if there is one besides the revision.
    pub input: Option<I>,
    /// The source has said what there is.
    pub listed: bool,
    /// Everything up to here has been said.
    pub revision: Option<u64>,
}

impl<I> SourceUpdate<I> {
    /// Something that happened.
    pub fn changed(input: I, revision: Option<u64>) -> Self {
        Self { input: Some(input), listed: false, revision }
    }

    /// Everything there is.
    pub fn listed(input: I, revision: Option<u64>) -> Self {
        Self { input: Some(input), listed: true, revision }
    }

    /// Nothing happened up to there.
    pub fn reached(revision: u64) -> Self {
        Self { input: None, listed: false, revision: Some(revision) }
    }
}

/// One kind of objects that a controller is told about.
pub struct Source<I> {
    /// What actions call it that write there.
    pub(crate) name: &'static str,
    pub(crate) news: BoxStream<'static, SourceUpdate<I>>,
}

impl<I> Source<I> {
    /// A source called `name`.
    pub fn new(name: &'static str, news: impl futures::Stream<Item = SourceUpdate<I>> + Send + 'static) -> Self {
        Self { name, news: news.boxed() }
    }
}
