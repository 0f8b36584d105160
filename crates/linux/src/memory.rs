//! The memory that this process uses.

use std::{fs, io};

use crate::sys;

/// The resident octets of this process, shared pages included.
///
/// # Errors
/// /proc is not mounted, or its content has an unknown form.
pub fn resident() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * sys::page_size()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_resident() {
        let before = resident().unwrap();
        let touched = vec![1_u8; 32 << 20];
        let after = resident().unwrap();
        assert!(after >= before + (24 << 20), "{before} {after} {}", touched.len());
    }
}
