//! Another configuration for the running daemon, by a call or by SIGHUP.

use signalbox_api::v1;
use signalbox_config::{Config, Finding, Level, Reload};
use tonic::Status;

use super::errors::Reason;
use super::node::config::problem;
use super::{Api, digest};

/// Reads the configuration file again, and takes what a running daemon can. A file with a mistake changes nothing.
pub(crate) async fn reload(api: &Api) -> Result<v1::ReloadConfigResponse, Status> {
    let path = api.config.path.display();
    let read = crate::read(&api.config.path).map_err(|cause| {
        let message = format!("cannot read {path}: {cause}; the configuration stays as it is");
        tracing::error!("{message}");
        Reason::ConfigUnreadable.status(message)
    })?;
    let force = api.config.get();
    for finding in &read.findings {
        tracing::warn!("{finding}");
    }
    let problems = problems(&read.findings);
    let Some(new) = read.config else {
        let mistakes = read.findings.iter().filter(|finding| finding.level == Level::Error).count();
        tracing::error!(mistakes, "{path} has mistakes; the configuration stays as it is");
        return Ok(v1::ReloadConfigResponse {
            problems,
            config_digest: digest(&force),
            ..Default::default()
        });
    };
    let Reload { config, applied, needs_restart } = force.reload(&new);
    let reservations_ended = apply(api, &force, &config).await?;
    let applied_keys = applied.join(", ");
    tracing::info!(applied = applied_keys, reservations_ended, "configuration reloaded");
    if !needs_restart.is_empty() {
        tracing::warn!(keys = needs_restart.join(", "), "restart the daemon for these keys");
    }
    let config_digest = digest(&config);
    api.standing.apply(api, &config.standing);
    api.config.set(config);
    Ok(v1::ReloadConfigResponse { problems, applied, needs_restart, reservations_ended, config_digest })
}

/// Puts a configuration into force. Returns the number of reservations that ended by it.
async fn apply(api: &Api, force: &Config, config: &Config) -> Result<u64, Status> {
    api.log.set(&config.log.level);
    // The members of groups may have changed although the configuration did not.
    api.roles.set(&config.control.access);
    let links = config.traffic().map_or_else(Vec::new, |traffic| traffic.links);
    let [force, new] = [force, config].map(|config| config.settings(0, false));
    match new.changed_from(&force) {
        Some(changed) => api.handle.reload(changed, links).await,
        None => Ok(0),
    }
}

fn problems(findings: &[Finding]) -> Vec<v1::ConfigProblem> {
    findings.iter().cloned().map(problem).collect()
}
