//! What the program prints as JSON, compared with `docs/schema` by an independent reader: every field has a place in its schema.
#![allow(missing_docs, reason = "tests")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the reader is installed: Debian's package python3-jsonschema.
fn reader_is_installed() -> bool {
    let import =
        Command::new("/usr/bin/python3").args(["-c", "import jsonschema"]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success())
}

/// Makes objects with named fields take no other ones: readers have to, but what we print has to be described.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") {
                object.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(all) => all.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn run(line: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_signalbox-lab");
    let mut command = Command::new(program);
    command.args(line.split(' ')).current_dir(repository());
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Checks that what a command prints obeys a schema, and that it ends with this status.
#[track_caller]
fn obeys(line: &str, schema: &str, status: i32) -> Vec<Value> {
    let output = run(line);
    let (said, lines) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(status), "{line}: {said}{lines}");
    assert!(!lines.trim().is_empty(), "{line}: no line");
    let objects = lines.lines().map(|line| {
        assert!(line.starts_with(r#"{"type":""#), "{line}");
        serde_json::from_str(line).expect("JSON")
    });
    let objects = objects.collect();
    let text =
        std::fs::read_to_string(repository().join(format!("docs/schema/{schema}.json"))).expect(schema);
    let mut closed: Value = serde_json::from_str(&text).expect("JSON");
    close(&mut closed);
    let file = std::env::temp_dir().join(format!("signalbox-{}-{schema}.json", std::process::id()));
    std::fs::write(&file, closed.to_string()).expect("the directory is writable");
    let mut reader = Command::new("/usr/bin/python3")
        .args([&repository().join("scripts/validate.py"), &file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python is there");
    reader.stdin.take().expect("piped").write_all(&output.stdout).expect("it reads");
    let read = reader.wait_with_output().expect("it ends");
    std::fs::remove_file(&file).expect("ours");
    let faults = String::from_utf8_lossy(&read.stdout) + String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{line}: {faults}\n{lines}");
    objects
}

/// A scenario of which a check does not hold.
const BROKEN: &str = r#"version = 2
name = "broken"
description = "a path that is another one"
topology = { chain = ["h1", "r1", "h2"], all_nodes = { protocols = ["gist", "ping"] } }
[params]
count = 2
[[steps]]
ping = { from = "h1", to = "h2", count = "${count}" }
[[checks]]
expect = "r1 is left out"
path = ["h1", "h2"]
[sweep.over]
count = [1, 2]
"#;

#[test]
fn what_the_program_prints_obeys_its_schema() {
    if !reader_is_installed() {
        eprintln!("skipped: python3-jsonschema is not installed");
        return;
    }
    let file = std::env::temp_dir().join(format!("signalbox-{}-broken.toml", std::process::id()));
    std::fs::write(&file, BROKEN).expect("the directory is writable");
    let broken = file.display();

    obeys("lab list --json", "lab_list", 0);
    obeys("lab steps --json", "lab_steps", 0);
    obeys("lab checks --json", "lab_checks", 0);
    obeys(&format!("lab check quickstart {broken} --json"), "lab_check", 0);
    obeys(&format!("lab check quickstart {broken} --set count=many --json"), "lab_check", 1);
    let [run] = &obeys("sim run gist-bypass --json", "sim_run", 0)[..] else { panic!("one object") };
    assert_eq!((run["type"].as_str(), run["ok"].as_bool()), (Some("sim_run"), Some(true)));
    let [run] =
        &obeys(&format!("sim run {broken} --set count=1 --fault lose:h1-r1@1s+1ms --json"), "sim_run", 1)[..]
    else {
        panic!("one object")
    };
    assert_eq!((&run["parameters"]["count"], &run["faults"][0]), (&1.into(), &"lose:h1-r1@1s+1ms".into()));
    let sum = Command::new("sha256sum").arg(&file).output().expect("coreutils");
    assert!(String::from_utf8_lossy(&sum.stdout).starts_with(run["digest"].as_str().expect("a digest")));
    obeys("sim campaign gist-bypass --seeds 2 --json", "sim_campaign", 0);
    let all = obeys(&format!("sim campaign {broken} --seeds 2 --all --json"), "sim_campaign", 1);
    assert_eq!(all.len(), 3, "two seeds and the campaign");
    obeys(&format!("sim shrink {broken} --seed 1 --json"), "sim_shrunk", 0);
    obeys("sim shrink gist-bypass --seed 1 --json", "sim_shrunk", 1);
    obeys("bench list --json", "bench_list", 0);
    obeys("lab reproduce --list --json", "lab_reproduce_list", 0);
    let out = std::env::temp_dir().join(format!("signalbox-{}-reproduction", std::process::id()));
    let repeat = format!("lab reproduce casp-2004/memory --json --out {}", out.display());
    let [whole] = &obeys(&repeat, "lab_reproduce", 0)[..] else { panic!("one object") };
    assert_eq!((&whole["counts"]["measured"], &whole["mode"]), (&2.into(), &"quick".into()));
    // What is kept is not measured again.
    let again = self::run(&repeat);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("1 commands, about 0 s; 1 of them are kept") && !said.contains("[1/1]"), "{said}");
    assert!(out.join("report.html").exists() && out.join("figures.csv").exists());
    std::fs::remove_dir_all(&out).expect("ours");
    obeys("bench engine boomerang --sessions 100,1000 --runs 1 --json", "bench", 0);
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn the_page_names_each_schema_of_the_lab() {
    let page = std::fs::read_to_string(repository().join("docs/schema/README.md")).expect("it is there");
    let files = std::fs::read_dir(repository().join("docs/schema")).expect("it is there").flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
    let ours = names.filter(|name| ["lab_", "sim_", "bench"].iter().any(|start| name.starts_with(start)));
    let ours: Vec<_> = ours.collect();
    assert!(ours.len() > 10, "{ours:?}");
    for name in ours {
        assert!(page.contains(&format!("`{name}`")), "docs/schema/README.md lacks {name}");
    }
}
