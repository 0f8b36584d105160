//! Other rates of links, while the links are in use.

use std::collections::BTreeSet;

use super::Enforcer;
use super::config::LinkConfig;

impl Enforcer {
    /// Takes the rates of these links: of the link itself, of what can be reserved, and of signaling. A rate that is not valid is
    /// ignored. Everything else of a link stays as it was opened: the number of its queues and the size of its tables are those
    /// of the start.
    pub fn set_rates(&mut self, links: &[LinkConfig]) {
        let mut changed = BTreeSet::new();
        for link in &mut self.config.links {
            let Some(wanted) = links.iter().find(|wanted| wanted.name == link.name) else { continue };
            let LinkConfig { rate, reservable, signaling, .. } = *wanted;
            let new = LinkConfig { rate, reservable, signaling, ..link.clone() };
            if new == *link {
                continue;
            }
            if let Some(fault) = new.fault() {
                tracing::warn!(fault, "the rates of a link were not changed");
                continue;
            }
            *link = new;
            let Some((ifindex, open)) = self.links.iter_mut().find(|(_, open)| open.name() == link.name)
            else {
                continue;
            };
            open.set_rates(link, &mut self.requests);
            changed.insert(*ifindex);
        }
        if changed.is_empty() {
            return;
        }
        // What a queue may borrow ends at the rate of the link.
        self.serve_again(&changed);
    }
}
