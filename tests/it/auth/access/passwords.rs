//! Passwords beside other conditions, and many of them at once.

use super::*;

#[test]
fn all_of_the_three_have_to_let_in_or_any_of_them() {
    pass("auth-satisfy", |directory| {
        let fixture = fixture(directory, |plan| {
            plan.http_config = "set_real_ip_from 127.0.0.1; real_ip_header X-Client;".into();
        })?;
        let access = |any: bool| {
            json!({"allow": ["10.0.0.0/8"], "any": any, "external": external(json!({})),
                   "basic": {"realm": "x", "users": "jane:{PLAIN}secret"}})
        };
        fixture.put(&[("all.test", access(false)), ("any.test", access(true))])?;
        // address, password, auth server; all, any
        for (address, password, status, all, any) in [
            (true, true, 200, 200, 200),
            (true, true, 403, 403, 200),
            (true, true, 500, 500, 200),
            (true, false, 200, 401, 200),
            (true, false, 403, 401, 200),
            (false, true, 200, 403, 200),
            (false, true, 403, 403, 200),
            (false, true, 500, 403, 200),
            (false, false, 200, 403, 200),
            (false, false, 401, 403, 401),
            (false, false, 403, 403, 401),
            (false, false, 500, 403, 500),
        ] {
            fixture.auth.set(say(status, ""));
            for (host, expected) in [("all.test", all), ("any.test", any)] {
                let mut request = Request::get(host, "/")
                    .header("X-Client", if address { "10.0.0.1" } else { "11.0.0.1" });
                if password {
                    request = request.header("Authorization", "Basic amFuZTpzZWNyZXQ=");
                }
                let response = fixture.send(&request)?;
                ensure!(
                    response.status == expected,
                    "{host} {address} {password} {status}: {expected} is due: {response}"
                );
                ensure!(!response.text().contains("authorization"), "{response}");
            }
        }
        fixture.site.nginx.check_error_log()
    });
}

/// `secret`, bcrypt at cost 6: some 3 ms on a machine that has nothing else to do.
const SLOW: &str = "$2b$06$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC";

#[test]
fn passwords_wait_in_line_and_who_leaves_leaves_the_line() {
    pass("auth-line", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let users: String = (0..40).map(|n| format!("user{n}:{SLOW}\n")).collect();
        fixture.put(&[("a.test", json!({"basic": {"realm": "x", "users": users}}))])?;
        let encode = |text: String| openssl::base64::encode_block(text.as_bytes());
        let request = |user: String| {
            let credentials = format!("Basic {}", encode(format!("{user}:secret")));
            Request::get("a.test", "/").header("Authorization", &credentials)
        };
        // Some go away at once, whether a thread has their password or not.
        let gone = (0..20).map(|n| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, fixture.site.http_port))?;
            let credentials = encode(format!("nobody{n}:secret"));
            write!(
                stream,
                "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic {credentials}\r\n\r\n"
            )?;
            Ok(stream)
        });
        let gone: Result<Vec<TcpStream>> = gone.collect();
        drop(gone?);
        let all: Vec<_> = (0..40)
            .map(|n| {
                let (address, request) = (fixture.site.http(), request(format!("user{n}")));
                runtime().spawn(async move { client::send(&address, &request).await })
            })
            .collect();
        for one in all {
            let response = block_on(one)??;
            ensure!(response.status == 200, "{response}");
        }
        // Known by now: no thread has to look again.
        let response = fixture.send(&request("user1".into()))?;
        ensure!(response.status == 200, "{response}");
        ensure!(fixture.send(&request("nobody1".into()))?.status == 401);
        fixture.site.nginx.check_error_log()
    });
}

/// bcrypt at cost 11, 32 times as slow as [`SLOW`].
const SLOWER: &str = "$2b$11$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC";
/// More than wait in one line.
const FLOOD: usize = 300;

/// Of the answers so far.
type Statuses = Arc<Mutex<Vec<String>>>;

/// Logins of one host, more than are let wait, all with other passwords; each is counted by the status of its answer.
fn flood(port: u16, host: &str) -> Result<(Vec<JoinHandle<()>>, Statuses)> {
    let statuses = Statuses::default();
    let streams: Result<Vec<TcpStream>> = (0..FLOOD)
        .map(|n| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            let credentials = openssl::base64::encode_block(format!("bob:wrong{n}").as_bytes());
            let head = format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {credentials}\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })
        .collect();
    let tasks = streams?.into_iter().map(|stream| {
        let statuses = statuses.clone();
        runtime().spawn(async move {
            let Ok(mut stream) = tokio::net::TcpStream::from_std(stream) else { return };
            let mut status = [0; 12];
            if stream.read_exact(&mut status).await.is_ok() {
                let status = String::from_utf8_lossy(&status[9..]).into_owned();
                statuses.lock().expect("no panic inside").push(status);
            }
        })
    });
    Ok((tasks.collect(), statuses))
}

/// Counted by order: in one line for all, each of the others is answered after the whole flood.
#[test]
fn a_flood_of_passwords_delays_no_other_tenant() {
    pass("auth-turns", |directory| {
        let fixture = fixture(directory, |_| ())?;
        let file = |hash: &str| json!({"access": {"basic": {"realm": "x", "users": format!("bob:{hash}\n")}}});
        let policies = json!({"flooded": file(SLOWER), "quick": file(SLOW)});
        let rule = |namespace: &str, policy: &str| {
            let origin = json!({"namespace": namespace, "ingress": "x"});
            json!({"rules": [{"path": {"prefix": "/"}, "backend": "a", "policies": policy, "origin": origin}]})
        };
        let servers = json!({"flooded.test": rule("hostile", "flooded"), "own.test": rule("hostile", "quick"),
            "other.test": rule("other", "quick")});
        fixture.put_all(&servers, &policies, &json!({"a": [fixture.endpoint.native()]}))?;
        let (tasks, statuses) = flood(fixture.site.http_port, "flooded.test")?;
        let count = |status: &str| {
            statuses
                .lock()
                .expect("no panic inside")
                .iter()
                .filter(|other| *other == status)
                .count()
        };
        // 503 where the line is full; where it takes the whole flood, the first wrong password.
        until("an answer to the flood", || {
            ensure!(count("503") + count("401") > 0);
            Ok(())
        })?;
        // Of another namespace, and of another password file of the same one.
        for (n, host) in ["other.test", "own.test"].into_iter().enumerate() {
            let before = count("401");
            let credentials = openssl::base64::encode_block(b"bob:secret");
            let request = Request::get(host, &format!("/{n}"))
                .header("Authorization", &format!("Basic {credentials}"));
            let response = fixture.send(&request)?;
            ensure!(response.status == 200, "{response}");
            let turns = count("401") - before;
            // Eight are at work when it comes, and as many may begin before its answer is here.
            ensure!(turns <= 24, "{host} waited for {turns} of the flood");
        }
        ensure!(count("401") < FLOOD / 2, "the flood was over too early to prove anything");
        tasks.iter().for_each(JoinHandle::abort);
        fixture.site.nginx.check_error_log()
    });
}
