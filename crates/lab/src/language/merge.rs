//! Tables of configurations, one over another.

/// Merges one table over another, table by table.
pub(crate) fn merge(under: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => merge(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_merged_key_by_key() {
        let mut under: toml::Table = toml::from_str("[gist]\na = 1\nb = 2").expect("sound");
        merge(&mut under, &toml::from_str("[gist]\nb = 3\n[log]\nlevel = 'debug'").expect("sound"));
        assert_eq!(
            under,
            toml::from_str("gist = { a = 1, b = 3 }\nlog = { level = 'debug' }").expect("sound")
        );
    }
}
