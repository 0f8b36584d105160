//! The proof that an initiating node receives the replies to its requests: a number of 64 bits.
//!
//! A node that demands it writes the number into the first message of a flow and stores nothing. The number is a keyed hash of
//! the flow, the initiating node, the interface towards it and the time, so that the node computes it again when the confirmation comes.
//! Only who received the reply can send it. It travels in an option of our own, which hosts and other nodes leave as it is, or for an
//! initiating node without this option as the whole KEY. The draft locks a reservation instead, which lets forged requests
//! occupy resources. It multiplies primes into the KEY; a forger guesses one of two in less than an hour (`docs/boomerang.md`).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::secret::{RotatingSecret, same};
use signalbox_core::{Random, Time};

use super::flow::FlowKey;
use super::interfaces::Iface;
use crate::wire::{Flags, KEY_FIRST, Message, OF_REPLY, Pass, Placed, ReturnProof};

/// A confirmation is accepted for one to two of these periods.
const PERIOD: Duration = Duration::from_secs(60);
/// Flows whose last request got a number: the newest one of each place.
const LATELY: u64 = 1024;
/// Most proofs in a message: of four routers, each for both directions.
pub(super) const MOST: usize = 8;

/// Who has to prove something about which flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party {
    pub(super) flow: FlowKey,
    pub(super) initiator: IpAddr,
    /// The interface towards the initiating node.
    pub(super) side: Iface,
}

impl Party {
    /// The same initiating node and the same data, in the direction of a pass.
    pub(super) const fn of_pass(self, pass: Pass) -> Self {
        Self { flow: self.flow.of_pass(pass), ..self }
    }
}

/// The first half of a number: what a reservation stores of it. It is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head(pub(super) u32);

/// A number that a node writes into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl Number {
    // BOOM-G10-01
    fn of(Head(head): Head, rest: u32) -> Self {
        Self(u64::from(head) << 32 | u64::from(rest))
    }

    pub(super) fn head(self) -> Head {
        Head(u32::try_from(self.0 >> 32).unwrap_or(0))
    }
}

/// The numbers of this node that a message shows, one for each pass at most: a second one would be a second guess.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShownNumbers {
    request: Option<Number>,
    reply: Option<Number>,
}

impl ShownNumbers {
    /// Whether it shows a number at all.
    pub(super) const fn any(&self) -> bool {
        self.request.is_some() || self.reply.is_some()
    }

    /// The number that was written into a message of this pass.
    pub(super) const fn of(&self, pass: Pass) -> Option<Number> {
        match pass {
            Pass::Request => self.request,
            Pass::Reply => self.reply,
        }
    }
}

/// The numbers of this node.
#[derive(Debug)]
pub(super) struct Proofs {
    /// For the first half of a number.
    secret: RotatingSecret,
    /// For the second half, which follows from the first one and the party as long as a reservation stands.
    steady: RotatingSecret,
    /// Which options are those of this node.
    node: u32,
    /// Hashes of flows whose request got a number, and whose reply did not come yet.
    lately: Box<[u64]>,
}

impl Proofs {
    pub(super) fn new(rng: &mut Random) -> Self {
        let lately = vec![0; usize::try_from(LATELY).unwrap_or(0)].into();
        let (secret, steady) = (RotatingSecret::new(PERIOD, rng), RotatingSecret::new(Duration::MAX, rng));
        Self { secret, steady, node: rng.u32(), lately }
    }

    fn place(&mut self, hash: u64) -> Option<&mut u64> {
        self.lately.get_mut(usize::try_from(hash % LATELY).ok()?)
    }

    /// Notes that a request got a number.
    pub(super) fn note(&mut self, hash: u64) {
        if let Some(place) = self.place(hash) {
            *place = hash;
        }
    }

    /// Whether the request of a flow got a number lately. The entry is removed.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        self.place(hash)
            .is_some_and(|place| core::mem::replace(place, if *place == hash { 0 } else { *place }) == hash)
    }

    /// The option of this node with a number.
    pub(super) const fn option(&self, Number(number): Number) -> ReturnProof {
        ReturnProof { node: self.node, number }
    }

    /// The first option of this node that was written into a message of this pass.
    pub(super) fn placed(&self, message: &Message<'_>, pass: Pass) -> Option<(Placed, Number)> {
        let mut proofs = message.body.as_ref()?.options.proofs();
        let is_of_pass = |placed: &Placed| (placed.flags & OF_REPLY != 0) == (pass == Pass::Reply);
        proofs
            .find(|(placed, proof)| proof.node == self.node && is_of_pass(placed))
            .map(|(placed, proof)| (placed, Number(proof.number)))
    }

    /// What a message shows. The KEY counts if its initiating node does not have the option.
    pub(super) fn shown(&self, message: &Message<'_>) -> ShownNumbers {
        if message.flags.contains(Flags::RETURNS) {
            let number = |pass| self.placed(message, pass).map(|(_, number)| number);
            // What a reply is to prove has no part in a request.
            let reply = if message.pass == Pass::Reply { number(Pass::Reply) } else { None };
            return ShownNumbers { request: number(Pass::Request), reply };
        }
        let key = (message.key > KEY_FIRST).then_some(Number(message.key));
        ShownNumbers { request: key, reply: key.filter(|_| message.pass == Pass::Reply) }
    }

    /// The number for a party at `now`.
    pub(super) fn current(&self, now: Time, party: &Party) -> Number {
        self.of(self.secret.current(now), party)
    }

    /// Whether a number is one that a party was sent lately. BOOM-3.2.1-14, BOOM-G10-03.
    pub(super) fn is_fresh(&self, now: Time, party: &Party, shown: Option<Number>) -> bool {
        let generation = self.secret.current(now);
        shown.is_some_and(|shown| {
            [generation, generation.wrapping_sub(1)].into_iter().any(|of| is(self.of(of, party), shown))
        })
    }

    /// Whether a number is the one that a reservation of this party was made with.
    pub(super) fn continues(&self, party: &Party, shown: Option<Number>, head: Head) -> bool {
        shown.is_some_and(|shown| shown.head() == head && is(self.with_head(head, party), shown))
    }

    fn of(&self, generation: u32, party: &Party) -> Number {
        let octets = octets(party);
        let [a, b, c, d, ..] = self.secret.tag(generation, &[&octets]);
        self.with_head(Head(u32::from_be_bytes([a, b, c, d]).max(1)), party)
    }

    fn with_head(&self, head: Head, party: &Party) -> Number {
        let [a, b, c, d, ..] = self.steady.tag(0, &[&head.0.to_be_bytes(), &octets(party)]);
        Number::of(head, u32::from_be_bytes([a, b, c, d]))
    }
}

fn is(Number(one): Number, Number(other): Number) -> bool {
    same(&one.to_be_bytes(), &other.to_be_bytes())
}

/// Flow, initiating node and interface.
fn octets(Party { flow, initiator, side }: &Party) -> [u8; 58] {
    let address = match initiator {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let side = side.number().to_be_bytes();
    let mut octets = [0; 58];
    let parts: [&[u8]; 3] = [flow.octets(), &address, &side];
    octets.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, from)| *to = *from);
    octets
}

#[cfg(test)]
mod tests {
    use signalbox_core::IfIndex;
    use signalbox_core::node::Interface;

    use super::*;
    use crate::engine::config::Config;
    use crate::engine::interfaces::Interfaces;
    use crate::wire::{Classifier, FlowSpec};

    fn first_interface() -> Iface {
        let mut interfaces = Interfaces::default();
        let one = Interface {
            ifindex: IfIndex(1),
            name: "eth1".into(),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: Vec::new(),
        };
        interfaces.set(&[one], &Config::default());
        interfaces.iface(IfIndex(1)).unwrap()
    }

    fn party(src: &str) -> Party {
        let address = |text: &str| text.parse().unwrap();
        let classifier = Classifier {
            src: address("192.0.2.7"),
            dst: address("198.51.100.2"),
            src_port: 1,
            dst_port: 2,
            protocol: 17,
            tos: 0,
            flags: 0,
        };
        let flow = FlowKey::of(&FlowSpec::exact(classifier), Pass::Request).unwrap();
        Party { flow, initiator: address(src), side: Iface::LOCAL }
    }

    /// BOOM-G10-01: a number is that of one flow, initiating node, interface and time.
    #[test]
    fn a_number_is_of_one_party_and_time() {
        let proofs = Proofs::new(&mut Random::from_number(1));
        let (now, later) = (Time::from_secs(100), Time::from_secs(161));
        let one = party("192.0.2.7");
        let own = proofs.current(now, &one);
        let number = Some(own);
        assert!(proofs.is_fresh(now, &one, number) && proofs.is_fresh(later, &one, number));
        assert!(!proofs.is_fresh(Time::from_secs(240), &one, number));
        let others = [
            party("192.0.2.8"),
            one.of_pass(Pass::Reply),
            Party { side: first_interface(), ..one },
            party("2001:db8::1"),
        ];
        let head = own.head();
        assert!(proofs.continues(&one, number, head));
        for other in others {
            assert!(!proofs.is_fresh(now, &other, number) && !proofs.continues(&other, number, head));
        }
        let Number(whole) = own;
        for bit in 0..64 {
            let near = Some(Number(whole ^ 1 << bit));
            assert!(!proofs.is_fresh(now, &one, near) && !proofs.continues(&one, near, head), "{bit}");
        }
        assert_ne!(number, Some(Proofs::new(&mut Random::from_number(2)).current(now, &one)));
    }

    /// The first half of the number of another party is another one, so that no reservation obeys both.
    #[test]
    fn parties_have_different_heads() {
        let proofs = Proofs::new(&mut Random::from_number(1));
        let mut heads: Vec<u32> = (0..1000)
            .map(|n| proofs.current(Time::from_secs(n * 60), &party("192.0.2.7")).head().0)
            .collect();
        heads.sort_unstable();
        heads.dedup();
        assert!(heads.len() > 998 && heads[0] > 0);
    }
}
