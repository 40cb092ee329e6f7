//! The Kubernetes objects that this program reads, as far as it reads them, and what is said about them.
//!
//! Knows:     the objects' names ([`Key`], [`ObjectRef`]), the fields that translation reads, their conversion from
//!            Kubernetes' own types ([`convert`]) and from manifests ([`document`]), all objects together ([`World`]), and
//!            the words for their authors ([`verdict`]).
//! Does not:  know where objects come from, what they are translated to, or who is told about them. It does no I/O.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod convert;
pub mod document;
pub mod gateway;
pub mod gateway_status;
pub mod ingress;
mod key;
pub mod parallel;
pub mod published;
pub mod secret;
pub mod service;
pub mod small;
pub mod verdict;
mod world;

pub use key::{Key, Kind, Name, ObjectRef};
pub use world::references::References;
pub use world::{Changed, ConfigMap, Namespace, Object, SecretHistory, Seen, World};
