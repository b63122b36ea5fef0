//! How little of something is too little, as `--eviction-hard` and `--eviction-soft` say it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::quantity::Quantity;

/// What is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signal {
    /// Memory that could be had without swapping.
    MemoryAvailable,
    /// Bytes on the file system of pods.
    NodefsAvailable,
    /// Inodes there.
    NodefsInodesFree,
    /// Bytes on the file system of images.
    ImagefsAvailable,
    /// Inodes there.
    ImagefsInodesFree,
    /// Process ids.
    PidAvailable,
}

impl Signal {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
    ];

    /// What people write.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// What people are told the node is low on.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodefsAvailable | Self::ImagefsAvailable => "ephemeral-storage",
            Self::NodefsInodesFree | Self::ImagefsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }
}

/// How much there is of something, and how much there could be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// What is left.
    pub available: u64,
    /// What there is altogether.
    pub capacity: u64,
}

/// What is too little.
#[derive(Clone, Copy, PartialEq, Debug)]
enum ThresholdAmount {
    Amount(Quantity),
    Percent(f64),
}

/// When a pod has to go.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threshold {
    /// What is watched.
    pub signal: Signal,
    least: ThresholdAmount,
    /// How long it may be so before anybody has to go; `None` for at once and without grace.
    pub patience: Option<Duration>,
}

/// What is wrong with a list of thresholds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// Not of the form.
    #[error("{0:?} is not of the form memory.available<100Mi or nodefs.available<10%")]
    Form(String),
    /// Nothing that is watched.
    #[error(
        "{0:?} cannot be watched; known are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree and pid.available"
    )]
    Signal(String),
    /// A soft threshold nobody said how long to wait for, or a wait without a threshold.
    #[error("{0} needs both a soft threshold and how long it may be passed")]
    Patience(&'static str),
}

/// What a pod may be evicted for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EvictionConfig {
    /// Hard ones and soft ones.
    pub thresholds: Vec<Threshold>,
    /// The longest grace that a soft eviction leaves a pod, in seconds; negative for the pod's own.
    pub most_grace: Option<i64>,
    /// How long a pressure is said to last after it was last seen.
    pub linger: Duration,
}

/// Reads `memory.available<100Mi,nodefs.available<10%`; an empty list is none.
pub fn parse(list: &str) -> Result<Vec<Threshold>, ThresholdError> {
    list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::parse).collect()
}

/// Gives soft thresholds the patience that `memory.available=90,...` says, in seconds.
pub fn with_patience(soft: Vec<Threshold>, list: &str) -> Result<Vec<Threshold>, ThresholdError> {
    let mut waits = Vec::new();
    for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let form = || ThresholdError::Form(one.to_owned());
        let (name, seconds) = one.split_once('=').ok_or_else(form)?;
        let seconds = seconds.trim_end_matches('s').parse().map_err(|_| form())?;
        waits.push((signal_named(name)?, Duration::from_secs(seconds)));
    }
    if let Some((signal, _)) = waits.iter().find(|(signal, _)| !soft.iter().any(|it| it.signal == *signal)) {
        return Err(ThresholdError::Patience(signal.name()));
    }
    let patient = |threshold: Threshold| {
        let wait = waits.iter().find(|(signal, _)| *signal == threshold.signal).map(|(_, wait)| *wait);
        let wait = wait.ok_or(ThresholdError::Patience(threshold.signal.name()))?;
        Ok(Threshold { patience: Some(wait), ..threshold })
    };
    soft.into_iter().map(patient).collect()
}

fn signal_named(name: &str) -> Result<Signal, ThresholdError> {
    let found = Signal::ALL.into_iter().find(|signal| signal.name() == name);
    found.ok_or_else(|| ThresholdError::Signal(name.to_owned()))
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let form = || ThresholdError::Form(text.to_owned());
        let (name, least) = text.split_once('<').ok_or_else(form)?;
        let signal = signal_named(name)?;
        let least = match least.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| form())?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(form());
                }
                ThresholdAmount::Percent(percent)
            }
            None => ThresholdAmount::Amount(
                least.parse().ok().filter(|amount: &Quantity| !amount.is_negative()).ok_or_else(form)?,
            ),
        };
        Ok(Self { signal, least, patience: None })
    }
}

impl Threshold {
    /// How much must be left of `capacity`.
    pub fn least_of(&self, capacity: u64) -> u64 {
        match self.least {
            ThresholdAmount::Amount(amount) => u64::try_from(amount.ceil()).unwrap_or(0),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a share of a capacity is no larger than it, and needs no more digits"
            )]
            ThresholdAmount::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }

    /// Whether there is too little.
    pub fn is_passed(&self, reading: Reading) -> bool {
        reading.available < self.least_of(reading.capacity)
    }

    /// `Threshold quantity: …`, as people are told.
    pub fn words(&self, reading: Reading) -> String {
        let (least, left) = (self.least_of(reading.capacity), reading.available);
        match self.signal {
            Signal::MemoryAvailable | Signal::NodefsAvailable | Signal::ImagefsAvailable => {
                lifecycle::eviction::threshold_message(&bytes(least), &bytes(left))
            }
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree | Signal::PidAvailable => {
                lifecycle::eviction::threshold_message(&least.to_string(), &left.to_string())
            }
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least {
            ThresholdAmount::Amount(amount) => write!(f, "{}<{amount}", self.signal.name()),
            ThresholdAmount::Percent(percent) => write!(f, "{}<{percent}%", self.signal.name()),
        }
    }
}

/// A number of bytes as the API writes it: the largest unit without a rest.
pub fn bytes(amount: u64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut amount, mut unit) = (amount, "");
    for larger in UNITS {
        if amount == 0 || amount % 1024 != 0 {
            break;
        }
        (amount, unit) = (amount / 1024, larger);
    }
    format!("{amount}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_amounts_or_shares() {
        let both = parse("memory.available<100Mi, nodefs.available<10%").expect("it is well formed");
        let reading = |available, capacity| Reading { available, capacity };
        assert!(
            both[0].is_passed(reading((100 << 20) - 1, 1 << 40)) && !both[0].is_passed(reading(100 << 20, 1 << 40))
        );
        assert!(both[1].is_passed(reading(99, 1000)) && !both[1].is_passed(reading(100, 1000)));
        assert_eq!(both[1].to_string(), "nodefs.available<10%");
        assert_eq!(parse(""), Ok(Vec::new()), "nobody has to go");
        let words = both[0].words(reading(80 << 20, 1 << 30));
        assert_eq!(words, "Threshold quantity: 100Mi, available: 80Mi. ");
    }

    #[test]
    fn eviction_threshold_mistakes_are_named() {
        for (text, expected) in [
            ("memory.available", ThresholdError::Form("memory.available".to_owned())),
            ("memory.available<many", ThresholdError::Form("memory.available<many".to_owned())),
            ("nodefs.available<101%", ThresholdError::Form("nodefs.available<101%".to_owned())),
            ("cpu.available<1", ThresholdError::Signal("cpu.available".to_owned())),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        let soft = || parse("memory.available<1Gi").expect("it is well formed");
        assert_eq!(with_patience(soft(), ""), Err(ThresholdError::Patience("memory.available")));
        assert_eq!(with_patience(Vec::new(), "pid.available=9"), Err(ThresholdError::Patience("pid.available")));
        let patient = with_patience(soft(), "memory.available=90s").expect("it is well formed");
        assert_eq!(patient[0].patience, Some(Duration::from_secs(90)));
    }

    #[test]
    fn bytes_are_written_as_the_api_writes_them() {
        assert_eq!([0, 1023, 1024, 1536, 3 << 20].map(bytes), ["0", "1023", "1Ki", "1536", "3Mi"]);
    }
}
