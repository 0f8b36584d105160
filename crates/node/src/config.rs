//! What a node is made of.

use core::time::Duration;

use signalbox_core::NslpId;

use crate::channels::ChannelConfig;

/// Settings of a node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// Microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO), the driver's start.
    pub wall_clock_us: u64,
    /// Settings of GIST.
    pub gist: signalbox_gist::engine::Config,
    /// Settings of the Ping application; `None`: the node is without it and lets its signaling pass.
    pub ping: Option<signalbox_ping::engine::Config>,
    /// Settings of the QoS application; `None`: the node is without it and lets its signaling pass.
    pub qos: Option<signalbox_qos::engine::Config>,
    /// Settings of RSVP; `None`: the node does not speak it.
    pub rsvp: Option<signalbox_rsvp::engine::Config>,
    /// What there is to reserve here, and who may.
    pub resources: signalbox_resources::Config,
    /// Settings of what GIST's associations run over; which ones there are is in GIST's own.
    pub channels: ChannelConfig,
}

impl Default for Config {
    /// GIST and Ping with their defaults, started in 1970.
    fn default() -> Self {
        Self {
            wall_clock_us: 0,
            gist: signalbox_gist::engine::Config::default(),
            ping: Some(Default::default()),
            qos: None,
            rsvp: None,
            resources: signalbox_resources::Config::default(),
            channels: ChannelConfig::default(),
        }
    }
}

/// A node cannot be made of this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// GIST's settings.
    #[error(transparent)]
    Gist(#[from] signalbox_gist::engine::ConfigError),
    /// Ping's number is not free for it.
    #[error("ping.nslp: {0} belongs to another application; 32704 to 32767 are for private use")]
    Nslp(NslpId),
    /// QoS's number is another application's.
    #[error("qos.nslp: {0} is another application's; {qos} is registered for QoS", qos = NslpId::QOS)]
    QosNslp(NslpId),
    /// RSVP's settings.
    #[error("rsvp.{0}")]
    Rsvp(#[from] signalbox_rsvp::engine::ConfigError),
    /// Links and rules.
    #[error("resources.{0}")]
    Resources(#[from] signalbox_resources::ConfigError),
    /// TLS without keys.
    #[error("gist.associations.tls_port: needs channels.tls, the keys and certificates")]
    NoCredentials,
    /// Keys and certificates that cannot be used.
    #[error("channels.tls: {0}")]
    Credentials(#[from] signalbox_transport::stream::TlsConfigError),
    /// Handshakes that cannot be.
    #[error("channels.{0}: at least {1}")]
    Channels(&'static str, &'static str),
}

impl Config {
    /// Checks every range; keys and certificates are read by [`Node::new`](crate::Node::new).
    ///
    /// # Errors
    /// The first setting that is out of its range, and the range.
    pub fn validated(&self) -> Result<(), ConfigError> {
        self.gist.validated()?;
        if self.gist.associations.tls_port.is_some() && self.channels.tls.is_none() {
            return Err(ConfigError::NoCredentials);
        }
        if self.channels.handshake < Duration::from_secs(1) {
            return Err(ConfigError::Channels("handshake", "1 s"));
        }
        if self.channels.max_handshakes == 0 {
            return Err(ConfigError::Channels("max_handshakes", "1"));
        }
        self.resources.validated()?;
        if let Some(rsvp) = &self.rsvp {
            rsvp.validated()?;
        }
        if let Some(qos) = &self.qos {
            let taken = |nslp| {
                matches!(nslp, NslpId::NONE | NslpId::NATFW)
                    || self.ping.as_ref().is_some_and(|ping| ping.nslp == nslp)
            };
            for nslp in [Some(qos.nslp), qos.bypass_nslp].into_iter().flatten() {
                if taken(nslp) {
                    return Err(ConfigError::QosNslp(nslp));
                }
            }
        }
        match &self.ping {
            Some(ping) if matches!(ping.nslp, NslpId::NONE | NslpId::QOS | NslpId::NATFW) => {
                Err(ConfigError::Nslp(ping.nslp))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_another_application_is_refused() {
        assert_eq!(Config::default().validated(), Ok(()));
        let ping = signalbox_ping::engine::Config { nslp: NslpId::QOS, ..Default::default() };
        let error = Config { ping: Some(ping), ..Config::default() }.validated();
        assert_eq!(error, Err(ConfigError::Nslp(NslpId::QOS)));
    }

    #[test]
    fn channels_that_cannot_be_made_are_refused() {
        let mut config = Config::default();
        config.gist.associations.tls_port = Some(271);
        assert_eq!(config.validated(), Err(ConfigError::NoCredentials));
        config.gist.associations.tls_port = None;
        config.channels.max_handshakes = 0;
        assert_eq!(config.validated().unwrap_err().to_string(), "channels.max_handshakes: at least 1");
    }

    #[test]
    fn what_gist_refuses_is_refused() {
        let gist = signalbox_gist::engine::Config { hops: 0, ..Default::default() };
        let error = Config { gist, ..Config::default() }.validated().unwrap_err();
        assert_eq!(error.to_string(), "gist.hops: 1 to 255");
    }
}
