//! Steps that are drawn at random.

use proptest::prelude::*;
use signalbox_mapping::fuzz;

use crate::rig::*;

/// A step of the fuzz target: a request of one of four hosts, an answer or a report of the path, or time that passes.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let request = (0_u8..4, 0_u16..4, 0_u32..900, 0_u8..3).prop_map(|(host, port, lifetime, filters)| {
        let lifetime = lifetime.saturating_sub(200);
        let mut ask = Ask::default().port(port).lifetime(lifetime);
        for last in 0..filters {
            ask = ask.option(filter(&format!("192.0.2.{last}/32"), 0));
        }
        let octets = ask.octets();
        [vec![host, u8::try_from(octets.len()).unwrap()], octets].concat()
    });
    let pmp = (0_u8..4, 0_u16..4, 0_u32..900).prop_map(|(host, port, lifetime)| {
        let octets = nat_pmp(Transport::Tcp, port, 0, lifetime.saturating_sub(200));
        [vec![host, u8::try_from(octets.len()).unwrap()], octets].concat()
    });
    let answer =
        (any::<u8>(), any::<[u8; 2]>()).prop_map(|(kind, port)| vec![kind & 0xf8 | 4, port[0], port[1]]);
    let failure = any::<u8>().prop_map(|kind| vec![kind & 0xf8 | 5]);
    let change = (any::<u8>(), any::<[u8; 2]>()).prop_map(|(kind, port)| match kind & 8 {
        0 => vec![kind & 0xf8 | 6],
        _ => vec![kind & 0xf8 | 6, port[0], port[1]],
    });
    let time = (any::<u8>(), any::<u8>()).prop_map(|(kind, time)| vec![kind & 0xf8 | 7, time]);
    prop_oneof![4 => request, 2 => pmp, 4 => answer, 1 => failure, 1 => change, 3 => time]
}

proptest! {
    #[test]
    fn any_steps_keep_the_properties(steps in proptest::collection::vec(step(), 0..60)) {
        fuzz::pcp_engine(&steps.concat());
    }
}
