use super::Catalog;
use crate::Endpoint;
use hashbrown::HashSet;
use std::sync::Arc;

impl Catalog {
    /// Makes the whole catalog exactly these endpoints, of whatever services. What is new comes before what is old
    /// goes, so that a service is never empty between two lists that are not.
    pub(crate) fn replace_all(&self, endpoints: &[Arc<Endpoint>]) {
        let name = |endpoint: &Endpoint| (endpoint.service().clone(), endpoint.instance().clone());
        let kept: HashSet<_> = endpoints.iter().map(|endpoint| name(endpoint)).collect();
        endpoints.iter().for_each(|endpoint| self.put_or_warn(endpoint));
        for service in self.services() {
            for endpoint in self.snapshot(&service).iter().filter(|endpoint| !kept.contains(&name(endpoint)))
            {
                self.remove(&service, endpoint.instance());
            }
        }
    }

    /// Removes an instance, whoever registered it.
    pub(crate) fn remove(&self, service: &str, instance: &str) -> bool {
        self.find(service).is_some_and(|service| service.remove(instance))
    }

    /// For sources where nobody is there to be told of an error.
    pub(crate) fn put_or_warn(&self, endpoint: &Arc<Endpoint>) {
        if let Err(error) = self.put(endpoint.clone(), None) {
            let (service, instance) = (endpoint.service(), endpoint.instance());
            tracing::warn!(%service, %instance, %error, "endpoint left out");
        }
    }
}
