//! The kinds of records, as one list.
//!
//! Shape:   [`records!`] below has one entry a kind. From it come the tables of [`Snapshot`], [`Upsert`] and [`Keys`], [`Kind`],
//!          and [`TABLES`]: the operations on any table, such as to compare, apply, encode, check or withhold its records.
//!          What is particular to a kind stands in its file, as its [`Record`].
//! Errors:  none; the types of keys and values refuse what cannot be decoded.
//! Rejected: a visitor trait, which needs a struct for each operation; maps keyed by kind, which lose the types.

mod operations;
#[cfg(test)]
mod tests;

pub use super::definition::Record;
pub use operations::{Operations, RecordRef};

use super::stream::{passthrough, port, session};
use super::tls::{self, bundle, certificate, name};
use super::upstream::{backend, endpoints};
use super::{listener, policies, server};
use crate::model::Settings;
use crate::wire::native::Patch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

crate::model::object::objects!(Snapshot, Upsert, Keys);

/// The place of a kind's records in each type that has tables.
trait Table: Record {
    const KIND: Kind;
    /// The name of the table in JSON.
    const NAME: &'static str;

    fn of(snapshot: &Snapshot) -> &Records<Self>;
    fn of_mut(snapshot: &mut Snapshot) -> &mut Records<Self>;
    fn upserts(patch: &Patch) -> &Records<Self>;
    fn removals(patch: &Patch) -> &RecordKeys<Self>;
    /// The upserts and the removals of a delta.
    fn changes(patch: &mut Patch) -> (&mut Records<Self>, &mut RecordKeys<Self>);
}

/// The records of one kind.
pub type Records<R> = BTreeMap<<R as Record>::Key, <R as Record>::Value>;

/// The keys of records of one kind.
pub type RecordKeys<R> = BTreeSet<<R as Record>::Key>;

macro_rules! records {
    (
        single { $($(#[doc = $single_doc:expr])* $single_number:literal $single:ident $single_label:literal;)* }
        tables { $(
            $(#[doc = $doc:expr])*
            $(#[cfg($cfg:meta)])?
            $number:literal $kind:ident $field:ident: $record:ty;
        )* }
    ) => {
        /// The kinds of records. The numbers are part of the layout in shared memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[doc = $single_doc])* $single = $single_number,)*
            $($(#[doc = $doc])* $(#[cfg($cfg)])? $kind = $number,)*
        }

        impl Kind {
            /// Every kind, sorted by number.
            pub const ALL: [Kind; [$($single_number,)* $($(#[cfg($cfg)])? $number),*].len()] = {
                let mut all = [$(Kind::$single,)* $($(#[cfg($cfg)])? Kind::$kind),*];
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
                    $($(#[cfg($cfg)])? Kind::$kind => {
                        <$record as Record>::COUNTED_AS.unwrap_or(<$record as Table>::NAME)
                    })*
                }
            }
        }

        /// Everything nginx serves: one whole configuration.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Snapshot {
            /// Values that hold for every server.
            pub settings: Settings,
            $(
                $(#[doc = $doc])*
                $(#[cfg($cfg)])?
                #[serde(
                    deserialize_with = "crate::wire::unique_map",
                    skip_serializing_if = "BTreeMap::is_empty"
                )]
                pub $field: Records<$record>,
            )*
        }

        /// Records that are new or replaced, by the tables of [`Snapshot`].
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Upsert {
            /// Values that hold for every server.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub settings: Option<Settings>,
            $(
                $(#[doc = $doc])*
                $(#[cfg($cfg)])?
                #[serde(
                    deserialize_with = "crate::wire::unique_map",
                    skip_serializing_if = "BTreeMap::is_empty"
                )]
                pub $field: Records<$record>,
            )*
        }

        /// Keys of records, by the tables of [`Snapshot`].
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[serde(remote = "Self")]
        pub struct Keys {
            $(
                $(#[doc = $doc])*
                $(#[cfg($cfg)])?
                #[serde(skip_serializing_if = "BTreeSet::is_empty")]
                pub $field: RecordKeys<$record>,
            )*
        }

        $(
            $(#[cfg($cfg)])?
            impl Table for $record {
                const KIND: Kind = Kind::$kind;
                const NAME: &'static str = stringify!($field);

                fn of(snapshot: &Snapshot) -> &Records<Self> {
                    &snapshot.$field
                }

                fn of_mut(snapshot: &mut Snapshot) -> &mut Records<Self> {
                    &mut snapshot.$field
                }

                fn upserts(patch: &Patch) -> &Records<Self> {
                    &patch.upsert.$field
                }

                fn removals(patch: &Patch) -> &RecordKeys<Self> {
                    &patch.remove.$field
                }

                fn changes(patch: &mut Patch) -> (&mut Records<Self>, &mut RecordKeys<Self>) {
                    (&mut patch.upsert.$field, &mut patch.remove.$field)
                }
            }
        )*

        /// The operations on each table.
        pub static TABLES: [Operations; [$($(#[cfg($cfg)])? $number),*].len()] =
            [$($(#[cfg($cfg)])? Operations::of::<$record>()),*];
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
        // A snapshot that is sent in parts is sent in this order: a record comes after those that it names, and a host
        // after all that protects it.
        /// Endpoint sets by backend id, apart from the backends, since they change most often.
        3 Endpoints endpoints: endpoints::EndpointSets;
        /// Backends by id. A rule may name a backend that is not here: it answers 503.
        2 Backend backends: backend::Backends;
        /// Certificates with their keys, by id.
        4 Certificate certificates: certificate::Certificates;
        /// Authorities and revocation lists by their digest. A host or policy that names one that is not here is closed.
        11 Bundle bundles: bundle::Bundles;
        /// Policies that rules share, by id. A rule that names missing policies answers 503.
        9 Policies policies: policies::PolicySets;
        /// How a host speaks TLS, by TLS server name and by the host of a request.
        10 Tls tls: tls::TlsPolicies;
        /// The certificate of a TLS server name. A name that stands here counts as "has a certificate" for the redirect
        /// to HTTPS even if the certificate itself is missing: then nginx's static one is used.
        5 Name names: name::Names;
        /// TLS server names whose connections are passed through to a backend without being decrypted.
        7 Passthrough passthrough: passthrough::Passthroughs;
        /// The rules of hosts, by host pattern.
        1 Server servers: server::Servers;
        /// The rules of hosts on ports of Gateways' listeners, which come before those of the same host without a port.
        12 Listener listener_servers: listener::ListenerServers;
        /// The backend of a stream listener's port.
        8 Port ports: port::Ports;
        /// What is done with the sessions of Gateways' listeners, by port and server name.
        13 Session sessions: session::Sessions;
        /// Exists in unit tests only.
        #[cfg(test)]
        14 Specimen specimens: super::specimen::Specimens;
    }
}

impl Kind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}
