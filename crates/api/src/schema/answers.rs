//! Messages that are only ever answers: no request consists of them, so the generated table has none of them.

use super::Type::{Int, Msg, Str};
use super::{Message, list, message, message_of, one};

const PACKAGE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

static LIST_META: Message = message(
    PACKAGE,
    "ListMeta",
    &[
        one(1, "selfLink", Str).omitted(),
        one(2, "resourceVersion", Str).omitted(),
        one(3, "continue", Str).omitted(),
        one(4, "remainingItemCount", Int),
    ],
);

static STATUS: Message = message(
    PACKAGE,
    "Status",
    &[
        one(1, "metadata", Msg(&LIST_META)).always(),
        one(2, "status", Str).omitted(),
        one(3, "message", Str).omitted(),
        one(4, "reason", Str).omitted(),
        one(5, "details", Msg(&STATUS_DETAILS)),
        one(6, "code", Int).omitted(),
    ],
);

static STATUS_DETAILS: Message = message(
    PACKAGE,
    "StatusDetails",
    &[
        one(1, "name", Str).omitted(),
        one(2, "group", Str).omitted(),
        one(3, "kind", Str).omitted(),
        list(4, "causes", Msg(&STATUS_CAUSE)),
        one(5, "retryAfterSeconds", Int).omitted(),
        one(6, "uid", Str).omitted(),
    ],
);

static STATUS_CAUSE: Message = message(
    PACKAGE,
    "StatusCause",
    &[one(1, "reason", Str).omitted(), one(2, "message", Str).omitted(), one(3, "field", Str).omitted()],
);

/// The message of what an answer may hold, by the words it begins with.
pub(crate) fn answer_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    match (api_version, kind) {
        ("v1", "Status") => Some(&STATUS),
        // Metadata is the first field of every kind, and there is no other in it.
        ("meta.k8s.io/v1", "PartialObjectMetadata") => message_of("", "v1", "Namespace"),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            message_of(group, version, kind)
        }
    }
}

/// What every list says about itself.
pub(crate) fn list_meta() -> &'static Message {
    &LIST_META
}
