//! A page of Markdown, as far as the checks read it.

use super::pages::{normal, text};
use anyhow::{Result, ensure};
use oxigress_tests::dist;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Page {
    /// From the top of the repository.
    pub path: PathBuf,
    pub text: String,
}

pub struct Block {
    /// Number of the first line behind the fence.
    pub line: usize,
    /// The word behind the opening fence.
    pub language: String,
    pub text: String,
}

/// All pages: those at the top, of docs/, tests/ and nginx-build/.
pub fn all() -> Result<Vec<Page>> {
    let files = files(Path::new(""))?;
    let is_page = |path: &PathBuf| {
        let top = path.components().next().and_then(|part| part.as_os_str().to_str());
        let is_here = path.parent() == Some(Path::new(""))
            || matches!(top, Some("docs" | "tests" | "nginx-build"));
        is_here && path.extension().is_some_and(|ending| ending == "md")
    };
    let pages: Vec<_> = files
        .iter()
        .filter(|path| is_page(path))
        .map(|path| Page::read(path))
        .collect::<Result<_>>()?;
    ensure!(pages.len() > 30, "only {} pages were found", pages.len());
    Ok(pages)
}

/// Files that may cite a page: everything but pages.
pub fn sources() -> Result<Vec<PathBuf>> {
    let mut files = files(Path::new(""))?;
    files.retain(|path| path.extension().is_none_or(|ending| ending != "md" && ending != "lock"));
    Ok(files)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dist::repository().join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        let path = folder.join(name);
        match entry.file_type()? {
            kind if kind.is_dir() => found.extend(files(&path)?),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// The commands that docs/reference/commands.md lists; a test of the controller compares them with the program.
pub fn commands_of_the_program() -> Result<BTreeSet<String>> {
    let page = text(Path::new("docs/reference/commands.md"))?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let spans = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut names: BTreeSet<_> =
        spans.filter_map(|span| span.split(' ').next()).map(String::from).collect();
    names.extend(["controller", "nginx"].map(String::from));
    ensure!(names.contains("explain"), "{names:?}");
    Ok(names)
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.replace('`', "").trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A line's words as a shell cuts them, without expanding anything.
pub fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if c == '\'' || c == '"' => (quote, is_word) = (Some(c), true),
            None if c.is_whitespace() => {
                if is_word || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            None if c == '#' && word.is_empty() && !is_word => break,
            None => word.push(c),
        }
    }
    if is_word || !word.is_empty() {
        all.push(word);
    }
    all
}

/// The commands of a line that pipes, `&&` and `;` join, without `sudo`, `kubectl exec ... --` and variables before them.
pub fn simple_commands(line: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote) = (vec![], String::new(), None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if matches!(c, '|' | ';' | '&' | '(' | ')') => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    let bare = |part: &String| {
        let part = part.split_once(" -- ").map_or(part.as_str(), |(_, command)| command).trim();
        let mut rest = part.strip_prefix("sudo ").unwrap_or(part);
        while let Some((first, others)) = rest.split_once(' ') {
            let is_variable =
                first.contains('=') && first.starts_with(|c: char| c.is_ascii_uppercase());
            if !is_variable {
                break;
            }
            rest = others;
        }
        rest.to_owned()
    };
    parts.iter().map(bare).filter(|part| !part.is_empty()).collect()
}

impl Page {
    /// A page of the repository.
    pub fn read(path: &Path) -> Result<Page> {
        Ok(Page { path: normal(path), text: text(path)? })
    }

    /// The file that a relative link leads to.
    pub fn beside(&self, link: &str) -> PathBuf {
        normal(&self.path.parent().unwrap_or(Path::new("")).join(link))
    }

    /// Lines that are not within fences, with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_code = false;
        self.text.lines().zip(1..).filter_map(move |(line, number)| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            (!is_code && !is_fence).then_some((number, line))
        })
    }

    /// Text that can be wrapped: no tables, headings, pictures and code.
    pub fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, line)| !line.starts_with(['|', '#', '<', '!', '[']))
    }

    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.lines() {
            let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
            for part in without_code.split("](").skip(1) {
                found.extend(part.split_once(')').map(|(url, _)| (number, url.to_owned())));
            }
        }
        found
    }

    pub fn anchors(&self) -> BTreeSet<String> {
        let headings = self.lines().filter(|(_, line)| line.starts_with('#'));
        headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
    }

    pub fn spans(&self) -> Vec<(usize, String)> {
        let spans = |(number, line): (usize, &str)| {
            let spans = line
                .split('`')
                .skip(1)
                .step_by(2)
                .map(move |span| (number, span.replace("\\|", "|")));
            spans.collect::<Vec<_>>()
        };
        self.lines().flat_map(spans).collect()
    }

    pub fn blocks(&self) -> Vec<Block> {
        let (mut found, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
        for (line, number) in self.text.lines().zip(1..) {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => found.extend(open.take()),
                (None, Some(language)) => {
                    open = Some(Block {
                        line: number + 1,
                        language: language.into(),
                        text: String::new(),
                    });
                }
                (Some(block), None) => {
                    block.text += line;
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        found
    }

    /// Words, without those of tables' borders.
    pub fn word_count(&self) -> usize {
        let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
        self.text.split_whitespace().filter(is_word).count()
    }

    /// The first thing behind the title, or behind one paragraph, is code.
    pub fn begins_with_an_example(&self) -> bool {
        let mut paragraphs = self.text.split("\n\n").skip(1);
        paragraphs.by_ref().take(2).any(|paragraph| paragraph.starts_with("```"))
    }
}

impl Block {
    pub fn is_shell(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console")
    }

    /// Command lines, continued lines joined, with their numbers. In a `console` block those behind a prompt.
    pub fn commands(&self) -> Vec<(usize, String)> {
        let (mut found, mut open): (Vec<(usize, String)>, bool) = (Vec::new(), false);
        let is_console = self.language == "console";
        for (line, number) in self.text.lines().zip(self.line..) {
            let line = line.trim();
            let is_prompt = line.starts_with("$ ");
            match found.last_mut() {
                Some((_, last)) if open => {
                    last.push(' ');
                    last.push_str(line.trim_end_matches('\\'));
                }
                _ if is_console && !is_prompt => continue,
                _ => found
                    .push((number, line.trim_start_matches("$ ").trim_end_matches('\\').into())),
            }
            let is_quoted = |last: &(usize, String)| last.1.matches('\'').count() % 2 == 1;
            open = line.ends_with('\\') || found.last().is_some_and(is_quoted);
        }
        found.retain(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        found
    }
}
