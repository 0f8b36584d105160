mod convert;
pub(crate) mod service;
