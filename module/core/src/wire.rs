//! The JSON of the configuration endpoint.
//!
//! Shape:   [`native`] speaks the model, whole or as a delta; [`compat`] is ingress-nginx's format.
//! Errors:  [`DecodeError`] carries the JSON pointer (RFC 6901) of the value that is wrong.
//! Source:  docs/module/endpoint.md: UTF-8, depth, duplicate keys, ranges; unknown fields are counted, not refused.

pub mod compat;
pub mod native;
pub mod patterns;
mod strict;

pub(crate) use strict::decode_record;
pub use strict::{DecodeError, MAX_DEPTH, decode, faults, pointer_step};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A map that refuses a key twice, also when two spellings are one key (`A.test` and `a.test`).
/// `null` is an empty map, since Go writes an empty map so.
pub(crate) fn unique_map<'de, D, K, V>(from: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord + fmt::Display,
    V: Deserialize<'de>,
{
    struct Unique<K, V>(PhantomData<(K, V)>);

    impl<'de, K: Deserialize<'de> + Ord + fmt::Display, V: Deserialize<'de>> Visitor<'de>
        for Unique<K, V>
    {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(key) = map.next_key::<K>()? {
                if all.contains_key(&key) {
                    return Err(A::Error::custom(format!("key {key} is defined twice: keep one")));
                }
                let value = map.next_value()?;
                all.insert(key, value);
            }
            Ok(all)
        }
    }

    from.deserialize_any(Unique(PhantomData))
}

/// `null` counts as absent, for fields of programs written in Go.
pub(crate) fn null_is_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
