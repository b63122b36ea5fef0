//! The message of the one kind that Kubernetes does not publish, and what is said about its fields.

use std::sync::LazyLock;

use super::Type::{Int, MicroTime, Msg, Str};
use super::{Field, Message, list, message, message_of, one};
use crate::termination::{GROUP, KIND, VERSION};

const PACKAGE: &str = "dev.adieu.v1alpha1";

static POD: Message = message(
    PACKAGE,
    "EndedPod",
    &[one(1, "name", Str).omitted(), one(2, "uid", Str).omitted(), one(3, "owner", Str).omitted()],
);

static REQUEST: Message = message(
    PACKAGE,
    "TerminationRequest",
    &[
        one(1, "by", Str).omitted(),
        one(2, "via", Str).omitted(),
        one(3, "afterMilliseconds", Int).always(),
        one(4, "gracePeriodSeconds", Int),
        one(5, "deadlineMilliseconds", Int),
    ],
);

static PHASES: Message = message(
    PACKAGE,
    "TerminationPhases",
    &[
        one(1, "drainMilliseconds", Int),
        one(2, "hooksMilliseconds", Int),
        one(3, "toSignalMilliseconds", Int),
        one(4, "exitMilliseconds", Int),
        one(5, "cleanupMilliseconds", Int),
    ],
);

static STEP: Message = message(
    PACKAGE,
    "TerminationStep",
    &[
        one(1, "afterMilliseconds", Int).always(),
        one(2, "type", Str).omitted(),
        one(3, "container", Str).omitted(),
        one(4, "signal", Str).omitted(),
        one(5, "hook", Str).omitted(),
        one(6, "result", Str).omitted(),
        one(7, "exitCode", Int),
        one(8, "connections", Int),
        one(9, "message", Str).omitted(),
        one(10, "output", Str).omitted(),
    ],
);

static CONTAINER: Message = message(
    PACKAGE,
    "EndedContainer",
    &[
        one(1, "name", Str).omitted(),
        one(2, "exitCode", Int),
        one(3, "signal", Str).omitted(),
        one(4, "reason", Str).omitted(),
    ],
);

/// Its metadata is everybody's, which the generated table has.
static RECORD: LazyLock<Message> = LazyLock::new(|| {
    let metadata = message_of("", "v1", "Namespace").and_then(|own| own.field("metadata")?.message());
    let metadata = metadata.expect("a namespace has metadata");
    let fields = vec![
        one(1, "metadata", Msg(metadata)).always(),
        one(2, "pod", Msg(&POD)).always(),
        one(3, "nodeName", Str).omitted(),
        one(4, "verdict", Str).omitted(),
        one(5, "cause", Str).omitted(),
        one(6, "askedBy", Str).omitted(),
        one(7, "summary", Str).omitted(),
        list(8, "requests", Msg(&REQUEST)),
        one(9, "gracePeriodSeconds", Int),
        one(10, "startTime", MicroTime),
        one(11, "deadline", MicroTime),
        one(12, "endTime", MicroTime),
        one(13, "tookMilliseconds", Int),
        one(14, "phases", Msg(&PHASES)),
        one(15, "barrier", Str).omitted(),
        list(16, "steps", Msg(&STEP)),
        one(17, "omittedSteps", Int).omitted(),
        list(18, "containers", Msg(&CONTAINER)),
    ];
    // Once in the life of the program.
    let fields: &'static [Field] = Vec::leak(fields);
    message(PACKAGE, KIND, fields)
});

/// The message, if it is this kind's.
pub(super) fn message_if(group: &str, version: &str, kind: &str) -> Option<&'static Message> {
    ((group, version, kind) == (GROUP, VERSION, KIND)).then(|| &*RECORD)
}

/// What is said about messages and fields, by name without the package.
pub(super) const TEXTS: &[(&str, &str)] = &[
    (
        "TerminationRecord",
        "TerminationRecord tells how a pod ended. It is written once, by the pod's node when the pod is over (by the server for a \
         pod that never had a node), and outlives the pod until it is too old or there are too many.",
    ),
    (
        "TerminationRecord.metadata",
        "Standard object's metadata. The name is that of the pod and the first 8 characters of its UID.",
    ),
    ("TerminationRecord.pod", "The pod."),
    ("TerminationRecord.nodeName", "The node that the pod was on; empty if it never had one."),
    (
        "TerminationRecord.verdict",
        "clean: everything it asked for was given, and every process left by itself. hurried: every process left by itself, but \
         something was cut short. forced: a process had to be killed, or the object was deleted by force. lost: of a process it is \
         not known how it ended.",
    ),
    (
        "TerminationRecord.cause",
        "Why it ended: Deleted, Completed, Evicted, Preempted, NodeShutdown, DeadlineExceeded, Rejected, …",
    ),
    ("TerminationRecord.askedBy", "Who asked first: the user of the delete, or the node."),
    ("TerminationRecord.summary", "The story in one sentence."),
    ("TerminationRecord.requests", "The first request, and each that brought the deadline forward."),
    ("TerminationRecord.gracePeriodSeconds", "The grace of the first request."),
    ("TerminationRecord.startTime", "When it was first asked to leave."),
    ("TerminationRecord.deadline", "By when it had to be gone, after the last request."),
    ("TerminationRecord.endTime", "When it was over."),
    ("TerminationRecord.tookMilliseconds", "How long that took."),
    ("TerminationRecord.phases", "How long each part of it took."),
    (
        "TerminationRecord.barrier",
        "What let hooks and stop signals begin: the reason of the condition adieu.dev/TrafficDrained.",
    ),
    ("TerminationRecord.steps", "Everything that happened, in order; at most 256."),
    ("TerminationRecord.omittedSteps", "How many steps there was no room for."),
    ("TerminationRecord.containers", "How each container ended."),
    ("EndedPod", "EndedPod is the pod of a record."),
    ("EndedPod.name", "Its name."),
    ("EndedPod.uid", "Its UID."),
    ("EndedPod.owner", "Its controller, such as ReplicaSet/web-5d8; empty if it had none."),
    ("TerminationRequest", "TerminationRequest is one request to leave."),
    ("TerminationRequest.by", "The user of a delete, or node."),
    ("TerminationRequest.via", "Delete, Eviction, or the node's reason."),
    ("TerminationRequest.afterMilliseconds", "When, counted from the first request."),
    ("TerminationRequest.gracePeriodSeconds", "The grace that it gives."),
    (
        "TerminationRequest.deadlineMilliseconds",
        "The deadline that holds from then on, counted from the first request.",
    ),
    (
        "TerminationPhases",
        "TerminationPhases tells how long the parts of an end took. What did not happen has no length.",
    ),
    ("TerminationPhases.drainMilliseconds", "From the first request until hooks and stop signals might begin."),
    ("TerminationPhases.hooksMilliseconds", "From the begin of the first hook to the end of the last."),
    ("TerminationPhases.toSignalMilliseconds", "From the first request to the first stop signal."),
    ("TerminationPhases.exitMilliseconds", "From the first stop signal to the last exit."),
    ("TerminationPhases.cleanupMilliseconds", "From the last exit until nothing was left."),
    ("TerminationStep", "TerminationStep is one thing that happened."),
    ("TerminationStep.afterMilliseconds", "When, counted from the first request."),
    (
        "TerminationStep.type",
        "Requested, Cut, Drained, HookStarted, HookEnded, SignalAsked, SignalDelivered, KillAsked, Exited, …",
    ),
    ("TerminationStep.container", "Which container it concerns."),
    ("TerminationStep.connections", "How many connections were open."),
    ("TerminationStep.output", "The last of what a hook wrote, at most 2 KiB."),
    ("EndedContainer", "EndedContainer tells how a container ended."),
    ("EndedContainer.name", "Its name."),
    ("EndedContainer.exitCode", "Its exit code; none of one whose end nobody saw."),
    ("EndedContainer.signal", "The signal that ended it, if one did."),
    ("EndedContainer.reason", "Completed, Error, OOMKilled, ContainerStatusUnknown, …"),
];

/// The same with the names that descriptions are found by.
pub(super) fn texts() -> impl Iterator<Item = (String, &'static str)> {
    TEXTS.iter().map(|(name, text)| (format!("{PACKAGE}.{name}"), *text))
}
