//! What earlier layers show of themselves below a new one.

use std::fs;
use std::path::{Path, PathBuf};

use launcher::{MAX_LAYERS_BELOW, WorkspaceMode};

use crate::support::{Box, as_each_user};

/// The layer of one more step: its own upper folder above those that are there.
fn layer(folder: &Path, number: usize) -> WorkspaceMode {
    let own = folder.join(format!("run/{number:03}"));
    for name in ["upper", "work"] {
        fs::create_dir_all(own.join(name)).unwrap();
    }
    let below: Vec<PathBuf> = (1..number)
        .rev()
        .map(|earlier| folder.join(format!("run/{earlier:03}/upper")))
        .collect();
    WorkspaceMode::Overlay {
        upper: own.join("upper"),
        work: own.join("work"),
        below,
    }
}

/// Runs lines of shell one after another, each in a layer above those before it; the last one's output.
fn outputs(lines: &[&str]) -> (Box, String) {
    let mut sandbox = Box::shell("true")
        .file("kept", "kept\n")
        .file("gone/deep", "gone\n")
        .file("folder/old", "old\n");
    let mut output = String::new();
    for (index, line) in lines.iter().enumerate() {
        let mode = layer(sandbox.folder.path(), index + 1);
        sandbox.spec.argv = ["/bin/sh", "-ec", line].map(Into::into).to_vec();
        sandbox = sandbox.mode(mode);
        output = sandbox.output();
    }
    (sandbox, output)
}

#[test]
fn a_layer_shows_what_the_layers_below_it_changed() {
    as_each_user(
        "layers::a_layer_shows_what_the_layers_below_it_changed",
        || {
            let (sandbox, output) = outputs(&[
                "echo one > new; rm -r gone; rm -r folder; mkdir folder; echo fresh > folder/new",
                "echo two >> new; echo more >> folder/new",
                "cat kept new folder/new; ls folder; ls -d gone 2>/dev/null || echo deleted",
            ]);
            assert_eq!(output, "kept\none\ntwo\nfresh\nmore\nnew\ndeleted\n");
            let layers = sandbox.folder.path().join("run");
            assert_eq!(
                fs::read_to_string(layers.join("001/upper/new")).unwrap(),
                "one\n"
            );
            assert_eq!(fs::read_dir(layers.join("003/upper")).unwrap().count(), 0);
            assert_eq!(
                fs::read_to_string(sandbox.work().join("gone/deep")).unwrap(),
                "gone\n"
            );
        },
    );
}

#[test]
fn a_layer_that_is_left_out_never_was() {
    let (sandbox, _) = outputs(&["echo one > new", "echo two > new; rm kept"]);
    let WorkspaceMode::Overlay { upper, work, below } = layer(sandbox.folder.path(), 3) else {
        unreachable!()
    };
    let mode = WorkspaceMode::Overlay {
        upper,
        work,
        below: below[1..].to_vec(),
    };
    let sandbox = sandbox.mode(mode).with(|spec| {
        spec.argv = ["/bin/sh", "-c", "cat new kept"].map(Into::into).to_vec();
    });
    assert_eq!(sandbox.output(), "one\nkept\n");
}

#[test]
fn as_many_layers_as_are_promised_can_be_shown() {
    let lines: Vec<String> = (0..MAX_LAYERS_BELOW)
        .map(|number| format!("echo {number} >> all"))
        .chain(["wc -l < all".to_owned()])
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_, output) = outputs(&lines);
    assert_eq!(output.trim(), MAX_LAYERS_BELOW.to_string());
}
