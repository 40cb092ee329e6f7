//! Hostile values: for every name the same texts, and what is made of the values that a name is known to take.

use oxigress_fuzz::Random;

/// The longest annotation that is read, in bytes.
const LONGEST: usize = 64 * 1024;

/// Damaged values of its own that each name gets.
const MUTATIONS: usize = 30;

/// Texts that stand for a kind of trouble each.
#[rustfmt::skip]
const SHORT: &[&str] = &[
    "", " ", "\t", "\n", "\r\n", " \n ", "\0", "a\0b", "\\0", "\\x00", "%00", "\u{7f}", "\u{1b}[31m", "\\", "\\\\", "a\\",
    "'", "\"", "`", "''", "\"\"", "'a", "\"a", ";", ";;", "a;b", "{", "}", "{}", "{{", "}}", "[", "]", "[]", "(", ")", "()",
    "#", "# a", "a#b", "$", "$$", "${", "${}", "$}", "$1", "$9", "$99", "${1}", "$host", "${host}", "$request_uri", "$uri$args",
    "$http_cookie", "$arg_x", "$cookie_x", "$nothing", "$ingress_name", "$binary_remote_addr", "$pid", "%", "%zz", "%2e%2e%2f",
    "0", "-0", "00", "1", "+1", "-1", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "4294967295",
    "4294967296", "18446744073709551615", "18446744073709551616", "99999999999999999999999999999999", "1.5", "1e3", "1e999", "-1e9",
    "NaN", "inf", "0x10", "0b11", "0o17", "1_000", "١٢", "٣", "1 000", "1,5", "65535", "65536", "100", "101", "2", "3", "5", "1024", "1025",
    "0k", "1k", "1K", "1m", "1g", "1t", "64m", "65m", "1023g", "1024g", "17179869184g", "1kk", "k", "-1k", "1.5m", "1 m",
    "0s", "1s", "1ms", "1h", "1d", "1M", "1y", "366d", "1s1h", "1h 30m", "99999999y", "s", "60", "172800",
    "true", "false", "TRUE", "True", "t", "on", "off", "ON", "yes", "no", "null", "~", "none", "default", "auto",
    "basic", "digest", "cookie", "persistent", "balanced", "legacy", "sticky", "optional_no_ca", "optional", "any", "all",
    "HTTP", "HTTPS", "GRPC", "GRPCS", "FCGI", "AUTO_HTTP", "round_robin", "ewma", "ip_hash", "GET", "get", "TRACE", "G ET",
    "TLSv1", "TLSv1.2 TLSv1.3", "SSLv3", "TLSv1.3 TLSv1.3", "TLSv9", "foo", "HIGH:!aNULL", "ALL:!ALL", ":::", "@SECLEVEL=0:ALL",
    "@STRENGTH", "TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "!", "-ALL",
    "http://", "https://", "http:///", "http://x", "HTTP://X.TEST", "//x.test/a", "http://x.test:0/", "http://x.test:65536/",
    "http://x.test:99999999999/", "http://x.test:/", "http://[::1]/", "http://[::1", "http://[fe80::1%25eth0]/", "http://[::ffff:127.0.0.1]/",
    "http://127.0.0.1/", "http://0/", "http://017700000001/", "http://2130706433/", "http://0x7f.1/", "http://169.254.169.254/latest/",
    "http://a@b.test/", "http://a:b@c.test/", "http://x.test\\@y.test/", "http://x.test#@y.test/", "http://x .test/", "http://x.test/ a",
    "http://x.test/$uri", "http://$host/", "http://x.$host/", "http://x.test?$args", "http://ä.test/", "http://xn--a/", "http://x..test/",
    "http://.x.test/", "http://x.test./", "http://_x.test/", "ftp://x.test/", "javascript:alert(1)", "data:,x", "file:///etc/passwd",
    "unix:/run/x.sock", "http://unix:/run/x.sock:/", "gopher://x.test/", "https://x.test/a?b=c&d=%20#e",
    "/", "//", "/a", "a", "/../..", "/./", "/a/../b", "/a//b", "/%2e%2e/", "/a b", "/\u{e4}", "@a", "@named", "/$1", "/$2/$3", "/${1}x",
    "(", "a)", "(a", "[a", "[z-a]", "a{2,1}", "a{99999}", "(a{1000}){1000}", "(a+)+$", "((a*)*)*b", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b",
    "(a)\\1", "(?P<n>a)(?P=n)", "\\g1", "\\pL", "\\p{Nope}", "[[:alpha:]]", "(?i)A", "(?x) a # b", "^$", "^", "$", ".*", "", "|", "a||b", "*", "+", "?",
    "\\", "\\Qa\\E", "\\K", "(?R)", "(?(1)a|b)", "\\b\\B", "\\x{110000}", "\\u0000", "[^\\x00-\\x7f]",
    "10.0.0.0/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "010.0.0.1", "0.0.0.0/0", "::/0", "::/129", "fe80::1%eth0", "::ffff:10.0.0.0/104",
    "10.0.0.1-10.0.0.9", "10.0.0.0/8,,", ",", ",,,", "10.0.0.0/8;11.0.0.0/8", "10.0.0.0/8 11.0.0.0/8", "10.0.0.0/255.0.0.0",
    "X-A", "x-a: b", "X-A:b", "X-A: b\nX-B: c", "X A", "X-Ä", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Set-Cookie", "__Host-a",
    "__Secure-a", "a=b", "a b", "a,b", "a;b=c", "*", "* *", "https://*.x.test", "https://*", "*.x.test", "*.*.x.test", "x.test:443", "null,*",
    "~^x", "~*.*\\.test$", "x.test, y.test", "_", "*", "*.", ".", "..", "a.", ".a", "-a.test", "a-.test", "a_b.test", "A.TEST",
    "ns/name", "/name", "ns/", "ns//name", "a/b/c", "../x", "ns/na me", "default/none", "default/authorities", "default/damaged-0",
    "200", "404,500", "99", "600", "404,abc", "301", "399", "302 5m", "200 401 5m", "200 202 10m, 401 5m", "any 1h", "200 -1m",
    "error timeout", "error timeout http_500 off", "off error", "nothing_such", "error error", "non_idempotent http_429",
    "subset", "$subset", "lua", "@", "keep-alive", "close", "Upgrade, close", "max-age=0", "Lax", "Strict", "None", "lax; Secure",
    "-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----",
    "{\"a\":", "{\"a\":1}", "[1,2", "a: b", "- a", "--- ", "&a *a", "!!binary AA==", "<xml/>", "<script>", "\u{202e}txt", "a\u{200b}b", "\u{feff}true",
    "e\u{301}", "\u{1f600}", "\u{fffd}", "\u{10ffff}", "İ", "ß", "ﬀ", "K", "０", "true\u{a0}", "\u{2028}", "return 200 pwned;", "x;\n}\n}\nserver {\n",
    "deny all;", "include /etc/passwd;", "proxy_pass http://x;", "more_set_headers \"a: b\";", "add_header X-A b;", "if ($a) { return 403; }", "rewrite ^ /x last;",
    "auth_basic off;", "allow all; deny all;", "location / {", "set $a b;",
];

/// The texts for every name.
pub fn generic() -> Vec<String> {
    let mut all: Vec<String> = SHORT.iter().map(|text| (*text).to_owned()).collect();
    all.sort();
    all.dedup();
    all.extend((1..=100).step_by(33).map(|n| "$1".repeat(n)));
    all.extend([128, 129, 253, 254, 256, 1024, 1025, 4096, 4097].map(|n| "a".repeat(n)));
    all.extend(["(".repeat(300), "[".repeat(300), "\\pL".repeat(300), "$host".repeat(300)]);
    all.extend([format!("/{}", "\\pL\\PL".repeat(160)), format!("/({})", "a|".repeat(500))]);
    all.push(format!("http://{}.test/", "a".repeat(64)));
    all.push(format!("http://x.test/{}", "a".repeat(8_200)));
    all
}

/// Texts of many thousand bytes: lists with thousands of items, and one long word.
pub fn long() -> Vec<String> {
    let list = |item: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for number in 0.. {
            let item = item(number);
            if text.len() + item.len() > LONGEST {
                return text.trim_end_matches([',', ' ']).to_owned();
            }
            text += &item;
        }
        text
    };
    vec![
        "a".repeat(LONGEST),
        "a".repeat(LONGEST + 1),
        list(&|n| format!("10.{}.{}.0/24,", n / 256, n % 256)),
        list(&|n| format!("x-{n},")),
        list(&|n| format!("{},", 400 + n % 200)),
        list(&|n| format!("h{n}.test,")),
        list(&|n| format!("https://h{n}.test, ")),
        list(&|n| format!("add_header X-{n} a;\n")),
    ]
}

/// Numbers at and around the limits of integers in place of each number of a text.
fn with_other_numbers(text: &str) -> Vec<String> {
    let Some(first) = text.find(|c: char| c.is_ascii_digit()) else { return Vec::new() };
    let (before, rest) = text.split_at(first);
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbers = ["0", "-1", "255", "65536", "2147483648", "4294967296", "18446744073709551616"];
    numbers.iter().map(|number| format!("{before}{number}{after}")).collect()
}

/// Texts that come of the values that a name takes.
pub fn near(values: &[String], random: &mut Random) -> Vec<String> {
    let mut all = Vec::new();
    for value in values.iter().take(6) {
        all.extend([
            value.clone(),
            format!(" {value} "),
            format!("{value};"),
            format!("{value}\n"),
            format!("\"{value}\""),
            format!("{value},{value}"),
            format!("{value} {value}"),
            value.to_uppercase(),
            format!("{value}{}", "a".repeat(300)),
        ]);
        all.extend(with_other_numbers(value));
    }
    let mut seeds: Vec<_> = values.iter().map(|value| value.clone().into_bytes()).collect();
    seeds.push(b"true".to_vec());
    all.extend((0..MUTATIONS).map(|_| mutated(&seeds, random)));
    all
}

pub fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> String {
    String::from_utf8_lossy(&oxigress_fuzz::mutation(random, seeds)).into_owned()
}
