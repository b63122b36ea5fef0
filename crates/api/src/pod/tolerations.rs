//! Which taints a pod tolerates.

use super::view::View;

/// One toleration of a pod. What it leaves out is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Toleration<'a> {
    /// The key of the taint; every key if it is empty.
    pub key: &'a str,
    /// `Exists`, or `Equal`, which is meant if it is empty.
    pub operator: &'a str,
    /// The value of the taint.
    pub value: &'a str,
    /// The effect of the taint; every effect if it is empty.
    pub effect: &'a str,
    /// For how long, where the effect is `NoExecute`; for ever if it does not say.
    pub seconds: Option<i64>,
}

/// One taint of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taint<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value; empty if it has none.
    pub value: &'a str,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'a str,
}

impl Toleration<'_> {
    /// Whether the pod may live with `taint`. An operator that is not known here tolerates nothing.
    pub fn covers(&self, taint: Taint<'_>) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        effect
            && key
            && match self.operator {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                _ => false,
            }
    }
}

/// Whether the pod tolerates `taint`.
pub fn tolerates<'t>(pod: &impl View, taint: impl Into<Taint<'t>>) -> bool {
    toleration(pod, taint).is_some()
}

/// The first of the pod's tolerations that lets it live with `taint`.
pub fn toleration<'a, 't>(pod: &'a impl View, taint: impl Into<Taint<'t>>) -> Option<Toleration<'a>> {
    let taint = taint.into();
    pod.tolerations().find(|toleration| toleration.covers(taint))
}
