//! Services.

use core::fmt;
use core::str::FromStr;

use signalbox_core::traffic::ServiceClass;

use crate::{BadText, Form};

/// A service: `"controlled-load"` or `"cl"`, `"guaranteed"`, `"ef"`, `"dscp:10"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service(pub ServiceClass);

/// The code point of Expedited Forwarding (RFC 3246 §2.7).
const EF: u8 = 46;

impl Service {
    /// Its text.
    pub const FORM: Form = Form {
        what: "a service",
        parts: "controlled-load, guaranteed, ef, or dscp: and a code point from 0 to 63",
        example: "dscp:46",
    };
}

impl FromStr for Service {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        match text.trim() {
            "cl" | "controlled-load" => Ok(Self(ServiceClass::ControlledLoad)),
            "guaranteed" => Ok(Self(ServiceClass::Guaranteed)),
            "ef" => Ok(Self(ServiceClass::Dscp(EF))),
            name => match name.strip_prefix("dscp:").map(str::parse) {
                Some(Ok(code @ 0..=63)) => Ok(Self(ServiceClass::Dscp(code))),
                _ => Err(Self::FORM.bad(text)),
            },
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ServiceClass::ControlledLoad => f.write_str("controlled-load"),
            ServiceClass::Guaranteed => f.write_str("guaranteed"),
            ServiceClass::Dscp(code) => write!(f, "dscp:{code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_go_by_name_or_code_point() {
        for (text, service) in [
            ("cl", ServiceClass::ControlledLoad),
            ("controlled-load", ServiceClass::ControlledLoad),
            ("guaranteed", ServiceClass::Guaranteed),
            ("ef", ServiceClass::Dscp(46)),
            ("dscp:0", ServiceClass::Dscp(0)),
        ] {
            assert_eq!(text.parse(), Ok(Service(service)), "{text}");
        }
        for text in ["", "best", "dscp", "dscp 46", "dscp:64", "dscp:-1"] {
            let error = text.parse::<Service>().unwrap_err().to_string();
            assert!(error.contains("such as \"dscp:46\""), "{error}");
        }
    }
}
