//! Who tolerates which taint.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether any of `tolerations` lets its pod live with `taint`.
pub(crate) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    covering(tolerations, taint).is_some()
}

/// The first of `tolerations` that lets its pod live with `taint`.
pub(crate) fn covering<'a>(tolerations: &'a [Toleration], taint: &Taint) -> Option<&'a Toleration> {
    tolerations.iter().find(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    fn said(word: Option<&String>) -> Option<&str> {
        word.map(String::as_str).filter(|word| !word.is_empty())
    }
    let effect = said(toleration.effect.as_ref()).is_none_or(|effect| effect == taint.effect);
    let key = said(toleration.key.as_ref()).is_none_or(|key| key == taint.key);
    let value = || said(toleration.value.as_ref()) == said(taint.value.as_ref());
    // Without a key it must be `Exists`, and stands for every taint.
    let exists = toleration.operator.as_deref() == Some("Exists");
    effect && key && (exists || (said(toleration.key.as_ref()).is_some() && value()))
}
