//! What goes over the wire: JSON, so that anything can speak it.

use std::sync::Arc;

use corewire_discovery::{Change, Endpoint, EndpointError};
use serde::{Deserialize, Serialize};

/// The service's name.
pub(super) const SERVICE: &str = "corewire.Registry";

/// An endpoint as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    service: String,
    pub(super) instance: String,
    address: String,
    #[serde(default = "default_weight")]
    weight: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

fn default_weight() -> u16 {
    corewire_discovery::DEFAULT_WEIGHT
}

impl From<&Endpoint> for Record {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            service: endpoint.service().to_string(),
            instance: endpoint.instance().to_string(),
            address: endpoint.address().to_string(),
            weight: endpoint.weight(),
            zone: endpoint.zone().map(str::to_owned),
            tags: endpoint.tags().iter().map(|tag| tag.to_string()).collect(),
        }
    }
}

impl TryFrom<Record> for Endpoint {
    type Error = EndpointError;

    fn try_from(record: Record) -> Result<Self, EndpointError> {
        let endpoint = Self::new(record.service, record.instance, record.address)?.with_weight(record.weight);
        let endpoint = match record.zone {
            Some(zone) => endpoint.with_zone(zone)?,
            None => endpoint,
        };
        endpoint.with_tags(record.tags)
    }
}

/// `register`: adds or updates an endpoint until it has not been renewed for so long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Register {
    pub(super) endpoint: Record,
    pub(super) ttl_ms: u64,
    /// Chosen by the client, so that it can take back what it has no answer to.
    pub(super) lease: u64,
}

/// `renew`: begins the time to live of these leases anew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Renew {
    pub(super) leases: Vec<u64>,
}

/// Those that could not be renewed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Renewed {
    /// They ran out, or the registry has forgotten all.
    pub(super) gone: Vec<u64>,
    /// Their instances were registered again by somebody.
    pub(super) taken: Vec<u64>,
}

/// `deregister`: takes out what a lease holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Deregister {
    pub(super) lease: u64,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Deregistered {
    /// It was still this lease's.
    pub(super) was_held: bool,
}

/// Of `services`, and the answer of `register`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Empty {}

/// The answer of `services`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Services {
    pub(super) services: Vec<String>,
}

/// `list` and `watch`: of this service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Of {
    pub(super) service: String,
}

/// The answer of `list`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Endpoints {
    pub(super) endpoints: Vec<Record>,
}

/// What `watch` tells; first, and when the watcher was too slow for single changes, all that there is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(super) enum Told {
    Reset { endpoints: Vec<Record> },
    Put { endpoint: Record },
    Removed { instance: String },
}

impl Told {
    /// `None`: a kind of change that this version does not know.
    pub(super) fn of(change: &Change) -> Option<Self> {
        let record = |endpoint: &Arc<Endpoint>| Record::from(&**endpoint);
        Some(match change {
            Change::Reset(snapshot) => Self::Reset { endpoints: snapshot.iter().map(record).collect() },
            Change::Added(endpoint) | Change::Updated { after: endpoint, .. } => {
                Self::Put { endpoint: record(endpoint) }
            }
            Change::Removed(endpoint) => Self::Removed { instance: endpoint.instance().to_string() },
            _ => return None,
        })
    }
}
