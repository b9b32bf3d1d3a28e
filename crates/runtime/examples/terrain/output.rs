//! Output files that appear only when they are complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// The name of a file, and what writes its contents.
pub(crate) type Output<'a> = (&'a str, &'a dyn Fn(&mut File) -> Result<()>);

/// The folder for the results. On drop, folders that were created here and are still empty are removed, and so is the
/// [shown](Self::show) file of a run without results.
pub(crate) struct Folder {
    path: PathBuf,
    /// Innermost first.
    made: Vec<PathBuf>,
    shown: Vec<PathBuf>,
}

impl Folder {
    /// Creates the folder if necessary, and checks that a file can be created in it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        let folder = Self { path: path.to_owned(), made, shown: Vec::new() };
        let ready = fs::create_dir_all(path).map_err(Into::into);
        ready.and_then(|()| folder.temporary(&|_| Ok(()))).with_context(|| cannot_write(path))?;
        Ok(folder)
    }

    /// Writes a file that is shown until there are results. A reader sees the old file or the new one.
    pub(crate) fn show(&mut self, file: Output<'_>) -> Result<()> {
        self.shown = self.write(&[file])?;
        Ok(())
    }

    /// Writes all files. After an error, none of them exists. Returns the paths of all files, the shown one included.
    pub(crate) fn save(&mut self, files: &[Output<'_>]) -> Result<Vec<PathBuf>> {
        let mut saved = self.write(files)?;
        saved.append(&mut self.shown);
        Ok(saved)
    }

    /// Writes files under temporary names, and then renames them all.
    fn write(&self, files: &[Output<'_>]) -> Result<Vec<PathBuf>> {
        let (mut ready, mut saved) = (Vec::new(), Vec::new());
        for (name, write) in files {
            let path = self.path.join(name);
            ready.push((self.temporary(write).with_context(|| cannot_write(&path))?, path));
        }
        for (file, path) in ready {
            if let Err(error) = file.persist(&path) {
                // If this also fails, nothing more can be done. The first error is reported.
                saved.iter().for_each(|earlier| drop(fs::remove_file(earlier)));
                return Err(error.error).with_context(|| cannot_write(&path));
            }
            saved.push(path);
        }
        Ok(saved)
    }

    fn temporary(&self, write: &dyn Fn(&mut File) -> Result<()>) -> Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        // As for any other file, the user's umask decides who may read it.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.prefix(".terrain-").tempfile_in(&self.path)?;
        write(file.as_file_mut()).map(|()| file)
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Failures cannot be reported. A folder that is not empty stays, as intended.
        self.shown.iter().for_each(|file| drop(fs::remove_file(file)));
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}
