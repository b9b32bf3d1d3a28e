//! The links of the built book.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, ensure};

use crate::cargo::root;

/// Checks all links of all pages that lead to files, and returns their number. Links to files of the repository that
/// are not in the book, such as sources, are changed to lead there.
pub(super) fn connect(book: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    read(book, book, &mut pages)?;
    let (mut count, mut broken) = (0, Vec::new());
    for (page, text) in &pages {
        let mut connected = String::with_capacity(text.len());
        let mut rest = &text[..];
        while let Some((start, end)) = next_link(rest) {
            connected.push_str(&rest[..start]);
            let link = &rest[start..end];
            rest = &rest[end..];
            match resolve(book, page, link, &pages) {
                Some(link) => connected.push_str(&link),
                None => broken.push(format!("{}: {link}", page.display())),
            }
            count += 1;
        }
        connected.push_str(rest);
        if connected != *text {
            fs::write(book.join(page), connected)?;
        }
    }
    ensure!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    Ok(count)
}

/// Adds the pages in a folder, with their text.
fn read(book: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(book, &path, pages)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            pages.insert(path.strip_prefix(book)?.to_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The place of the next link in a page.
fn next_link(text: &str) -> Option<(usize, usize)> {
    let attributes = ["href=\"", "src=\""];
    let found = attributes.iter().filter_map(|word| Some(text.find(word)? + word.len()));
    let start = found.min()?;
    Some((start, start + text[start..].find('"')?))
}

/// The link as it should be, or `None` if it leads nowhere.
fn resolve(
    book: &Path,
    page: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, String>,
) -> Option<String> {
    if link.contains(':') {
        return Some(link.to_owned()); // of the web, which is not asked
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent()?;
    let target = if path.is_empty() { page.to_owned() } else { folder.join(path) };
    if let Some(target) = normal(&target) {
        let is_there = match pages.get(&target) {
            Some(text) => fragment.is_empty() || text.contains(&format!("id=\"{fragment}\"")),
            None => book.join(&target).exists(),
        };
        return is_there.then(|| link.to_owned());
    }
    // The book has the folders of `docs`.
    let target = normal(&Path::new("docs").join(&target))?;
    let source = target.with_extension("md");
    let target = if root().join(&target).exists() { target } else { source };
    let is_there = root().join(&target).exists();
    let fragment = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
    let up = "../".repeat(folder.components().count() + 3); // the book is in target/guide/book
    is_there.then(|| format!("{up}{}{fragment}", target.display()))
}

/// The path without `.` and `..`, or `None` if it begins outside.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => normal.pop().then_some(())?,
            _ => {}
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_leave_the_book_or_lead_nowhere() {
        let text = r#"<h2 id="there"></h2>"#.to_owned();
        let pages = BTreeMap::from([
            (PathBuf::from("halo.html"), text),
            (PathBuf::from("guide/memory.html"), String::new()),
        ]);
        let resolved =
            |link| resolve(Path::new("/none"), Path::new("guide/memory.html"), link, &pages);
        assert_eq!(resolved("../halo.html#there").as_deref(), Some("../halo.html#there"));
        assert_eq!(resolved("../halo.html#elsewhere"), None);
        assert_eq!(resolved("kernels.html"), None);
        assert_eq!(resolved("../../README.html").as_deref(), Some("../../../../README.md"));
        assert_eq!(resolved("../../xtask/src").as_deref(), Some("../../../../xtask/src"));
        assert_eq!(resolved("../../no-such-file.rs"), None);
        assert_eq!(resolved("https://example.org").as_deref(), Some("https://example.org"));
    }
}
