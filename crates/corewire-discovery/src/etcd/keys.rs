use crate::record::Record;
use crate::{Endpoint, RegistryError};
use std::sync::Arc;

/// Service and instance id.
pub(super) type Key = (Arc<str>, Arc<str>);

pub(super) fn key_of(endpoint: &Endpoint) -> Key {
    (endpoint.service().clone(), endpoint.instance().clone())
}

/// Keys are `/<prefix>/<service>/<instance>`, values are the rest of the endpoint in JSON.
#[derive(Debug)]
pub(super) struct Keys {
    root: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { root: format!("/{prefix}/") }
    }

    /// What every key begins with.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    pub(super) fn encode(&self, (service, instance): &Key) -> String {
        format!("{}{service}/{instance}", self.root)
    }

    /// `None` for a key that is not of this form.
    pub(super) fn decode(&self, key: &[u8]) -> Option<Key> {
        let (service, instance) = std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?.split_once('/')?;
        let is_name = |name: &str| !name.is_empty() && !name.contains('/');
        (is_name(service) && is_name(instance)).then(|| (service.into(), instance.into()))
    }
}

/// Largest value that is looked at, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

pub(super) fn decode_value((service, instance): &Key, value: &[u8]) -> Result<Arc<Endpoint>, String> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(format!("the value has {} bytes, the limit is {VALUE_BYTES_MAX}", value.len()));
    }
    let record: Record = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    record.endpoint(service, instance).map(Arc::new).map_err(|error| error.to_string())
}

pub(super) fn encode_value(endpoint: &Endpoint) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(&Record::of(endpoint))
        .map_err(|error| RegistryError::Refused { kind: "etcd", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_back_as_they_went() {
        let keys = Keys::new("a/b");
        let endpoint = Endpoint::new("Echo", "i-1", "h:1").unwrap().with_weight(0).with_zone("z").unwrap();
        let endpoint = endpoint.with_tags(["t"]).unwrap();
        let encoded = keys.encode(&key_of(&endpoint));
        assert_eq!(encoded, "/a/b/Echo/i-1");
        let key = keys.decode(encoded.as_bytes()).unwrap();
        assert_eq!(*decode_value(&key, &encode_value(&endpoint).unwrap()).unwrap(), endpoint);
    }

    #[test]
    fn what_is_not_ours_is_not_taken_for_it() {
        let keys = Keys::new("p");
        for key in ["", "/p", "/p/", "/p/s", "/p/s/", "/p//i", "/p/s/i/x", "/q/s/i", "p/s/i"] {
            assert_eq!(keys.decode(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.decode(b"/p/s/\xff"), None);
        let key = ("s".into(), "i".into());
        for value in [
            "",
            "{}",
            "[]",
            "{\"address\": 7}",
            "{\"address\": \"h\"}",
            "{\"address\":\"h:1\",\"weight\":-1}",
        ] {
            assert!(decode_value(&key, value.as_bytes()).is_err(), "{value}");
        }
        assert!(
            decode_value(&key, &vec![b' '; VALUE_BYTES_MAX + 1]).unwrap_err().contains("the limit is 65536")
        );
        assert_eq!(decode_value(&key, b"{\"address\":\"h:1\",\"new\":1}").unwrap().weight(), 100);
        let bad_name = ("a b".into(), "i".into());
        assert!(decode_value(&bad_name, b"{\"address\":\"h:1\"}").is_err());
    }
}
