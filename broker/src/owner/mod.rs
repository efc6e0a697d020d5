//! What the owner says: where each secret is and where it may go, and how this machine reaches the network.

mod binding;
mod config_file;
mod file;
mod frozen;
mod inject;
mod secrets_file;

pub(crate) use binding::Binding;
pub(crate) use config_file::parse as parse_config;
pub(crate) use file::{Readers, read};
pub(crate) use frozen::FrozenBinding;
pub(crate) use inject::describe;
pub(crate) use secrets_file::{Home, check_name, parse as parse_secrets, parse_kept};

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_examples_of_the_documentation_are_right() {
        let text = include_str!("../../../docs/settings.md");
        let mut examples = text.split("```toml\n").skip(1);
        let mut next = || examples.next().unwrap().split("```").next().unwrap();
        let home = Home(Some(PathBuf::from("/home/owner")));
        let secrets = parse_secrets("secrets.toml", next(), &home);
        assert_eq!(
            secrets
                .map(|all| all.len())
                .map_err(|found| found[0].to_string()),
            Ok(4)
        );
        let config = parse_config("config.toml", next());
        assert_eq!(
            config.map(|_| ()).map_err(|found| found[0].to_string()),
            Ok(())
        );
    }
}
