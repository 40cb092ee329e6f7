//! The runtime folder: sockets, pid file, the rendered nginx.conf. Nothing is written elsewhere.

pub mod arrival;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a unix socket: 108 bytes of `sockaddr_un`, the last of them zero.
const MAX_SOCKET_BYTES: usize = 107;

/// Why a runtime folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Its sockets could not be addressed.
    #[error(
        "{path:?} has {bytes} bytes, a unix socket takes at most {MAX_SOCKET_BYTES}: choose a shorter \
         --runtime-dir"
    )]
    TooLong {
        /// The path of the socket.
        path: PathBuf,
        /// The length of its path.
        bytes: usize,
    },
    /// It could not stand in nginx.conf.
    #[error(
        "{flag} {folder:?} contains a character that is special in nginx.conf: use letters, digits and \
         `/ - _ . + @ ~`"
    )]
    Odd {
        /// The flag that names the folder.
        flag: &'static str,
        /// The folder as the flag names it.
        folder: PathBuf,
    },
    /// Another oxigress works in the folder.
    #[error("another oxigress uses {0:?}: stop it or choose another --runtime-dir")]
    Taken(PathBuf),
    /// The file system says no.
    #[error("cannot use {path:?} for {flag}: {error}: name a folder that this user may write to")]
    Io {
        /// The flag that names the folder.
        flag: &'static str,
        /// The file or folder that the operation was on.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
}

const FLAG: &str = "--runtime-dir";

/// A folder, made if it is missing, whose path may stand in nginx.conf.
pub fn folder_for_conf(
    flag: &'static str,
    folder: &Path,
    mode: u32,
) -> Result<PathBuf, RuntimeError> {
    let io_error = |error| RuntimeError::Io { flag, path: folder.into(), error };
    DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(io_error)?;
    let folder = fs::canonicalize(folder).map_err(io_error)?;
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"/-_.+@~".contains(b);
    match folder.as_os_str().as_encoded_bytes().iter().all(is_plain) {
        true => Ok(folder),
        false => Err(RuntimeError::Odd { flag, folder }),
    }
}

/// The runtime folder of this process.
#[derive(Clone, Debug)]
pub struct Runtime {
    folder: PathBuf,
}

impl Runtime {
    /// Makes the folder if it is missing, with access for its owner only.
    pub fn open(folder: &Path) -> Result<Self, RuntimeError> {
        let runtime = Runtime { folder: folder_for_conf(FLAG, folder, 0o700)? };
        let longest = runtime.socket();
        let bytes = longest.as_os_str().len();
        if bytes > MAX_SOCKET_BYTES {
            return Err(RuntimeError::TooLong { path: longest, bytes });
        }
        // Sockets are 0666, nginx makes them so: the folder is what keeps others out.
        fs::set_permissions(&runtime.folder, Permissions::from_mode(0o700)).map_err(|error| {
            RuntimeError::Io { flag: FLAG, path: runtime.folder.clone(), error }
        })?;
        Ok(runtime)
    }

    /// Holds the folder for `role` until the answer is dropped; the kernel lets go when the process ends.
    pub fn lock(&self, role: &str) -> Result<File, RuntimeError> {
        let path = self.file(&format!("{role}.lock"));
        let io_error = |error| RuntimeError::Io { flag: FLAG, path: path.clone(), error };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(RuntimeError::Taken(self.folder.clone())),
            Err(fs::TryLockError::Error(error)) => {
                Err(RuntimeError::Io { flag: FLAG, path, error })
            }
        }
    }

    /// The absolute path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The Unix socket of nginx's configuration endpoint.
    pub fn socket(&self) -> PathBuf {
        self.file("configuration.sock")
    }

    /// Where nginx's stream hands on what it is to decrypt.
    pub fn decrypting(&self) -> PathBuf {
        self.file("decrypting.sock")
    }

    /// Every socket that nginx answers on here.
    pub fn sockets(&self) -> [PathBuf; 2] {
        [self.socket(), self.file("status.sock")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_too_deep_for_a_socket_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = Runtime::open(&folder.path().join("x".repeat(100))).unwrap_err().to_string();
        assert!(error.contains("choose a shorter --runtime-dir"), "{error}");
    }

    #[test]
    fn a_folder_that_nginx_conf_would_misread_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Runtime::open(&folder.path().join("a;b")), Err(RuntimeError::Odd { .. })));
    }

    #[test]
    fn a_folder_has_one_user_a_role_and_no_access_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(&folder.path().join("run")).unwrap();
        let lock = runtime.lock("nginx").unwrap();
        assert!(matches!(runtime.lock("nginx"), Err(RuntimeError::Taken(_))));
        assert!(runtime.lock("controller").is_ok());
        drop(lock);
        assert!(runtime.lock("nginx").is_ok());
        let mode = fs::metadata(runtime.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
