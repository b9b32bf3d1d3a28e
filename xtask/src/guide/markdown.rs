//! Reads Markdown files.

/// The text of the code blocks in a language.
pub(crate) fn blocks<'a>(text: &'a str, language: &'a str) -> impl Iterator<Item = String> + 'a {
    let fences = text.split("\n```").skip(1).step_by(2);
    let named = fences.filter_map(|block| block.split_once('\n'));
    named.filter(move |(name, _)| *name == language).map(|(_, code)| format!("{code}\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::Parser;

    use super::*;
    use crate::Cli;
    use crate::cargo::root;

    /// The Markdown files of the repository.
    fn files() -> Vec<PathBuf> {
        fn add(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy();
                if path.is_dir() && name != "target" && !name.starts_with('.') {
                    add(&path, files);
                } else if name.ends_with(".md") {
                    files.push(path);
                }
            }
        }
        let mut files = Vec::new();
        add(&root(), &mut files);
        assert!(files.len() > 40, "{files:?}");
        files
    }

    /// The lines outside code blocks.
    fn prose(text: &str) -> Vec<&str> {
        let mut is_code = false;
        let mut is_prose = |line: &&str| {
            is_code ^= line.starts_with("```");
            !is_code
        };
        text.lines().filter(|line| is_prose(line)).collect()
    }

    /// The names by which links reach headings.
    fn anchors(text: &str) -> Vec<String> {
        let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
        let anchor = |heading: &str| {
            let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            let letters = heading.trim_start_matches('#').trim().chars().filter(kept);
            letters.collect::<String>().to_lowercase().replace(' ', "-")
        };
        headings.map(anchor).collect()
    }

    #[test]
    fn links_between_files_lead_somewhere() {
        let mut texts = BTreeMap::new();
        for file in files() {
            texts.insert(file.canonicalize().unwrap(), fs::read_to_string(&file).unwrap());
        }
        let (mut links, mut broken) = (0, Vec::new());
        for (file, text) in &texts {
            let prose = prose(text).join("\n");
            for (_, rest) in prose.match_indices("](").map(|(at, _)| prose.split_at(at + 2)) {
                let Some((link, _)) = rest.split_once(')') else { continue };
                let is_of_rustdoc = link.contains("::") || !link.contains(['/', '.', '#']);
                if link.contains("://") || is_of_rustdoc {
                    continue;
                }
                links += 1;
                let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
                let target = file.parent().unwrap().join(path);
                let target = if path.is_empty() { file.clone() } else { target };
                let is_there = target.canonicalize().is_ok_and(|target| match texts.get(&target) {
                    Some(text) => {
                        fragment.is_empty() || anchors(text).iter().any(|a| a == fragment)
                    }
                    None => true,
                });
                if !is_there {
                    broken.push(format!("{}: {link}", file.display()));
                }
            }
        }
        assert!(links > 200, "{links}");
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    #[test]
    fn commands_in_the_docs_exist() {
        let mut count = 0;
        for file in files() {
            let text = fs::read_to_string(&file).unwrap();
            for line in blocks(&text, "sh")
                .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
            {
                let Some((_, command)) = line.split_once("cargo xtask ") else { continue };
                let command = command.split(['#', '|', '>']).next().unwrap_or_default();
                let words = ["cargo xtask"].into_iter().chain(command.split_whitespace());
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{}: {line}: {error}", file.display());
                }
                count += 1;
            }
        }
        assert!(count >= 10, "{count}");
    }

    #[test]
    fn each_chapter_begins_with_a_program() {
        let guide = root().join("docs/guide");
        let pages = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
        let pages: Vec<&str> =
            pages.split("(guide/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(pages.len() > 20, "{pages:?}");
        for page in pages.into_iter().filter(|page| *page != "overview.md") {
            let text = fs::read_to_string(guide.join(page)).unwrap();
            let language = text.split("\n```").nth(1).and_then(|block| block.lines().next());
            assert!(matches!(language, Some("rust" | "python")), "{page} begins with {language:?}");
            if language == Some("rust") {
                let program = blocks(&text, "rust").next().unwrap();
                assert!(program.contains("\nfn main() -> "), "{page}: {program}");
            }
        }
    }
}
