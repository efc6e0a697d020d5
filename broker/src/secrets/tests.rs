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
        secrets
            .add("orders", &to_host(), value(LONG), Existing::Keep)
            .unwrap(),
        Added::default()
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
        .add("orders", &to_host(), value("sk-short"), Existing::Keep)
        .unwrap()
        .warnings;
    assert_eq!(warnings.len(), 1);
    assert!(!warnings[0].contains("sk-short"));
}

#[test]
fn a_value_that_would_split_a_header_is_refused_and_not_shown() {
    let owner = Owner::new();
    let error = owner
        .secrets()
        .add(
            "orders",
            &to_host(),
            value("test-secret\r\nx"),
            Existing::Keep,
        )
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("test-secret"));
}

#[test]
fn a_secret_without_a_place_to_go_is_refused() {
    let owner = Owner::new();
    assert!(
        owner
            .secrets()
            .add("orders", &NewSecret::default(), value(LONG), Existing::Keep)
            .is_err()
    );
    let everywhere = NewSecret {
        hosts: vec!["*".to_owned()],
        ..to_host()
    };
    assert!(
        owner
            .secrets()
            .add("orders", &everywhere, value(LONG), Existing::Keep)
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
        .add("orders", &NewSecret::default(), value(LONG), Existing::Keep)
        .unwrap();
    assert_eq!(owner.secrets().list().unwrap().len(), 1);
    assert!(
        owner
            .secrets()
            .add("orders", &to_host(), value(LONG), Existing::Keep)
            .is_err()
    );
}

#[test]
fn two_bindings_of_one_name_are_refused() {
    let owner = Owner::new();
    owner
        .secrets()
        .add("orders", &to_host(), value(LONG), Existing::Keep)
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
    let imported = owner.secrets().import(&text, Existing::Keep).unwrap();
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
        .import("A=1\ntest-secret\n", Existing::Keep)
        .unwrap_err();
    assert!(format!("{error:?} {error}").contains("line 2"));
    assert!(!format!("{error:?} {error}").contains("test-secret"));
}

/// The value that the store has.
fn kept(owner: &Owner, name: &str) -> String {
    let value = owner.fixture.store().secret_value(name).unwrap().unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

#[test]
fn a_secret_is_replaced_only_where_that_is_asked_for() {
    let owner = Owner::new();
    let other = "test-secret-orders-9876543210";
    let add = |text: &str, existing| {
        owner
            .secrets()
            .add("orders", &to_host(), value(text), existing)
    };
    add(LONG, Existing::Keep).unwrap();
    let error = add(other, Existing::Keep).unwrap_err();
    assert!(error.to_string().contains("`orders`"), "{error}");
    assert!(error.hint().unwrap().contains("--replace"));
    assert_eq!(kept(&owner, "orders"), LONG);
    assert!(add(other, Existing::Replace).unwrap().replaced);
    assert_eq!(kept(&owner, "orders"), other);
}

#[test]
fn an_import_keeps_all_or_nothing() {
    let owner = Owner::new();
    let first = format!("OPENAI_API_KEY={LONG}\n");
    owner.secrets().import(&first, Existing::Keep).unwrap();
    let changed = "test-secret-openai-9876543210";
    let both = format!("ANTHROPIC_API_KEY={LONG}\nOPENAI_API_KEY={changed}\n");
    let error = owner.secrets().import(&both, Existing::Keep).unwrap_err();
    assert!(matches!(error, Error::SecretExists(names) if names == ["openai"]));
    assert_eq!(owner.secrets().list().unwrap().len(), 1);
    assert_eq!(kept(&owner, "openai"), LONG);
    let imported = owner.secrets().import(&both, Existing::Replace).unwrap();
    assert_eq!(imported.names, ["anthropic", "openai"]);
    assert_eq!(imported.replaced, ["openai"]);
    assert_eq!(kept(&owner, "openai"), changed);
}

#[test]
fn an_import_keeps_nothing_beside_a_binding_of_the_file() {
    let owner = Owner::new().writes("[openai]\nprovider = \"openai\"\nsource = { env = \"A\" }\n");
    let both = format!("ANTHROPIC_API_KEY={LONG}\nOPENAI_API_KEY={LONG}\n");
    let error = owner
        .secrets()
        .import(&both, Existing::Replace)
        .unwrap_err();
    assert!(matches!(error, Error::TwoBindings(name) if name == "openai"));
    assert_eq!(owner.secrets().list().unwrap().len(), 1);
}

#[test]
fn two_keys_of_one_provider_are_refused_and_not_shown() {
    let owner = Owner::new();
    let text = |second: &str| format!("OPENAI_API_KEY={LONG}\nOPENAI_API_KEY={second}\n");
    let import = |text: &str| owner.secrets().import(text, Existing::Keep);
    let error = import(&text("test-secret-openai-9876543210")).unwrap_err();
    assert!(!error.to_string().contains("test-secret"), "{error}");
    assert!(owner.secrets().list().unwrap().is_empty());
    assert_eq!(import(&text(LONG)).unwrap().names, ["openai"]);
}
