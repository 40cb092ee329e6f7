//! The beginning of an AdmissionReview: whose it is, before its object has come.
//!
//! Shape:   the API server writes what is read here before the object and the user, and as compact JSON. Of another order nothing is
//!          known, and such a review has no line and no denial of its own.
//! Source:  `AdmissionRequest` of k8s.io/api/admission/v1.

/// The beginning has at most this: names and kinds of 253 letters.
pub const BYTES: usize = 4 << 10;

/// Whose review it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Goes back as it came.
    pub uid: String,
    /// That of the object.
    pub namespace: String,
    /// The object is to be deleted.
    pub is_deletion: bool,
}

impl Head {
    /// Reads the first bytes of a body.
    pub fn read(beginning: &[u8]) -> Option<Self> {
        let beginning = String::from_utf8_lossy(beginning.get(..BYTES).unwrap_or(beginning));
        let before_object = beginning.split("\"object\":").next()?;
        let field = |name: &str| {
            let (_, rest) = before_object.split_once(&format!("\"{name}\":\""))?;
            let (value, _) = rest.split_once('"')?;
            (!value.contains('\\')).then(|| value.to_owned())
        };
        let (uid, namespace) = (field("uid")?, field("namespace")?);
        Some(Head { uid, namespace, is_deletion: field("operation")? == "DELETE" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_review_is_stands_before_its_object() {
        let of = |operation: &str| {
            format!(
                r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u-1","kind":{{"group":"networking.k8s.io","version":"v1","kind":"Ingress"}},"name":"a","namespace":"shop","operation":"{operation}","userInfo":{{"username":"x","uid":"u-2"}},"object":{{"metadata":{{"uid":"u-3","namespace":"other"}}"#
            )
        };
        let head = Head { uid: "u-1".into(), namespace: "shop".into(), is_deletion: false };
        assert_eq!(Head::read(of("CREATE").as_bytes()), Some(head));
        assert!(Head::read(of("DELETE").as_bytes()).unwrap().is_deletion);
        for text in
            ["", "{", r#"{"request":{"object":{"uid":"u","namespace":"n","operation":"CREATE"}"#]
        {
            assert_eq!(Head::read(text.as_bytes()), None, "{text}");
        }
    }
}
