//! Output files that appear only when they are complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::DemoError;

/// Writes the contents of one file.
pub(crate) type Write<'a> = &'a dyn Fn(&mut File) -> io::Result<()>;

/// The folder for the results. On drop, folders that were created here and are still empty are removed. The
/// [shown](Self::show) file of a run without results is removed too.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Outermost first.
    made: Vec<PathBuf>,
    /// The file shown during the run. Without results, it is removed.
    shown: Option<PathBuf>,
}

impl Folder {
    /// Creates the folder if necessary, and checks that a file can be created in it.
    pub(crate) fn create(path: &Path) -> Result<Self, DemoError> {
        let missing = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        made.reverse();
        let folder = Self { path: path.to_owned(), made, shown: None };
        let ready = fs::create_dir_all(path).and_then(|()| folder.temporary().map(drop));
        ready.map_err(|source| DemoError::Write { path: path.to_owned(), source })?;
        Ok(folder)
    }

    /// Writes the file that is shown until there are results. It is replaced atomically: a reader sees the old file or
    /// the new one.
    pub(crate) fn show(&mut self, name: &str, write: Write<'_>) -> Result<(), DemoError> {
        let path = self.path.join(name);
        if let Err(error) = self.write(&path, write)?.persist(&path) {
            return Err(DemoError::Write { path, source: error.error });
        }
        self.shown = Some(path);
        Ok(())
    }

    /// Writes all files under temporary names and then renames them all. After an error, none of them exists.
    ///
    /// Returns the paths of all files written, including that of the shown file.
    pub(crate) fn save(&mut self, files: &[(&str, Write<'_>)]) -> Result<Vec<PathBuf>, DemoError> {
        let mut ready = Vec::new();
        for (name, write) in files {
            let path = self.path.join(name);
            let file = self.write(&path, *write)?;
            ready.push((path, file));
        }
        let mut saved: Vec<PathBuf> = Vec::new();
        for (path, file) in ready {
            if let Err(error) = file.persist(&path) {
                for earlier in saved {
                    // If this also fails, nothing more can be done. The first error is reported.
                    let _ = fs::remove_file(earlier);
                }
                return Err(DemoError::Write { path, source: error.error });
            }
            saved.push(path);
        }
        saved.extend(self.shown.take());
        Ok(saved)
    }

    /// Writes the contents for `path` under a temporary name.
    fn write(&self, path: &Path, write: Write<'_>) -> Result<NamedTempFile, DemoError> {
        self.temporary()
            .and_then(|mut file| write(file.as_file_mut()).map(|()| file))
            .map_err(|source| DemoError::Write { path: path.to_owned(), source })
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".terrain-");
        // As for any other file, the user's umask decides who may read it.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(&self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(path) = &self.shown {
            // A failure here cannot be reported.
            let _ = fs::remove_file(path);
        }
        for folder in self.made.iter().rev() {
            // Fails if the folder is not empty, as intended.
            let _ = fs::remove_dir(folder);
        }
    }
}
