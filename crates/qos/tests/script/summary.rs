//! Refreshes of several sessions in one message (RFC 5974 §5.3.6, §5.3.7).

use std::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::{Mri, SessionId};
use signalbox_qos::wire::{Info, Message, RsnList, SessionIds};

use crate::rig::{BEFORE, EPOCH, Rig, addr, octets, qspec, reserve};

/// The sequence numbers of RSN-LIST count as the RSN does: a further session whose number is not the installed one is
/// reported, and lives no longer than without the refresh.
///
/// QOS-5.3.6-05
#[test]
fn the_numbers_of_a_summary_refresh_are_compared() {
    let other = SessionId([8; 16]);
    for (number, refreshed) in [(0, true), (1, false)] {
        let mut rig = Rig::new();
        rig.reserved(0, 10_000);
        let some = qspec(10_000);
        let second = Mri::PathCoupled(PathCoupled {
            protocol: Some(17),
            dst_port: Some(5005),
            ..PathCoupled::between(addr("192.0.2.1"), addr("203.0.113.9"))
        });
        rig.receive_octets(BEFORE, second, other, &octets(&reserve(0, &some)));
        assert_eq!(rig.held(), 20_000);
        let lives = |rig: &Rig| rig.qos.view_of(rig.now, other).unwrap().expires_in.unwrap();
        rig.until(rig.now + Duration::from_secs(20));
        let before = lives(&rig);
        let numbers = u32::to_be_bytes(number);
        let summary = Message {
            session_ids: SessionIds::from_octets(&other.0),
            rsns: RsnList::from_octets(EPOCH, &numbers),
            ..reserve(0, &[])
        };
        let sent = rig.receive(&summary);
        assert_eq!(lives(&rig) > before, refreshed);
        if refreshed {
            assert_eq!(sent, []);
            continue;
        }
        let [answer] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(answer.info(), Info::LISTED_RSN_MISMATCH);
        let message = answer.message();
        assert_eq!(message.session_ids.unwrap().iter().collect::<Vec<_>>(), [other]);
        assert_eq!(message.rsns.unwrap().iter().collect::<Vec<_>>(), [number]);
    }
}
