//! Messages of the neighbors.

use core::net::IpAddr;

use signalbox_resources::intserv::TSpec;

use super::{B, R, at, handle, sender, session, tspec};
use crate::wire::{
    ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, HeaderFlags, MessageId, MessageType, RsvpHop,
    Session, Style, Writer,
};

/// Any message.
pub fn compose(kind: MessageType, ttl: u8, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    identified(kind, HeaderFlags::default(), None, ttl, write)
}

/// A message with a MESSAGE_ID, if one is given.
fn identified(
    kind: MessageType,
    flags: HeaderFlags,
    id: Option<MessageId>,
    ttl: u8,
    write: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, kind, flags, ttl);
    if let Some(id) = id {
        writer.message_id(&id);
    }
    write(&mut writer);
    writer.finish().expect("a message that is not too long");
    octets
}

/// A Path or PathTear of a neighbor upstream. Its user changes what is to be otherwise.
#[derive(Debug, Clone)]
pub struct Path {
    /// Flags of the common header.
    pub flags: HeaderFlags,
    /// MESSAGE_ID, if it has one.
    pub id: Option<MessageId>,
    /// The session.
    pub session: Session,
    /// The sender.
    pub sender: Filter,
    /// The neighbor.
    pub hop: RsvpHop,
    /// Its refresh period, milliseconds.
    pub period: u32,
    /// Traffic of the sender.
    pub tspec: TSpec,
    /// Whole objects between TIME_VALUES and the sender descriptor.
    pub extra: Vec<u8>,
    /// A whole ADSPEC object.
    pub adspec: Vec<u8>,
    /// The E_Police flag of the session.
    pub e_police: bool,
    /// Incoming interface.
    pub iif: u32,
    /// TTL in the IP header.
    pub ttl: u8,
    /// TTL in the common header.
    pub send_ttl: u8,
}

impl Default for Path {
    fn default() -> Self {
        Self::new()
    }
}

impl Path {
    /// A Path of sender 1 to [`session`], from neighbor 9 at eth1.
    pub fn new() -> Self {
        Self {
            flags: HeaderFlags::default(),
            id: None,
            session: session(),
            sender: sender(1),
            hop: RsvpHop { addr: at(1, 9), lih: 77 },
            period: R,
            tspec: tspec(10.0 * B),
            extra: Vec::new(),
            adspec: Vec::new(),
            e_police: false,
            iif: 1,
            ttl: 60,
            send_ttl: 60,
        }
    }

    /// A Path of sender `n` to `session`, from neighbor 9 at interface `iif`.
    pub fn of(session: Session, n: u32, iif: u32) -> Self {
        Self {
            session,
            sender: sender(n),
            hop: RsvpHop { addr: at(iif, 9), lih: 70 + iif },
            iif,
            ..Self::new()
        }
    }

    /// The Path.
    pub fn octets(&self) -> Vec<u8> {
        identified(MessageType::PATH, self.flags, self.id, self.send_ttl, |w| {
            w.session(&self.session, self.e_police).hop(&self.hop).time_values(self.period).body(&self.extra);
            w.sender_template(&self.sender).sender_tspec(&self.tspec).body(&self.adspec);
        })
    }

    /// The PathTear.
    pub fn tear_octets(&self) -> Vec<u8> {
        identified(MessageType::PATH_TEAR, self.flags, self.id, self.send_ttl, |w| {
            w.session(&self.session, false).hop(&self.hop).body(&self.extra);
            w.sender_template(&self.sender).sender_tspec(&self.tspec);
        })
    }
}

/// A Resv or ResvTear of a neighbor downstream. Its user changes what is to be otherwise.
#[derive(Debug, Clone)]
pub struct Resv {
    /// Flags of the common header.
    pub flags: HeaderFlags,
    /// MESSAGE_ID, if it has one.
    pub id: Option<MessageId>,
    /// The session.
    pub session: Session,
    /// The neighbor. The handle is that of the interface by which the Path left.
    pub hop: RsvpHop,
    /// Its refresh period, milliseconds.
    pub period: u32,
    /// The receiver that wants a confirmation.
    pub confirm: Option<IpAddr>,
    /// Senders in a SCOPE.
    pub scope: Vec<IpAddr>,
    /// Whole objects before STYLE.
    pub extra: Vec<u8>,
    /// The style.
    pub style: Style,
    /// Flow descriptors. One without a flowspec has that of the one before.
    pub flows: Vec<(Option<FlowSpec>, Vec<Filter>)>,
    /// Incoming interface.
    pub iif: u32,
    /// TTL in the common header.
    pub send_ttl: u8,
}

impl Resv {
    /// A Resv with these flow descriptors from neighbor 9 at eth2 for [`session`].
    pub fn of(style: Style, flows: Vec<(Option<FlowSpec>, Vec<Filter>)>) -> Self {
        Self {
            flags: HeaderFlags::default(),
            id: None,
            session: session(),
            hop: RsvpHop { addr: at(2, 9), lih: handle(2) },
            period: R,
            confirm: None,
            scope: Vec::new(),
            extra: Vec::new(),
            style,
            flows,
            iif: 2,
            send_ttl: 255,
        }
    }

    /// FF from neighbor 9 at eth2 for [`session`].
    pub fn ff(flows: &[(FlowSpec, u32)]) -> Self {
        let flows = flows.iter().map(|(flowspec, n)| (Some(*flowspec), vec![sender(*n)])).collect();
        Self::of(Style::Ff, flows)
    }

    /// SE from neighbor 9 at eth2 for [`session`].
    pub fn se(flowspec: FlowSpec, senders: &[u32]) -> Self {
        let senders = senders.iter().map(|n| sender(*n)).collect();
        Self::of(Style::Se, vec![(Some(flowspec), senders)])
    }

    /// WF from neighbor 9 at eth2 for [`session`].
    pub fn wf(flowspec: FlowSpec) -> Self {
        Self::of(Style::Wf, vec![(Some(flowspec), Vec::new())])
    }

    /// The same from neighbor `k` at interface `n`, for `session`.
    pub fn from(self, n: u32, k: u32, session: Session) -> Self {
        Self { hop: RsvpHop { addr: at(n, k), lih: handle(n) }, iif: n, session, ..self }
    }

    /// The same with a RESV_CONFIRM for `receiver`.
    pub fn confirmed(self, receiver: IpAddr) -> Self {
        Self { confirm: Some(receiver), ..self }
    }

    /// The Resv.
    pub fn octets(&self) -> Vec<u8> {
        identified(MessageType::RESV, self.flags, self.id, self.send_ttl, |w| {
            w.session(&self.session, false).hop(&self.hop).time_values(self.period);
            if let Some(receiver) = self.confirm {
                w.resv_confirm(receiver);
            }
            let mut scope = self.scope.clone();
            w.scope(&mut scope).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }

    /// The ResvTear.
    pub fn tear_octets(&self) -> Vec<u8> {
        identified(MessageType::RESV_TEAR, self.flags, self.id, self.send_ttl, |w| {
            w.session(&self.session, false).hop(&self.hop).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }

    fn flows(&self, w: &mut Writer<'_>) {
        for (flowspec, filters) in &self.flows {
            if let Some(flowspec) = flowspec {
                w.flowspec(flowspec);
            }
            for filter in filters {
                w.filter_spec(filter);
            }
        }
    }

    /// A ResvErr of this request's flow descriptors, from neighbor 9 at interface `iif`.
    pub fn error_octets(&self, iif: u32, code: ErrorCode, value: u16, in_place: bool) -> Vec<u8> {
        let flags = if in_place { ErrorFlags::IN_PLACE } else { ErrorFlags::default() };
        identified(MessageType::RESV_ERR, self.flags, self.id, self.send_ttl, |w| {
            w.session(&self.session, false).hop(&RsvpHop { addr: at(iif, 9), lih: 70 + iif });
            w.error_spec(&ErrorSpec { node: IpAddr::from([10, 7, 7, 7]), flags, code, value });
            let mut scope = self.scope.clone();
            w.scope(&mut scope).body(&self.extra).style(self.style);
            self.flows(w);
        })
    }
}
