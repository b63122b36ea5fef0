//! Bodies: what we answer with, and how we read what is sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use api::Status;
use bytes::{BufMut as _, Bytes};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use tokio_util::sync::CancellationToken;

use crate::byte_budget::Reservation;
use crate::connections::{OpenAnswer, OpenRequest, Pace};
use crate::inflight;

/// The error type of bodies, as the HTTP stack wants it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Most bytes a request may carry.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;
/// How long a body may stand still.
const STALL: Duration = Duration::from_secs(10);
/// About how much of a list is copied into one frame.
const FRAME: usize = 64 * 1024;

/// The body of an answer.
pub struct Body {
    inner: Inner,
    /// What lasts as long as the answer is being sent.
    held: Option<Box<dyn Send>>,
    /// How a client must take it.
    pace: Pace,
    /// What is in memory of a stream until it has begun well.
    head: Option<Head>,
    /// Its bytes are counted; cancelled when others need them more.
    reserved: Option<CancellationToken>,
    /// Told whenever the client has taken a part of it.
    progress: Option<OpenAnswer>,
}

/// What is kept until an answer is sent.
pub(crate) struct Guards {
    held: Option<Box<dyn Send>>,
    reserved: Option<CancellationToken>,
}

/// The part of a stream that is in memory when it begins, such as what a watch sends first.
struct Head {
    bytes: usize,
    room: HeadRoom,
}

/// What counts the bytes of a stream's beginning, until it has been sent.
#[derive(Clone, Default)]
pub(crate) struct HeadRoom(Arc<Mutex<Option<Box<dyn Send>>>>);

impl HeadRoom {
    /// The beginning was sent, and its bytes are no longer in memory.
    pub(crate) fn release(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Inner {
    Whole(Option<Bytes>),
    Items(Items),
    Stream(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    fn of(inner: Inner) -> Self {
        let pace = match &inner {
            Inner::Whole(_) | Inner::Items(_) => Pace::Ending,
            Inner::Stream(_) => Pace::Lasting,
        };
        Self { inner, held: None, pace, head: None, reserved: None, progress: None }
    }

    /// Keeps `guard` until the answer is sent, or nobody wants it any more.
    pub(crate) fn hold(&mut self, guard: impl Send + 'static) {
        self.held = Some(match self.held.take() {
            Some(before) => Box::new((before, guard)),
            None => Box::new(guard),
        });
    }

    /// Keeps the bytes that are reserved for the answer until it is sent.
    pub(crate) fn reserve(&mut self, room: Reservation) {
        self.reserved = Some(room.revoked.clone());
        self.keep(room);
    }

    /// Keeps what counts the answer's bytes as long as they are in memory.
    pub(crate) fn keep(&mut self, count: impl Send + 'static) {
        match &self.head {
            Some(head) => *head.room.lock() = Some(Box::new(count)),
            None => self.hold(count),
        }
    }

    /// How many bytes are in memory for this answer alone until it is sent, as far as nobody has reserved them. Objects are the
    /// store's; a list of them holds a pointer to each.
    pub(crate) fn unreserved(&self) -> usize {
        if self.reserved.is_some() {
            return 0;
        }
        match (&self.inner, &self.head) {
            (_, Some(head)) => head.bytes,
            (Inner::Whole(whole), None) => whole.as_ref().map_or(0, Bytes::len),
            (Inner::Items(items), None) => {
                let frame = items.left.map_or(2 * FRAME, |left| left.min(2 * FRAME));
                frame + items.objects.len() * size_of::<Arc<store::Object>>()
            }
            (Inner::Stream(_), None) => 0,
        }
    }

    /// What is answered, if that is in memory and no longer than that.
    pub(crate) fn copy(&self, most: usize) -> Option<Bytes> {
        match &self.inner {
            Inner::Whole(whole) => Some(whole.clone().unwrap_or_default()).filter(|whole| whole.len() <= most),
            Inner::Items(items) => items.copy(most),
            Inner::Stream(_) => None,
        }
    }

    /// Whether it goes on for as long as it likes.
    pub(crate) fn lasts(&self) -> bool {
        self.pace != Pace::Ending
    }

    /// The same answer in other words: what was kept until it is sent is kept for those.
    pub(crate) fn rewritten(guards: Guards, body: Self) -> Self {
        Self { held: guards.held, reserved: guards.reserved, ..body }
    }

    /// The same answer, each piece of it in other words.
    pub(crate) fn rewritten_by_frame<B>(mut self, rewrite: impl FnOnce(Self) -> B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (pace, head, guards) = (self.pace, self.head.take(), self.take_guards());
        let inner = Inner::Stream(Box::pin(rewrite(self).map_err(Into::into)));
        Self { inner, held: guards.held, pace, head, reserved: guards.reserved, progress: None }
    }

    /// Takes off what is kept until the answer is sent.
    pub(crate) fn take_guards(&mut self) -> Guards {
        Guards { held: self.held.take(), reserved: self.reserved.take() }
    }

    /// Begins to be sent to a client, who must go on taking it. A stream may be silent for as long as it likes.
    pub(crate) fn send_for(&mut self, request: OpenRequest) {
        self.progress = Some(request.answer(self.pace, self.reserved.clone()));
    }

    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self::of(Inner::Whole(None))
    }

    /// Frames as they come; the answer's length is not known.
    pub(crate) fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::of(Inner::Stream(Box::pin(body.map_err(Into::into))))
    }

    /// The events of a watch, which begins with what is in memory already: so many bytes, which `room` holds until they are sent.
    pub(crate) fn watch<B>(body: B, bytes: usize, room: HeadRoom) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { pace: Pace::Watching, head: Some(Head { bytes, room }), ..Self::stream(body) }
    }

    /// `head`, the objects' own bytes separated by commas, `tail`.
    pub(crate) fn items(head: Vec<u8>, objects: Vec<Arc<store::Object>>, tail: &'static [u8]) -> Self {
        let commas = objects.len().saturating_sub(1);
        let left = head.len() + objects.iter().map(|object| object.json.len()).sum::<usize>() + commas + tail.len();
        let objects = objects.into_iter();
        Self::of(Inner::Items(Items { head: Some(head), objects, first: true, tail, left: Some(left), write: None }))
    }

    /// The same with what `write` makes of each object when it is sent: memory stays bounded, and the length is not known.
    pub(crate) fn written_items(
        head: Vec<u8>,
        objects: Vec<Arc<store::Object>>,
        tail: &'static [u8],
        write: impl Fn(&mut Vec<u8>, &store::Object) + Send + 'static,
    ) -> Self {
        let (objects, write) = (objects.into_iter(), Some(Box::new(write) as Write));
        Self::of(Inner::Items(Items { head: Some(head), objects, first: true, tail, left: None, write }))
    }

    /// Whether the answer has an end and is longer than `bytes`, as far as can be told before it is written.
    pub(crate) fn is_longer_than(&self, bytes: u64) -> bool {
        match &self.inner {
            Inner::Items(Items { left: None, .. }) => true,
            Inner::Whole(_) | Inner::Items(_) | Inner::Stream(_) => {
                http_body::Body::size_hint(self).exact().is_some_and(|size| size > bytes)
            }
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::of(Inner::Whole(Some(bytes.into())))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

/// A list, written frame by frame from bytes that are shared with the store: memory stays bounded however long it is.
struct Items {
    head: Option<Vec<u8>>,
    objects: std::vec::IntoIter<Arc<store::Object>>,
    first: bool,
    tail: &'static [u8],
    /// Bytes that are not sent yet; `None` if that is only known at the end.
    left: Option<usize>,
    /// How an object is written, if not as its own bytes.
    write: Option<Write>,
}

type Write = Box<dyn Fn(&mut Vec<u8>, &store::Object) + Send>;

impl Items {
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.is_done() {
            return None;
        }
        let mut frame = Vec::with_capacity(self.left.map_or(FRAME + FRAME / 4, |left| left.min(2 * FRAME)));
        if let Some(head) = self.head.take() {
            frame.extend_from_slice(&head);
        }
        while frame.len() < FRAME {
            let Some(object) = self.objects.next() else {
                frame.extend_from_slice(std::mem::take(&mut self.tail));
                break;
            };
            if !std::mem::take(&mut self.first) {
                frame.extend_from_slice(b",");
            }
            match &self.write {
                Some(write) => write(&mut frame, &object),
                None => frame.extend_from_slice(&object.json),
            }
        }
        self.left = self.left.map(|left| left - frame.len());
        Some(frame.into())
    }

    fn copy(&self, most: usize) -> Option<Bytes> {
        let mut text = self.head.clone().unwrap_or_default();
        for (at, object) in self.objects.as_slice().iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            match &self.write {
                Some(write) => write(&mut text, object),
                None => text.extend_from_slice(&object.json),
            }
            if text.len() > most {
                return None;
            }
        }
        text.extend_from_slice(self.tail);
        Some(text.into())
    }

    fn is_done(&self) -> bool {
        self.left.map_or(self.tail.is_empty(), |left| left == 0)
    }
}

/// The next piece of what is there whole: the rest is counted until the client takes it.
fn next_piece(whole: &mut Option<Bytes>) -> Option<Bytes> {
    let bytes = whole.as_mut().filter(|bytes| !bytes.is_empty())?;
    Some(bytes.split_to(bytes.len().min(FRAME)))
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Whoever sends asks for a frame when there is room for more of it.
        if let Some(progress) = &self.progress {
            progress.taken();
        }
        let polled = self.as_mut().next_frame(cx);
        if polled.is_pending()
            && let Some(progress) = &self.progress
        {
            progress.silent();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Inner::Items(items) => items.is_done(),
            Inner::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Inner::Items(Items { left: Some(left), .. }) => SizeHint::with_exact(*left as u64),
            Inner::Items(_) => SizeHint::default(),
            Inner::Stream(body) => body.size_hint(),
        }
    }
}

impl Body {
    fn next_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.inner {
            Inner::Whole(whole) => Poll::Ready(next_piece(whole).map(|piece| Ok(Frame::data(piece)))),
            Inner::Items(items) => match supervision::catch_blocking("answer", || items.next_frame()) {
                Ok(frame) => Poll::Ready(frame.map(|frame| Ok(Frame::data(frame)))),
                Err(panic) => {
                    self.inner = Inner::Whole(None);
                    Poll::Ready(Some(Err(panic.into())))
                }
            },
            // A watch that breaks ends, and not the connection with all its others.
            Inner::Stream(body) => match supervision::catch_blocking("answer", || body.as_mut().poll_frame(cx)) {
                Ok(polled) => polled,
                Err(panic) => {
                    self.inner = Inner::Whole(None);
                    Poll::Ready(Some(Err(panic.into())))
                }
            },
        }
    }
}

/// How many bytes a body must be thought to have, by what its sender says. 413 if that is more than [`LIMIT`].
pub(crate) fn announced<B: http_body::Body>(body: &B, headers: &HeaderMap) -> Result<usize, Status> {
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let Some(length) = body.size_hint().exact().or(said) else { return Ok(LIMIT) };
    usize::try_from(length).ok().filter(|length| *length <= LIMIT).ok_or_else(|| Status::too_large(LIMIT))
}

/// Reads a request's body whole, up to [`LIMIT`], as long as it keeps coming and nobody else needs its place more.
pub(crate) async fn read<B>(body: B, announced: usize, reservation: Option<&Reservation>) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let revoked = async {
        match reservation {
            Some(reservation) => reservation.revoked.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = revoked => Err(inflight::too_many()),
        read = collect(body, announced) => read,
    }
}

/// Copied together: a frame may be a small part of a large buffer, which it would keep.
async fn collect<B>(body: B, announced: usize) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let body = Limited::new(body, LIMIT);
    tokio::pin!(body);
    let mut whole = Vec::new();
    loop {
        let Ok(frame) = tokio::time::timeout(STALL, body.frame()).await else {
            return Err(Status::new(408, "Timeout", "Timeout: the body of the request does not arrive"));
        };
        match frame {
            None => return Ok(whole.into()),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if whole.is_empty() {
                    // Memory that is not written to yet is not there yet.
                    whole.reserve_exact(announced);
                }
                whole.put(data);
            }
            Some(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(Status::too_large(LIMIT)),
            Some(Err(error)) => {
                return Err(Status::bad_request(format!("cannot read the body of the request: {error}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn a_stream_that_panics_ends_with_an_error_and_not_with_its_connection() {
        let mut left = 1;
        let frames = futures::stream::poll_fn(move |_| {
            assert!(left > 0, "nothing is left");
            left -= 1;
            Poll::Ready(Some(Ok::<_, BoxError>(Frame::data(Bytes::from("first")))))
        });
        let mut body = Body::stream(http_body_util::StreamBody::new(frames));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "nothing is left");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_stands_still_is_given_up_and_a_slow_one_is_not() {
        let frames = |pause: Duration| {
            let frames = futures::stream::unfold(0, move |sent| async move {
                tokio::time::sleep(pause).await;
                (sent < 10).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from("x"))), sent + 1))
            });
            http_body_util::StreamBody::new(frames)
        };
        assert_eq!(read(frames(STALL / 2), LIMIT, None).await.unwrap(), "xxxxxxxxxx");
        assert_eq!(read(frames(STALL * 2), LIMIT, None).await.unwrap_err().code, 408);
    }

    #[tokio::test(start_paused = true)]
    async fn body_whose_bytes_others_need_is_refused() {
        let budget = crate::byte_budget::ByteBudget::new(LIMIT, LIMIT);
        let reservation = budget.reserve("a", LIMIT).await.unwrap();
        let endless = http_body_util::StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>());
        reservation.revoked.cancel();
        assert_eq!(read(endless, LIMIT, Some(&reservation)).await.unwrap_err().code, 429);
    }
}
