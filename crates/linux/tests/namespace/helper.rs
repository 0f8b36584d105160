//! This test program as another process: a daemon to be killed, or a user without privileges.

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use signalbox_linux::netns::{self, Namespace};
use signalbox_linux::{Io, IoConfig, capability};

const PART: &str = "SBXT_PART";

/// A command that runs this program in `part`.
pub(crate) fn helper(part: &str) -> Command {
    helper_at(&env::current_exe().unwrap(), part)
}

/// The same for a copy of this program.
pub(crate) fn helper_at(program: &Path, part: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "helper::process", "--ignored", "--nocapture"]).env(PART, part);
    command
}

/// Not a test of its own.
#[test]
#[ignore = "a process for other tests"]
fn process() {
    let config = IoConfig::default();
    match env::var(PART).as_deref() {
        Ok("daemon") => {
            let _io = Io::open(&config).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("probe") => {
            capability::check(&config).iter().for_each(|missing| eprintln!("{missing}"));
            match Io::open(&config) {
                Ok(io) => io.close().unwrap(),
                Err(error) => eprintln!("not opened: {error}"),
            }
        }
        Ok("tcp-listener") => {
            let listener = TcpListener::bind("[::]:7000").unwrap();
            let _streams: Vec<_> = listener.incoming().take(2).collect();
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("user-namespace") if !netns::inside_user_namespace() => {
            assert!(!netns::is_permitted());
            assert!(netns::reexec_in_user_namespace().unwrap().success());
        }
        Ok("user-namespace") => {
            let namespace = Namespace::create("inner").unwrap();
            namespace.run(|| Io::open(&config).unwrap().close().unwrap()).unwrap();
            namespace.delete().unwrap();
            eprintln!("opened in a user namespace");
        }
        _ => {}
    }
}
