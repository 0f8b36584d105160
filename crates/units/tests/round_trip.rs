//! What a type displays reads back as the same value.

use core::net::IpAddr;
use core::time::Duration;

use proptest::prelude::*;
use signalbox_core::security::Fingerprint;
use signalbox_core::traffic::ServiceClass;
use signalbox_units::{BitRate, Identity, PerSecond, Percent, Service, Size, Span};

fn whole_unit() -> impl Strategy<Value = u64> {
    const FACTORS: &[u64] = &[1, 1000, 1_000_000, 1 << 20, 1_000_000_000, 60_000_000_000, 3_600_000_000_000];
    (prop::sample::select(FACTORS), 0..5_000_000_u64).prop_map(|(factor, number)| factor * number)
}

proptest! {
    #[test]
    fn quantities(value in prop_oneof![any::<u64>(), whole_unit()]) {
        let span = Span(Duration::from_nanos(value));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        prop_assert_eq!(BitRate(value).to_string().parse(), Ok(BitRate(value)));
        prop_assert_eq!(Size(value).to_string().parse(), Ok(Size(value)));
        prop_assert_eq!(PerSecond(value).to_string().parse(), Ok(PerSecond(value)));
    }

    #[test]
    fn shares(hundredths in 0..=10_000_u16) {
        let text = format!("{}.{:02}%", hundredths / 100, hundredths % 100);
        let share: Percent = text.parse().unwrap();
        prop_assert_eq!(share.hundredths(), hundredths);
        prop_assert_eq!(share.to_string().parse(), Ok(share));
    }

    #[test]
    fn services(code in 0..=63_u8) {
        for class in [ServiceClass::ControlledLoad, ServiceClass::Guaranteed, ServiceClass::Dscp(code)] {
            prop_assert_eq!(Service(class).to_string().parse(), Ok(Service(class)));
        }
    }

    #[test]
    fn identities(print in any::<[u8; 32]>(), address in any::<IpAddr>(), name in "(\\*\\.)?[a-z][a-z0-9]{0,9}(\\.[a-z]{2,9}){0,3}") {
        for identity in [Identity::Key(Fingerprint(print)), Identity::Address(address), Identity::Dns(name)] {
            prop_assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn no_text_panics(text in "[0-9.]{0,40} ?[a-zA-Z%/:]{0,5}|\\PC{0,30}") {
        let _ = (text.parse::<Span>(), text.parse::<BitRate>(), text.parse::<Size>(), text.parse::<Identity>());
        let _ = (text.parse::<PerSecond>(), text.parse::<Percent>(), text.parse::<Service>());
    }
}
