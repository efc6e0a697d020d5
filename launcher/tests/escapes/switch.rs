//! Nobody but the tests can switch a layer off.

use std::process::Command;

#[test]
fn what_is_built_for_use_has_no_switch() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    // What `cargo build` compiles: the features of the product's dependencies, without those of tests.
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "valetkey"])
        .args(["--edges", "normal,build,features", "--format", "{p} {f}"])
        .current_dir(root)
        .output()
        .unwrap();
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && tree.contains("valetkey-launcher"),
        "{output:?}"
    );
    assert!(!tree.contains("weaken"), "{tree}");
}

#[test]
fn the_command_line_does_not_know_the_switch() {
    let cli = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli");
    let mut folders = vec![std::path::PathBuf::from(cli)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let is_named = text.to_lowercase().contains("weaken");
            assert!(!is_named, "{}", entry.path().display());
        }
    }
}

#[test]
fn a_shipped_binary_does_not_hold_the_switch() {
    const MARK: &[u8] = b"valetkey-launcher: layers can be switched off";
    let holds = |path: &std::path::Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(MARK.len()).any(|window| window == MARK)
    };
    // The twin: where it is, it is found. Two copies here, this line's and the launcher's.
    assert!(holds(&std::env::current_exe().unwrap()));
    let target = std::env::current_exe().unwrap();
    let target = target.ancestors().nth(3).unwrap();
    let shipped = target.join("release/valetkey");
    // A compile error keeps it out of any build with optimisations; this looks at one where there is one.
    assert!(!shipped.exists() || !holds(&shipped));
}
