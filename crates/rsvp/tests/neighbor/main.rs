//! Tests of the neighbor layer alone: packets in and out at given times, between nodes of one link.

mod bundles;
mod challenges;
mod hello;
mod integrity;
mod reliable;
mod rig;
mod summary;
