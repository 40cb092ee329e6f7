//! Policies that Ingresses share: most say the same about requests, or nothing.

use oxigress_core::model::policy::{Policies, PolicyId};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

/// The policies that some Ingress has, each stored once.
#[derive(Debug, Default)]
pub struct SharedPolicies {
    by_hash: HashMap<u64, Weak<Policies>>,
    /// As many as there were when the ones that nobody has any more were last dropped.
    swept: usize,
}

impl SharedPolicies {
    /// Replaces `policies` by equal ones that another Ingress has.
    pub fn share(&mut self, policies: &mut Arc<Policies>) {
        let mut hasher = DefaultHasher::new();
        // The text form leaves out all that is not said, which is nearly everything.
        serde_json::to_vec(&**policies).unwrap_or_default().hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = self.by_hash.get(&hash).and_then(Weak::upgrade) {
            // Others with the same hash stay as they are.
            if known == *policies {
                *policies = known;
            }
            return;
        }
        self.by_hash.insert(hash, Arc::downgrade(policies));
        if self.by_hash.len() > 2 * self.swept + 16 {
            self.by_hash.retain(|_, known| known.strong_count() > 0);
            self.swept = self.by_hash.len();
        }
    }
}

/// The id of policies: a digest of what they say; none: they say nothing.
pub fn id_of(policies: &Policies) -> Option<PolicyId> {
    if *policies == Policies::default() {
        return None;
    }
    let json = serde_json::to_vec(policies).unwrap_or_default();
    let digest = openssl::sha::sha256(&json);
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    PolicyId::parse(digest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_policies_are_stored_once_and_forgotten_with_their_last_ingress() {
        let mut shared = SharedPolicies::default();
        let denied = |status| Arc::new(Policies { denied: Some(status), ..Policies::default() });
        let (mut first, mut second, mut other) = (denied(503), denied(503), denied(403));
        for policies in [&mut first, &mut second, &mut other] {
            shared.share(policies);
        }
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        for status in 0..1_000 {
            shared.share(&mut denied(status));
        }
        assert!(shared.by_hash.len() < 100, "{}", shared.by_hash.len());
    }
}
