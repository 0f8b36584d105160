//! Files that a configuration names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a regular file of `most` octets at most. Opening a pipe or a device does not wait.
///
/// # Errors
/// There is no such file, it may not be read, it is no regular file, or it is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // The metadata are those of the open file: the name may lead to another one a moment later.
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    limited(&file, most)
}

/// The same for a text.
///
/// # Errors
/// As above, or it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn limited(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    file.take(most + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > most {
        let text = format!("it has more than {most} octets");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn devices_pipes_directories_and_large_files_are_refused() {
        let directory = std::env::temp_dir().join(format!("sbxt-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (pipe, file) = (directory.join("pipe"), directory.join("file"));
        mkfifo(&pipe, Mode::S_IRUSR).unwrap();
        std::fs::write(&file, "12345").unwrap();
        let fault = |path: &Path, most| read_text(path, most).unwrap_err().to_string();
        for path in [Path::new("/dev/zero"), &pipe, &directory] {
            assert_eq!(fault(path, 5), "it is no regular file");
        }
        assert_eq!(fault(&file, 4), "it has more than 4 octets");
        assert_eq!(read_text(&file, 5).unwrap(), "12345");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
