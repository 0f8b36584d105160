//! Queued outputs: small values in a queue, and their octets in one buffer, which is cleared when the queue is empty.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::node::RouteQuery;
use signalbox_core::packet::Transmit;
use signalbox_core::service::{Indication, MessageHandle, MessageStatus, NetworkEvent, RecvMessage};
use signalbox_core::{IfIndex, Mri, NslpId, SessionId};
use signalbox_wire::Writer;

use super::io::{ChannelId, Next, Output, Transport};
use crate::wire::{EncodeError, MAGIC, Message};

/// Addressing of a datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) ifindex: Option<IfIndex>,
    /// The next hop of the flow's route, with messages that follow it.
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) dont_fragment: bool,
    /// 0: the kernel chooses it.
    pub(crate) flow_label: u32,
    /// The receiver has proved nothing.
    pub(crate) unproved: bool,
}

/// Range of octets in the buffer. Offsets in one batch of outputs fit into 32 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

#[derive(Debug)]
enum Entry {
    Transmit { envelope: Envelope, options: Span, payload: Span },
    Lookup { id: u64, query: RouteQuery },
    Receive { message: RecvMessage<'static>, data: Span },
    Status { nslp: NslpId, handle: MessageHandle, session: SessionId, status: MessageStatus },
    Notify { nslp: NslpId, mri: Mri, session: SessionId, event: NetworkEvent },
    OpenChannel { channel: ChannelId, transport: Transport, local: IpAddr, peer: SocketAddr },
    SendChannel { channel: ChannelId, stream: u16, lifetime: Option<Duration>, octets: Span },
    ReadChannel { channel: ChannelId, on: bool },
    CloseChannel { channel: ChannelId, abort: bool },
}

/// The reason why a message was not composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// It is too large: this many octets from the common header on.
    TooLarge(usize),
    /// The encoder refused.
    Encode(EncodeError),
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Entry>,
    octets: Vec<u8>,
}

impl Outbox {
    /// Clears the buffer if all outputs were polled. Called before new outputs are queued.
    pub(crate) fn recycle(&mut self) {
        if self.queue.is_empty() {
            self.octets.clear();
        }
    }

    fn put(&mut self, octets: &[u8]) -> Span {
        let start = self.mark();
        self.octets.extend_from_slice(octets);
        Span { start, end: self.mark() }
    }

    fn mark(&self) -> u32 {
        // One batch of outputs has far less than 4 GiB: each input causes a few datagrams, and walks are bounded. Beyond
        // that, outputs would be truncated.
        u32::try_from(self.octets.len()).unwrap_or(u32::MAX)
    }

    /// Composes `message` as a datagram of at most `limit` octets after the magic number. Returns where its payload
    /// is, for [`Outbox::octets`].
    pub(crate) fn compose(
        &mut self,
        envelope: Envelope,
        options: &[u8],
        message: &Message<'_>,
        limit: usize,
    ) -> Result<Span, Unsent> {
        let whole = self.octets.len();
        let options = self.put(options);
        let start = self.mark();
        let mut writer = Writer::new(&mut self.octets);
        writer.bytes(&MAGIC);
        let size = match message.encode(&mut writer) {
            Ok(()) => writer.len() - MAGIC.len(),
            Err(error) => {
                self.octets.truncate(whole);
                return Err(Unsent::Encode(error));
            }
        };
        if size > limit {
            self.octets.truncate(whole);
            return Err(Unsent::TooLarge(size));
        }
        let payload = Span { start, end: self.mark() };
        tracing::trace!(
            session = message.session.map(display), peer = %envelope.dst, kind = %message.header.kind, "message sent"
        );
        self.queue.push_back(Entry::Transmit { envelope, options, payload });
        Ok(payload)
    }

    /// Queues a datagram whose payload is the concatenation of `parts`.
    pub(crate) fn forward(&mut self, envelope: Envelope, options: &[u8], parts: &[&[u8]]) {
        let options = self.put(options);
        let start = self.mark();
        for part in parts {
            self.octets.extend_from_slice(part);
        }
        let payload = Span { start, end: self.mark() };
        self.queue.push_back(Entry::Transmit { envelope, options, payload });
    }

    pub(crate) fn lookup(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Entry::Lookup { id, query });
    }

    pub(crate) fn receive(&mut self, message: RecvMessage<'_>) {
        let data = self.put(message.data);
        self.queue.push_back(Entry::Receive { message: RecvMessage { data: &[], ..message }, data });
    }

    pub(crate) fn status(
        &mut self,
        (nslp, session): (NslpId, SessionId),
        handle: Option<MessageHandle>,
        status: MessageStatus,
    ) {
        if let Some(handle) = handle {
            self.queue.push_back(Entry::Status { nslp, handle, session, status });
        }
    }

    pub(crate) fn notify(&mut self, nslp: NslpId, mri: Mri, session: SessionId, event: NetworkEvent) {
        self.queue.push_back(Entry::Notify { nslp, mri, session, event });
    }

    pub(crate) fn open_channel(
        &mut self,
        channel: ChannelId,
        transport: Transport,
        local: IpAddr,
        peer: SocketAddr,
    ) {
        self.queue.push_back(Entry::OpenChannel { channel, transport, local, peer });
    }

    /// Composes and queues `message` for a channel; returns the number of its octets.
    pub(crate) fn send_channel(
        &mut self,
        channel: ChannelId,
        (stream, lifetime): (u16, Option<Duration>),
        message: &Message<'_>,
    ) -> Result<usize, EncodeError> {
        let start = self.mark();
        let whole = self.octets.len();
        message.encode(&mut Writer::new(&mut self.octets)).inspect_err(|_| self.octets.truncate(whole))?;
        let octets = Span { start, end: self.mark() };
        tracing::trace!(
            session = message.session.map(display),
            channel = channel.0,
            kind = %message.header.kind,
            "message sent"
        );
        self.queue.push_back(Entry::SendChannel { channel, stream, lifetime, octets });
        Ok(self.octets.len() - whole)
    }

    /// Queues a message for a channel that was composed before.
    pub(crate) fn send_channel_octets(
        &mut self,
        channel: ChannelId,
        (stream, lifetime): (u16, Option<Duration>),
        octets: &[u8],
    ) {
        let octets = self.put(octets);
        self.queue.push_back(Entry::SendChannel { channel, stream, lifetime, octets });
    }

    pub(crate) fn read_channel(&mut self, channel: ChannelId, on: bool) {
        self.queue.push_back(Entry::ReadChannel { channel, on });
    }

    pub(crate) fn close_channel(&mut self, channel: ChannelId, abort: bool) {
        self.queue.push_back(Entry::CloseChannel { channel, abort });
    }

    /// The octets of an output that is still queued.
    pub(crate) fn octets(&self, span: Span) -> &[u8] {
        span.of(&self.octets)
    }

    /// Who takes the next output.
    #[inline]
    pub(crate) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Entry::Transmit { .. } | Entry::Lookup { .. } => Next::Driver,
            Entry::Receive { message, .. } => Next::Application(message.nslp),
            Entry::Status { nslp, .. } | Entry::Notify { nslp, .. } => Next::Application(*nslp),
            Entry::SendChannel { channel, .. } => Next::ChannelSend(*channel),
            Entry::OpenChannel { .. } | Entry::ReadChannel { .. } | Entry::CloseChannel { .. } => {
                Next::Channel
            }
        })
    }

    /// The next output.
    pub(crate) fn poll(&mut self) -> Option<Output<'_>> {
        let entry = self.queue.pop_front()?;
        Some(entry.lend(&self.octets))
    }
}

impl Span {
    fn of(self, octets: &[u8]) -> &[u8] {
        let range: Range<usize> = self.start as usize..self.end as usize;
        octets.get(range).unwrap_or_default()
    }
}

impl Entry {
    /// The output, with its octets. Apart from [`Outbox::poll`], so that the entry is copied as a whole and not field by field.
    #[inline(never)]
    fn lend(self, octets: &[u8]) -> Output<'_> {
        match self {
            Self::Transmit { envelope, options, payload } => Output::Transmit(Transmit {
                entry: signalbox_core::Entry::Udp(crate::wire::PORT),
                src: envelope.src,
                dst: envelope.dst,
                ifindex: envelope.ifindex,
                gateway: envelope.gateway,
                ttl: envelope.ttl,
                tos: envelope.tos,
                dont_fragment: envelope.dont_fragment,
                flow_label: envelope.flow_label,
                unproved: envelope.unproved,
                options: options.of(octets),
                payload: payload.of(octets),
            }),
            Self::Lookup { id, query } => Output::RouteLookup { id, query },
            Self::Receive { message, data } => {
                Output::Indication(Indication::RecvMessage(RecvMessage { data: data.of(octets), ..message }))
            }
            Self::Status { nslp, handle, session, status } => {
                Output::Indication(Indication::MessageStatus { nslp, handle, session, status })
            }
            Self::Notify { nslp, mri, session, event } => {
                Output::Indication(Indication::NetworkNotification { nslp, mri, session, event })
            }
            Self::OpenChannel { channel, transport, local, peer } => {
                Output::ChannelOpen { channel, transport, local, peer }
            }
            Self::SendChannel { channel, stream, lifetime, octets: span } => {
                Output::ChannelSend { channel, stream, lifetime, octets: span.of(octets) }
            }
            Self::ReadChannel { channel, on } => Output::ChannelRead { channel, on },
            Self::CloseChannel { channel, abort } => Output::ChannelClose { channel, abort },
        }
    }
}
