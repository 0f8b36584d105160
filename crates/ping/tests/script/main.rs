//! The application against a scripted GIST.

mod initiator;
mod relay;
mod rig;
mod routes;
