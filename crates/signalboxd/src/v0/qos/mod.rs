mod convert;
pub(super) mod service;
