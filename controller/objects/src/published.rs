//! What an API server says of an Ingress itself: what the writers of status and Events need.

/// What an API server says of an Ingress besides what is served of it: for the writers of status and Events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The field metadata.uid of the object.
    pub uid: String,
    /// metadata.resourceVersion: whoever writes the status names what was seen.
    pub version: String,
    /// The addresses of status.loadBalancer.ingress as the API server has them.
    pub addresses: Vec<Address>,
}

/// The status of an object of the Gateway API as it stands, for who writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectStatus {
    /// metadata.resourceVersion: whoever writes the status names what was seen.
    pub version: String,
    /// status, as written; null: none.
    pub status: serde_json::Value,
}

/// Where clients reach this controller: one of the two, mostly.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Empty if there is none.
    pub hostname: String,
    /// Empty if there is none.
    pub ip: String,
}
