//! AUTH_TOKEN, and the identities in it.

use signalbox_wire::{Reader, Writer};

use super::code_points::{IdentityKind, NatfwObject, TokenAlgorithm};
use super::filter::NatfwFilter;
use super::message::Tlv;

/// Octets of a token's HMAC.
pub const HMAC: usize = 20;

/// The identity of a node or user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatfwIdentity<'a> {
    /// Kind.
    pub kind: IdentityKind,
    /// Octets of the value; none if it is left out.
    pub value: &'a [u8],
}

impl<'a> NatfwIdentity<'a> {
    /// An identity that is left out.
    pub const OMITTED: Self = Self { kind: IdentityKind::OMITTED, value: &[] };

    /// Reads an identity with its padding; `None`: octets are missing, or the value is not valid for its kind.
    pub fn parse(r: &mut Reader<'a>) -> Option<Self> {
        let length = usize::from(r.u16().ok()?);
        let [kind, _] = r.array().ok()?;
        let value = r.take(length).ok()?;
        r.take(length.next_multiple_of(4) - length).ok()?;
        let identity = Self { kind: IdentityKind(kind), value };
        identity.is_valid().then_some(identity)
    }

    fn is_valid(&self) -> bool {
        match self.kind {
            IdentityKind::OMITTED => self.value.is_empty(),
            IdentityKind::IPV4 => self.value.len() == 4,
            IdentityKind::IPV6 => self.value.len() == 16,
            IdentityKind::FQDN | IdentityKind::URI | IdentityKind::ASCII => {
                !self.value.is_empty() && self.value.is_ascii()
            }
            _ => !self.value.is_empty() && core::str::from_utf8(self.value).is_ok(),
        }
    }

    /// Appends the identity with its padding.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let value = self.value.get(..usize::from(u16::MAX)).unwrap_or(self.value);
        w.u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
        w.bytes(&[self.kind.0, 0]);
        w.bytes(value);
        w.bytes([0; 3].get(..value.len().next_multiple_of(4) - value.len()).unwrap_or_default());
    }
}

/// An authorization token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatfwToken<'a> {
    /// The creator's name of it.
    pub id: u32,
    /// Who made it, and verifies it.
    pub creator: NatfwIdentity<'a>,
    /// Who asked for it.
    pub requestor: NatfwIdentity<'a>,
    /// Who uses it.
    pub user: NatfwIdentity<'a>,
    /// Source of the data.
    pub src: NatfwIdentity<'a>,
    /// Destination of the data.
    pub dst: NatfwIdentity<'a>,
    /// When it was made, NTP timestamp.
    pub stamp: u64,
    /// Algorithm of the HMAC.
    pub algorithm: TokenAlgorithm,
    /// HMAC over the contents of the object with zeros in its place.
    pub hmac: [u8; HMAC],
    /// What it authorizes.
    pub filter: Option<NatfwFilter>,
}

impl<'a> NatfwToken<'a> {
    /// Reads the contents of the object; `None`: they are no token.
    #[must_use]
    pub fn parse(contents: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let id = r.u32().ok()?;
        let mut identity = || NatfwIdentity::parse(&mut r);
        let (creator, requestor, user) = (identity()?, identity()?, identity()?);
        let (src, dst) = (identity()?, identity()?);
        let stamp = r.u64().ok()?;
        let algorithm = TokenAlgorithm(r.u8().ok()?);
        let hmac = r.array().ok()?;
        r.take(3).ok()?;
        let filter = match Tlv::next(&mut r).ok()? {
            None => None,
            Some(tlv) if tlv.kind == NatfwObject::PACKET_FILTER => Some(NatfwFilter::parse(tlv.contents)?),
            Some(_) => return None,
        };
        let token = Self { id, creator, requestor, user, src, dst, stamp, algorithm, hmac, filter };
        r.is_empty().then_some(token)
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.id);
        for identity in [&self.creator, &self.requestor, &self.user, &self.src, &self.dst] {
            identity.encode(w);
        }
        w.u64(self.stamp);
        w.u8(self.algorithm.0);
        w.bytes(&self.hmac);
        w.bytes(&[0; 3]);
        if let Some(filter) = &self.filter {
            let mut contents = Vec::new();
            filter.encode(&mut Writer::new(&mut contents));
            // A filter of full lists has fewer words than the length can count.
            let words = u16::try_from(contents.len() / 4 + 1).unwrap_or(u16::MAX);
            w.u16(NatfwObject::PACKET_FILTER.0);
            w.u16(words);
            w.bytes(&contents);
        }
    }

    /// The octets over which the HMAC is computed: the contents with zeros in its place.
    #[must_use]
    pub fn authenticated(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        Self { hmac: [0; HMAC], ..self.clone() }.encode(&mut Writer::new(&mut octets));
        octets
    }
}
