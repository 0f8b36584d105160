//! One neighbor of the router under test: its socket, its messages, and its part of refresh reduction (RFC 2961).

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signalbox_core::packet::router_alert_v4;
use signalbox_linux::netns::Namespace;
use signalbox_linux::{Batch, Io};
use signalbox_rsvp::wire::{HeaderFlags, ListedId, Message, MessageId, MessageType, Writer};

use super::ends::{TTL, open, packet};

const ALERT: [u8; 4] = router_alert_v4(0);
/// The epoch of both neighbors. Each daemon is new to them.
const EPOCH: u32 = 1;
/// Acknowledgments in one message at most. With them a Resv still fits into a packet of 1500 octets.
const MOST_ACKS: usize = 64;
/// How long an acknowledgment waits for a message that can carry it, as in a node with the default configuration.
const ACK_DELAY: Duration = Duration::from_millis(10);
/// MESSAGE_IDs in one Srefresh at most: 1200 octets.
pub(super) const MOST_LISTED: usize = 300;

/// A neighbor.
pub(super) struct Neighbor {
    io: Io,
    address: IpAddr,
    router: IpAddr,
    /// `None`: a neighbor of RFC 2205 only.
    reduction: Option<Reduction>,
    octets: Vec<u8>,
}

/// What a neighbor with refresh reduction keeps. It does not keep the MESSAGE_IDs of the router: the router lists only those
/// that were acknowledged.
#[derive(Default)]
struct Reduction {
    /// Acknowledgments that wait for a message, and how long.
    acks: Vec<MessageId>,
    due: Option<Instant>,
    /// Sessions whose MESSAGE_ID the router does not know.
    unknown: Vec<u32>,
}

impl Neighbor {
    /// Opens the socket of a neighbor with this address, beside `router`.
    pub(super) fn open(
        namespace: &Namespace,
        address: Ipv4Addr,
        router: Ipv4Addr,
        reduction: bool,
    ) -> Result<Self> {
        Ok(Self {
            io: open(namespace)?,
            address: address.into(),
            router: router.into(),
            reduction: reduction.then(Reduction::default),
            octets: Vec::new(),
        })
    }

    /// Whether it has refresh reduction.
    pub(super) const fn reduces(&self) -> bool {
        self.reduction.is_some()
    }

    /// Sends a message about session `number` with the objects that `write` adds, to `destination`, or to the router.
    pub(super) fn send(
        &mut self,
        kind: MessageType,
        destination: Option<IpAddr>,
        number: u32,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<()> {
        let id = MessageId { ack_desired: true, epoch: EPOCH, id: number + 1 };
        self.dispatch(kind, destination, Some(id), write)
    }

    /// Refreshes the states of these sessions by Srefreshes (RFC 2961 §5).
    pub(super) fn summarise(&mut self, sessions: impl Iterator<Item = u32>) -> Result<()> {
        let listed = |number: u32| ListedId { id: number + 1, source: None, group: None };
        let ids: Vec<ListedId> = sessions.map(listed).collect();
        ids.chunks(MOST_LISTED).try_for_each(|ids| {
            self.dispatch(MessageType::SREFRESH, None, None, |w| _ = w.id_list(EPOCH, ids))
        })
    }

    fn dispatch(
        &mut self,
        kind: MessageType,
        destination: Option<IpAddr>,
        id: Option<MessageId>,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<()> {
        self.octets.clear();
        let flags = if self.reduces() { HeaderFlags::REFRESH_REDUCTION } else { HeaderFlags::default() };
        let mut w = Writer::new(&mut self.octets, kind, flags, TTL);
        if let Some(reduction) = &mut self.reduction {
            if destination.is_none() {
                let count = reduction.acks.len().min(MOST_ACKS);
                reduction.acks.drain(..count).for_each(|id| _ = w.ack(&id, false));
            }
            id.iter().for_each(|id| _ = w.message_id(id));
        }
        write(&mut w);
        w.finish()?;
        let options: &[u8] = if destination.is_some() { &ALERT } else { &[] };
        self.io.send(&packet(self.address, destination.unwrap_or(self.router), options, &self.octets));
        Ok(())
    }

    /// Sends acknowledgments that no other message carried in time, and all packets.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some(reduction) = &mut self.reduction {
            let due = reduction.due.is_some_and(|due| due <= Instant::now());
            if reduction.acks.is_empty() {
                reduction.due = None;
            }
            if reduction.acks.is_empty() || !(due || reduction.acks.len() >= MOST_ACKS) {
                break;
            }
            self.dispatch(MessageType::ACK, None, None, |_| {})?;
        }
        self.io.flush();
        Ok(())
    }

    /// Fills `batch` with what has arrived, without waiting.
    pub(super) fn receive(&mut self, batch: &mut Batch) -> Result<()> {
        self.io.wait(Some(Duration::ZERO)).context("an end cannot wait")?;
        self.io.receive(batch).context("an end cannot receive")?;
        Ok(())
    }

    /// Takes the objects of refresh reduction of a message that arrived.
    pub(super) fn note(&mut self, message: &Message<'_>) {
        let Some(reduction) = &mut self.reduction else { return };
        let unknown = message.acks().filter(|(_, negative)| *negative);
        reduction.unknown.extend(unknown.map(|(id, _)| id.id.wrapping_sub(1)));
        if let Some(id) = message.message_id.filter(|id| id.ack_desired) {
            reduction.acks.push(MessageId { ack_desired: false, ..id });
            reduction.due.get_or_insert_with(|| Instant::now() + ACK_DELAY);
        }
    }

    /// Returns the sessions whose MESSAGE_ID the router does not know: their messages are sent again (RFC 2961 §5.4).
    pub(super) fn take_unknown(&mut self) -> Vec<u32> {
        self.reduction.as_mut().map(|reduction| std::mem::take(&mut reduction.unknown)).unwrap_or_default()
    }
}

/// The messages of a packet, those of a Bundle one by one (RFC 2961 §3).
pub(in super::super::super) fn messages(packet: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let whole = Message::parse(packet).ok();
    let bundled = whole.as_ref().map(Message::sub_messages).into_iter().flatten();
    let alone = whole.filter(|message| message.kind != MessageType::BUNDLE);
    alone.into_iter().chain(bundled.filter_map(|octets| Message::parse(octets).ok()))
}
