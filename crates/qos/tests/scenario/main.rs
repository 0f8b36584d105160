//! Several nodes with the application, joined by a small GIST made up for the purpose.

mod aggregate;
mod net;
mod receiver;
mod reroute;
mod sender;
mod summary;
