//! Compiled programs cached on disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// Most bytes that a cache keeps.
const CAPACITY: u64 = 256 << 20;
/// The suffix of the names of entries. Other files in the folder do not belong to the cache.
const SUFFIX: &str = ".program";
/// Number of bytes in the checksum at the start of each entry.
const CHECKSUM: usize = 32;

/// A folder of compiled programs, shared by any number of threads and processes.
///
/// An entry is found by its [`CacheKey`], which covers all inputs and the target. It is written to a temporary file in
/// the same folder and then moved into place, so no reader sees an incomplete entry. A damaged entry counts as missing.
/// Beyond 256 MiB, the entries written longest ago are removed.
///
/// The contents will be executed. Therefore, on Unix, a folder is used only if it belongs to this user or to root, and
/// its mode gives no write access to its group or to others. Access control lists, the folders that contain it, and the
/// owners of the entries are not checked. On other systems nothing is checked.
///
/// ```
/// use backend_support::{CacheKey, DiskCache};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let cache = DiskCache::new(folder.join("programs"));
/// let key = CacheKey::new().with("kernel void k() {}").with("driver 3.1");
/// assert_eq!(cache.get(&key), None);
/// cache.put(&key, b"compiled")?;
/// assert_eq!(cache.get(&key).as_deref(), Some(&b"compiled"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DiskCache {
    folder: PathBuf,
}

/// The inputs and the target of an entry: source, options, compiler, device.
#[derive(Clone, Debug, Default)]
pub struct CacheKey(Sha256);

impl CacheKey {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part. The boundaries between parts are significant.
    #[must_use]
    pub fn with(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    fn name(&self) -> String {
        let digits: String =
            self.0.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        digits + SUFFIX
    }
}

/// Whether the result of compiling C source may depend on other files, which are not part of any key. May return `true`
/// although no file is read in the end.
pub fn reads_files<'a>(source: &str, options: impl IntoIterator<Item = &'a str>) -> bool {
    // The preprocessor joins words that are continued on the next line.
    let mut joined = String::with_capacity(source.len());
    let mut continued = false;
    // Compilers end a line at "\n", at "\r", and at both in either order.
    for line in source.split(['\n', '\r']) {
        if continued && line.is_empty() {
            continue;
        }
        // C knows no other white space: a backslash before another character continues no line.
        let end = line.trim_end_matches([' ', '\t', '\x0b', '\x0c']);
        let begun = end.strip_suffix('\\').or_else(|| end.strip_suffix("??/"));
        continued = begun.is_some();
        match begun {
            Some(begun) => joined.push_str(begun),
            None => joined.extend([line, "\n"]),
        }
    }
    // Assembly can read files. Its directives may be hidden: the compiler joins strings.
    let has_assembly = |text: &str| {
        let mut parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        parts.any(|word| ["asm", "__asm", "__asm__"].contains(&word))
    };
    let words = ["include", "import", "embed", "incbin"];
    let names_one = |option: &str| {
        let value = option.split_once('=').map_or(option, |(_, value)| value);
        option.starts_with('@')
            || has_assembly(option)
            || words.iter().chain(&["imacros"]).any(|word| option.contains(word))
            || Path::new(value).is_file()
    };
    has_assembly(&joined)
        || words.iter().any(|word| joined.contains(word))
        || options.into_iter().any(names_one)
}

/// Identifies a file and its version: path without links, length, and modification time.
pub fn stamp(file: &Path) -> String {
    let path = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let metadata = fs::metadata(&path).ok();
    let found = metadata.map(|found| (found.len(), found.modified().ok()));
    format!("{} {found:?}", path.display())
}

impl DiskCache {
    /// A cache in `folder`. The folder is created when the first entry is written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The cache of this user for programs of `kind`. `None` if the system has no folder for caches.
    pub fn of_user(kind: &str) -> Option<Self> {
        Some(Self::new(dirs::cache_dir()?.join("device-runtime").join(kind)))
    }

    /// The folder that contains the entries.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the entry, if it is a file, not damaged, and no longer than the cache.
    pub fn get(&self, key: &CacheKey) -> Option<Vec<u8>> {
        check_private(&self.folder).ok()?;
        let path = self.folder.join(key.name());
        // Only a regular file has an end. A pipe would wait for its writer.
        fs::metadata(&path).ok().filter(|found| found.is_file() && found.len() <= CAPACITY)?;
        let mut entry = Vec::new();
        File::open(path).ok()?.take(CAPACITY).read_to_end(&mut entry).ok()?;
        let (checksum, content) = entry.split_at_checked(CHECKSUM)?;
        if Sha256::digest(content).as_slice() != checksum {
            return None;
        }
        drop(entry.drain(..CHECKSUM));
        Some(entry)
    }

    /// Stores an entry. Replaces an existing one.
    ///
    /// # Errors
    ///
    /// Errors of the file system. `PermissionDenied` for a folder that is [not used](Self).
    pub fn put(&self, key: &CacheKey, content: &[u8]) -> io::Result<()> {
        make(&self.folder)?;
        check_private(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&Sha256::digest(content))?;
        file.write_all(content)?;
        file.persist(self.folder.join(key.name())).map_err(|error| error.error)?;
        self.make_room(CAPACITY)
    }

    /// Removes an entry, if it exists.
    pub fn remove(&self, key: &CacheKey) {
        // Another process may have removed it first.
        drop(fs::remove_file(self.folder.join(key.name())));
    }

    /// Removes the oldest entries until at most `capacity` bytes are left.
    fn make_room(&self, capacity: u64) -> io::Result<()> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // An entry that another process removes in the meantime is not counted.
            let Ok(entry) = entry else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            if !entry.file_name().to_string_lossy().ends_with(SUFFIX) {
                continue;
            }
            let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            entries.push((written, metadata.len(), entry.path()));
        }
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= capacity {
                break;
            }
            drop(fs::remove_file(path));
            total -= bytes;
        }
        Ok(())
    }
}

/// Creates a folder that other users cannot write to, because its contents will be executed.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Refuses a folder to which other users could add programs.
fn check_private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(folder)?;
        check_access(found.uid(), found.mode(), nix::unistd::geteuid().as_raw())
            .map_err(|message| io::Error::new(io::ErrorKind::PermissionDenied, message))?;
    }
    #[cfg(not(unix))]
    fs::metadata(folder)?;
    Ok(())
}

/// Refuses a folder of another user than `user` and root, and a mode that lets others write.
#[cfg(unix)]
fn check_access(owner: u32, mode: u32, user: u32) -> Result<(), String> {
    const ROOT: u32 = 0;
    if mode & 0o022 != 0 {
        return Err(format!("others can write to the folder (mode {:o})", mode & 0o7777));
    }
    if owner != user && owner != ROOT {
        return Err(format!("the folder belongs to user {owner}, and this process to user {user}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn cache() -> (tempfile::TempDir, DiskCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(folder.path().join("a").join("b"));
        (folder, cache)
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_entries() {
        let (_folder, cache) = cache();
        let key = CacheKey::new().with("a");
        cache.put(&key, b"1").unwrap();
        let entry = cache.folder().join(key.name());
        fs::remove_file(&entry).unwrap();
        // Reading this file to its end never ends.
        std::os::unix::fs::symlink("/dev/zero", &entry).unwrap();
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"2").unwrap();
        assert_eq!(cache.get(&key).unwrap(), b"2");
    }

    #[test]
    fn parts_of_a_key_do_not_run_together() {
        let (_folder, cache) = cache();
        cache.put(&CacheKey::new().with("ab").with("c"), b"1").unwrap();
        assert_eq!(cache.get(&CacheKey::new().with("a").with("bc")), None);
        assert_eq!(cache.get(&CacheKey::new().with("ab").with("c")).unwrap(), b"1");
    }

    #[test]
    fn sources_and_options_that_read_files_are_known() {
        for source in [
            "#include \"value.h\"",
            "  # include <value.h>",
            "#inc\\\nlude \"value.h\"",
            "#inc\\ \r\nlude \"value.h\"",
            "#inc\\\rlude \"value.h\"",
            "#inc\\\n\rlude \"value.h\"",
            "#inc??/\nlude \"value.h\"",
            "#import \"value.h\"",
            "asm(\".incbin \\\"value\\\"\");",
            "#em\\\nbed \"value\"",
            "__asm__(\".inc\" \"bin \\\"value\\\"\");",
            "as\\\nm volatile(TEXT);",
            "#define NOW __asm",
            "// x\\\u{a0}\n__asm__(\"value\");",
        ] {
            assert!(reads_files(source, []), "{source}");
        }
        let source = "#define inc \\\n lude\nint k = 1 / 2, plasma;";
        assert!(!reads_files(source, ["-O3", "-DA=B", "-I/tmp"]));
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let named = format!("-fprofile={path}");
        for option in
            ["-imacros", "@options", "-DA=asm", "-include", "--pre-include=x.h", path, &named]
        {
            assert!(reads_files("", ["-O3", option]), "{option}");
        }
    }

    #[test]
    fn a_file_that_is_written_again_has_another_stamp() {
        let (folder, _) = cache();
        let file = folder.path().join("library.so");
        let missing = stamp(&file);
        fs::write(&file, "1").unwrap();
        let first = stamp(&file);
        fs::write(&file, "22").unwrap();
        let stamps = [missing, first, stamp(&file)];
        assert!(stamps.iter().all(|stamp| stamp.contains("library.so")));
        assert!(stamps[0] != stamps[1] && stamps[1] != stamps[2], "{stamps:?}");
    }

    #[test]
    fn a_damaged_entry_is_missing() {
        let (_folder, cache) = cache();
        let key = CacheKey::new().with("k");
        cache.put(&key, b"content").unwrap();
        let path = cache.folder().join(key.name());
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        for damaged in [&bytes[..], &bytes[..10], &[]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(&key), None, "{} bytes", damaged.len());
        }
        cache.put(&key, b"content").unwrap();
        assert!(cache.get(&key).is_some());
        cache.remove(&key);
        assert_eq!(cache.get(&key), None);
    }

    #[test]
    fn concurrent_writers_leave_complete_entries() {
        let (_folder, cache) = cache();
        let key = CacheKey::new().with("k");
        thread::scope(|scope| {
            for writer in 0..4_u8 {
                let (cache, key) = (&cache, &key);
                scope.spawn(move || {
                    for _ in 0..20 {
                        cache.put(key, &vec![writer; 100_000]).unwrap();
                        let found = cache.get(key).unwrap();
                        assert!(found.iter().all(|byte| *byte == found[0]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1);
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let (_folder, cache) = cache();
        for number in 0..5_u8 {
            cache.put(&CacheKey::new().with([number]), &[number; 1000]).unwrap();
            thread::sleep(std::time::Duration::from_millis(10));
        }
        cache.make_room(2500).unwrap();
        let left: Vec<bool> =
            (0..5_u8).map(|n| cache.get(&CacheKey::new().with([n])).is_some()).collect();
        assert_eq!(left, [false, false, false, true, true]);
    }

    #[test]
    fn other_files_in_the_folder_are_not_removed() {
        let (_folder, cache) = cache();
        cache.put(&CacheKey::new(), &[1; 1000]).unwrap();
        let other = cache.folder().join("thesis.dat");
        fs::write(&other, [0; 5000]).unwrap();
        cache.make_room(1500).unwrap();
        assert!(other.exists() && cache.get(&CacheKey::new()).is_some());
        cache.make_room(0).unwrap();
        assert!(other.exists() && cache.get(&CacheKey::new()).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, cache) = cache();
        cache.put(&CacheKey::new(), b"mine").unwrap();
        fs::set_permissions(cache.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(cache.get(&CacheKey::new()), None);
        let error = cache.put(&CacheKey::new(), b"mine").unwrap_err();
        assert!(error.to_string().contains("777"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_of_another_user_is_not_used() {
        for (owner, user) in [(1000, 1000), (0, 1000), (0, 0)] {
            assert_eq!(check_access(owner, 0o40755, user), Ok(()));
        }
        for (owner, user) in [(1001, 1000), (1000, 0)] {
            let error = check_access(owner, 0o40700, user).unwrap_err();
            assert!(error.contains(&format!("user {owner}")), "{error}");
        }
        // Only root can give a folder away.
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (_folder, cache) = cache();
        cache.put(&CacheKey::new(), b"mine").unwrap();
        std::os::unix::fs::chown(cache.folder(), Some(1000), None).unwrap();
        assert_eq!(cache.get(&CacheKey::new()), None);
        let error = cache.put(&CacheKey::new(), b"mine").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn the_folder_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, cache) = cache();
        cache.put(&CacheKey::new(), b"").unwrap();
        let mode = fs::metadata(cache.folder()).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}
