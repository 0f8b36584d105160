pub(super) mod convert;
pub(super) mod service;
