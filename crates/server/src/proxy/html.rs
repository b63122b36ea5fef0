//! Pages of a backend, their links told as the client has to follow them.
//!
//! A page is read tag by tag as it comes; nothing of it is understood but the attributes that hold links. What is no tag, or too
//! long for one, is passed on as it is.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use flate2::write::GzDecoder;
use http::header::{self, HeaderMap};
use http_body::Frame;

use super::links::Links;
use crate::body::BoxError;

/// No tag with a link in it is longer.
const TAG_MAX: usize = 64 * 1024;
/// How much is unpacked at a time, so that a small packet cannot become a large one at once.
const STEP: usize = 4 * 1024;

/// Which attributes of which tags hold a link.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// What stands between these and their ends is text, whatever it looks like.
const TEXT_ONLY: [&str; 6] = ["script", "style", "textarea", "title", "xmp", "noembed"];

/// How a page is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

impl Packing {
    /// How the page is packed that has these headers; `None` for what is no page, or packed in a way that is not known here.
    pub(super) fn of_page(headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("text/html") {
            return None;
        }
        match text(header::CONTENT_ENCODING).trim() {
            "" | "identity" => Some(Self::Plain),
            "gzip" => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// A page whose links are rewritten while it passes.
pub(super) struct Rewritten<B> {
    body: Pin<Box<B>>,
    unpacker: Option<GzDecoder<Vec<u8>>>,
    pending: Bytes,
    page: Option<Page>,
}

impl<B> Rewritten<B> {
    pub(super) fn new(body: B, packing: Packing, links: Links) -> Self {
        let unpacker = (packing == Packing::Gzip).then(|| GzDecoder::new(Vec::new()));
        let page = Page { links, waiting: Vec::new(), inside: None };
        Self { body: Box::pin(body), unpacker, pending: Bytes::new(), page: Some(page) }
    }

    /// The next piece of what has come, unpacked.
    fn piece(&mut self) -> Result<Vec<u8>, std::io::Error> {
        let Some(unpacker) = &mut self.unpacker else {
            return Ok(std::mem::take(&mut self.pending).to_vec());
        };
        let step = self.pending.split_to(self.pending.len().min(STEP));
        unpacker.write_all(&step)?;
        Ok(std::mem::take(unpacker.get_mut()))
    }

    fn last_piece(&mut self) -> Result<Vec<u8>, std::io::Error> {
        self.unpacker.take().map_or(Ok(Vec::new()), GzDecoder::finish)
    }
}

impl<B> http_body::Body for Rewritten<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.page.is_none() {
                return Poll::Ready(None);
            }
            let told = if self.pending.has_remaining() {
                let piece = self.piece();
                let Some(page) = &mut self.page else { return Poll::Ready(None) };
                piece.map(|piece| page.told(&piece))
            } else {
                match ready!(self.body.as_mut().poll_frame(cx)) {
                    // What follows a page (trailers) was said of its old bytes.
                    Some(Ok(frame)) => {
                        self.pending = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    None => {
                        let piece = self.last_piece();
                        let Some(page) = self.page.take() else { return Poll::Ready(None) };
                        piece.map(|piece| page.finished(&piece))
                    }
                }
            };
            match told {
                Ok(told) if told.is_empty() => {}
                Ok(told) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(told))))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

/// A page as far as it has been read.
struct Page {
    links: Links,
    /// The beginning of a tag whose end has not come yet.
    waiting: Vec<u8>,
    /// The tag whose text is being read.
    inside: Option<&'static str>,
}

impl Page {
    /// What can be told after `piece` has come.
    fn told(&mut self, piece: &[u8]) -> Vec<u8> {
        self.waiting.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.waiting);
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while let Some(begin) = find(&bytes[at..], b"<").map(|found| at + found) {
            out.extend_from_slice(&bytes[at..begin]);
            at = begin;
            // No byte is looked at more often than it takes: whoever wrote the page must not make much work of little.
            let stretch = &bytes[begin..bytes.len().min(begin + TAG_MAX)];
            match self.tag(stretch, &mut out) {
                Some(length) => at += length,
                None if stretch.len() < TAG_MAX => {
                    self.waiting = stretch.to_vec();
                    return out;
                }
                None => {
                    out.extend_from_slice(stretch);
                    at += TAG_MAX;
                }
            }
        }
        out.extend_from_slice(&bytes[at..]);
        out
    }

    fn finished(mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = self.told(piece);
        out.append(&mut self.waiting);
        out
    }

    /// Tells what begins at this `<` and answers its length; `None` if its end is not there yet.
    fn tag(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let length = match (self.inside, bytes) {
            (Some(name), _) => {
                let end = [b"</", name.as_bytes()].concat();
                let known = bytes.len().min(end.len());
                let is_end = bytes[..known].eq_ignore_ascii_case(&end[..known]);
                match is_end {
                    true if known < end.len() => return None,
                    true => {
                        self.inside = None;
                        known
                    }
                    false => 1,
                }
            }
            (None, [b'<', b'!', b'-', b'-', rest @ ..]) => find(rest, b"-->")? + 7,
            (None, b"<" | b"<!" | b"<!-") => return None,
            (None, [b'<', letter, ..]) if letter.is_ascii_alphabetic() => return self.opening(bytes, out),
            (None, _) => 1,
        };
        out.extend_from_slice(&bytes[..length]);
        Some(length)
    }

    fn opening(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let is_end_of_name = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
        let end = bytes.iter().position(is_end_of_name)?;
        let name = String::from_utf8_lossy(&bytes[1..end]).to_ascii_lowercase();
        let wanted = LINKS.iter().find(|(tag, _)| *tag == name).map_or(&[][..], |(_, attributes)| attributes);
        let mut told = bytes[..end].to_vec();
        let mut at = end;
        loop {
            match bytes.get(at)? {
                b'>' => break,
                byte if byte.is_ascii_whitespace() || *byte == b'/' => {
                    told.push(*byte);
                    at += 1;
                }
                _ => at = self.attribute(bytes, at, wanted, &mut told)?,
            }
        }
        told.push(b'>');
        out.append(&mut told);
        self.inside = TEXT_ONLY.into_iter().find(|tag| *tag == name);
        Some(at + 1)
    }

    /// Tells the attribute that begins at `at` and answers where it ends.
    fn attribute(&self, bytes: &[u8], at: usize, wanted: &[&str], told: &mut Vec<u8>) -> Option<usize> {
        let skip = |from: usize, what: &dyn Fn(u8) -> bool| {
            bytes[from..].iter().position(|byte| !what(*byte)).map(|n| from + n)
        };
        // The first letter belongs to the name whatever it is.
        let end = skip(at + 1, &|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'=' | b'>' | b'/'))?;
        let name = String::from_utf8_lossy(&bytes[at..end]).to_ascii_lowercase();
        let equals = skip(end, &|byte| byte.is_ascii_whitespace())?;
        if bytes[equals] != b'=' {
            told.extend_from_slice(&bytes[at..end]);
            return Some(end);
        }
        let begin = skip(equals + 1, &|byte| byte.is_ascii_whitespace())?;
        let (begin, end, after) = match bytes[begin] {
            quote @ (b'"' | b'\'') => {
                let end = begin + 1 + find(&bytes[begin + 1..], &[quote])?;
                (begin + 1, end, end + 1)
            }
            _ => {
                let end = skip(begin, &|byte| !byte.is_ascii_whitespace() && byte != b'>')?;
                (begin, end, end)
            }
        };
        told.extend_from_slice(&bytes[at..begin]);
        let value = std::str::from_utf8(&bytes[begin..end]).ok().filter(|_| wanted.contains(&name.as_str()));
        match value.and_then(|value| self.links.rewritten(value)) {
            Some(new) => told.extend_from_slice(new.as_bytes()),
            None => told.extend_from_slice(&bytes[begin..end]),
        }
        told.extend_from_slice(&bytes[end..after]);
        Some(after)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::convert::Infallible;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn links() -> Links {
        Links { prefix: "/p/proxy".into(), backend: "10.0.0.2:80".into(), client: "api".into() }
    }

    /// The page as it is told when it comes in pieces of `size` bytes.
    async fn told(page: &[u8], size: usize, packing: Packing) -> String {
        let pieces: Vec<Result<Frame<Bytes>, Infallible>> =
            page.chunks(size).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        let body = Rewritten::new(StreamBody::new(futures::stream::iter(pieces)), packing, links());
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    const PAGE: &str = "<!DOCTYPE html><!-- <a href=\"/no\"> --><HTML><title><a href='/no'></title>\
        <A class=x HREF = \"/yes?a=1&amp;b=2\">1 < 2 <b></A><img alt='>' src=/yes><a href=rel><a href='http://10.0.0.2:80/yes'>\
        <a title='/no' href='http://else/no'><script src='/yes'>if (a<b) '<a href=\"/no\">'</script><form action=''/>\
        <link href=\"/yes\"/><a href=\"/p/proxy/yes\"><a href=\"/unfinished";

    #[tokio::test]
    async fn links_of_a_page_lead_through_the_proxy_and_nothing_else_changes() {
        let expected = PAGE
            .replace("http://10.0.0.2:80/yes", "/yes")
            .replace("/p/proxy/yes", "/yes")
            .replace("/yes", "/p/proxy/yes");
        for size in [1, 2, 3, 7, 64, 10_000] {
            assert_eq!(told(PAGE.as_bytes(), size, Packing::Plain).await, expected, "in pieces of {size}");
        }
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(PAGE.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        for size in [1, 10_000] {
            assert_eq!(told(&packed, size, Packing::Gzip).await, expected, "packed, in pieces of {size}");
        }
    }

    /// With a look at the rest of the page from each of its tags, this would take hours.
    #[tokio::test]
    async fn html_page_of_unclosed_tags_is_rewritten_in_linear_time() {
        for beginning in ["<a ", "<!--", "<a href='"] {
            let page = beginning.repeat(1_000_000);
            assert!(told(page.as_bytes(), page.len(), Packing::Plain).await == page, "{beginning}");
        }
    }

    #[tokio::test]
    async fn html_tag_without_an_end_is_passed_on_unbuffered() {
        let page = format!("<a href=\"{}<a href='/yes'>", "x".repeat(2 * TAG_MAX));
        assert!(told(page.as_bytes(), 1000, Packing::Plain).await.ends_with("<a href='/p/proxy/yes'>"));
    }
}
