//! Ordinary programs work under the list of allowed calls.

use std::path::Path;

use crate::support::{Box, as_each_user};

#[test]
fn python_works_with_threads_processes_and_sockets() {
    as_each_user(
        "programs::python_works_with_threads_processes_and_sockets",
        || {
            let program = r#"
import asyncio, multiprocessing, os, shutil, socket, sqlite3, subprocess, tempfile, threading, time
def twice(x): return 2 * x
async def talk():
    async def answer(reader, writer):
        writer.write(await reader.read(4)); await writer.drain(); writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"ping"); return await reader.read(4)
if __name__ == "__main__":
    thread = threading.Thread(target=time.time); thread.start(); thread.join()
    with multiprocessing.Pool(2) as pool: assert pool.map(twice, [1, 2]) == [2, 4]
    assert asyncio.run(talk()) == b"ping"
    assert subprocess.run(["true"]).returncode == 0
    left, right = socket.socketpair(); left.send(b"x"); assert right.recv(1) == b"x"
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(folder + "/base"); base.execute("create table t (x)"); base.commit()
        os.mkdir(folder + "/a"); os.mkdir(folder + "/b"); open(folder + "/a/x", "w").close()
        os.rename(folder + "/a/x", folder + "/b/x"); os.link(folder + "/b/x", folder + "/a/y")
        shutil.copytree(folder, "/tmp/copy")
    shutil.move("probe", "/tmp/probe")
    print("done")
"#;
            let sandbox = Box::new(["/usr/bin/python3", "program.py"])
                .file("program.py", program)
                .with_network();
            assert_eq!(sandbox.output(), "done\n");
        },
    );
}

#[test]
fn node_works_with_workers_and_children() {
    let program = r#"
const { Worker } = require("worker_threads");
const { execSync } = require("child_process");
const fs = require("fs");
fs.mkdirSync("made"); fs.writeFileSync("made/x", "x"); fs.renameSync("made/x", "y");
fs.watch(".").close();
if (execSync("echo child").toString() !== "child\n") process.exit(1);
const server = require("net").createServer((socket) => socket.end("ping")).listen(0, () => {
  require("net").connect(server.address().port).on("data", () => {
    server.close();
    new Worker("1", { eval: true }).on("exit", () => console.log("done"));
  });
});
"#;
    let sandbox = Box::new(["/usr/bin/node", "program.js"])
        .file("program.js", program)
        .with_network();
    assert_eq!(sandbox.output(), "done\n");
}

#[test]
fn git_works() {
    let line = "git init -q . && git add program && git -c user.name=a -c user.email=b commit -q -m made && \
                git checkout -q -b other && git gc -q && git log --oneline | wc -l";
    let sandbox = Box::shell(line).file("program", "text");
    assert_eq!(sandbox.output(), "1\n");
}

#[test]
fn a_compiler_and_what_it_makes_work() {
    let line = "gcc -O1 -o made made.c && ./made && gcc -static -o static made.c && ./static";
    let source = "#include <stdio.h>\nint main(void) { puts(\"done\"); return 0; }\n";
    let sandbox = Box::shell(line).file("made.c", source);
    assert_eq!(sandbox.output(), "done\ndone\n");
}

#[test]
fn a_shell_controls_its_jobs() {
    // On a terminal of the sandbox's own, as an interactive shell has one.
    let program = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0: os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
text = b""
def until(word):
    global text
    while word not in text: text += os.read(terminal, 1000)
    text = text.split(word, 1)[1]
os.write(terminal, b"cat -n &\n")
until(b"[1]")
os.write(terminal, b"fg\n")
until(b"\ncat -n")
os.write(terminal, b"typed\n")
until(b"1\ttyped")
os.write(terminal, b"\x1a")
until(b"Stopped  ")
until(b"$ ")
os.write(terminal, b"kill %1; echo over''done; exit\n")
until(b"overdone")
print("done")
"#;
    let sandbox = Box::new(["/usr/bin/python3", "program.py"]).file("program.py", program);
    assert_eq!(sandbox.output(), "done\n");
}

#[test]
fn a_rust_program_is_built() {
    let Some(home) = std::env::home_dir() else {
        return;
    };
    let chains = home.join(".rustup/toolchains");
    let Some(chain) = std::fs::read_dir(&chains)
        .ok()
        .and_then(|mut all| all.next())
    else {
        return;
    };
    let chain = chain.unwrap().path().canonicalize().unwrap();
    let line = format!("PATH={}/bin:$PATH cargo run -q --offline", chain.display());
    let sandbox = Box::shell(&line)
        .file(
            "Cargo.toml",
            "[package]\nname = \"made\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        )
        .file("src/main.rs", "fn main() { println!(\"done\"); }\n")
        .with(|spec| spec.view.read.push(chain.clone()));
    assert_eq!(sandbox.output(), "done\n");
}

#[test]
fn java_works_where_it_is() {
    if !Path::new("/usr/bin/java").exists() {
        return;
    }
    let source = "public class Made { public static void main(String[] all) throws Exception { \
                  Thread t = new Thread(() -> System.out.println(\"done\")); t.start(); t.join(); } }";
    let output =
        Box::shell("java -version 2>&1 | head -1; test ! -x /usr/bin/javac || java Made.java")
            .file("Made.java", source)
            .output();
    assert!(output.contains("version"), "{output}");
}

#[test]
fn standard_input_can_be_opened_by_its_name() {
    let output =
        Box::shell("echo text | cat /dev/stdin; echo more > /dev/stdout; : > /dev/null").output();
    assert_eq!(output, "text\nmore\n");
}
