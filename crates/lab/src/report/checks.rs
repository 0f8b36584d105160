//! What the report shows people of checks, besides their verdicts.

use toml::Spanned;

use super::Section;
use crate::judge::load::Rates;
use crate::language::checks::Check;
use crate::language::checks::load::Load;
use crate::run::evidence::Evidence;

/// Returns what the report shows of a check. Sections with the same title become one.
pub(super) fn section(check: &Check, evidence: &Evidence) -> Option<Section> {
    if let Check::Load(load) = check { load_section(load, evidence) } else { None }
}

/// The load on a link, and that which it is compared with.
fn load_section(load: &Load, evidence: &Evidence) -> Option<Section> {
    let [protocol, link, during, base_link] = load.parts()?;
    let base = load.base.as_ref()?;
    let [now, before] = load.rates(evidence).ok()?;
    let row = |link: &Spanned<String>, during: &Spanned<String>, rates: Rates| {
        vec![
            link.as_ref().clone(),
            during.as_ref().clone(),
            format!("{:.1}", rates.packets),
            format!("{:.1}", rates.messages),
            format!("{:.0}", rates.octets),
        ]
    };
    let rows = vec![row(base_link, base, before), row(link, during, now)];
    let header = ["link", "while", "packets", "messages", "octets"];
    Some(Section::table(format!("{} on the links, a second", protocol.as_ref()), &header, rows))
}
