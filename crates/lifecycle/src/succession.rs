//! Who of those that share a full name may run: static pods one after the other, API pods as they please.
//!
//! A static pod whose manifest was edited comes back with another UID while its predecessor is still leaving; one with a
//! UID of its own comes back with the same. Either way the newcomer waits until the predecessor is finished, and those who
//! came later wait behind it (node-termination W11, 9.1, 9.3).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

/// Where a pod comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A manifest on this node.
    Static,
    /// The API.
    Api,
}

/// Whether a pod may be begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Admission {
    /// At once.
    Begin,
    /// When those before it are finished.
    Wait,
    /// Never: it is there already.
    Never,
}

/// Every full name (`name_namespace`) that a static pod of this node has or waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Succession {
    lines: BTreeMap<String, NameQueue>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct NameQueue {
    running: Option<Running>,
    /// In the order of their arrival.
    waiting: VecDeque<String>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Running {
    uid: String,
    leaving: bool,
}

impl Succession {
    /// A pod is to be run.
    pub fn arrives(&mut self, full_name: &str, uid: &str, source: Source) -> Admission {
        if source == Source::Api {
            return Admission::Begin;
        }
        let line = self.lines.entry(full_name.into()).or_default();
        match &line.running {
            None => {
                line.running = Some(Running { uid: uid.into(), leaving: false });
                Admission::Begin
            }
            // There already, and not leaving; or waiting already.
            Some(running) if running.uid == uid && !running.leaving => Admission::Never,
            Some(_) if line.waiting.iter().any(|waiting| waiting == uid) => Admission::Wait,
            Some(_) => {
                line.waiting.push_back(uid.into());
                Admission::Wait
            }
        }
    }

    /// A pod was asked to leave. True if it was still waiting: it is finished without ever having begun, and nothing is
    /// remembered of it. A manifest that comes back with the same UID is a newcomer.
    pub fn leaves(&mut self, full_name: &str, uid: &str) -> bool {
        let Some(line) = self.lines.get_mut(full_name) else { return false };
        if let Some(at) = line.waiting.iter().position(|waiting| waiting == uid) {
            line.waiting.remove(at);
            return true;
        }
        if let Some(running) = line.running.as_mut().filter(|running| running.uid == uid) {
            running.leaving = true;
        }
        false
    }

    /// A pod is finished: nothing of it remains. Answers who begins now, with what UID.
    pub fn finished(&mut self, full_name: &str, uid: &str) -> Option<String> {
        let line = self.lines.get_mut(full_name)?;
        line.running.take_if(|running| running.uid == uid)?;
        let next = line.waiting.pop_front();
        match &next {
            Some(uid) => line.running = Some(Running { uid: uid.clone(), leaving: false }),
            None => {
                self.lines.remove(full_name);
            }
        }
        next
    }

    /// Whether the pod of that name is on its way out: its mirror stays until it is not.
    pub fn is_leaving(&self, full_name: &str) -> bool {
        let running = self.lines.get(full_name).and_then(|line| line.running.as_ref());
        running.is_some_and(|running| running.leaving)
    }
}
