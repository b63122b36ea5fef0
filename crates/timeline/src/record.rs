//! What is written: records, and the frame each one travels in.
//!
//! ```text
//! file    magic (8) · version (4) · crc32 (4) · record · record · …
//! record  length (4) · version (1) · check (2) · crc32 (4) · payload (length)
//! ```
//!
//! `check` guards length and version, so that a damaged length is not taken for a record that was never finished; `crc32`
//! guards them and the payload. All numbers are little-endian.

use lifecycle::{ContainerName, ContainerSpec, Effect, Input, Moment, PodSnapshot, PodSpec, Wall};

use crate::wire::{Wire, WireError, whole, wire_enum};

/// The first bytes of every journal.
const MAGIC: &[u8; 8] = b"adieu-jl";
/// The version of the file: raised when a record is framed in another way.
const FILE_VERSION: u32 = 1;
/// The version of a record: raised when a payload is written in another way.
const RECORD_VERSION: u8 = 4;
/// The version of padding, which came later: who does not know it says that the journal is newer.
const PADDING_VERSION: u8 = 5;
/// The version of records that conclude a life, which came later still.
const CONCLUDED_VERSION: u8 = 6;

/// The length of what comes before the first record.
pub(crate) const FILE_HEADER: usize = 16;
pub(crate) const HEADER: usize = 11;

/// One thing worth remembering about a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The node took the pod on. Its life begins.
    Adopted {
        /// The pod's UID, which every later record of this life repeats.
        uid: String,
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// What it asks for.
        spec: PodSpec,
        /// When; like every moment it belongs to the boot the journal was opened in.
        at: Moment,
    },
    /// Its worker was told something and answered.
    Step {
        /// Which pod.
        uid: String,
        /// When, to reckon with.
        at: Moment,
        /// When, to show.
        wall: Wall,
        /// What the worker was told.
        input: Input,
        /// What it answered.
        effects: Vec<Effect>,
    },
    /// Its pod is calm: this stands for all steps before it.
    Folded {
        /// Which pod.
        uid: String,
        /// When, to reckon with.
        at: Moment,
        /// When, to show.
        wall: Wall,
        /// When the first step was.
        start: Wall,
        /// What its worker knows.
        snapshot: PodSnapshot,
    },
    /// Nothing of it needs to be remembered any more.
    Forgotten {
        /// Which pod.
        uid: String,
    },
    /// The same, but what is to be told of its end is not stored elsewhere yet.
    Concluded {
        /// Which pod.
        uid: String,
        /// When; with the UID it tells one end from another.
        wall: Wall,
        /// What is to be told.
        record: String,
    },
    /// That is stored elsewhere.
    Stored {
        /// Which pod.
        uid: String,
        /// When that was concluded.
        wall: Wall,
    },
}

/// A record as it stands in the file: one of a pod, or the journal's own.
#[allow(clippy::large_enum_variant, reason = "almost all of them are records")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// All that follow belong to this boot.
    Boot {
        boot_id: String,
    },
    /// Says nothing; it stands where a record was never finished, on a disk too full to cut it off.
    Padding,
    Of(Record),
}

wire_enum!(Record {
    3 Step { uid, at, wall, input, effects };
    4 Forgotten { uid };
    5 Adopted { uid, namespace, name, spec, at };
    6 Folded { uid, at, wall, start, snapshot };
    7 Concluded { uid, wall, record };
    8 Stored { uid, wall };
});

const BOOT: u8 = 1;
const PADDING: u8 = 255;
/// How `Adopted` was written before pods could ask for an active deadline, a drain and a grace of their probes.
const ADOPTED_BEFORE: u8 = 2;

impl Wire for Entry {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Boot { boot_id } => {
                out.push(BOOT);
                boot_id.put(out);
            }
            Self::Padding => out.push(PADDING),
            Self::Of(record) => record.put(out),
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, WireError> {
        if input.first() == Some(&BOOT) {
            *input = &input[1..];
            return Ok(Self::Boot { boot_id: String::take(input)? });
        }
        if input.first() == Some(&PADDING) {
            *input = &[];
            return Ok(Self::Padding);
        }
        if input.first() == Some(&ADOPTED_BEFORE) {
            *input = &input[1..];
            return Ok(Self::Of(Record::Adopted {
                uid: Wire::take(input)?,
                namespace: Wire::take(input)?,
                name: Wire::take(input)?,
                spec: spec_before(input)?,
                at: Wire::take(input)?,
            }));
        }
        Record::take(input).map(Self::Of)
    }
}

/// A spec as version 1 wrote it.
fn spec_before(input: &mut &[u8]) -> Result<PodSpec, WireError> {
    let count = u32::take(input)?;
    let mut containers = Vec::new();
    for _ in 0..count {
        let (name, role) = (ContainerName::take(input)?, Wire::take(input)?);
        containers.push(ContainerSpec {
            pre_stop: Wire::take(input)?,
            post_start: Wire::take(input)?,
            stop_signal: Wire::take(input)?,
            readiness: Wire::take(input)?,
            ..ContainerSpec::new(&name.0, role)
        });
    }
    Ok(PodSpec { restart: Wire::take(input)?, grace: Wire::take(input)?, ..PodSpec::new(containers) })
}

/// What stands at the front of some bytes of a journal.
#[derive(Debug)]
pub(crate) enum Framed<'a> {
    /// A sound payload, and how many bytes it took with its frame.
    Sound(&'a [u8], usize),
    /// The beginning of a record that was never finished.
    Torn,
    /// Something else.
    Damaged,
    /// A record of a version from the future.
    Newer(u8),
}

/// Appends a record in its frame.
pub(crate) fn frame(entry: &Entry, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    entry.put(out);
    let version = match entry {
        Entry::Of(Record::Concluded { .. } | Record::Stored { .. }) => CONCLUDED_VERSION,
        Entry::Padding => PADDING_VERSION,
        Entry::Boot { .. } | Entry::Of(_) => RECORD_VERSION,
    };
    seal(&mut out[start..], version);
}

/// A record that says nothing and is so many bytes long, or as short as a record can be.
pub(crate) fn padding(length: usize) -> Vec<u8> {
    let mut out = vec![0; length.max(HEADER + 1)];
    out[HEADER] = PADDING;
    seal(&mut out, PADDING_VERSION);
    out
}

/// Fills in the header that a payload has room for in front.
fn seal(framed: &mut [u8], version: u8) {
    let length = u32::try_from(framed.len() - HEADER).expect("a record is shorter than 4 GiB");
    let (header, payload) = framed.split_at_mut(HEADER);
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = version;
    let check = check(&header[..5]);
    header[5..7].copy_from_slice(&check.to_le_bytes());
    let sum = sum(&header[..5], payload);
    header[7..].copy_from_slice(&sum.to_le_bytes());
}

/// Looks at the record at the front of `bytes`, which reach to the end of the file and start at `offset` in it.
pub(crate) fn unframe(bytes: &[u8], offset: usize) -> Framed<'_> {
    let damaged = || if ends_in_empty_sectors(bytes, offset) { Framed::Torn } else { Framed::Damaged };
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Framed::Torn };
    let [l0, l1, l2, l3, version, c0, c1, s0, s1, s2, s3] = *header;
    if u16::from_le_bytes([c0, c1]) != check(&header[..5]) {
        return damaged();
    }
    if version > CONCLUDED_VERSION {
        return Framed::Newer(version);
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let Some(payload) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else { return Framed::Torn };
    if u32::from_le_bytes([s0, s1, s2, s3]) != sum(&header[..5], payload) {
        return damaged();
    }
    Framed::Sound(payload, HEADER + payload.len())
}

/// After a loss of power a file may be as long as it should be and yet end in sectors that were never written.
fn ends_in_empty_sectors(bytes: &[u8], offset: usize) -> bool {
    const SECTOR: usize = 512;
    let end = offset + bytes.len();
    let written = offset + bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    written == offset || written.next_multiple_of(SECTOR) < end
}

/// What a sound payload says.
pub(crate) fn read(payload: &[u8]) -> Result<Entry, WireError> {
    whole(payload)
}

/// The beginning of a journal.
pub(crate) fn file_header() -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
    let sum = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// What the beginning of a file says about it.
pub(crate) enum Opening {
    Ours,
    /// From the future.
    Newer(u32),
    /// Not a journal, or a damaged one.
    Foreign,
}

pub(crate) fn read_file_header(bytes: &[u8]) -> Opening {
    let Some(header) = bytes.first_chunk::<FILE_HEADER>() else { return Opening::Foreign };
    if *header == file_header() {
        return Opening::Ours;
    }
    let [.., v0, v1, v2, v3, s0, s1, s2, s3] = *header;
    let version = u32::from_le_bytes([v0, v1, v2, v3]);
    let sound = u32::from_le_bytes([s0, s1, s2, s3]) == crc32fast::hash(&header[..12]);
    if header.starts_with(MAGIC) && sound && version > FILE_VERSION {
        Opening::Newer(version)
    } else {
        Opening::Foreign
    }
}

fn check(guarded: &[u8]) -> u16 {
    let [low, high, ..] = crc32fast::hash(guarded).to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn sum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lifecycle::{Hook, PodWorker, Readiness, RestartPolicy, Role, Signal, SpecChange};

    use super::*;

    #[test]
    fn a_pod_taken_on_by_version_1_is_read_with_defaults_for_what_it_could_not_say() {
        let mut payload = vec![ADOPTED_BEFORE];
        for text in ["u", "default", "web"] {
            text.to_owned().put(&mut payload);
        }
        1u32.put(&mut payload);
        ContainerName("app".to_owned()).put(&mut payload);
        Role::Main.put(&mut payload);
        Some(Hook::Exec).put(&mut payload);
        None::<Hook>.put(&mut payload);
        Some(Signal(3)).put(&mut payload);
        Readiness::WhenProbed.put(&mut payload);
        RestartPolicy::Never.put(&mut payload);
        Duration::from_secs(7).put(&mut payload);
        Moment::from_millis(9).put(&mut payload);
        let container = ContainerSpec {
            pre_stop: Some(Hook::Exec),
            stop_signal: Some(Signal(3)),
            readiness: Readiness::WhenProbed,
            ..ContainerSpec::new("app", Role::Main)
        };
        let spec =
            PodSpec { restart: RestartPolicy::Never, grace: Duration::from_secs(7), ..PodSpec::new(vec![container]) };
        let expected = Record::Adopted {
            uid: "u".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            spec,
            at: Moment::from_millis(9),
        };
        assert_eq!(read(&payload), Ok(Entry::Of(expected)));
    }

    /// Version 2 did not say which image was there; after a change of the image it was the one that was wanted by then.
    #[test]
    fn a_life_of_version_2_in_which_an_image_changed_is_read_as_it_was_lived() {
        const IMAGE_READY: u8 = 2;
        const IMAGE_FAILED: u8 = 3;
        let app = ContainerName("app".to_owned());
        let before = |tag: u8, write: &dyn Fn(&mut Vec<u8>)| {
            let mut payload = vec![3];
            "u".to_owned().put(&mut payload);
            Moment::from_millis(9).put(&mut payload);
            Wall(9).put(&mut payload);
            payload.push(tag);
            app.put(&mut payload);
            write(&mut payload);
            Vec::<Effect>::new().put(&mut payload);
            match read(&payload) {
                Ok(Entry::Of(Record::Step { input, .. })) => input,
                other => panic!("{other:?}"),
            }
        };
        let ready = |signal| before(IMAGE_READY, &|out| Some(Signal(signal)).put(out));
        let failed =
            || before(IMAGE_FAILED, &|out| ["ErrImagePull", "no"].map(str::to_owned).iter().for_each(|it| it.put(out)));
        let changed = || Input::SpecChanged { change: SpecChange::Image { container: app.clone() } };
        let mut pod = PodWorker::new(PodSpec::new(vec![ContainerSpec::new("app", Role::Main)]));
        let starts = |asked: &[Effect]| asked.iter().any(|effect| matches!(effect, Effect::StartContainer { .. }));
        for input in [Input::Begin, changed(), failed(), Input::SandboxReady] {
            pod.handle(Moment::from_millis(10), input);
        }
        let asked = pod.handle(Moment::from_millis(10_010), Input::TimePassed);
        assert!(asked.contains(&Effect::PullImage { container: app.clone(), edition: 1 }), "{asked:?}");
        assert!(starts(&pod.handle(Moment::from_millis(10_011), ready(3))), "the other image is there");
        assert_eq!(pod.status().containers[0].stop_signal, Some(Signal(3)));
    }
}
