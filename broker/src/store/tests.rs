//! What the state promises to processes that share it.

use std::sync::Arc;

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
    store.put_secret(&secret, b"test-secret-openai", 1).unwrap();
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
