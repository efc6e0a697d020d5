//! What is left when the server is killed? Its runs go on with the next one, and nothing of them lies open on the disk.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::World;
use crate::support::origin::Origin;
use crate::support::process::Finished;
use crate::support::serving::{Serving, Sidecar};
use crate::support::world::greeting;

struct Shop {
    world: World,
    origin: Origin,
    key: String,
}

impl Shop {
    fn new() -> Self {
        let mut world = World::new();
        let origin = world.origin("shop.example", greeting());
        let key = world.secret("shop", "hosts = [\"shop.example\"]\ninject = \"bearer\"");
        world.policy("[[allow]]\nhost = \"shop.example\"\nsecret = \"shop\"\n");
        Self { world, origin, key }
    }

    /// Serves again at the address of the one before: a client's environment still leads there.
    fn serve_again(&self, address: &str) -> Serving {
        self.world.serve_on(&["--listen", address])
    }

    /// A client that knows nothing but the environment that its run was given once.
    fn curl(&self, run: &Sidecar) -> Finished {
        let line = "curl -sS -w ' %{http_code} %{http_connect}' -H \"Authorization: Bearer $SHOP_TOKEN\" \
                    https://shop.example/";
        run.run(&self.world, &["sh", "-c", line])
    }

    #[track_caller]
    fn is_served(&self, run: &Sidecar) {
        self.curl(run).passed().says("hello\n 200 200");
        assert_eq!(
            self.origin.last().field("authorization"),
            format!("Bearer {}", self.key)
        );
    }

    #[track_caller]
    fn is_refused(&self, run: &Sidecar) {
        let before = self.origin.seen().len();
        self.curl(run).says("407");
        assert_eq!(self.origin.seen().len(), before);
    }
}

/// What the server says on standard error, for people.
fn told(shop: &Shop) -> String {
    fs::read_to_string(shop.world.path("logs/serve.stderr")).unwrap()
}

#[test]
fn a_client_goes_on_unchanged_after_the_server_was_killed() {
    let shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let run = serving.create_run(&shop.world);
    shop.is_served(&run);
    serving.kill();
    for _ in 0..2 {
        let serving = shop.serve_again(&address);
        // The same token and placeholder, and a certificate that the old file of authorities verifies.
        shop.is_served(&run);
        assert!(told(&shop).contains("1 run of the server before"));
        let shown = shop
            .world
            .valetkey_unkept(&["env", &run.run, "--format", "json"]);
        assert_eq!(shown.passed().json()["VALETKEY_TOKEN"], run.token);
        serving.kill();
    }
    shop.world
        .valetkey(&["audit", "verify"])
        .passed()
        .says("whole");
    let shown = shop.world.valetkey(&["audit", "show", &run.run, "--json"]);
    let text = shown.passed().stdout;
    assert_eq!(text.matches("run.resumed").count(), 2, "{text}");
    assert_eq!(text.matches("request.finished").count(), 3, "{text}");
}

#[test]
fn a_policy_and_a_binding_that_were_changed_meanwhile_change_no_run() {
    let mut shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let run = serving.create_run(&shop.world);
    serving.kill();
    shop.world.secret_entry(
        "shop",
        "provider = \"openai\"\nsource = { env = \"OTHER\" }\n",
    );
    shop.world
        .write_policy("[[allow]]\nhost = \"other.example\"\n");
    let _serving = shop.serve_again(&address);
    shop.is_served(&run);
}

#[test]
fn a_run_that_was_revoked_while_nothing_served_does_not_come_back() {
    let shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let (revoked, other) = (
        serving.create_run(&shop.world),
        serving.create_run(&shop.world),
    );
    serving.kill();
    shop.world
        .valetkey(&["runs", "revoke", &revoked.run])
        .passed();
    let _serving = shop.serve_again(&address);
    shop.is_refused(&revoked);
    shop.is_served(&other);
}

#[test]
fn a_run_whose_time_is_over_does_not_come_back() {
    let shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let other = serving.create_run(&shop.world);
    let run = serving.create_run_for(&shop.world, "2s");
    serving.kill();
    // Its end is what is waited for; nobody is there to write it down.
    let is_active = || {
        let shown = shop.world.valetkey(&["runs", "show", &run.run, "--json"]);
        shown.passed().json()["state"] == "active"
    };
    while is_active() {}
    let _serving = shop.serve_again(&address);
    shop.is_refused(&run);
    shop.is_served(&other);
}

#[test]
fn a_server_that_is_restarted_keeps_its_runs_and_one_that_is_interrupted_ends_them() {
    let shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let run = serving.create_run(&shop.world);
    assert_eq!(serving.stop(), 0);
    let serving = shop.serve_again(&address);
    shop.is_served(&run);
    let interrupt = Command::new("kill")
        .args(["-INT", &serving.pid().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    assert_eq!(serving.wait(), 0);
    let _serving = shop.serve_again(&address);
    shop.is_refused(&run);
}

/// How each key of an authority begins as it is written down: PKCS #8 of a P-256 key (RFC 5958, RFC 5915).
const KEY: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x6d\x30\x6b\x02\x01\x01\x04\x20";

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn files_of(folder: PathBuf) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}

#[test]
fn no_key_of_an_authority_and_no_token_is_in_clear_in_the_state_folder() {
    let shop = Shop::new();
    let serving = shop.world.serve();
    let address = serving.address().to_owned();
    let run = serving.create_run(&shop.world);
    shop.is_served(&run);
    serving.kill();
    let serving = shop.serve_again(&address);
    shop.is_served(&run);
    let files = files_of(shop.world.path("state"));
    assert!(files.len() > 5, "{files:?}");
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let secrets = [
            KEY,
            b"PRIVATE KEY",
            run.token.as_bytes(),
            run.alias.as_bytes(),
        ];
        for secret in secrets {
            assert!(!holds(&bytes, secret), "{}", file.display());
        }
    }
    drop(serving);
    // What was looked for is what such a key has.
    let key = rcgen::KeyPair::generate().unwrap();
    assert!(holds(&key.serialize_der(), KEY));
}
