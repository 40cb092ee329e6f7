//! `.test` files: blocks of named sections, as Test::Nginx writes them.
//!
//! ```text
//! === a prefix matches whole segments only
//! --- ingress
//! { host: shop.test, path: /cart, pathType: Prefix, backend: cart }
//! --- request
//! GET /carts
//! Host: shop.test
//! --- error_code: 404
//! ```
//! Shape:   `=== title`, then `--- name`, `--- name arguments`, `--- name: value`; a section without an inline
//!          value has the lines up to the next one. Lines before the first section are remarks.
//! Errors:  a file that cannot be read as blocks, with its line.

use anyhow::{Result, bail, ensure};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub title: String,
    /// Number of the title's line in the file.
    pub line: usize,
    /// In the order of the file, which is the order in which they act.
    pub sections: Vec<Section>,
}

/// One section of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    /// What stands behind the name.
    pub arguments: String,
    /// The inline value, or the lines below joined by line feeds, without empty lines at the end.
    pub value: String,
    /// Number of the first line in the file.
    pub line: usize,
}

/// The blocks of a file.
pub fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(title) = line.strip_prefix("===") {
            let title = title.trim().to_owned();
            ensure!(!title.is_empty(), "line {number}: a block without title");
            ensure!(
                blocks.iter().all(|block| block.title != title),
                "line {number}: a second block `{title}`"
            );
            blocks.push(Block { title, line: number, sections: Vec::new() });
        } else if let Some(head) = line.strip_prefix("--- ") {
            let Some(block) = blocks.last_mut() else {
                bail!("line {number}: a section before the first block");
            };
            block.sections.push(section(head, number)?);
        } else if line.starts_with("---") && line.trim_end() != "---" {
            bail!("line {number}: `--- name` needs a space");
        } else if let Some(block) = blocks.last_mut() {
            if let Some(section) = block.sections.last_mut() {
                section.value.push_str(line);
                section.value.push('\n');
            }
        } else {
            let is_remark = line.trim().is_empty() || line.starts_with('#');
            ensure!(is_remark, "line {number}: text before the first block; remarks begin with #");
        }
    }
    for section in blocks.iter_mut().flat_map(|block| &mut block.sections) {
        section.value.truncate(section.value.trim_end().len());
    }
    Ok(blocks)
}

fn section(head: &str, line: usize) -> Result<Section> {
    let head = head.trim();
    let end = head.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(head.len());
    let (name, rest) = head.split_at(end);
    ensure!(!name.is_empty(), "line {line}: a section without name");
    let (arguments, value) = match rest.strip_prefix(':') {
        Some(value) => ("", value.trim()),
        None => (rest.trim(), ""),
    };
    Ok(Section { name: name.into(), arguments: arguments.into(), value: value.into(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# remark\n\n=== first\nwhy it matters\n--- request\nGET /a\nHost: b\n\n\
        --- error_code: 404\n--- post /configuration/backends\n[]\n=== second: part\n--- stock\n";

    #[test]
    fn sections_have_a_name_and_arguments_or_an_inline_value() {
        let blocks = blocks(FILE).unwrap();
        assert_eq!(blocks.len(), 2);
        let found: Vec<_> = blocks[0]
            .sections
            .iter()
            .map(|s| (s.name.as_str(), s.arguments.as_str(), s.value.as_str(), s.line))
            .collect();
        assert_eq!(
            found,
            [
                ("request", "", "GET /a\nHost: b", 5),
                ("error_code", "", "404", 9),
                ("post", "/configuration/backends", "[]", 10),
            ]
        );
        assert_eq!(blocks[1].title, "second: part");
    }

    #[test]
    fn yaml_document_marks_are_text() {
        let blocks = blocks("=== a\n--- manifests shop.yaml\na: 1\n---\nb: 2\n").unwrap();
        assert_eq!(blocks[0].sections[0].value, "a: 1\n---\nb: 2");
    }

    #[test]
    fn what_is_no_block_is_named_by_its_line() {
        for (text, line) in [
            ("x\n", "line 1"),
            ("--- request\n", "line 1"),
            ("=== a\n===\n", "line 2"),
            ("=== a\n=== a\n", "line 2"),
            ("=== a\n---request\n", "line 2"),
        ] {
            assert!(blocks(text).unwrap_err().to_string().contains(line), "{text}");
        }
    }
}
