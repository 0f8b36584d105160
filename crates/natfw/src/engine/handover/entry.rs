//! What a node leaves to its successor, in octets.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::ports::Binding;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::{Direction, IfIndex, LooseEnd, Mri, PathCoupled, SessionId};
use signalbox_resources::config::Opening;
use signalbox_wire::{Reader, Short, Writer};

const SESSION: u8 = 1;
const BINDING: u8 = 2;
const CREATE: u8 = 3;

/// A session whose passage stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Former<'a> {
    pub(super) session: SessionId,
    /// Seconds until it ends without a refresh.
    pub(super) left: u32,
    /// Its external port.
    pub(super) port: Option<u16>,
    pub(super) opening: Opening,
    /// Who asked: the address where the peer answered, the interface towards it, and the name of its key.
    pub(super) peer: IpAddr,
    pub(super) ifindex: IfIndex,
    pub(super) identity: Option<Identity>,
    /// The interfaces of its flow: [`Ends`](super::super::far::Ends).
    pub(super) ends: [Option<IfIndex>; 2],
    /// Its last request, which is not in the octets of the message.
    pub(super) mri: Mri,
    pub(super) message: &'a [u8],
}

/// One entry.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, at the start and the end of a daemon")]
pub(super) enum Entry<'a> {
    Session(Former<'a>),
    /// A translation that the kernel has, and the time until it ends.
    Binding(Binding, Duration),
    /// The CREATE that the edge has sent for an EXTERNAL in proxy mode.
    Create(FormerCreate),
}

/// A session that an edge has made for an EXTERNAL in proxy mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormerCreate {
    /// The session of the EXTERNAL.
    pub(super) external: SessionId,
    /// That of the CREATE, and the number of its last request.
    pub(super) session: SessionId,
    pub(super) msn: u32,
}

impl FormerCreate {
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let mut w = Writer::new(to);
        w.u8(CREATE);
        w.bytes(&self.external.0);
        w.bytes(&self.session.0);
        w.u32(self.msn);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let former = Self {
            external: SessionId(r.array().ok()?),
            session: SessionId(r.array().ok()?),
            msn: r.u32().ok()?,
        };
        r.take_rest().is_empty().then_some(former)
    }
}

impl Former<'_> {
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let mut w = Writer::new(to);
        w.u8(SESSION);
        w.bytes(&self.session.0);
        w.u32(self.left);
        number(&mut w, self.port.map(u32::from));
        let opening = Opening::ALL.iter().position(|opening| *opening == self.opening);
        w.u8(opening.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX));
        address(&mut w, self.peer);
        w.u32(self.ifindex.0);
        identity(&mut w, self.identity.as_ref());
        self.ends.iter().for_each(|end| number(&mut w, end.map(|end| end.0)));
        mri(&mut w, &self.mri);
        w.bytes(self.message);
    }
}

/// Writes a translation that the kernel has.
pub(super) fn binding(binding: &Binding, left: Duration) -> Vec<u8> {
    let mut octets = vec![BINDING];
    octets.extend(binding.write(left));
    octets
}

impl<'a> Entry<'a> {
    /// Reads an entry; `None`: it is damaged, or of another version.
    pub(super) fn parse(octets: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        match r.u8().ok()? {
            SESSION => Some(Self::Session(Former {
                session: SessionId(r.array().ok()?),
                left: r.u32().ok()?,
                port: small(&mut r)?,
                opening: *Opening::ALL.get(usize::from(r.u8().ok()?))?,
                peer: read_address(&mut r)?,
                ifindex: IfIndex(r.u32().ok()?),
                identity: read_identity(&mut r)?,
                ends: [read_ifindex(&mut r)?, read_ifindex(&mut r)?],
                mri: read_mri(&mut r)?,
                message: r.take_rest(),
            })),
            BINDING => Binding::read(r.take_rest()).map(|(binding, left)| Self::Binding(binding, left)),
            CREATE => FormerCreate::read(&mut r).map(Self::Create),
            _ => None,
        }
    }
}

/// Writes a number that may be missing.
fn number(w: &mut Writer<'_>, number: Option<u32>) {
    w.u8(u8::from(number.is_some()));
    w.u32(number.unwrap_or(0));
}

fn read_number(r: &mut Reader<'_>) -> Result<Option<u32>, Short> {
    let (there, number) = (r.u8()?, r.u32()?);
    Ok((there != 0).then_some(number))
}

/// A number of a smaller type; `None`: it does not fit.
fn small<T: TryFrom<u32>>(r: &mut Reader<'_>) -> Option<Option<T>> {
    match read_number(r).ok()? {
        Some(number) => Some(Some(T::try_from(number).ok()?)),
        None => Some(None),
    }
}

fn read_ifindex(r: &mut Reader<'_>) -> Option<Option<IfIndex>> {
    Some(read_number(r).ok()?.map(IfIndex))
}

fn address(w: &mut Writer<'_>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            w.u8(4);
            w.bytes(&v4.octets());
        }
        IpAddr::V6(v6) => {
            w.u8(6);
            w.bytes(&v6.octets());
        }
    }
}

fn read_address(r: &mut Reader<'_>) -> Option<IpAddr> {
    match r.u8().ok()? {
        4 => Some(IpAddr::from(r.array::<4>().ok()?)),
        6 => Some(IpAddr::from(r.array::<16>().ok()?)),
        _ => None,
    }
}

/// Writes a text of at most 65,535 octets. A longer one matches no name any more.
fn text(w: &mut Writer<'_>, text: &str) {
    let text = signalbox_wire::beginning(text, usize::from(u16::MAX));
    w.u16(u16::try_from(text.len()).unwrap_or(0));
    w.bytes(text.as_bytes());
}

fn read_text(r: &mut Reader<'_>) -> Option<String> {
    let length = usize::from(r.u16().ok()?);
    Some(core::str::from_utf8(r.take(length).ok()?).ok()?.to_owned())
}

fn identity(w: &mut Writer<'_>, identity: Option<&Identity>) {
    w.u8(u8::from(identity.is_some()));
    let Some(Identity { dns, common_name, addresses, key }) = identity else { return };
    let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
    w.u16(count(dns.len()));
    dns.iter().take(usize::from(u16::MAX)).for_each(|name| text(w, name));
    w.u8(u8::from(common_name.is_some()));
    common_name.iter().for_each(|name| text(w, name));
    w.u16(count(addresses.len()));
    addresses.iter().take(usize::from(u16::MAX)).for_each(|place| address(w, *place));
    w.bytes(&key.0);
}

fn read_identity(r: &mut Reader<'_>) -> Option<Option<Identity>> {
    if r.u8().ok()? == 0 {
        return Some(None);
    }
    let dns = (0..r.u16().ok()?).map(|_| read_text(r)).collect::<Option<_>>()?;
    let common_name = if r.u8().ok()? == 0 { None } else { Some(read_text(r)?) };
    let addresses = (0..r.u16().ok()?).map(|_| read_address(r)).collect::<Option<_>>()?;
    Some(Some(Identity { dns, common_name, addresses, key: Fingerprint(r.array().ok()?) }))
}

fn mri(w: &mut Writer<'_>, mri: &Mri) {
    w.u8(u8::from(matches!(mri, Mri::LooseEnd(_))));
    w.u8(u8::from(mri.direction() == Direction::Upstream));
    address(w, mri.src());
    address(w, mri.dst());
    let Mri::PathCoupled(flow) = mri else { return };
    w.u8(flow.src_prefix);
    w.u8(flow.dst_prefix);
    let (protocol, dscp) = (flow.protocol.map(u32::from), flow.dscp.map(u32::from));
    let (src_port, dst_port) = (flow.src_port.map(u32::from), flow.dst_port.map(u32::from));
    for one in [protocol, dscp, flow.flow_label, flow.spi, src_port, dst_port] {
        number(w, one);
    }
}

fn read_mri(r: &mut Reader<'_>) -> Option<Mri> {
    let loose = r.u8().ok()? != 0;
    let direction = if r.u8().ok()? == 0 { Direction::Downstream } else { Direction::Upstream };
    let (src, dst) = (read_address(r)?, read_address(r)?);
    if src.is_ipv4() != dst.is_ipv4() {
        return None;
    }
    if loose {
        return Some(Mri::LooseEnd(LooseEnd { src, dst, direction }));
    }
    let [src_prefix, dst_prefix] = r.array().ok()?;
    let most = if src.is_ipv4() { 32 } else { 128 };
    let flow = PathCoupled {
        src,
        dst,
        src_prefix,
        dst_prefix,
        protocol: small(r)?,
        dscp: small(r)?,
        flow_label: read_number(r).ok()?,
        spi: read_number(r).ok()?,
        src_port: small(r)?,
        dst_port: small(r)?,
        direction,
    };
    (src_prefix <= most && dst_prefix <= most).then_some(Mri::PathCoupled(flow))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn former(mri: Mri, identity: Option<Identity>) -> Former<'static> {
        Former {
            session: SessionId([7; 16]),
            left: 1000,
            port: Some(40_000),
            opening: Opening::Publish,
            peer: "192.0.2.1".parse().unwrap(),
            ifindex: IfIndex(3),
            identity,
            ends: [Some(IfIndex(3)), None],
            mri,
            message: b"message",
        }
    }

    fn all() -> Vec<Former<'static>> {
        let identity = Identity {
            dns: vec!["a.example".to_owned(), String::new()],
            common_name: Some("b".to_owned()),
            addresses: vec!["2001:db8::1".parse().unwrap()],
            key: Fingerprint([9; 32]),
        };
        let flow = PathCoupled {
            protocol: Some(17),
            dscp: Some(46),
            spi: Some(0),
            src_port: Some(1),
            direction: Direction::Upstream,
            ..PathCoupled::between("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        };
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let loose = LooseEnd { src, dst, direction: Direction::Downstream };
        vec![
            former(Mri::PathCoupled(flow), Some(identity)),
            Former { port: None, ..former(Mri::LooseEnd(loose), None) },
        ]
    }

    #[test]
    fn an_entry_comes_back_as_it_was_written() {
        for former in all() {
            let mut octets = Vec::new();
            former.write(&mut octets);
            assert_eq!(Entry::parse(&octets), Some(Entry::Session(former.clone())));
            for end in 0..octets.len() - former.message.len() {
                assert_eq!(Entry::parse(&octets[..end]), None, "cut at {end}");
            }
        }
        let address = "10.0.0.1".parse().unwrap();
        let left = Binding { address, protocol: 17, port: 5000, external: 40_001 };
        let octets = binding(&left, Duration::from_secs(60));
        assert_eq!(Entry::parse(&octets), Some(Entry::Binding(left, Duration::from_secs(60))));
        assert_eq!(Entry::parse(&octets[..octets.len() - 1]), None);
        let create =
            FormerCreate { external: SessionId([7; 16]), session: SessionId([8; 16]), msn: u32::MAX };
        let mut octets = Vec::new();
        create.write(&mut octets);
        assert_eq!(Entry::parse(&octets), Some(Entry::Create(create)));
        for end in 0..octets.len() {
            assert_eq!(Entry::parse(&octets[..end]), None, "cut at {end}");
        }
        octets.push(0);
        assert_eq!(Entry::parse(&octets), None);
    }

    /// What somebody changed is read as another entry or as none.
    #[test]
    fn a_damaged_entry_is_no_fault() {
        for former in all() {
            let mut octets = Vec::new();
            former.write(&mut octets);
            for at in 0..octets.len() {
                for value in [0, 1, 33, 0x7f, 0xff] {
                    let mut changed = octets.clone();
                    changed[at] = value;
                    if let Some(Entry::Session(Former { mri: Mri::PathCoupled(flow), .. })) =
                        Entry::parse(&changed)
                    {
                        assert!(flow.src_prefix <= 128 && flow.dst_prefix <= 128);
                    }
                }
            }
        }
    }
}
