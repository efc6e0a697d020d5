//! What the owner can do with secrets.

use std::os::unix::fs::PermissionsExt;

use crate::store::tests::Fixture;

use super::*;

struct Owner {
    fixture: Fixture,
    config: tempfile::TempDir,
}

impl Owner {
    fn new() -> Self {
        Self {
            fixture: Fixture::new(),
            config: tempfile::tempdir().unwrap(),
        }
    }

    fn writes(self, text: &str) -> Self {
        let path = self.config.path().join("secrets.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        self
    }

    fn secrets(&self) -> Secrets {
        Secrets::new(self.fixture.store(), self.config.path(), Home(None))
    }
}

fn to_host() -> NewSecret {
    NewSecret {
        hosts: vec!["api.example.com".to_owned()],
        slot: Some(Slot::bearer()),
        provider: None,
    }
}

fn value(text: &str) -> Zeroizing<String> {
    Zeroizing::new(text.to_owned())
}

const LONG: &str = "test-secret-orders-0123456789";

#[tokio::test]
async fn an_added_secret_is_listed_read_and_removed() {
    let owner = Owner::new();
    let secrets = owner.secrets();
    assert_eq!(
        secrets.add("orders", &to_host(), value(LONG)).unwrap(),
        [""; 0]
    );
    let list = owner.secrets().list().unwrap();
    assert_eq!(
        (list[0].name.as_str(), list[0].source.as_str()),
        ("orders", "store")
    );
    assert_eq!(list[0].hosts, ["api.example.com"]);
    owner.secrets().test("orders").await.unwrap();
    owner.secrets().remove("orders").unwrap();
    assert!(owner.secrets().list().unwrap().is_empty());
    assert!(owner.secrets().test("orders").await.is_err());
    assert!(owner.secrets().remove("orders").is_err());
}

#[test]
fn a_short_secret_gives_a_warning() {
    let owner = Owner::new();
    let warnings = owner
        .secrets()
        .add("orders", &to_host(), value("sk-short"))
        .unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(!warnings[0].contains("sk-short"));
}

#[test]
fn a_value_that_would_split_a_header_is_refused_and_not_shown() {
    let owner = Owner::new();
    let error = owner
        .secrets()
        .add("orders", &to_host(), value("test-secret\r\nx"))
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("test-secret"));
}

#[test]
fn a_secret_without_a_place_to_go_is_refused() {
    let owner = Owner::new();
    assert!(
        owner
            .secrets()
            .add("orders", &NewSecret::default(), value(LONG))
            .is_err()
    );
    let everywhere = NewSecret {
        hosts: vec!["*".to_owned()],
        ..to_host()
    };
    assert!(
        owner
            .secrets()
            .add("orders", &everywhere, value(LONG))
            .is_err()
    );
}

#[test]
fn the_value_alone_is_kept_where_the_file_has_the_binding() {
    let owner = Owner::new().writes(
        "[orders]\nhosts = [\"api.example.com\"]\ninject = \"bearer\"\nsource = { store = true }\n",
    );
    owner
        .secrets()
        .add("orders", &NewSecret::default(), value(LONG))
        .unwrap();
    assert_eq!(owner.secrets().list().unwrap().len(), 1);
    assert!(
        owner
            .secrets()
            .add("orders", &to_host(), value(LONG))
            .is_err()
    );
}

#[test]
fn two_bindings_of_one_name_are_refused() {
    let owner = Owner::new();
    owner
        .secrets()
        .add("orders", &to_host(), value(LONG))
        .unwrap();
    let owner = owner.writes(
        "[orders]\nhosts = [\"evil.example\"]\ninject = \"bearer\"\nsource = { env = \"A\" }\n",
    );
    assert!(matches!(owner.secrets().list(), Err(Error::TwoBindings(_))));
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let owner = Owner::new().writes("");
    assert!(owner.secrets().list().is_ok());
    let path = owner.config.path().join("secrets.toml");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(matches!(
        owner.secrets().list(),
        Err(Error::OwnerFile { .. })
    ));
}

#[test]
fn an_import_keeps_what_a_provider_reads_and_leaves_the_rest() {
    let owner = Owner::new();
    let text = format!("OPENAI_API_KEY={LONG}\nMY_SETTING=1\n");
    let imported = owner.secrets().import(&text).unwrap();
    assert_eq!(imported.left, ["MY_SETTING"]);
    assert_eq!(imported.names, ["openai"]);
    assert_eq!(
        owner.secrets().list().unwrap()[0].provider.as_deref(),
        Some("openai")
    );
}

#[test]
fn an_import_of_something_else_shows_its_line_and_not_its_text() {
    let error = Owner::new()
        .secrets()
        .import("A=1\ntest-secret\n")
        .unwrap_err();
    assert!(format!("{error:?} {error}").contains("line 2"));
    assert!(!format!("{error:?} {error}").contains("test-secret"));
}
