//! Questions that are asked by creating them: access reviews and token reviews. They are answered, never stored.

use std::marker::PhantomData;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::autoscaling::v1::Scale;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Rules, typed_as};

/// A kind that has a shape, and no rules beyond it.
pub(crate) struct Shaped<T>(PhantomData<fn() -> T>);

impl<T> Shaped<T> {
    const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: DeserializeOwned + Serialize> Rules for Shaped<T> {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<T>(object)
    }
}

pub(crate) static TOKEN_REVIEW: Shaped<TokenReview> = Shaped::new();
pub(crate) static TOKEN_REQUEST: Shaped<TokenRequest> = Shaped::new();
pub(crate) static SELF_SUBJECT_REVIEW: Shaped<SelfSubjectReview> = Shaped::new();
pub(crate) static SUBJECT_ACCESS: Shaped<SubjectAccessReview> = Shaped::new();
pub(crate) static LOCAL_SUBJECT_ACCESS: Shaped<LocalSubjectAccessReview> = Shaped::new();
pub(crate) static SELF_SUBJECT_ACCESS: Shaped<SelfSubjectAccessReview> = Shaped::new();
pub(crate) static SELF_SUBJECT_RULES: Shaped<SelfSubjectRulesReview> = Shaped::new();
pub(crate) static SCALE: Shaped<Scale> = Shaped::new();
