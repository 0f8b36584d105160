//! Packet scripts: a node among hand-made neighbours, one message at a time.

mod admission;
mod advert;
mod arrival;
mod blockade;
mod confirm;
mod errors;
mod figures;
mod intserv;
mod intserv_host;
mod keys;
mod local;
mod messages;
mod path;
mod periods;
mod police;
mod ports;
mod reduction;
mod resv;
mod rig;
mod ring;
mod route;
mod scope;
mod sessions;
mod soft;
