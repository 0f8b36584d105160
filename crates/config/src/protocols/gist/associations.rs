//! `[gist.associations]`: connection mode.

use std::time::Duration;

use signalbox_linux::stream::StreamConfig;
use signalbox_node::gist::{AssociationConfig, Transport};

use super::{DAY, SECOND};
use crate::keys::Keys;
use crate::kind::{choice, duration, flag, list, number, per_second, size};

pub(super) fn declare(config: &mut AssociationConfig, streams: &mut StreamConfig, keys: &mut Keys<'_>) {
    ports(config, keys);
    times(config, keys);
    limits(config, streams, keys);
}

fn ports(config: &mut AssociationConfig, keys: &mut Keys<'_>) {
    keys.option(
        "tcp_port",
        &mut config.tcp_port,
        number(1..=u16::MAX),
        "none",
        "Port at which peers open associations over TCP alone; GIST's is 270.",
    );
    keys.option(
        "tls_port",
        &mut config.tls_port,
        number(1..=u16::MAX),
        "none",
        "The same for TLS over TCP, not `tcp_port`; needs `[gist.tls]`.",
    );
    keys.option(
        "sctp_port",
        &mut config.sctp_port,
        number(1..=u16::MAX),
        "none",
        "The same for SCTP [RFC 6084]: by the kernel where it has SCTP, otherwise by the daemon over raw sockets. If the \
         kernel loads its SCTP after the daemon's start, restart the daemon: its own associations no longer work.",
    );
    let distinct = config.tls_port.is_none() || config.tcp_port != config.tls_port;
    keys.check(distinct, &["tls_port", "tcp_port"], "the same as tcp_port: write another port, such as 271");
    keys.key(
        "preference",
        &mut config.preference,
        list(choice(&[("tls", Transport::TlsTcp), ("sctp", Transport::Sctp), ("tcp", Transport::Tcp)])),
        "Order in which stacks are offered and chosen; those without a port are skipped, those not named come last.",
    );
    keys.key(
        "always",
        &mut config.always,
        flag(),
        "Use associations for all messages of routing state, not only for those that need one [4.3.3].",
    );
}

fn times(config: &mut AssociationConfig, keys: &mut Keys<'_>) {
    keys.key(
        "hold_time",
        &mut config.hold_time,
        duration(SECOND..=49 * DAY),
        "How long this node keeps an association that its peer does not use: the MA-Hold-Time that it sends to peers \
         [4.4.5].",
    );
    keys.key(
        "setup_timeout",
        &mut config.setup_timeout,
        duration(SECOND..=Duration::MAX),
        "How long setting one up may take [5.7.1].",
    );
    keys.group("retry", |keys| {
        keys.key(
            "first",
            &mut config.retry_min,
            duration(Duration::ZERO..=DAY),
            "Wait between two attempts to open an association with one peer, if the first failed before the peer sent a \
             message over it. Each further failure doubles the wait. It ends with the peer's first message, or after as \
             long without an attempt. A new session whose messages need an association waits two seconds at most: before, its \
             messages fail with the transports that were tried. `\"0s\"`: no wait.",
        );
        let meaning = "The longest such wait, from `retry.first`.";
        keys.key("max", &mut config.retry_max, duration(Duration::ZERO..=DAY), meaning);
        let fits = config.retry_min <= config.retry_max;
        keys.check(fits, &["max", "first"], "shorter than retry.first: write a longer time, such as \"1m\"");
    });
    keys.key(
        "idle_after",
        &mut config.idle_after,
        duration(Duration::from_millis(100)..=Duration::MAX),
        "How long this node keeps an association that no session of it uses.",
    );
    keys.key(
        "probe",
        &mut config.probe,
        flag(),
        "Send an MA-Hello to a peer that was silent for the hold time, and end the association if it does not answer \
         [6.4].",
    );
}

fn limits(config: &mut AssociationConfig, streams: &mut StreamConfig, keys: &mut Keys<'_>) {
    keys.key(
        "connect_timeout",
        &mut streams.connect_timeout,
        duration(SECOND..=DAY),
        "How long a TCP connection may take to come up.",
    );
    keys.key(
        "user_timeout",
        &mut streams.user_timeout,
        duration(SECOND..=DAY),
        "How long sent data may stay unacknowledged until a TCP connection is reset.",
    );
    keys.key(
        "close_timeout",
        &mut streams.close_timeout,
        duration(SECOND..=DAY),
        "How long a TCP connection that this node closes may take to send its remaining data.",
    );
    keys.key("max_associations", &mut config.max, number(1..=u32::MAX), "Most associations.");
    keys.key(
        "accept_rate",
        &mut config.accept_rate,
        per_second(0..=u32::MAX),
        "Associations that peers may open; `\"0/s\"`: no limit [8.4].",
    );
    keys.key(
        "accept_limit",
        &mut streams.accept_limit,
        number(0..=u32::MAX),
        "TCP connections that peers have open at one time; more are reset.",
    );
    keys.key(
        "accept_limit_per_source",
        &mut streams.accept_limit_per_source,
        number(0..=u32::MAX),
        "The same from one address.",
    );
    keys.key(
        "max_queued_size",
        &mut config.max_queued,
        size(1024..=usize::MAX),
        "Octets that may wait for one association; further messages are refused.",
    );
    keys.key(
        "max_total_queued_size",
        &mut config.max_queued_total,
        size(0..=usize::MAX),
        "The same for all associations together.",
    );
    keys.key(
        "max_buffered_size",
        &mut config.max_buffered,
        size(1 << 18..=usize::MAX),
        "Octets of incomplete and waiting messages of all peers together.",
    );
    keys.key(
        "max_unsent_size",
        &mut config.max_unsent,
        size(32 << 10..=usize::MAX),
        "Octets that a channel may hold. Further messages wait in their association.",
    );
}
