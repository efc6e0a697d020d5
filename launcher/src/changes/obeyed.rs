//! Which files somebody on this machine runs or obeys later, so that a change of theirs is a change of what happens there.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::glob::name_matches;

/// Who runs or obeys the file at this path of a workspace.
pub(crate) fn by(path: &Path) -> Option<&'static str> {
    // On some file systems another case is the same file.
    let path = path.as_os_str().to_ascii_lowercase();
    let path = Path::new(&path);
    let in_git = path.iter().skip_while(|part| *part != ".git").nth(1);
    if path.iter().any(|part| part == ".git") {
        let is_data = in_git.is_some_and(|part| DATA_OF_GIT.iter().any(|data| part == *data));
        return (!is_data).then_some("git runs or obeys it");
    }
    let in_folder = |folder: &str| {
        let parts = folder.split('/').count();
        let names: Vec<_> = path.iter().collect();
        names
            .windows(parts)
            .any(|window| window.iter().copied().eq(folder.split('/')))
    };
    if let Some((_, who)) = FOLDERS.iter().find(|(folder, _)| in_folder(folder)) {
        return Some(who);
    }
    let name = path.file_name()?.as_bytes();
    NAMES
        .iter()
        .find(|(pattern, _)| name_matches(pattern.as_bytes(), name))
        .map(|(_, who)| *who)
}

/// What is in a `.git` folder and only ever read.
const DATA_OF_GIT: &[&str] = &["objects", "refs", "logs", "index", "packed-refs"];

const FOLDERS: &[(&str, &str)] = &[
    (".githooks", GIT),
    (".husky", GIT),
    (".vscode", EDITOR),
    (".idea", EDITOR),
    (".zed", EDITOR),
    (".fleet", EDITOR),
    (".devcontainer", EDITOR),
    (".github/workflows", CI),
    (".github/actions", CI),
    (".gitlab/ci", CI),
    (".circleci", CI),
    (".buildkite", CI),
    (".forgejo/workflows", CI),
    (".gitea/workflows", CI),
    (".claude", AGENT),
    (".cursor", AGENT),
    (".codex", AGENT),
    (".gemini", AGENT),
    (".yarn", PACKAGES),
    (".cargo", BUILD),
    (".mvn", BUILD),
    ("node_modules/.bin", PACKAGES),
];

const NAMES: &[(&str, &str)] = &[
    (".gitmodules", GIT),
    (".gitattributes", GIT),
    (".gitconfig", GIT),
    (".pre-commit-config.yaml", GIT),
    ("lefthook*.y*ml", GIT),
    (".envrc", "direnv runs it"),
    (".env*", "programs take settings from it"),
    ("mise*.toml", SHELL),
    (".mise*.toml", SHELL),
    (".tool-versions", SHELL),
    (".bashrc", SHELL),
    (".bash_profile", SHELL),
    (".profile", SHELL),
    (".zshrc", SHELL),
    (".zshenv", SHELL),
    (".exrc", EDITOR),
    (".vimrc", EDITOR),
    (".nvim.lua", EDITOR),
    (".nvimrc", EDITOR),
    (".dir-locals.el", EDITOR),
    ("*.code-workspace", EDITOR),
    ("package.json", PACKAGES),
    (".npmrc", PACKAGES),
    (".yarnrc*", PACKAGES),
    (".pnpmfile.cjs", PACKAGES),
    (".pnp.*", PACKAGES),
    ("*.pth", "python runs it"),
    ("sitecustomize.py", "python runs it"),
    ("usercustomize.py", "python runs it"),
    ("conftest.py", BUILD),
    ("setup.py", BUILD),
    ("setup.cfg", BUILD),
    ("pyproject.toml", BUILD),
    ("tox.ini", BUILD),
    ("noxfile.py", BUILD),
    ("makefile", BUILD),
    ("gnumakefile", BUILD),
    ("*.mk", BUILD),
    ("cmakelists.txt", BUILD),
    ("justfile", BUILD),
    ("taskfile.y*ml", BUILD),
    ("rakefile", BUILD),
    ("gemfile", BUILD),
    ("cargo.toml", BUILD),
    ("build.rs", BUILD),
    ("rust-toolchain*", BUILD),
    ("build.gradle*", BUILD),
    ("settings.gradle*", BUILD),
    ("gradlew*", BUILD),
    ("mvnw*", BUILD),
    ("pom.xml", BUILD),
    ("dockerfile*", BUILD),
    ("containerfile*", BUILD),
    ("docker-compose*.y*ml", BUILD),
    ("compose*.y*ml", BUILD),
    (".gitlab-ci.yml", CI),
    ("jenkinsfile*", CI),
    (".travis.yml", CI),
    ("azure-pipelines.yml", CI),
    ("bitbucket-pipelines.yml", CI),
    (".drone.yml", CI),
    (".woodpecker*", CI),
    ("claude*.md", AGENT),
    ("agents*.md", AGENT),
    ("gemini.md", AGENT),
    (".cursorrules", AGENT),
    (".mcp.json", AGENT),
    ("valetkey.toml", "runs of this project are bound by it"),
];

const GIT: &str = "git runs or obeys it";
const EDITOR: &str = "editors run or obey it";
const CI: &str = "continuous integration runs it";
const AGENT: &str = "coding agents obey it";
const PACKAGES: &str = "package clients run or obey it";
const BUILD: &str = "builds and tests run it";
const SHELL: &str = "shells run or obey it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_later_is_told() {
        for path in [
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".git",
            ".envrc",
            ".vscode/tasks.json",
            "web/package.json",
            ".github/workflows/ci.yml",
            "Makefile",
            "valetkey.toml",
            "node_modules/.bin/tsc",
            "CLAUDE.md",
        ] {
            assert!(by(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn sources_and_data_are_not() {
        for path in [
            "src/main.rs",
            ".git/objects/ab/cdef",
            ".git/refs/heads/main",
            "docs/makefile.md",
            "github/workflows/ci.txt",
        ] {
            assert_eq!(by(Path::new(path)), None, "{path}");
        }
    }
}
