use crate::{DEFAULT_WEIGHT, Endpoint, EndpointError};
use serde::{Deserialize, Serialize};

/// An endpoint as it is written in files and in etcd, without the names that the place of writing gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    address: String,
    #[serde(default = "default_weight")]
    weight: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

/// An endpoint as it is written in a file. Without `instance`, the address is the instance id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct NamedRecord {
    service: String,
    instance: Option<String>,
    #[serde(flatten)]
    record: Record,
}

impl Record {
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "only the etcd registry writes"))]
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        Self {
            address: endpoint.address().to_string(),
            weight: endpoint.weight(),
            zone: endpoint.zone().map(str::to_owned),
            tags: endpoint.tags().iter().map(|tag| tag.to_string()).collect(),
        }
    }

    pub(crate) fn endpoint(self, service: &str, instance: &str) -> Result<Endpoint, EndpointError> {
        let endpoint = Endpoint::new(service, instance, self.address)?.with_weight(self.weight);
        let endpoint = match self.zone {
            Some(zone) => endpoint.with_zone(zone)?,
            None => endpoint,
        };
        endpoint.with_tags(self.tags)
    }
}

impl NamedRecord {
    pub(crate) fn endpoint(self) -> Result<Endpoint, EndpointError> {
        let instance = self.instance.unwrap_or_else(|| self.record.address.clone());
        self.record.endpoint(&self.service, &instance)
    }
}

fn default_weight() -> u16 {
    DEFAULT_WEIGHT
}
