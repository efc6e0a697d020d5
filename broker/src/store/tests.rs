//! What the state promises to processes that share it.

use std::sync::Arc;

use crate::audit::VerificationKey;
use crate::state::{SEALED, sealed_as};

use super::*;

/// A store in a folder of its own, which lives as long as the value.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> Folder {
        Folder::open(&self.folder.path().join("state")).unwrap()
    }

    pub(crate) fn store(&self) -> Arc<Store> {
        Store::open(&self.folder(), Durability::Process).unwrap()
    }
}

#[test]
fn only_the_newest_approval_counts() {
    let fixture = Fixture::new();
    let (store, project) = (fixture.store(), Path::new("/home/owner/orders"));
    store.approve(project, "sha256:old", 1).unwrap();
    store.approve(project, "sha256:new", 2).unwrap();
    assert_eq!(store.approved(project).unwrap().unwrap(), "sha256:new");
    assert_eq!(
        store.approved(Path::new("/home/owner/other")).unwrap(),
        None
    );
}

#[test]
fn a_kept_secret_opens_in_another_process_and_not_after_it_was_removed() {
    let fixture = Fixture::new();
    let secret = StoredSecret {
        name: "openai".to_owned(),
        binding: None,
    };
    let store = fixture.store();
    store.put_secret(&secret, "test-secret-openai", 1).unwrap();
    let value = fixture.store().secret_value("openai").unwrap().unwrap();
    assert_eq!(&value[..], b"test-secret-openai");
    assert!(store.remove_secret("openai").unwrap());
    assert!(fixture.store().secret_value("openai").unwrap().is_none());
}

#[test]
fn a_change_by_another_connection_is_seen() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let mut watch = Watch::new(std::sync::Arc::clone(&store)).unwrap();
    assert_eq!(watch.changed().unwrap(), None);
    // Our own changes are no news.
    store.approve(Path::new("/a"), "sha256:a", 1).unwrap();
    assert_eq!(watch.changed().unwrap(), None);
    let other = fixture.store();
    other.approve(Path::new("/a"), "sha256:b", 2).unwrap();
    let version = watch.changed().unwrap().unwrap();
    assert_eq!(watch.changed().unwrap(), Some(version));
    watch.seen(version);
    assert_eq!(watch.changed().unwrap(), None);
}

#[test]
fn a_head_never_goes_back() {
    use crate::audit::Chain;
    let fixture = Fixture::new();
    let store = fixture.store();
    store.begin_segment("a").unwrap();
    let head = |seq| Chain {
        seq,
        hash: [seq as u8; 32],
    };
    store.record_head("a", &head(5)).unwrap();
    store.record_head("a", &head(3)).unwrap();
    assert_eq!(store.segments().unwrap()[0].head, head(5));
    store.close_segment("a", &head(6)).unwrap();
    store.record_head("a", &head(9)).unwrap();
    assert_eq!(store.segments().unwrap()[0].head, head(6));
}

#[test]
fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let _store = fixture.store();
    let state = fixture.folder.path().join("state");
    for entry in std::fs::read_dir(state).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!(metadata.mode() & 0o077, 0);
    }
}

#[test]
fn many_threads_may_make_the_same_folder_at_once() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                fixture
                    .store()
                    .begin_segment(&format!("{:?}", std::thread::current().id()))
                    .unwrap()
            });
        }
    });
    assert_eq!(fixture.store().segments().unwrap().len(), 16);
}

/// The key that the installation began with, from which all others follow.
fn first_key(folder: &Folder) -> VerificationKey {
    let text = folder.read_small(VERIFICATION_KEY_FILE).unwrap().unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    VerificationKey(crate::hex::decode(text).unwrap())
}

/// Whether a key of the chain can be had from any byte of the folder, but for the file that its owner is to move away.
fn is_anywhere(folder: &Folder, number: u64, wanted: &VerificationKey) -> bool {
    let key = SealingKey::new(&folder.key(false).unwrap()).unwrap();
    let names = [sealed_as(number), segments::CHAIN.to_owned()];
    let is_in = |bytes: &[u8]| {
        memchr::memmem::find(bytes, &wanted.0).is_some()
            || bytes
                .windows(SEALED)
                .filter(|sealed| sealed[0] == 1)
                .any(|sealed| {
                    let mut names = names.iter();
                    names.any(|name| {
                        key.open(name, sealed)
                            .is_ok_and(|opened| opened[..] == wanted.0)
                    })
                })
    };
    std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && !path.ends_with(VERIFICATION_KEY_FILE))
        .any(|path| is_in(&std::fs::read(path).unwrap()))
}

#[test]
fn the_key_of_a_segment_that_has_begun_is_nowhere_in_the_folder() {
    let fixture = Fixture::new();
    let (folder, store, other) = (fixture.folder(), fixture.store(), fixture.store());
    let mut key = first_key(&folder);
    for number in 0..6 {
        assert!(is_anywhere(&folder, number, &key), "{number}");
        let store = if number % 2 == 0 { &store } else { &other };
        store.begin_segment(&number.to_string()).unwrap();
        assert!(!is_anywhere(&folder, number, &key), "{number}");
        key.evolve();
    }
}

/// Makes the state what version 1 would have left after some segments.
fn as_version_1(fixture: &Fixture) {
    let (folder, store) = (fixture.folder(), fixture.store());
    let chain = store.chain().unwrap();
    let sealed = store.key.seal(segments::CHAIN, &chain.value[..]).unwrap();
    let connection = store.lock();
    connection
        .execute_batch(
            "CREATE TABLE audit_chain (position INTEGER NOT NULL, sealed BLOB NOT NULL) STRICT;
             DROP TABLE sealed_runs; DROP TABLE sealed_policies; DROP TABLE run_segments;
             PRAGMA user_version = 1;",
        )
        .unwrap();
    connection
        .execute(
            "INSERT INTO audit_chain (position, sealed) VALUES (?1, ?2)",
            rusqlite::params![chain.number.cast_signed(), sealed],
        )
        .unwrap();
    std::fs::remove_file(folder.path().join(segments::CHAIN_FILE)).unwrap();
}

#[test]
fn the_key_in_the_database_of_an_earlier_version_is_taken_out_of_it() {
    let fixture = Fixture::new();
    fixture.store().begin_segment("a").unwrap();
    as_version_1(&fixture);
    let (folder, mut key) = (fixture.folder(), first_key(&fixture.folder()));
    key.evolve();
    assert!(is_anywhere(&folder, 1, &key));
    // Two who find it at once take it out once.
    std::thread::scope(|scope| {
        for name in ["b", "c"] {
            let fixture = &fixture;
            scope.spawn(move || fixture.store().begin_segment(name).unwrap());
        }
    });
    assert!(!is_anywhere(&folder, 1, &key));
    let positions = fixture.store().segments().unwrap();
    assert_eq!(
        positions.iter().map(|s| s.position).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn a_key_that_a_killed_process_left_is_wiped_at_the_next_start() {
    use std::os::unix::fs::FileExt;
    let fixture = Fixture::new();
    drop(fixture.store());
    let (folder, key) = (fixture.folder(), first_key(&fixture.folder()));
    let path = folder.path().join(segments::CHAIN_FILE);
    let before = std::fs::read(&path).unwrap();
    fixture.store().begin_segment("a").unwrap();
    // As if it had been killed just before it wiped what was in the first place.
    let file = folder
        .open_to_change(segments::CHAIN_FILE)
        .unwrap()
        .unwrap();
    file.write_all_at(&before[..before.len() / 2], 0).unwrap();
    assert!(is_anywhere(&folder, 0, &key));
    let store = fixture.store();
    assert!(!is_anywhere(&folder, 0, &key));
    store.begin_segment("b").unwrap();
    assert_eq!(store.segments().unwrap()[1].position, 1);
}

#[test]
fn a_chain_that_is_gone_is_not_begun_again() {
    let fixture = Fixture::new();
    let store = fixture.store();
    std::fs::remove_file(fixture.folder().path().join(segments::CHAIN_FILE)).unwrap();
    assert!(store.begin_segment("a").is_err());
    assert!(Store::open(&fixture.folder(), Durability::Process).is_err());
}
