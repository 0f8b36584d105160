//! What the gRPC services of all protocols share. The services of one protocol are in its folder below `protocols`.

pub(crate) mod call;
pub(crate) mod errors;
pub(crate) mod held;
pub(crate) mod node;
pub(crate) mod opener;
pub(crate) mod pages;
pub(crate) mod pinholes;
pub(crate) mod reload;
pub(crate) mod reservations;
pub(crate) mod reserver;
pub(crate) mod standard;
pub(crate) mod types;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use signalbox_api::v1::{self, InterfaceRef};
use signalbox_config::Config;
use signalbox_core::IfIndex;
use signalbox_core::node::Interface;
use signalbox_node::ProtocolId;
use tonic::Status;

use crate::access::Roles;
use crate::decisions::DecisionHistory;
use crate::limits::Limits;
use crate::log::LogLevel;
use crate::requests::LoopHandle;
use crate::sessions::Sessions;
use crate::standing::StandingRequests;

/// What every service needs; cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    /// The way to the event loop.
    pub(crate) handle: LoopHandle,
    /// What does not change while the daemon runs.
    pub(crate) facts: Arc<Facts>,
    /// The interfaces.
    pub(crate) names: InterfaceNames,
    /// The configuration in force.
    pub(crate) config: CurrentConfig,
    /// The level of the log.
    pub(crate) log: LogLevel,
    /// The last decisions.
    pub(crate) decisions: DecisionHistory,
    /// What users may do.
    pub(crate) roles: Roles,
    /// How much of the service each user gets.
    pub(crate) limits: Limits,
    /// The sessions that users get.
    pub(crate) sessions: Sessions,
    /// What the configuration asks for by itself.
    pub(crate) standing: StandingRequests,
}

/// What does not change while the daemon runs.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Name of the node.
    pub(crate) node: String,
    /// The VRF that it works in.
    pub(crate) vrf: Option<String>,
    /// The protocols that run.
    pub(crate) protocols: Vec<ProtocolId>,
    /// When the daemon was ready, in microseconds since 1970.
    pub(crate) start_unix_us: u64,
    /// Whether a protocol runs that reserves.
    pub(crate) reserves: bool,
}

impl Facts {
    /// The facts of a daemon that starts with this configuration.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            node: config.node.name.clone(),
            vrf: config.node.vrf.clone(),
            protocols: config.settings(0, false).protocols(),
            start_unix_us: types::unix_us(),
            reserves: config.reserves(),
        }
    }
}

impl Api {
    /// Refuses a call for a protocol that does not run here.
    pub(crate) fn must_run(&self, protocol: ProtocolId) -> Result<(), Status> {
        let runs = self.facts.protocols.contains(&protocol);
        runs.then_some(()).ok_or_else(|| errors::not_running(protocol.name()))
    }

    /// The same for a call that gave this `request_id`.
    pub(crate) fn named(&self, request_id: Option<&[u8]>) -> Self {
        let request_id = request_id.and_then(|id| id.try_into().ok());
        Self { handle: self.handle.named(request_id), ..self.clone() }
    }

    /// The entry of a table of protocols that a request names; it runs here. Without a name it is that of `usual`. Another
    /// protocol is a mistake in `field`, which asks for one that does `what`.
    pub(crate) fn chosen<T: ?Sized>(
        &self,
        table: &[&'static T],
        id: fn(&T) -> ProtocolId,
        (asked, usual): (i32, v1::Protocol),
        (field, what): (&'static str, &str),
    ) -> Result<&'static T, Status> {
        let asked = match v1::Protocol::try_from(asked) {
            Ok(v1::Protocol::Unspecified) => usual,
            Ok(protocol) => protocol,
            Err(_) => v1::Protocol::Unspecified,
        };
        let chosen = table.iter().find(|one| types::protocol(id(one)) == asked);
        let names = || table.iter().map(|one| id(one).name()).collect::<Vec<_>>().join(" or ");
        let chosen = chosen
            .ok_or_else(|| errors::FieldError::new(field, format_args!("one that {what}: {}", names())))?;
        self.must_run(id(chosen))?;
        Ok(*chosen)
    }
}

/// The configuration in force, which a reload changes; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CurrentConfig {
    /// The file that it was read from.
    pub(crate) path: Arc<PathBuf>,
    config: Arc<RwLock<Arc<Config>>>,
}

impl CurrentConfig {
    /// The configuration of a daemon that starts.
    pub(crate) fn new(path: PathBuf, config: Config) -> Self {
        Self { path: Arc::new(path), config: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// The configuration.
    pub(crate) fn get(&self) -> Arc<Config> {
        // It is replaced as a whole, so that a poisoned one is as good as any.
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, config: Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }
}

/// The digest of a configuration, in hexadecimal digits.
pub(crate) fn digest(config: &Config) -> String {
    config.digest().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The names of the interfaces, for events that the control thread converts. The event loop sets them after a change.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterfaceNames(Arc<RwLock<Vec<Interface>>>);

impl InterfaceNames {
    /// Sets the interfaces.
    pub(crate) fn set(&self, interfaces: &[Interface]) {
        // A poisoned list is as good as any: it is replaced as a whole.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = interfaces.to_vec();
    }

    /// An interface; `None` for [`IfIndex::NONE`].
    pub(crate) fn interface(&self, ifindex: IfIndex) -> Option<InterfaceRef> {
        types::interface(&self.0.read().unwrap_or_else(PoisonError::into_inner), ifindex)
    }
}
