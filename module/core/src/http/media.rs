//! The type of what a path names, for bodies that are texts.
//!
//! Source: the lines of nginx's mime.types about texts.

/// The type that the last segment's extension says; `None`: it says none of a text.
pub fn of_path(path: &[u8]) -> Option<&'static str> {
    let segment = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = segment.iter().rposition(|byte| *byte == b'.')?;
    let extension = segment.get(dot + 1..)?.to_ascii_lowercase();
    Some(match &*extension {
        b"html" | b"htm" | b"shtml" => "text/html",
        b"css" => "text/css",
        b"xml" => "text/xml",
        b"js" => "application/javascript",
        b"atom" => "application/atom+xml",
        b"rss" => "application/rss+xml",
        b"mml" => "text/mathml",
        b"txt" => "text/plain",
        b"jad" => "text/vnd.sun.j2me.app-descriptor",
        b"wml" => "text/vnd.wap.wml",
        b"htc" => "text/x-component",
        b"svg" | b"svgz" => "image/svg+xml",
        b"json" => "application/json",
        b"xhtml" => "application/xhtml+xml",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::of_path;

    #[test]
    fn an_extension_says_the_type() {
        for (path, expected) in [
            ("/robots.txt", Some("text/plain")),
            ("/a/B.JSON", Some("application/json")),
            ("/a.txt/b", None),
            ("/a.b.xml", Some("text/xml")),
            ("/a.", None),
            ("/.png", None),
            ("", None),
        ] {
            assert_eq!(of_path(path.as_bytes()), expected, "{path}");
        }
    }
}
