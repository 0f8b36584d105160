//! The application against a scripted GIST.

mod initiator;
mod nsis;
mod relay;
mod rig;
mod routes;
