//! Reservations by Boomerang at the edge of the API.

use signalbox_api::v1;
use signalbox_api::v1::service::Service as ApiService;
use signalbox_node::boomerang::{
    Rates, Reason as Why, Refusal, Rejected, Request, ServiceParameters, Unreachable,
};
use tonic::Status;

use crate::api::errors::{FieldError, Reason, not_running};
use crate::api::types::{self, Flow, number};

/// Pairs of rates that a request offers from the one that is wanted to the least that will do.
const STEPS: u32 = 8;
/// Code point of the PHB without another wish: Expedited Forwarding.
const EF: u8 = 46;

/// The reservation that a client asks for.
pub(super) fn request(open: &v1::ReserveOpen) -> Result<Request, FieldError> {
    const FLOW: &str = "open.flow";
    let authority = open.authority.clone().unwrap_or_default();
    for (field, given) in [
        ("open.receiver_initiated", open.receiver_initiated),
        ("open.ip_ttl", open.ip_ttl.is_some()),
        ("open.protect", open.protect),
        ("open.partial", open.partial.is_some()),
        ("open.start_unix_us", open.start_unix_us.is_some()),
        ("open.authority.session_auth", authority.session_auth.is_some()),
        ("open.authority.policy_data", authority.policy_data.is_some()),
        ("open.authority.priority", authority.priority.is_some()),
    ] {
        if given {
            return Err(FieldError::new(field, "Boomerang has none: leave it out"));
        }
    }
    let flow = Flow::read(FLOW, open.flow.as_ref())?;
    let (src, far_end) = flow.hosts(FLOW)?;
    for (part, given) in [
        ("dscp", flow.dscp.is_some()),
        ("spi", flow.spi.is_some()),
        ("flow_label", flow.flow_label.is_some()),
    ] {
        if given {
            return Err(FieldError::new(
                format!("{FLOW}.{part}"),
                "a flow of Boomerang has none: leave it out",
            ));
        }
    }
    let intserv = intserv(open.traffic.as_ref(), open.service.as_ref())?;
    let wanted = match intserv {
        None => rate("open.traffic", open.traffic.as_ref())?,
        Some(_) => token_rate("open.traffic", open.traffic.as_ref())?,
    };
    let least = match open.min_rate_octets_per_s {
        Some(least) => bits("open.min_rate_octets_per_s", least)?,
        None => wanted,
    };
    if intserv.is_some() && least != wanted {
        let what = "a list of rates has no IntServ parameters: leave it out, or choose a code point";
        return Err(FieldError::new("open.min_rate_octets_per_s", what));
    }
    if least > wanted {
        return Err(FieldError::new("open.min_rate_octets_per_s", "above the rate of the traffic"));
    }
    Ok(Request {
        far_end,
        src,
        dst: None,
        protocol: flow.protocol,
        src_port: flow.src_port,
        dst_port: flow.dst_port,
        dscp: dscp("open.service", open.service.as_ref())?,
        rates: steps(wanted, least).map(|rate| pair(rate, open.bidirectional)).collect(),
        intserv,
        refresh: None,
        user: authority.user.map(|name| user("open.authority.user", &name)).transpose()?,
        confirm_release: open.confirm_release,
        name_nodes: true,
    })
}

/// The query that a client makes: a request in the direction of its flow.
pub(super) fn query(query: &v1::QueryRequest) -> Result<Request, FieldError> {
    let v1::QueryRequest { flow, traffic, service, authority, .. } = query.clone();
    request(&v1::ReserveOpen { flow, traffic, service, authority, ..v1::ReserveOpen::default() })
}

/// The rates in both directions.
pub(super) const fn pair(rate: u32, bidirectional: bool) -> Rates {
    Rates { forward: rate, reverse: if bidirectional { rate } else { 0 } }
}

/// Rates from the first to the last one, evenly spaced.
fn steps(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let step = move |number: u32| {
        let down = u64::from(first - last) * u64::from(number) / u64::from(STEPS - 1);
        first - u32::try_from(down).unwrap_or(0)
    };
    let inner = (1..STEPS - 1).map(step).filter(move |_| first > last);
    let end = (first > last).then_some(last);
    std::iter::once(first).chain(inner).chain(end)
}

/// The rate of a token bucket in bit/s: beside a code point a message has no other parameter.
pub(super) fn rate(field: &str, bucket: Option<&v1::TokenBucket>) -> Result<u32, FieldError> {
    let bucket = bucket.ok_or_else(|| FieldError::new(field, "missing"))?;
    for (name, given) in [
        ("burst_octets", bucket.burst_octets.is_some()),
        ("peak_octets_per_s", bucket.peak_octets_per_s.is_some()),
        ("min_policed_octets", bucket.min_policed_octets.is_some()),
        ("max_packet_octets", bucket.max_packet_octets.is_some()),
    ] {
        if given {
            return Err(FieldError::new(
                format!("{field}.{name}"),
                "only with controlled load and guaranteed service: leave it out",
            ));
        }
    }
    token_rate(field, Some(bucket))
}

/// The same, whatever other parameters there are.
pub(super) fn token_rate(field: &str, bucket: Option<&v1::TokenBucket>) -> Result<u32, FieldError> {
    let bucket = bucket.ok_or_else(|| FieldError::new(field, "missing"))?;
    bits(&format!("{field}.rate_octets_per_s"), bucket.rate_octets_per_s)
}

fn bits(field: &str, octets: u64) -> Result<u32, FieldError> {
    let bits = octets.checked_mul(8).and_then(|bits| u32::try_from(bits).ok()).filter(|bits| *bits > 0);
    bits.ok_or_else(|| FieldError::new(field, "1 to 536870911"))
}

fn dscp(field: &str, service: Option<&v1::Service>) -> Result<u8, FieldError> {
    match service.and_then(|service| service.service.as_ref()) {
        None => Ok(EF),
        Some(ApiService::Dscp(code)) => number(&format!("{field}.dscp"), *code, 0, 63),
        // The queue of an IntServ service needs no code point.
        Some(ApiService::ControlledLoad(_) | ApiService::Guaranteed(_)) => Ok(0),
    }
}

/// The IntServ parameters of a request; `None`: the service is that of a code point.
fn intserv(
    bucket: Option<&v1::TokenBucket>,
    service: Option<&v1::Service>,
) -> Result<Option<ServiceParameters>, FieldError> {
    const RATE: &str = "open.service.guaranteed.rate_octets_per_s";
    let guaranteed = match service.and_then(|service| service.service.as_ref()) {
        None | Some(ApiService::Dscp(_)) => return Ok(None),
        Some(ApiService::ControlledLoad(_)) => None,
        Some(ApiService::Guaranteed(asked)) => {
            if asked.delay_bound_us.is_some() {
                let what = "messages do not collect what the path adds: give the rate of the service instead";
                return Err(FieldError::new("open.service.guaranteed.delay_bound_us", what));
            }
            let token = bucket.map_or(0, |bucket| bucket.rate_octets_per_s);
            let rate = u32::try_from(asked.rate_octets_per_s.unwrap_or(token));
            let slack = u32::try_from(asked.slack_us.unwrap_or(0));
            let slack = slack.map_err(|_| FieldError::new("open.service.guaranteed.slack_us", "32 bits"))?;
            Some((rate.map_err(|_| FieldError::new(RATE, "at most 4294967295"))?, slack))
        }
    };
    let traffic = types::traffic("open.traffic", bucket)?;
    let peak = traffic.peak.map(u32::try_from).transpose();
    let peak = peak.map_err(|_| FieldError::new("open.traffic.peak_octets_per_s", "at most 4294967295"))?;
    Ok(Some(ServiceParameters {
        bucket: traffic.burst,
        peak,
        min_policed: traffic.min_policed,
        max_packet: traffic.max_packet,
        guaranteed,
    }))
}

/// The service of a request, for the event of its user.
pub(super) fn service(request: &Request) -> ApiService {
    match request.intserv {
        None => ApiService::Dscp(request.dscp.into()),
        Some(ServiceParameters { guaranteed: None, .. }) => ApiService::ControlledLoad(v1::ControlledLoad {}),
        Some(ServiceParameters { guaranteed: Some((rate, slack)), .. }) => {
            ApiService::Guaranteed(v1::Guaranteed {
                rate_octets_per_s: Some(rate.into()),
                slack_us: Some(slack.into()),
                delay_bound_us: None,
            })
        }
    }
}

fn user(field: &str, name: &str) -> Result<[u8; 8], FieldError> {
    let wrong = || FieldError::new(field, "at most 8 printable ASCII characters");
    let mut octets = [0; 8];
    let place = octets.get_mut(..name.len()).filter(|_| name.bytes().all(|octet| octet.is_ascii_graphic()));
    place.ok_or_else(wrong)?.copy_from_slice(name.as_bytes());
    Ok(octets)
}

/// What the path reserved.
/// `replied`: the far end sent the message back. Nothing comes back from a group.
pub(super) fn path_grant(rates: Rates, service: ApiService, rerouted: bool, replied: bool) -> v1::PathGrant {
    v1::PathGrant {
        traffic: Some(v1::TokenBucket {
            rate_octets_per_s: u64::from(rates.forward).div_ceil(8),
            ..v1::TokenBucket::default()
        }),
        service: Some(v1::Service { service: Some(service) }),
        rerouted,
        far_end: replied.then_some(true),
        ..v1::PathGrant::default()
    }
}

/// A refusal of the path.
pub(super) fn failure(refusal: &Refusal) -> v1::Failure {
    let cause = match refusal.reason {
        Why::Resources | Why::Full | Why::Reduced | Why::Gone => v1::Cause::Admission,
        Why::Policy | Why::Unauthenticated | Why::KeyFull | Why::NoProof | Why::WrongProof | Why::Ended => {
            v1::Cause::Policy
        }
        Why::Preempted => v1::Cause::Preempted,
        Why::Kernel => v1::Cause::Kernel,
        Why::Conflict => v1::Cause::Conflict,
        Why::Unsupported | Why::BadRequest => v1::Cause::Protocol,
        // The drafts have one reason.
        Why::Unknown => v1::Cause::Admission,
    };
    v1::Failure {
        cause: cause.into(),
        message: refusal.reason.to_string(),
        node: refusal.node.map(|node| node.to_string()),
        available_octets_per_s: Some(u64::from(refusal.offer.forward) / 8),
        // The note of the node that refused is the name of a rule only where a rule decided.
        rule: refusal.note.clone().filter(|_| cause == v1::Cause::Policy),
        detail: refusal.note.clone().filter(|_| cause != v1::Cause::Policy),
        ..v1::Failure::default()
    }
}

/// A router reported that the far end cannot be reached.
pub(super) fn unreachable(report: Unreachable) -> v1::Failure {
    v1::Failure {
        cause: v1::Cause::NoRoute.into(),
        message: report.to_string(),
        node: Some(report.node.to_string()),
        ..v1::Failure::default()
    }
}

/// No message came back.
pub(super) fn silence(cause: v1::Cause) -> v1::Failure {
    let message =
        "no reply: the far end or a firewall drops pings, or a message was lost each time".to_owned();
    v1::Failure { cause: cause.into(), message, ..v1::Failure::default() }
}

/// The status for a request that the engine rejects.
pub(super) fn rejected(why: Rejected) -> Status {
    match why {
        Rejected::NotRunning => not_running("boomerang"),
        Rejected::Address | Rejected::Ports | Rejected::Group => FieldError::new("open.flow", why).into(),
        Rejected::Rates | Rejected::Parameters | Rejected::TooLong => {
            FieldError::new("open.traffic", why).into()
        }
        Rejected::Refresh | Rejected::Dscp => FieldError::new("open", why).into(),
        Rejected::NoRoute => Reason::NoRoute.status(why),
        Rejected::FlowTaken => Reason::FlowTaken.status(why),
        Rejected::Full => Reason::TableFull.status(why),
        Rejected::NoSession | Rejected::NameTaken => Reason::Internal.status(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fall_in_even_steps_to_the_least() {
        assert_eq!(steps(8, 8).collect::<Vec<_>>(), [8]);
        let many: Vec<u32> = steps(800_000, 100_000).collect();
        assert_eq!(many.len(), 8);
        assert_eq!((many[0], many[1], many[7]), (800_000, 700_000, 100_000));
        let few: Vec<u32> = steps(5, 3).collect();
        assert!(few.is_sorted_by(|one, next| one >= next) && few.last() == Some(&3), "{few:?}");
    }

    /// BOOM-G42-03: persistent loss is reported, with what may drop pings as its cause.
    #[test]
    fn silence_names_its_causes() {
        let failure = silence(v1::Cause::NoAnswer);
        assert_eq!(failure.cause(), v1::Cause::NoAnswer);
        assert!(failure.message.contains("firewall drops pings"), "{}", failure.message);
        let report = unreachable(Unreachable { node: "192.0.2.9".parse().unwrap(), code: 1 });
        assert_eq!(
            (report.cause(), report.node.as_deref(), &report.message[..]),
            (v1::Cause::NoRoute, Some("192.0.2.9"), "host unreachable")
        );
    }

    /// BOOM-G32-02: a rate beyond 32 bits is refused here.
    #[test]
    fn what_boomerang_does_not_have_is_refused() {
        let open = || v1::ReserveOpen {
            flow: Some(v1::FlowSpec { destination: Some("192.0.2.9".into()), ..Default::default() }),
            traffic: Some(v1::TokenBucket { rate_octets_per_s: 8000, ..Default::default() }),
            ..Default::default()
        };
        let read = request(&open()).unwrap();
        assert_eq!((read.dscp, &read.rates[..]), (EF, &[pair(64_000, false)][..]));
        let bucket = |bucket| v1::ReserveOpen { traffic: Some(bucket), ..open() };
        let user = |name: &str| v1::Authority { user: Some(name.into()), ..Default::default() };
        let service = |service| Some(v1::Service { service: Some(service) });
        for (wrong, field) in [
            (v1::ReserveOpen { receiver_initiated: true, ..open() }, "open.receiver_initiated"),
            (v1::ReserveOpen { ip_ttl: Some(3), ..open() }, "open.ip_ttl"),
            (v1::ReserveOpen { min_rate_octets_per_s: Some(8001), ..open() }, "open.min_rate_octets_per_s"),
            (v1::ReserveOpen { authority: Some(user("too long a name")), ..open() }, "open.authority.user"),
            (v1::ReserveOpen { service: service(ApiService::Dscp(64)), ..open() }, "open.service.dscp"),
            (
                v1::ReserveOpen {
                    service: service(ApiService::ControlledLoad(v1::ControlledLoad {})),
                    min_rate_octets_per_s: Some(4000),
                    ..open()
                },
                "open.min_rate_octets_per_s",
            ),
            (
                v1::ReserveOpen {
                    service: service(ApiService::Guaranteed(v1::Guaranteed {
                        delay_bound_us: Some(500),
                        ..Default::default()
                    })),
                    ..open()
                },
                "open.service.guaranteed.delay_bound_us",
            ),
            (
                bucket(v1::TokenBucket {
                    rate_octets_per_s: 1,
                    burst_octets: Some(3000),
                    ..Default::default()
                }),
                "open.traffic.burst_octets",
            ),
            (
                bucket(v1::TokenBucket { rate_octets_per_s: 1 << 29, ..Default::default() }),
                "open.traffic.rate_octets_per_s",
            ),
        ] {
            assert_eq!(request(&wrong).unwrap_err().field, field);
        }
        let named = v1::ReserveOpen { authority: Some(user("ann")), bidirectional: true, ..open() };
        let named = request(&named).unwrap();
        assert_eq!((named.user, named.rates[0].reverse), (Some(*b"ann\0\0\0\0\0"), 64_000));
    }

    #[test]
    fn intserv_parameters_are_those_of_the_token_bucket() {
        let guaranteed = v1::Guaranteed { slack_us: Some(7), ..Default::default() };
        let open = v1::ReserveOpen {
            flow: Some(v1::FlowSpec { destination: Some("192.0.2.9".into()), ..Default::default() }),
            traffic: Some(v1::TokenBucket {
                rate_octets_per_s: 8000,
                burst_octets: Some(3000),
                peak_octets_per_s: Some(9000),
                ..Default::default()
            }),
            service: Some(v1::Service { service: Some(ApiService::Guaranteed(guaranteed)) }),
            ..Default::default()
        };
        let read = request(&open).unwrap();
        let intserv = read.intserv.unwrap();
        assert_eq!((intserv.bucket, intserv.peak, intserv.guaranteed), (3000, Some(9000), Some((8000, 7))));
        assert_eq!((read.dscp, &read.rates[..]), (0, &[pair(64_000, false)][..]));
    }
}
