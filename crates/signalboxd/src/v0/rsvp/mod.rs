mod convert;
pub(crate) mod service;
mod tables;
