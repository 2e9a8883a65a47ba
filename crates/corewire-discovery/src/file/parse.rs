use crate::Endpoint;
use crate::record::NamedRecord;
use hashbrown::HashSet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Toml,
    Json,
}

/// The file as a whole; entries are looked at one by one, so that a bad one spoils no other.
#[derive(Deserialize)]
struct Document<V> {
    #[serde(default = "Vec::new")]
    endpoints: Vec<V>,
}

/// The valid endpoints; the others are warned of. An error says that the whole is not understood.
pub(super) fn parse(format: Format, text: &str, path: &Path) -> Result<Vec<Arc<Endpoint>>, String> {
    match format {
        Format::Toml => {
            let document: Document<toml::Value> = toml::from_str(text).map_err(|error| error.to_string())?;
            Ok(collect(document.endpoints, path, toml::Value::try_into::<NamedRecord>))
        }
        Format::Json => {
            let document: Document<serde_json::Value> =
                serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(collect(document.endpoints, path, from_json))
        }
    }
}

fn from_json<T: DeserializeOwned>(value: serde_json::Value) -> serde_json::Result<T> {
    serde_json::from_value(value)
}

fn collect<V, E: Display>(
    values: Vec<V>,
    path: &Path,
    read: impl Fn(V) -> Result<NamedRecord, E>,
) -> Vec<Arc<Endpoint>> {
    let mut seen = HashSet::new();
    let mut endpoints = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let endpoint = read(value).map_err(|error| error.to_string());
        match endpoint.and_then(|record| record.endpoint().map_err(|error| error.to_string())) {
            Ok(endpoint) if seen.insert((endpoint.service().clone(), endpoint.instance().clone())) => {
                endpoints.push(Arc::new(endpoint));
            }
            Ok(endpoint) => {
                let (service, instance) = (endpoint.service(), endpoint.instance());
                tracing::warn!(path = %path.display(), index, %service, %instance, "entry left out: the instance is listed before");
            }
            Err(error) => tracing::warn!(path = %path.display(), index, %error, "entry left out"),
        }
    }
    endpoints
}
