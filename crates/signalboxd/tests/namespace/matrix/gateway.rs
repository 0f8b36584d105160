//! The messages of the GIST-aware NAT gateway: it takes what it translates, and leaves all else to the kernel.

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use signalbox_linux::capture::{Capture, CaptureConfig};

use super::messages::{CASP_PORT, GIST_PORT, HOPS, Kind, MAGIC, PING, Rsvp, gist, nli, query};
use super::{CROSSING, Matrix, Row, Seen, Sent, TAKEN, To, cut, faults, put, remove, row, rules};
use crate::firewall::families;
use crate::net::LONG;

const SETTINGS: &str = "node.protocols = [\"gist_nat\"]\n[interfaces.left]\ngist_nat.side = \"inside\"\n\
     [interfaces.right]\ngist_nat.side = \"outside\"\n";

/// It translates IPv4.
const IPV4: &[Row] = &[
    row(query(PING), To::FarHost, true, Seen::Message, TAKEN),
    row(query(PING), To::FarHost, false, Seen::Message, TAKEN),
    // It answers that the way ends here.
    row(Kind::Query { nslp: PING, hops: 1 }, To::FarHost, true, Seen::Answer, TAKEN),
    cut(row(query(PING), To::FarHost, true, Seen::Message, TAKEN)),
    row(Kind::Data, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::NoGist, To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Connect { port: GIST_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Init, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Rsvp(Rsvp::Path), To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Connect { port: CASP_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Casp, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
];
const IPV6: &[Row] = &[
    row(query(PING), To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Data, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::NoGist, To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Connect { port: GIST_PORT }, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Init, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Rsvp(Rsvp::Path), To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Casp, To::FarHost, false, Seen::Message, CROSSING),
    row(Kind::Scout { kind: 2 }, To::FarHost, true, Seen::Message, CROSSING),
    row(Kind::Echo, To::FarHost, false, Seen::Message, CROSSING),
];

/// A Query as the gateway has sent it on.
struct Translated {
    /// The port that it came from.
    port: u16,
    nslp: u16,
    /// First 16 bits and value of each object.
    objects: Vec<(u16, Vec<u8>)>,
}

/// The Query in a frame, if there is one.
fn translated(frame: &[u8]) -> Option<Translated> {
    let at = frame.windows(4).position(|window| window == MAGIC)?;
    let word = |at: usize| frame.get(at..at + 2)?.first_chunk().copied().map(u16::from_be_bytes);
    let (nslp, end) = (word(at + 8)?, at + 12 + usize::from(word(at + 6)?) * 4);
    let (mut objects, mut next) = (Vec::new(), at + 12);
    while next < end {
        let length = usize::from(word(next + 2)? & 0xfff) * 4;
        objects.push((word(next)?, frame.get(next + 4..next + 4 + length)?.to_vec()));
        next += 4 + length;
    }
    Some(Translated { port: word(at - 8)?, nslp, objects })
}

impl Translated {
    /// The Response of a node to it.
    fn response(mut self, node: IpAddr) -> Vec<u8> {
        for (kind, value) in &mut self.objects {
            match *kind & 0xfff {
                // The MRI is that of the other direction.
                0 => value[3] ^= 0x20,
                2 => (*kind, *value) = nli(node),
                _ => {}
            }
        }
        gist((self.nslp, HOPS), [1, 0x80], &self.objects)
    }
}

impl Matrix {
    /// Has the far host answer a Query that passed. What it gives sends the Response.
    fn responding(&mut self) -> (Sent, impl FnOnce(&Self) + use<>) {
        let [[a, r, b], _] = families();
        let mut link = Capture::open(self.net.b(), "veth", CaptureConfig::default()).unwrap();
        let query = self.send(&row(query(PING), To::FarHost, true, Seen::Answer, TAKEN), [a, r, b]);
        let (begin, mut found) = (Instant::now(), None);
        while found.is_none() && begin.elapsed() < LONG {
            let read = link.read(Duration::from_millis(20), |frame| {
                let is_it = !frame.outgoing && frame.octets.windows(16).any(|part| part == query.tag);
                found = translated(frame.octets).filter(|_| is_it).or(found.take());
            });
            read.unwrap();
        }
        let translated = found.expect("the Query passes without a rule");
        let sent = Sent { name: format!("Response to {}", query.name), ..query };
        let respond = move |matrix: &Self| {
            let port = translated.port;
            let octets = translated.response(b);
            let send = move || {
                UdpSocket::bind((b, GIST_PORT))
                    .and_then(|socket| socket.send_to(&octets, ("10.78.0.1", port)))
            };
            matrix.net.b().run(send).unwrap().unwrap();
        };
        (sent, respond)
    }
}

/// The gateway takes the messages that it translates, which are judged on the way to it and from it, and no others: these cross the node
/// as if it did not run.
#[tokio::test]
async fn rules_of_the_administrator_judge_what_a_gateway_translates() {
    let mut matrix = Matrix::new("gateway", SETTINGS).await;
    let mut wrong = Vec::new();
    for rule in rules() {
        let (response, respond) = matrix.responding();
        put(&matrix.net, rule);
        let captures = matrix.captures();
        let mut sent = matrix.send_all([IPV4, IPV6]);
        respond(&matrix);
        sent.push(response);
        captures.watch(&mut sent, rule);
        remove(&matrix.net, rule);
        wrong.extend(faults(&sent, rule));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
