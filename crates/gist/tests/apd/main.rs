//! The authorised peer database (RFC 5971 §4.4.2) and its comparison of names (§5.7.3.1).

use std::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::{Direction, LooseEnd, Mri, PathCoupled};

use signalbox_core::security::{Fingerprint, Identity};
use signalbox_gist::apd::{Apd, ApdError, Decision, DnsName, Entry, Name, Scope, Verdict, Wanted};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix { addr: address(addr), len: len.parse().unwrap() }
}

fn flow(src: &str, dst: &str) -> Mri {
    let (src, dst) = (prefix(src), prefix(dst));
    let mut mri = PathCoupled::between(src.addr, dst.addr);
    (mri.src_prefix, mri.dst_prefix) = (src.len, dst.len);
    Mri::PathCoupled(mri)
}

fn peer(dns: &[&str], common_name: Option<&str>) -> Identity {
    Identity {
        dns: dns.iter().map(|name| (*name).to_owned()).collect(),
        common_name: common_name.map(str::to_owned),
        addresses: vec![address("192.0.2.9")],
        key: Fingerprint([7; 32]),
    }
}

fn dns(name: &str) -> Name {
    Name::Dns(name.parse().unwrap())
}

fn entry(name: Name, scope: Scope, verdict: Verdict) -> Entry {
    Entry { name, scope, verdict }
}

fn decide(apd: &Apd, peer: Option<&Identity>, mri: &Mri, expected: &[&str]) -> Decision {
    let expected: Vec<_> = expected.iter().map(|text| address(text)).collect();
    apd.decide(peer, &Wanted { mri, expected_peers: &expected })
}

/// [GIST-4.4.2-02] Entries of each namespace, scope and verdict.
#[test]
fn every_kind_of_entry() {
    let mri = flow("10.1.0.5/32", "10.2.0.0/24");
    let other = flow("10.1.0.5/32", "10.9.0.1/32");
    let wide = flow("10.1.0.5/32", "10.0.0.0/8");
    let loose = Mri::LooseEnd(LooseEnd {
        src: address("10.1.0.5"),
        dst: address("10.2.3.4"),
        direction: Direction::Upstream,
    });
    let me = peer(&["r1.example.com"], None);
    let names = [
        (Name::Any, true, true),
        (Name::Authenticated, true, false),
        (dns("r1.example.com"), true, false),
        (dns("r2.example.com"), false, false),
        (Name::Key(Fingerprint([7; 32])), true, false),
        (Name::Key(Fingerprint([8; 32])), false, false),
        (Name::Address(address("192.0.2.9")), true, false),
        (Name::Address(address("192.0.2.8")), false, false),
    ];
    for (name, authenticated, anonymous) in names {
        for verdict in [Verdict::Allow, Verdict::Deny] {
            let otherwise = if verdict == Verdict::Allow { Verdict::Deny } else { Verdict::Allow };
            let mut apd = Apd::new(10, otherwise);
            apd.push(entry(name.clone(), Scope::ANY, verdict)).unwrap();
            assert_eq!(decide(&apd, Some(&me), &mri, &[]).verdict == verdict, authenticated, "{name}");
            assert_eq!(decide(&apd, None, &mri, &[]).verdict == verdict, anonymous, "{name}");
        }
    }

    let subnets = |source: Option<&str>, destination: Option<&str>| Scope {
        source: source.map(prefix),
        destination: destination.map(prefix),
        ..Scope::ANY
    };
    let covers = |scope: &Scope, mri: &Mri, expected: &[&str]| {
        let mut apd = Apd::new(1, Verdict::Deny);
        apd.push(entry(Name::Any, scope.clone(), Verdict::Allow)).unwrap();
        decide(&apd, None, mri, expected).verdict == Verdict::Allow
    };
    let destination = subnets(None, Some("10.2.0.0/16"));
    assert!(covers(&destination, &mri, &[]) && covers(&destination, &loose, &[]));
    assert!(!covers(&destination, &other, &[]), "elsewhere");
    assert!(!covers(&destination, &wide, &[]), "a flow that may end elsewhere too");
    assert!(covers(&subnets(Some("10.1.0.0/16"), Some("10.2.0.0/16")), &mri, &[]));
    assert!(!covers(&subnets(Some("10.7.0.0/16"), Some("10.2.0.0/16")), &mri, &[]), "source elsewhere");
    assert!(!covers(&subnets(None, Some("::/0")), &mri, &[]), "another version");

    let owner = Scope { peers: vec![prefix("192.0.2.9/32"), prefix("2001:db8::/64")], ..Scope::ANY };
    assert!(covers(&owner, &mri, &["192.0.2.9"]) && covers(&owner, &mri, &["198.51.100.1", "2001:db8::7"]));
    assert!(!covers(&owner, &mri, &["192.0.2.8"]), "the peer should be elsewhere");
    assert!(!covers(&owner, &mri, &[]), "not known where the peer should be");
}

/// [GIST-4.4.2-03] Allow before deny and the reverse give opposite results.
#[test]
fn the_first_match_decides() {
    let mri = flow("10.1.0.5/32", "10.2.0.1/32");
    let me = peer(&["r1.example.com"], None);
    let mut apd = Apd::new(10, Verdict::Deny);
    let allow = apd.push(entry(dns("*.example.com"), Scope::ANY, Verdict::Allow)).unwrap();
    let deny = apd.push(entry(dns("r1.example.com"), Scope::ANY, Verdict::Deny)).unwrap();
    let decision = decide(&apd, Some(&me), &mri, &[]);
    assert_eq!((decision.verdict, decision.by), (Verdict::Allow, Some(allow)));
    let moved = apd.remove(allow).unwrap();
    apd.push(moved).unwrap();
    let decision = decide(&apd, Some(&me), &mri, &[]);
    assert_eq!((decision.verdict, decision.by), (Verdict::Deny, Some(deny)));
    let first = apd.insert(0, entry(Name::Any, Scope::ANY, Verdict::Allow)).unwrap();
    assert_eq!(decide(&apd, Some(&me), &mri, &[]).by, Some(first));
}

/// [GIST-4.4.2-04] Known peers of a scope, then a wildcard deny for that scope; other scopes are not affected.
#[test]
fn a_wildcard_deny_ends_the_list_of_a_scope() {
    let ours = Scope { destination: Some(prefix("10.2.0.0/16")), ..Scope::ANY };
    let mut apd = Apd::new(10, Verdict::Allow);
    apd.push(entry(dns("r1.example.com"), ours.clone(), Verdict::Allow)).unwrap();
    apd.push(entry(Name::Any, ours, Verdict::Deny)).unwrap();
    let (known, unknown) = (peer(&["r1.example.com"], None), peer(&["r6.example.net"], None));
    let (inside, outside) = (flow("10.1.0.5/32", "10.2.0.1/32"), flow("10.1.0.5/32", "10.9.0.1/32"));
    assert_eq!(decide(&apd, Some(&known), &inside, &[]).verdict, Verdict::Allow);
    assert_eq!(decide(&apd, Some(&unknown), &inside, &[]).verdict, Verdict::Deny);
    assert_eq!(decide(&apd, None, &inside, &[]).verdict, Verdict::Deny);
    let elsewhere = decide(&apd, Some(&unknown), &outside, &[]);
    assert_eq!((elsewhere.verdict, elsewhere.by), (Verdict::Allow, None));
}

/// Entries are added, changed and deleted, and each change counts for the next decision.
#[test]
fn changes_count_for_the_next_decision() {
    let mri = flow("10.1.0.5/32", "10.2.0.1/32");
    let me = peer(&["r1.example.com"], None);
    let mut apd = Apd::new(2, Verdict::Deny);
    let line = entry(dns("r1.example.com"), Scope::ANY, Verdict::Allow);
    let id = apd.push(line.clone()).unwrap();
    assert_eq!(decide(&apd, Some(&me), &mri, &[]).verdict, Verdict::Allow);
    apd.modify(id, Entry { verdict: Verdict::Deny, ..line.clone() }).unwrap();
    assert_eq!(decide(&apd, Some(&me), &mri, &[]).by, Some(id));
    assert_eq!(decide(&apd, Some(&me), &mri, &[]).verdict, Verdict::Deny);
    apd.remove(id).unwrap();
    assert_eq!(decide(&apd, Some(&me), &mri, &[]).by, None);
    assert_eq!(apd.remove(id), Err(ApdError::Unknown(id)));
    assert_eq!(apd.modify(id, line.clone()), Err(ApdError::Unknown(id)));
    assert_ne!(apd.push(line.clone()).unwrap(), id, "ids are not used again");
    apd.push(line.clone()).unwrap();
    assert_eq!(apd.push(line), Err(ApdError::Full(2)));
    assert_eq!(apd.entries().len(), 2);
}

/// [GIST-5.7.3.1-02] Every dNSName is compared. [GIST-5.7.3.1-03] The Common Name is compared only without any dNSName.
#[test]
fn names_of_a_certificate() {
    let matches = |peer: &Identity, name: &str| dns(name).matches(Some(peer));
    let many = peer(&["a.example.com", "b.example.com"], Some("c.example.com"));
    assert!(matches(&many, "a.example.com") && matches(&many, "b.example.com"));
    assert!(!matches(&many, "c.example.com"));
    assert!(matches(&peer(&[], Some("c.example.com")), "c.example.com"));
    assert!(!matches(&peer(&[], None), "c.example.com"));
}

/// [GIST-5.7.3.1-04] Case does not matter. [GIST-5.7.3.1-05] `*` as left-most label, on either side.
#[test]
fn comparison_of_names() {
    let table = [
        ("EXAMPLE.com", "example.COM", true),
        ("r.example.com", "R.Example.Com.", true),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "FOO.example.com", true),
        ("*.example.com", "*.example.com", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", ".example.com", false),
        ("*.example.com", "a.b.example.com", false),
        ("*.example.com", "a.example.net", false),
        ("a.example.com", "*.example.com", true),
        ("foo.example.com", "*.EXAMPLE.com", true),
        ("example.com", "*.example.com", false),
        ("a.b.example.com", "*.example.com", false),
        ("a.example.com", "*", false),
        ("localhost", "LocalHost", true),
        ("localhost", "*", false),
        ("a.example.com", "", false),
    ];
    for (ours, presented, expected) in table {
        assert_eq!(ours.parse::<DnsName>().unwrap().matches(presented), expected, "{ours} {presented}");
    }
    for bad in ["", "*", "*.", ".", "a..b", "a b", "x.*.example", "**.example", "é.example"] {
        assert!(bad.parse::<DnsName>().is_err(), "{bad}");
    }
}
