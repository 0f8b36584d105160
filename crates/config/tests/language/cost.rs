//! What it costs to check a configuration that is full of mistakes.
//!
//! The test runs its own program again under valgrind, which counts instructions inside [`checked_counted`]. The count does not
//! depend on the load of the machine.

use std::path::Path;
use std::process::Command;

use signalbox_config::parse;

/// Set in the environment of the program that callgrind runs.
const CHILD: &str = "SIGNALBOX_COST_OF_MISTAKES";
/// Octets of a short and of a long configuration.
const SIZES: [usize; 2] = [8 << 10, 32 << 10];
/// How much more the long one may cost. What is linear costs four times as much, and a constant part makes it less; 1 MiB costs at most
/// 32 times as much as the long one, with this tolerance 64 times.
const MOST: f64 = 4.6;

/// A kind of mistake: the text before the lines, the line of a number, and the text behind them.
type Kind = (&'static str, &'static str, fn(usize) -> String, &'static str);

const KINDS: &[Kind] = &[
    ("unknown keys", "", |n| format!("unknown{n:05} = 1\n"), ""),
    ("unknown tables", "", |n| format!("[unknown{n:05}]\na = 1\n"), ""),
    ("keys with dots", "", |n| format!("node.unknown{n:05}.a.b.c = 1\n"), ""),
    ("a key many times", "[node]\n", |_| "name = \"a\"\n".to_owned(), ""),
    ("no language", "", |n| format!("= = [{n}\n"), ""),
    ("elements of a list", "[node]\nprotocols = [", |n| format!("\"x{n:05}\",\n"), "]\n"),
    ("interfaces", "", |n| format!("[interfaces.e{n:05}]\ncapacity = 5\n"), ""),
    ("rules", "", |n| format!("[[policy.rules]]\nname = \"r{n}\"\naction = 5\nfrom = [\"x\", \"y\"]\n"), ""),
    ("rules of one name", "", |_| "[[policy.rules]]\nname = \"r\"\naction = \"deny\"\n".to_owned(), ""),
    ("files", "include = [", |n| format!("\"no{n}.toml\",\n"), "]\n"),
];

fn text(&(_, before, line, after): &Kind, octets: usize) -> String {
    let mut text = before.to_owned();
    for n in 0.. {
        text.push_str(&line(n));
        if text.len() + after.len() >= octets {
            break;
        }
    }
    text + after
}

/// Callgrind collects here, and nowhere else.
#[inline(never)]
fn checked_counted(text: &str) -> usize {
    parse(Path::new("node.toml"), text).findings.len()
}

/// Callgrind writes a file before this function.
#[inline(never)]
fn checked_mark() {
    std::hint::black_box(());
}

#[test]
fn a_check_costs_in_proportion_to_the_text() {
    if std::env::var_os(CHILD).is_some() {
        for kind in KINDS {
            for octets in SIZES {
                let text = text(kind, octets);
                checked_mark();
                let found = checked_counted(&text);
                assert!((1..=202).contains(&found), "{}: {found} findings", kind.0);
            }
        }
        checked_mark();
        return;
    }
    let directory = std::env::temp_dir().join(format!("signalbox-mistakes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*checked_counted*"])
        .args(["--dump-before=*checked_mark*", "--combine-dumps=no"])
        .arg(format!("--callgrind-out-file={}/out", directory.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "cost::a_check_costs_in_proportion_to_the_text", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output();
    let run = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("valgrind is not installed: nothing is counted");
            return;
        }
        run => run.unwrap(),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut wrong = Vec::new();
    for (at, (name, ..)) in KINDS.iter().enumerate() {
        // File 1 was written before the first text.
        let [short, long] =
            [2, 3].map(|file| instructions(&directory.join(format!("out.{}", 2 * at + file))));
        let times = long / short;
        eprintln!("{name}: {short} and {long} instructions, {times:.2} times as many");
        if times > MOST {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "more than in proportion: {wrong:?}");
    std::fs::remove_dir_all(&directory).unwrap();
}

fn instructions(file: &Path) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap().trim().parse().unwrap()
}
