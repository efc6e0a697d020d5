//! Is nothing inside dialled, whatever a name leads to?

use crate::support::{Plan, World};

#[tokio::test]
async fn an_address_inside_is_refused_even_where_a_rule_names_it() {
    let policy = "version = 1\n[[allow]]\nhost = \"127.0.0.1\"\nports = [{CAPTURED}]\nscheme = \"http\"\n[[allow]]\nhost = \"169.254.169.254\"\nscheme = \"http\"\nports = [80]\n";
    let world = World::new(Plan {
        policy,
        secrets: "",
        ..Plan::default()
    })
    .await;
    for url in [
        format!("http://127.0.0.1:{}/", world.captured),
        format!("http://0x7f.1:{}/", world.captured),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let mut stream = world.connect(world.door).await;
        let request = format!("GET {url} HTTP/1.1\r\n\r\n");
        let answer = crate::support::client::exchange(&mut stream, &request).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "address-not-allowed"),
            "{url}"
        );
    }
}

#[tokio::test]
async fn our_own_listener_is_never_dialled() {
    let world = World::new(Plan {
        policy: "version = 1\n[[allow]]\nhost = \"127.0.0.1\"\nports = [1, {SHARED}]\nscheme = \"http\"\n",
        secrets: "",
        hosts: &["127.0.0.1:1"],
        ..Plan::default()
    })
    .await;
    let mut stream = world.connect(world.door).await;
    let url = format!("http://127.0.0.1:{}/", world.shared.port());
    let request = format!("GET {url} HTTP/1.1\r\n\r\n");
    let answer = crate::support::client::exchange(&mut stream, &request).await;
    assert_eq!((answer.status, answer.code()), (403, "address-not-allowed"));
}
