//! The kinds of records, as one list.
//!
//! Shape:   [`records!`] below has one entry a kind. From it come the tables of [`Snapshot`], [`Upsert`] and
//!          [`Keys`], [`Kind`], and [`TABLES`]: what can be done with any table, such as to compare, apply, encode
//!          or withhold its records. A new kind is a new entry.
//! Errors:  none; what a value may be is decided by its type when it is decoded.
//! Rejected: a visitor trait, which needs a struct for each operation; maps keyed by kind, which lose the types.

use crate::model::policy::{Policies, PolicyId, TlsPolicy};
use crate::model::{
    Backend, BackendId, Bundle, BundleId, Certificate, CertificateId, EndpointSet, HostPattern,
    Rule, Server, Settings, StreamPort,
};
use crate::record::{self, Change};
use crate::wire::native::Patch;
use crate::wire::{DecodeError, decode_record};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

crate::wire::objects!(Snapshot, Upsert, Keys);

/// A kind of record that stands in a table of the wire format.
pub trait Table {
    /// Names a record within its table.
    type Key: Ord + Clone + fmt::Display + TryFrom<String, Error: fmt::Display>;
    /// What a record says.
    type Value: Clone + PartialEq + DeserializeOwned;
    /// Its number in the store.
    const KIND: Kind;
    /// The name of the table in JSON.
    const NAME: &'static str;

    /// The bytes of a record; `None` for a record that is encoded together with another one.
    fn encode(key: &Self::Key, value: &Self::Value) -> Option<Vec<u8>>;

    /// What stands in the place of a withheld record, so that nothing opens without it; `None`: its absence closes.
    fn closed() -> Option<Self::Value>;

    /// The table within a snapshot.
    fn of(snapshot: &Snapshot) -> &BTreeMap<Self::Key, Self::Value>;
    /// The table within a snapshot, to be changed.
    fn of_mut(snapshot: &mut Snapshot) -> &mut BTreeMap<Self::Key, Self::Value>;
    /// New and replaced records of a delta.
    fn upserts(patch: &Patch) -> &BTreeMap<Self::Key, Self::Value>;
    /// Removed records of a delta.
    fn removals(patch: &Patch) -> &BTreeSet<Self::Key>;
    /// Both, to be changed.
    fn changes(patch: &mut Patch) -> Changes<'_, Self::Key, Self::Value>;
}

/// The upserts and removals of one table.
pub type Changes<'p, K, V> = (&'p mut BTreeMap<K, V>, &'p mut BTreeSet<K>);

/// The table of the kind with this number.
pub enum Of<const NUMBER: u8> {}

macro_rules! records {
    (
        single { $($(#[$single_doc:meta])* $single_number:literal $single:ident $single_label:literal;)* }
        tables { $(
            $(#[$doc:meta])*
            $number:literal $kind:ident $field:ident: $key:ty => $value:ty,
            label $label:literal, encode $encode:expr, closed $closed:expr;
        )* }
    ) => {
        /// What a record is. The numbers are part of the layout in shared memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$single_doc])* $single = $single_number,)*
            $($(#[$doc])* $kind = $number,)*
        }

        impl Kind {
            /// Every kind, sorted by number.
            pub const ALL: [Kind; [$($single_number,)* $($number),*].len()] = {
                let mut all = [$(Kind::$single,)* $(Kind::$kind),*];
                let mut place = 0;
                // A number that stands twice, or a gap, does not compile.
                while place < all.len() {
                    let mut other = place;
                    while all[other] as usize != place {
                        other += 1;
                    }
                    let kind = all[place];
                    all[place] = all[other];
                    all[other] = kind;
                    place += 1;
                }
                all
            };

            /// The name of the kind in `GET /configuration`.
            pub fn label(self) -> &'static str {
                match self {
                    $(Kind::$single => $single_label,)*
                    $(Kind::$kind => $label,)*
                }
            }
        }

        /// Everything nginx serves: one whole configuration.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Snapshot {
            /// What is not owned by a server.
            pub settings: Settings,
            $(
                $(#[$doc])*
                #[serde(
                    deserialize_with = "crate::wire::unique_map",
                    skip_serializing_if = "BTreeMap::is_empty"
                )]
                pub $field: BTreeMap<$key, $value>,
            )*
        }

        /// Records that are new or replaced, as in [`Snapshot`].
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Upsert {
            /// What is not owned by a server.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub settings: Option<Settings>,
            $(
                $(#[$doc])*
                #[serde(
                    deserialize_with = "crate::wire::unique_map",
                    skip_serializing_if = "BTreeMap::is_empty"
                )]
                pub $field: BTreeMap<$key, $value>,
            )*
        }

        /// Keys of records, by the tables of [`Snapshot`].
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Keys {
            $(
                $(#[$doc])*
                #[serde(skip_serializing_if = "BTreeSet::is_empty")]
                pub $field: BTreeSet<$key>,
            )*
        }

        $(
            impl Table for Of<$number> {
                type Key = $key;
                type Value = $value;
                const KIND: Kind = Kind::$kind;
                const NAME: &'static str = stringify!($field);

                fn encode(key: &$key, value: &$value) -> Option<Vec<u8>> {
                    let encode: fn(&$key, &$value) -> Option<Vec<u8>> = $encode;
                    encode(key, value)
                }

                fn closed() -> Option<$value> {
                    $closed
                }

                fn of(snapshot: &Snapshot) -> &BTreeMap<$key, $value> {
                    &snapshot.$field
                }

                fn of_mut(snapshot: &mut Snapshot) -> &mut BTreeMap<$key, $value> {
                    &mut snapshot.$field
                }

                fn upserts(patch: &Patch) -> &BTreeMap<$key, $value> {
                    &patch.upsert.$field
                }

                fn removals(patch: &Patch) -> &BTreeSet<$key> {
                    &patch.remove.$field
                }

                fn changes(patch: &mut Patch) -> Changes<'_, $key, $value> {
                    (&mut patch.upsert.$field, &mut patch.remove.$field)
                }
            }
        )*

        /// What can be done with each table.
        pub static TABLES: [Operations; [$($number),*].len()] =
            [$(Operations::of::<Of<$number>>()),*];
    };
}

records! {
    single {
        /// [`Settings`], under the empty key.
        0 Settings "settings";
        /// The body of ingress-nginx's `POST /configuration/general`, under the empty key.
        6 General "general";
    }
    tables {
        // What is sent in parts is sent in this order: what others name comes before them, and a host after all that
        // protects it.
        /// Endpoint sets by backend id, apart from the backends, since they change most often.
        3 Endpoints endpoints: BackendId => EndpointSet,
            label "endpoint_sets", encode |_, _| None, closed None;
        /// Backends by id. A rule may name a backend that is not here: it answers 503.
        2 Backend backends: BackendId => Backend,
            label "backends", encode |id, backend| Some(record::encode_backend(id, backend)), closed None;
        /// Certificates with their keys.
        4 Certificate certificates: CertificateId => Certificate,
            label "certificates", encode |_, pair| Some(record::encode_certificate(pair)), closed None;
        /// Authorities and revocation lists by their digest. What names one that is not here is closed.
        11 Bundle bundles: BundleId => Bundle,
            label "bundles", encode |_, bundle| Some(bundle.as_str().into()), closed None;
        /// Policies that rules share, by id. A rule that names missing policies answers 503.
        9 Policies policies: PolicyId => Policies,
            label "policies", encode |_, policies| Some(record::encode_json(policies)), closed None;
        /// How a host speaks TLS, by TLS server name and by the host of a request.
        10 Tls tls: HostPattern => TlsPolicy,
            label "tls", encode |_, policy| Some(record::encode_json(policy)),
            closed Some(TlsPolicy { denied: true, ..TlsPolicy::default() });
        /// The certificate of a TLS server name. A name that stands here counts as "has a certificate" for the redirect
        /// to HTTPS, also when the certificate itself is missing: then nginx's static one is used.
        5 Name names: HostPattern => CertificateId,
            label "names", encode |_, id| Some(id.as_str().into()), closed None;
        /// TLS server names whose connections are passed through to a backend, unread.
        7 Passthrough passthrough: HostPattern => BackendId,
            label "passthrough", encode |_, id| Some(id.as_str().into()), closed None;
        /// Hosts and their rules.
        1 Server servers: HostPattern => Server,
            label "servers", encode |_, server| Some(record::encode_server(server)),
            closed Some(closed_server());
        /// The backend of a stream listener's port.
        8 Port ports: StreamPort => BackendId,
            label "ports", encode |_, id| Some(id.as_str().into()), closed None;
    }
}

impl Kind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

/// Answers 503 to every request: its rule names policies that do not exist. Without a server a wildcard host or the
/// default backend would answer in its place.
fn closed_server() -> Server {
    let rules = match (crate::model::PathPattern::prefix("/"), PolicyId::parse("withheld")) {
        (Ok(path), Ok(policies)) => vec![Rule {
            path,
            backend: None,
            origin: Default::default(),
            policy: Default::default(),
            policies: Some(policies),
        }],
        _ => Vec::new(),
    };
    Server { rules }
}

/// A record of a snapshot or a delta.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordRef {
    /// The kind, which names the table.
    pub kind: Kind,
    /// The key as text; empty for settings.
    pub key: String,
}

impl fmt::Display for RecordRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Operations::of_kind(self.kind).map_or(self.kind.label(), |table| table.name);
        match self.key.as_str() {
            "" => f.write_str(name),
            key => write!(f, "{name} {key}"),
        }
    }
}

impl RecordRef {
    /// The record that a JSON pointer into a request leads to; `within` is `snapshot` or `upsert`.
    pub fn at(pointer: &str, within: &str) -> Option<RecordRef> {
        let mut steps = pointer.strip_prefix('/')?.split('/');
        if steps.next()? != within {
            return None;
        }
        let name = steps.next()?;
        if name == Kind::Settings.label() {
            return Some(RecordRef { kind: Kind::Settings, key: String::new() });
        }
        let kind = TABLES.iter().find(|table| table.name == name)?.kind;
        let key = steps.next()?.replace("~1", "/").replace("~0", "~");
        Some(RecordRef { kind, key })
    }
}

/// What can be done with a table, whatever its types.
pub struct Operations {
    /// The kind of its records.
    pub kind: Kind,
    /// Its name in JSON.
    pub name: &'static str,
    /// Adds what turns the first snapshot's table into the second one's.
    pub difference: fn(&Snapshot, &Snapshot, &mut Patch),
    /// Does to the snapshot what the module does to its store. The delta loses the table.
    pub apply: fn(&mut Patch, &mut Snapshot),
    /// Takes the snapshot's table over as upserts.
    pub take: fn(&mut Snapshot, &mut Patch),
    /// Takes the upserts over as the snapshot's table.
    pub put_back: fn(&mut Patch, &mut Snapshot),
    /// The first key that is both upserted and removed.
    pub contradiction: fn(&Patch) -> Option<String>,
    /// Lets the second delta follow the first: together they do what both do one after the other.
    pub follow: fn(&mut Patch, &mut Patch),
    /// Records written and removed.
    pub count: fn(&Patch) -> (usize, usize),
    /// Adds the records written, but for those that are encoded with others.
    pub encode: fn(&Patch, &mut Vec<Change>),
    /// Adds the records removed.
    pub removals: fn(&Patch, &mut Vec<Change>),
    /// Adds the keys of the records written.
    pub keys: fn(&Patch, &mut Vec<RecordRef>),
    /// Adds the keys of a snapshot.
    pub all_keys: fn(&Snapshot, &mut Keys),
    /// Whether the snapshot has a record with this key.
    pub has: fn(&Snapshot, &str) -> bool,
    /// Tells the key of each record, and the bytes of key and value, but for those that are encoded with others.
    pub sizes: fn(&Snapshot, &mut dyn FnMut(String, usize)),
    /// Whether something stands in the place of a withheld record.
    pub has_closed_form: fn() -> bool,
    /// Decodes a record by itself, to find what is wrong with it.
    pub decode: fn(&str, &serde_json::Value) -> Result<(), DecodeError>,
    /// Whether the delta writes or removes the record with this key.
    pub touches: fn(&Patch, &str) -> bool,
    /// Takes the record with this key out of what is written and leaves what closes it. False: no such key.
    pub withhold: fn(&mut Patch, &str) -> bool,
    /// Removes the record with this key, whatever is written of it. False: no such key.
    pub remove: fn(&mut Patch, &str) -> bool,
    /// Writes the record again as the snapshot has it. False: the snapshot has none.
    pub restore: fn(&Snapshot, &mut Patch, &str) -> bool,
    /// Moves the record with this key from the first delta's upserts to the second one's.
    pub shift: fn(&mut Patch, &mut Patch, &str),
    /// Moves all removals from the first delta to the second one.
    pub shift_removals: fn(&mut Patch, &mut Patch),
}

impl Operations {
    const fn of<T: Table>() -> Self {
        Operations {
            kind: T::KIND,
            name: T::NAME,
            difference: difference::<T>,
            apply: apply::<T>,
            take: |snapshot, patch| *T::changes(patch).0 = std::mem::take(T::of_mut(snapshot)),
            put_back: |patch, snapshot| *T::of_mut(snapshot) = std::mem::take(T::changes(patch).0),
            contradiction: contradiction::<T>,
            follow: follow::<T>,
            count: |patch| (T::upserts(patch).len(), T::removals(patch).len()),
            encode: encode::<T>,
            removals: |patch, all| {
                let keys = T::removals(patch).iter();
                all.extend(keys.map(|key| Change::remove(T::KIND, key.to_string())));
            },
            keys: |patch, all| {
                let keys = T::upserts(patch).keys();
                all.extend(keys.map(|key| RecordRef { kind: T::KIND, key: key.to_string() }));
            },
            all_keys: all_keys::<T>,
            has: |snapshot, key| {
                parsed::<T>(key).is_some_and(|key| T::of(snapshot).contains_key(&key))
            },
            sizes: sizes::<T>,
            has_closed_form: || T::closed().is_some(),
            decode: decode_record::<T::Key, T::Value>,
            touches: touches::<T>,
            withhold: withhold::<T>,
            remove: remove::<T>,
            restore: restore::<T>,
            shift: shift::<T>,
            shift_removals: |from, to| T::changes(to).1.append(T::changes(from).1),
        }
    }

    /// The table of a kind; `None` for kinds that stand in no table.
    pub fn of_kind(kind: Kind) -> Option<&'static Operations> {
        TABLES.iter().find(|table| table.kind == kind)
    }
}

fn difference<T: Table>(old: &Snapshot, new: &Snapshot, patch: &mut Patch) {
    let (old, new) = (T::of(old), T::of(new));
    let (upsert, remove) = T::changes(patch);
    let changed = new.iter().filter(|&(key, value)| old.get(key) != Some(value));
    upsert.extend(changed.map(|(key, value)| (key.clone(), value.clone())));
    remove.extend(old.keys().filter(|&key| !new.contains_key(key)).cloned());
}

fn apply<T: Table>(patch: &mut Patch, snapshot: &mut Snapshot) {
    let (upsert, remove) = T::changes(patch);
    let all = T::of_mut(snapshot);
    all.append(upsert);
    for key in std::mem::take(remove) {
        all.remove(&key);
    }
}

fn contradiction<T: Table>(patch: &Patch) -> Option<String> {
    let upserts = T::upserts(patch);
    T::removals(patch).iter().find(|key| upserts.contains_key(key)).map(T::Key::to_string)
}

fn follow<T: Table>(first: &mut Patch, later: &mut Patch) {
    let (upsert, remove) = T::changes(first);
    let (more, fewer) = T::changes(later);
    for key in fewer.iter() {
        upsert.remove(key);
    }
    for key in more.keys() {
        remove.remove(key);
    }
    upsert.append(more);
    remove.append(fewer);
}

fn encode<T: Table>(patch: &Patch, all: &mut Vec<Change>) {
    for (key, value) in T::upserts(patch) {
        if let Some(bytes) = T::encode(key, value) {
            all.push(Change::upsert(T::KIND, key.to_string(), bytes));
        }
    }
}

fn all_keys<T: Table>(snapshot: &Snapshot, all: &mut Keys) {
    // A delta without upserts: its keys are the table of `Keys`.
    let mut patch = Patch { remove: std::mem::take(all), ..Patch::default() };
    T::changes(&mut patch).1.extend(T::of(snapshot).keys().cloned());
    *all = patch.remove;
}

fn sizes<T: Table>(snapshot: &Snapshot, tell: &mut dyn FnMut(String, usize)) {
    for (key, value) in T::of(snapshot) {
        if let Some(bytes) = T::encode(key, value) {
            let key = key.to_string();
            let bytes = key.len() + bytes.len();
            tell(key, bytes);
        }
    }
}

fn parsed<T: Table>(key: &str) -> Option<T::Key> {
    T::Key::try_from(key.to_owned()).ok()
}

fn touches<T: Table>(patch: &Patch, key: &str) -> bool {
    parsed::<T>(key).is_some_and(|key| {
        T::upserts(patch).contains_key(&key) || T::removals(patch).contains(&key)
    })
}

fn withhold<T: Table>(patch: &mut Patch, key: &str) -> bool {
    let Some(closed) = T::closed() else { return remove::<T>(patch, key) };
    let Some(key) = parsed::<T>(key) else { return false };
    let (upsert, remove) = T::changes(patch);
    remove.remove(&key);
    upsert.insert(key, closed);
    true
}

fn remove<T: Table>(patch: &mut Patch, key: &str) -> bool {
    let Some(key) = parsed::<T>(key) else { return false };
    let (upsert, remove) = T::changes(patch);
    upsert.remove(&key);
    remove.insert(key);
    true
}

fn restore<T: Table>(snapshot: &Snapshot, patch: &mut Patch, key: &str) -> bool {
    let Some(key) = parsed::<T>(key) else { return false };
    let Some(value) = T::of(snapshot).get(&key) else { return false };
    let (upsert, remove) = T::changes(patch);
    remove.remove(&key);
    upsert.insert(key, value.clone());
    true
}

fn shift<T: Table>(from: &mut Patch, to: &mut Patch, key: &str) {
    let Some(key) = parsed::<T>(key) else { return };
    if let Some(value) = T::changes(from).0.remove(&key) {
        T::changes(to).0.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HostPattern;

    fn patch(upsert: &[&str], remove: &[&str]) -> Patch {
        let mut patch = Patch::default();
        for host in upsert {
            patch.upsert.servers.insert(HostPattern::parse(host).unwrap(), Server::default());
        }
        patch.remove.servers = remove.iter().map(|h| HostPattern::parse(h).unwrap()).collect();
        patch
    }

    #[test]
    fn every_kind_has_its_number_and_a_name_of_its_own() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        let labels: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.label()).collect();
        let names: BTreeSet<_> = TABLES.iter().map(|table| table.name).collect();
        assert_eq!((labels.len(), names.len()), (Kind::ALL.len(), TABLES.len()));
    }

    #[test]
    fn a_later_delta_undoes_what_it_contradicts() {
        let mut first = patch(&["a", "b"], &["c"]);
        first.follow(patch(&["c"], &["a"]));
        assert_eq!(first, patch(&["b", "c"], &["a"]));
        assert_eq!(first.contradiction(), None);
        assert_eq!(first.count(), (2, 1));
    }

    #[test]
    fn a_pointer_leads_to_its_record() {
        let id = BackendId::parse("a/b~c/80").unwrap();
        let mut patch = Patch::default();
        patch.upsert.backends.insert(id.clone(), Backend::default());
        patch.upsert.endpoints.insert(id, EndpointSet::default());
        let record = RecordRef::at("/upsert/endpoints/a~1b~0c~180/0/port", "upsert").unwrap();
        assert_eq!(record.to_string(), "endpoints a/b~c/80");
        let table = Operations::of_kind(record.kind).unwrap();
        assert!((table.touches)(&patch, &record.key));
        assert!((table.withhold)(&mut patch, &record.key));
        assert!((table.touches)(&patch, &record.key), "it is removed");
        assert_eq!(patch.count(), (1, 1));
        assert_eq!(RecordRef::at("/version", "upsert"), None);
        assert_eq!(RecordRef::at("", "upsert"), None);
        let settings = RecordRef::at("/upsert/settings/hsts", "upsert").unwrap();
        assert_eq!(settings.to_string(), "settings");
    }

    /// Writes each kind once, so that an operation that forgets a kind is seen.
    fn one_of_each() -> Snapshot {
        let body = br#"{"servers": {"a": {}}, "backends": {"n/s/1": {}}, "endpoints": {"n/s/1": []},
            "certificates": {"c": {"chain": "x", "key": "y"}}, "names": {"a": "c"},
            "passthrough": {"a": "n/s/1"}, "ports": {"tcp/1": "n/s/1"}, "policies": {"p": {}}, "tls": {"a": {}}}"#;
        let mut snapshot: Snapshot = serde_json::from_slice(body).unwrap();
        let bundle = Bundle::parse("x").unwrap();
        snapshot.bundles.insert(BundleId::of_digest([1; 32]), bundle);
        for table in &TABLES {
            let mut keys = Keys::default();
            (table.all_keys)(&snapshot, &mut keys);
            assert_ne!(keys, Keys::default(), "{} is not in the sample", table.name);
        }
        snapshot
    }

    #[test]
    fn no_operation_forgets_a_kind() {
        let whole = one_of_each();
        let patch = Patch::between(&Snapshot::default(), &whole);
        assert_eq!(patch.count(), (TABLES.len(), 0));
        let mut applied = Snapshot::default();
        patch.clone().apply(&mut applied);
        assert_eq!(applied, whole);
        assert_eq!(Patch::of_whole(whole.clone()).into_whole(), whole);
        let gone = Patch::between(&whole, &Snapshot::default());
        assert_eq!(gone.count(), (0, TABLES.len()));
        let mut followed = patch.clone();
        followed.follow(gone.clone());
        assert_eq!(followed, gone);
        let records = crate::record::delta_records(&patch, |_, _| None);
        let kinds: BTreeSet<_> = records.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, TABLES.iter().map(|table| table.kind).collect());
        assert_eq!(crate::record::delta_records(&gone, |_, _| None).len(), TABLES.len());
    }

    #[test]
    fn what_is_withheld_closes() {
        let whole = one_of_each();
        for table in &TABLES {
            let mut patch = Patch::of_whole(whole.clone());
            let mut keys = Vec::new();
            (table.keys)(&patch, &mut keys);
            let key = &keys[0].key;
            assert!((table.has)(&whole, key) && !(table.has)(&Snapshot::default(), key));
            assert!((table.withhold)(&mut patch, key), "{}", table.name);
            assert!((table.touches)(&patch, key), "{}", table.name);
            assert_eq!(patch.contradiction(), None);
            // The record that was there is not sent, in whichever form it was.
            assert_ne!(patch.upsert, Patch::of_whole(whole.clone()).upsert, "{}", table.name);
            assert!((table.restore)(&whole, &mut patch, key));
            assert_eq!(patch.upsert.servers, whole.servers);
            assert_eq!(patch.remove, Keys::default(), "{}", table.name);
        }
        let mut patch = Patch::of_whole(whole);
        (Operations::of_kind(Kind::Tls).unwrap().withhold)(&mut patch, "a");
        assert!(patch.upsert.tls.values().all(|policy| policy.denied));
        (Operations::of_kind(Kind::Server).unwrap().withhold)(&mut patch, "a");
        assert!(patch.upsert.servers.values().all(|server| server.rules[0].policies.is_some()));
    }
}
