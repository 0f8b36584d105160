//! Several nodes with the application, joined by a small GIST made up for the purpose.

#![allow(
    dead_code,
    reason = "the scenarios of QUERY, rerouting and aggregation use the rest; they come next"
)]

mod net;
mod sender;
