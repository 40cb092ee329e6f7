//! The files of the page, as they are in `page/`.

/// A file that a browser loads.
pub struct PageFile {
    path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    pub content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [PageFile; 8] = [
    PageFile { path: "/", kind: HTML, content: include_str!("page/index.html") },
    PageFile { path: "/app.css", kind: STYLE, content: include_str!("page/app.css") },
    PageFile { path: "/app.js", kind: SCRIPT, content: include_str!("page/app.js") },
    PageFile { path: "/detail.js", kind: SCRIPT, content: include_str!("page/detail.js") },
    PageFile { path: "/dom.js", kind: SCRIPT, content: include_str!("page/dom.js") },
    PageFile { path: "/explain.js", kind: SCRIPT, content: include_str!("page/explain.js") },
    PageFile { path: "/lists.js", kind: SCRIPT, content: include_str!("page/lists.js") },
    PageFile { path: "/overview.js", kind: SCRIPT, content: include_str!("page/overview.js") },
];

/// The file that is at a path of the dashboard.
pub fn file(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_loads_is_served() {
        let mut loaded = 0;
        for text in FILES.iter().map(|file| file.content) {
            let marks = ["href=\"/", "src=\"/", "from \"./"];
            for rest in marks.iter().flat_map(|mark| text.split(mark).skip(1)) {
                let name = rest.split('"').next().unwrap();
                assert!(file(&format!("/{name}")).is_some(), "{name}");
                loaded += 1;
            }
        }
        assert!(loaded > FILES.len(), "{loaded}");
    }
}
