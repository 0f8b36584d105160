//! What the section of every protocol can do.

use std::path::Path;

use signalbox_core::{EntryRequest, NslpId};

use super::Config;
use super::error::Problem;

/// The section of a protocol.
pub(crate) trait Section {
    /// Whether the protocol runs.
    fn enabled(&self) -> bool;

    /// The first value that is out of its range, or does not fit another section of `config`.
    fn problem(&self, config: &Config) -> Option<Problem>;

    /// Reads the files that the section names; their paths are relative to `directory`.
    ///
    /// # Errors
    /// A file cannot be read or used.
    fn read_files(&mut self, _directory: &Path) -> Result<(), Problem> {
        Ok(())
    }

    /// Puts the settings of the protocol's engine into those of the node.
    fn install(&self, node: &mut signalbox_node::Config);

    /// Changes the ports of entry of the node as the section demands.
    fn adapt(&self, _entries: &mut [EntryRequest]) {}

    /// NSLPIDs that the protocol owns.
    fn nslps(&self) -> Vec<NslpId> {
        Vec::new()
    }

    /// Whether the protocol reserves resources.
    fn reserves(&self) -> bool {
        false
    }
}

/// A section that may be absent.
pub(crate) trait Present {
    /// The section, if it is there.
    fn section(&self) -> Option<&dyn Section>;

    /// The section, if it is there.
    fn section_mut(&mut self) -> Option<&mut dyn Section>;
}

impl<S: Section> Present for Option<S> {
    fn section(&self) -> Option<&dyn Section> {
        self.as_ref().map(|section| section as &dyn Section)
    }

    fn section_mut(&mut self) -> Option<&mut dyn Section> {
        self.as_mut().map(|section| section as &mut dyn Section)
    }
}
