//! A password file, as `htpasswd` writes it.
//!
//! Shape:   lines `user:hash`; a second colon begins a remark. The first line of a user counts.
//! Errors:  a line that is no entry, or whose hash is unknown or too expensive, is ignored: its user is unknown.
//! Source:  ngx_http_auth_basic_handler; the limits of cost are ours.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

/// bcrypt: the logarithm of its rounds.
const MAX_BCRYPT_COST: u32 = 12;
/// The most rounds of sha256-crypt and sha512-crypt, whose default is 5,000.
const MAX_SHA_ROUNDS: u32 = 100_000;
/// yescrypt: `$y$j9T$` is what distributions write, 16 MiB and some ten milliseconds. Its letters are
/// logarithms in an alphabet that begins with `./0`.
const YESCRYPT: &[u8] = b"$y$j";
/// crypt(3) refuses longer ones too, so that a hash of a long text is no way to spend our time.
pub const MAX_PASSWORD: usize = 512;

/// The users of a password file and their hashes.
#[derive(Clone, Debug)]
pub struct Passwords<S> {
    users: HashMap<Vec<u8>, Hash, S>,
    first: Option<Hash>,
    refused: usize,
}

/// A hash as the file has it; ends with a NUL for C.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash(Vec<u8>);

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

impl Hash {
    /// The hash with a trailing NUL, for C functions.
    pub fn with_nul(&self) -> &[u8] {
        &self.0
    }

    /// The hash without the trailing NUL.
    pub fn bytes(&self) -> &[u8] {
        self.0.split_last().map_or(&[], |(_, hash)| hash)
    }

    /// Whether a password is short enough for crypt(3), which accepts [`MAX_PASSWORD`] bytes.
    pub fn takes(&self, password: &[u8]) -> bool {
        self.bytes().starts_with(b"{") || password.len() < MAX_PASSWORD
    }
}

impl<S: BuildHasher> Passwords<S> {
    /// Reads a file; `hasher` is keyed, since users choose their names.
    pub fn parse(file: &[u8], hasher: S) -> Self {
        let mut all = Passwords { users: HashMap::with_hasher(hasher), first: None, refused: 0 };
        for line in file.split(|byte| *byte == b'\n') {
            let Some((user, hash)) = entry(line) else { continue };
            if !is_taken(hash) {
                all.refused += 1;
                // A later line of this user would not have been looked at either.
                all.users.entry(user.into()).or_insert_with(|| Hash(Vec::new()));
                continue;
            }
            let hash = Hash([hash, b"\0"].concat());
            all.first.get_or_insert_with(|| hash.clone());
            all.users.entry(user.into()).or_insert(hash);
        }
        all.users.retain(|_, hash| !hash.0.is_empty());
        all.users.shrink_to_fit();
        all
    }

    /// The hash of a user.
    pub fn of(&self, user: &[u8]) -> Option<&Hash> {
        self.users.get(user)
    }

    /// The hash against which passwords of unknown users are checked, so that the answer needs the same time; `None`
    /// if there are no users.
    pub fn stand_in(&self) -> Option<&Hash> {
        self.first.as_ref()
    }

    /// The number of entries whose hash is unknown or too expensive.
    pub fn refused(&self) -> usize {
        self.refused
    }
}

/// User and hash of a line.
fn entry(line: &[u8]) -> Option<(&[u8], &[u8])> {
    // `\r` first: a line of its own.
    if matches!(line.first(), None | Some(b'#' | b'\r')) || line.contains(&0) {
        return None;
    }
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (user, hash) = (line.get(..colon)?, line.get(colon + 1..)?);
    let end = hash.iter().position(|byte| matches!(byte, b'\r' | b':')).unwrap_or(hash.len());
    Some((user, hash.get(..end)?)).filter(|(user, _)| !user.is_empty())
}

/// The hash is of a known kind and costs no more than it may.
fn is_taken(hash: &[u8]) -> bool {
    let is_crypt_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"./".contains(byte);
    if let Some(rest) = hash.strip_prefix(b"$") {
        let mut parts = rest.split(|byte| *byte == b'$');
        let (kind, parameter) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return match kind {
            b"apr1" | b"1" => true,
            b"2" | b"2a" | b"2b" | b"2x" | b"2y" => {
                parameter.len() == 2 && number(parameter).is_some_and(|n| n <= MAX_BCRYPT_COST)
            }
            b"5" | b"6" => match parameter.strip_prefix(b"rounds=") {
                Some(rounds) => number(rounds).is_some_and(|n| n <= MAX_SHA_ROUNDS),
                None => true,
            },
            b"y" => hash
                .strip_prefix(YESCRYPT)
                .is_some_and(|rest| matches!(rest, [b'/' | b'.' | b'0'..=b'9', b'T', b'$', ..])),
            _ => false,
        };
    }
    if hash.starts_with(b"{") {
        return [&b"{PLAIN}"[..], b"{SHA}", b"{SSHA}"].iter().any(|kind| hash.starts_with(kind));
    }
    // The 13 letters of DES. A salt of `_` or of stars would be another kind, or none.
    hash.len() == 13 && hash.iter().all(is_crypt_letter)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?
        .parse()
        .ok()
}

/// Whether two texts are equal, in constant time for texts of one length.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | a ^ b) == 0
}

/// How long a verdict holds.
const VERDICT_SECONDS: u64 = 60;
/// Verdicts of each kind: some 800 KiB. Wrong passwords do not push right ones out.
const MAX_VERDICTS: usize = 10_000;

/// Recent verdicts about passwords, so that a hash which is slow by design is not computed for each request. The key
/// is a keyed hash of file, name and password: no secret is stored.
#[derive(Debug, Default)]
pub struct Verdicts {
    right: Recent,
    wrong: Recent,
}

impl Verdicts {
    /// Whether the password was right; `None` without a recent verdict.
    pub fn get(&self, key: u128, now_seconds: u64) -> Option<bool> {
        match (self.right.has(key, now_seconds), self.wrong.has(key, now_seconds)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    /// Stores a verdict for a minute.
    pub fn put(&mut self, key: u128, is_right: bool, now_seconds: u64) {
        let list = if is_right { &mut self.right } else { &mut self.wrong };
        list.put(key, now_seconds);
    }
}

/// Keys in the order they came in, each with its end.
#[derive(Debug, Default)]
struct Recent {
    ends: HashMap<u128, u64>,
    order: VecDeque<u128>,
}

impl Recent {
    fn has(&self, key: u128, now: u64) -> bool {
        self.ends.get(&key).is_some_and(|end| now < *end)
    }

    fn put(&mut self, key: u128, now: u64) {
        let is_over = |key: &u128| self.ends.get(key).is_none_or(|end| *end <= now);
        let over = self.order.iter().take_while(|key| is_over(key)).count();
        let above = (self.order.len() - over + 1).saturating_sub(MAX_VERDICTS);
        for key in self.order.drain(..over + above) {
            self.ends.remove(&key);
        }
        if self.ends.insert(key, now + VERDICT_SECONDS).is_none() {
            self.order.push_back(key);
        }
    }
}

/// The `WWW-Authenticate` of a challenge.
pub fn challenge(realm: &str) -> Vec<u8> {
    let mut value = b"Basic realm=\"".to_vec();
    for byte in realm.bytes() {
        // A quoted-string (RFC 9110 §5.6.4).
        if matches!(byte, b'"' | b'\\') {
            value.push(b'\\');
        }
        if byte >= b' ' && byte != 0x7f {
            value.push(byte);
        }
    }
    value.push(b'"');
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::RandomState;

    fn parse(file: &str) -> Passwords<RandomState> {
        Passwords::parse(file.as_bytes(), RandomState::new())
    }

    fn hash<'p>(passwords: &'p Passwords<RandomState>, user: &str) -> Option<&'p [u8]> {
        passwords.of(user.as_bytes()).map(Hash::bytes)
    }

    #[test]
    fn lines_are_read_as_nginx_reads_them() {
        let file = "# all of us\n\r\n\njane:{PLAIN}one:Jane Doe\r\njoe:{PLAIN}two\r\nno colon\n:{PLAIN}x\njane:{PLAIN}three\nlast:{PLAIN}four";
        let passwords = parse(file);
        assert_eq!(hash(&passwords, "jane"), Some(&b"{PLAIN}one"[..]));
        assert_eq!(hash(&passwords, "joe"), Some(&b"{PLAIN}two"[..]));
        assert_eq!(hash(&passwords, "last"), Some(&b"{PLAIN}four"[..]));
        for unknown in ["", "no colon", "# all of us", "Jane Doe", "jan", "janet"] {
            assert_eq!(hash(&passwords, unknown), None, "{unknown:?}");
        }
        assert_eq!(passwords.refused(), 0);
        assert_eq!(passwords.stand_in().unwrap().with_nul(), b"{PLAIN}one\0");
    }

    #[test]
    fn a_file_without_users_has_nobody() {
        for file in ["", "\n\n", "# jane:{PLAIN}x\n", "jane", "\0jane:{PLAIN}x"] {
            let passwords = parse(file);
            assert!(passwords.users.is_empty() && passwords.stand_in().is_none(), "{file:?}");
        }
    }

    #[test]
    fn what_costs_too_much_or_is_unknown_is_refused_and_so_is_its_user() {
        let salted = "$DzGHFwq8yS5p2Wm1l9Ccn.abcdefghijklmnopqrstuvwxyzABCDEFGHIJK";
        for (hash, is_fine) in [
            ("$2y$12", true),
            ("$2b$13", false),
            ("$2y$31", false),
            ("$2y$+9", false),
            ("$2y$112", false),
            ("$5$rounds=100000", true),
            ("$6$rounds=100001", false),
            ("$6$rounds=99999999999", false),
            ("$6$rounds=", false),
            ("$6", true),
            ("$1", true),
            ("$apr1", true),
            ("$y$j9T", true),
            ("$y$jDT", false),
            ("$y$j9T5", false),
            ("$7$CU..../....", false),
            ("$md5,rounds=4294963199", false),
            ("$3$", false),
        ] {
            let passwords = parse(&format!("jane:{hash}{salted}\njane:{{PLAIN}}x\n"));
            assert_eq!(passwords.of(b"jane").is_some(), is_fine, "{hash}");
            assert_eq!(passwords.refused(), usize::from(!is_fine), "{hash}");
        }
        for (hash, is_fine) in [
            ("abJnggxhB/yWI", true),
            ("_J9..rasmBYk8r9AiWNc", false),
            ("{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=", true),
            ("{SSHA}x", true),
            ("{SSHA512}x", false),
            ("*0", false),
            ("", false),
            ("plain", false),
        ] {
            let is_there = parse(&format!("jane:{hash}")).of(b"jane").is_some();
            assert_eq!(is_there, is_fine, "{hash}");
        }
    }

    #[test]
    fn a_hash_is_only_itself() {
        let passwords = parse("jane:{PLAIN}one");
        let hash = passwords.of(b"jane").unwrap().bytes();
        assert!(is_same(hash, b"{PLAIN}one"));
        for other in ["{PLAIN}on", "{PLAIN}one\0", "{PLAIN}onf", "", "{PLAIN}one1"] {
            assert!(!is_same(hash, other.as_bytes()), "{other:?}");
        }
        assert_eq!(format!("{passwords:?}").find("one"), None);
    }

    #[test]
    fn a_verdict_holds_for_a_minute() {
        let mut verdicts = Verdicts::default();
        verdicts.put(1, true, 100);
        verdicts.put(2, false, 100);
        assert_eq!((verdicts.get(1, 159), verdicts.get(1, 160)), (Some(true), None));
        assert_eq!((verdicts.get(2, 159), verdicts.get(2, 160)), (Some(false), None));
        assert_eq!(verdicts.get(3, 100), None);
        verdicts.put(3, true, 200);
        assert_eq!(verdicts.right.ends.len(), 1, "what is over goes");
        assert_eq!(verdicts.right.order.len(), 1);
    }

    #[test]
    fn wrong_passwords_are_bounded_and_push_no_right_one_out() {
        let mut verdicts = Verdicts::default();
        verdicts.put(0, true, 1);
        (1..=MAX_VERDICTS as u128 + 5).for_each(|key| verdicts.put(key, false, 1));
        assert_eq!(verdicts.wrong.ends.len(), MAX_VERDICTS);
        assert_eq!(verdicts.wrong.order.len(), MAX_VERDICTS);
        assert_eq!(
            (verdicts.get(0, 2), verdicts.get(5, 2), verdicts.get(6, 2)),
            (Some(true), None, Some(false))
        );
    }

    #[test]
    fn a_realm_cannot_end_its_quotes() {
        assert_eq!(challenge("Shop \"x\\"), b"Basic realm=\"Shop \\\"x\\\\\"");
        assert_eq!(challenge("a\r\nb\0"), b"Basic realm=\"ab\"");
        assert_eq!(challenge(""), b"Basic realm=\"\"");
    }
}
