//! Auth servers over TLS, and what they are asked.

use super::*;

/// An auth server that lets everybody in, sets a cookie, and keeps what it was asked.
struct AuthServer {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl AuthServer {
    fn start() -> Result<Self> {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: who=bob\r\nX-User: bob\r\n\
            Content-Length: 0\r\nConnection: close\r\n\r\n";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                // Who asks no longer waits for it.
                let _ = stream.write_all(ANSWER);
            }
        });
        Ok(AuthServer { port, heads })
    }

    /// What it was asked about this host since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What two requests for `/x` bring: status, how often the auth server is asked, and texts of the last answer's head
/// and body, or, with `?`, of the first question; `!` those that are not there.
type AuthCase<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], u16, usize, &'c [&'c str]);

const CACHED: (&str, &str) = ("auth-cache-key", "$remote_addr$http_authorization");

const AUTHS: &[AuthCase<'_>] = &[
    (
        "auth-method default, auth-proxy-set-headers default, auth-cache-key default",
        "shop",
        &[],
        200,
        2,
        &["?GET /a HTTP/1", "?!x-map", "?!x-original-uri"],
    ),
    (
        "auth-method valid",
        "shop",
        &[("auth-method", "POST")],
        200,
        2,
        &["?POST /a HTTP/1", "?x-original-uri: /x"],
    ),
    ("auth-method invalid", "shop", &[("auth-method", "post")], 503, 0, &[]),
    ("auth-request-redirect default", "shop", &[], 200, 2, &["?x-auth-request-redirect: /x\r"]),
    (
        "auth-request-redirect valid",
        "shop",
        &[("auth-request-redirect", "https://in.test/back")],
        200,
        2,
        &["?x-auth-request-redirect: https://in.test/back\r"],
    ),
    ("auth-request-redirect invalid", "shop", &[("auth-request-redirect", "a;b")], 503, 0, &[]),
    (
        "auth-proxy-set-headers valid",
        "shop",
        &[("auth-proxy-set-headers", "default/map")],
        200,
        2,
        &["?x-map: yes\r", "!x-map"],
    ),
    (
        "auth-proxy-set-headers invalid: no header",
        "shop",
        &[("auth-proxy-set-headers", "default/odd")],
        503,
        0,
        &[],
    ),
    (
        "auth-proxy-set-headers invalid: missing",
        "shop",
        &[("auth-proxy-set-headers", "default/no")],
        503,
        0,
        &[],
    ),
    ("auth-response-headers default", "shop", &[], 200, 2, &["\nx-user: root\n", "!x-user: bob"]),
    (
        "auth-response-headers valid",
        "shop",
        &[("auth-response-headers", "X-User")],
        200,
        2,
        &["\nx-user: bob\n", "!x-user: root"],
    ),
    ("auth-response-headers invalid", "shop", &[("auth-response-headers", "X-User;")], 503, 0, &[]),
    ("auth-always-set-cookie default: 200", "shop", &[], 200, 2, &["set-cookie: who=bob"]),
    ("auth-always-set-cookie default: 404", "gone", &[], 404, 2, &["!set-cookie"]),
    (
        "auth-always-set-cookie valid",
        "gone",
        &[("auth-always-set-cookie", "true")],
        404,
        2,
        &["set-cookie: who=bob"],
    ),
    ("auth-always-set-cookie invalid", "gone", &[("auth-always-set-cookie", "si")], 503, 0, &[]),
    ("auth-cache-key invalid", "shop", &[("auth-cache-key", "a;b")], 200, 2, &[]),
    (
        "auth-cache-duration valid: not of 200",
        "shop",
        &[CACHED, ("auth-cache-duration", "401 1h")],
        200,
        2,
        &[],
    ),
    (
        "auth-cache-duration invalid",
        "shop",
        &[CACHED, ("auth-cache-duration", "ever")],
        503,
        0,
        &[],
    ),
];

#[test]
fn auth_servers_are_asked() {
    pass("annotations-auth", |directory| {
        let server = AuthServer::start()?;
        let shop = Endpoint::start("shop")?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let gone = Endpoint::with("gone", Behaviour::Status(404), loopback)?;
        let no = Endpoint::with("no", Behaviour::Status(401), loopback)?;
        let mut text = service("shop", shop.address.port()) + &service("gone", gone.address.port());
        let settings =
            format!("{{ global-auth-url: \"http://127.0.0.1:{}/g\" }}", no.address.port());
        let maps =
            [("map", "{ X-Map: \"yes\" }"), ("odd", "{ \"a b\": c }"), ("settings", &settings)];
        for (name, data) in maps {
            let _ = writeln!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata: {data}"
            );
        }
        let url = format!("http://127.0.0.1:{}/a", server.port);
        for (place, (_, to, more, ..)) in AUTHS.iter().enumerate() {
            let mut all = more.to_vec();
            all.push(("auth-url", &url));
            text += &ingress(&format!("c{place}"), to, &all, "");
        }
        let name = "enable-global-auth";
        let globals: &[(&str, Annotations<'_>, u16)] = &[
            ("default", &[], 401),
            ("valid", &[(name, "false")], 200),
            ("invalid", &[(name, "no")], 401),
            ("enabled", &[(name, "true")], 401),
        ];
        for (host, annotations, _) in globals {
            text += &ingress(host, "shop", annotations, "");
        }
        let flags = ["--configmap=default/settings".to_owned()];
        let mut controller = Controller::start(directory, 1, &flags)?;
        controller.serve("all.yaml", &text)?;
        let address = Address::http(controller.http_port);
        let mut verdicts = Verdicts::default();
        for (host, _, expected) in globals {
            let answer = block_on(send(&address, &Request::get(&format!("{host}.test"), "/")));
            let verdict = answer.and_then(|answer| {
                ensure!(answer.status == *expected, "{} instead of {expected}", answer.status);
                Ok(())
            });
            verdicts.add(&format!("{name} {host}"), verdict);
        }
        for (place, case) in AUTHS.iter().enumerate() {
            let verdict = asked(&address, &server, &format!("c{place}.test"), case);
            verdicts.add(case.0, verdict);
        }
        verdicts.tell()
    });
}

fn asked(address: &Address, server: &AuthServer, host: &str, case: &AuthCase<'_>) -> Result<()> {
    let (_, _, _, status, count, texts) = case;
    server.take();
    let request = Request::get(host, "/x").header("X-User", "root");
    block_on(send(address, &request))?;
    let answer = block_on(send(address, &request))?;
    let questions = server.take();
    ensure!(answer.status == *status, "{} instead of {status}", answer.status);
    ensure!(questions.len() == *count, "asked {} times and not {count}", questions.len());
    let mut seen = String::new();
    for (name, value) in &answer.headers {
        let _ = writeln!(seen, "{name}: {}", value.to_str()?);
    }
    seen += &answer.text();
    for text in *texts {
        let (place, text) = match text.strip_prefix('?') {
            Some(text) => (question(questions.first().context("no question")?), text),
            None => (seen.clone(), *text),
        };
        match text.strip_prefix('!') {
            Some(text) => ensure!(!place.contains(text), "{text:?} is in\n{place}"),
            None => ensure!(place.contains(text), "{text:?} is not in\n{place}"),
        }
    }
    Ok(())
}

/// Its head, names of headers in lower case.
fn question(head: &str) -> String {
    let lower = |line: &str| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}\r\n", name.to_ascii_lowercase()),
        None => format!("{line}\r\n"),
    };
    head.lines().map(lower).collect()
}
