use super::query::{Answer, Pattern, Targets};
use super::{DnsOptions, Follow};
use crate::{Catalog, Endpoint, RegistryError};
use futures_channel::oneshot;
use hashbrown::{HashMap, HashSet};
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Resolver, TokioResolver};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Begins the registry's thread; it ends when the sender is dropped.
pub(super) fn spawn(
    options: DnsOptions,
    pattern: Pattern,
    catalog: Arc<Catalog>,
) -> Result<UnboundedSender<Follow>, RegistryError> {
    let refused = |reason: String| RegistryError::Refused { kind: "dns", reason };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| refused(format!("the thread cannot be started: {error}")))?;
    let resolver =
        resolver(&options).map_err(|error| refused(format!("the resolver cannot be set up: {error}")))?;
    let (commands, receiver) = unbounded_channel();
    let worker = Worker {
        options,
        pattern: Arc::new(pattern),
        catalog,
        resolver,
        followed: HashMap::new(),
        asking: JoinSet::new(),
    };
    std::thread::Builder::new()
        .name("corewire-dns".into())
        .spawn(move || runtime.block_on(worker.run(receiver)))
        .map_err(|error| refused(format!("the thread cannot be started: {error}")))?;
    Ok(commands)
}

fn resolver(options: &DnsOptions) -> Result<TokioResolver, NetError> {
    let mut builder = match options.server {
        None => TokioResolver::builder_tokio()?,
        Some(server) => {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            config
                .connections
                .iter_mut()
                .for_each(|connection: &mut ConnectionConfig| connection.port = server.port());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![config]);
            Resolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    let settings = builder.options_mut();
    // The catalog is the cache; a question is asked only when a new answer is wanted.
    settings.cache_size = 0;
    settings.timeout = options.timeout;
    settings.attempts = 1;
    settings.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

struct Worker {
    options: DnsOptions,
    pattern: Arc<Pattern>,
    catalog: Arc<Catalog>,
    resolver: TokioResolver,
    followed: HashMap<Arc<str>, Followed>,
    asking: JoinSet<(Arc<str>, Result<Answer, NetError>)>,
}

struct Followed {
    /// When to ask next; `None` while being asked.
    due: Option<Instant>,
    answered: bool,
    targets: Arc<Targets>,
    waiting: Vec<oneshot::Sender<Result<(), RegistryError>>>,
}

/// How long the thread sleeps when nothing is due.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

impl Worker {
    async fn run(mut self, mut commands: UnboundedReceiver<Follow>) {
        loop {
            let due = self.followed.values().filter_map(|followed| followed.due).min();
            let wait = due.map_or(IDLE_WAIT, |due| due.saturating_duration_since(Instant::now()));
            tokio::select! {
                command = commands.recv() => match command {
                    Some(follow) => self.follow(follow),
                    None => return,
                },
                Some(asked) = self.asking.join_next(), if !self.asking.is_empty() => {
                    if let Ok((service, answer)) = asked {
                        self.take_in(&service, answer);
                    }
                }
                () = tokio::time::sleep(wait) => self.ask_due(Instant::now()),
            }
        }
    }

    fn follow(&mut self, Follow { service, known }: Follow) {
        let limit = self.options.limits.services_max;
        if self.followed.len() >= limit && !self.followed.contains_key(&service) {
            let _ = known.send(Err(RegistryError::Full { what: "services", limit }));
            return;
        }
        let now = Instant::now();
        let fresh =
            || Followed { due: Some(now), answered: false, targets: Arc::default(), waiting: Vec::new() };
        let followed = self.followed.entry(service).or_insert_with(fresh);
        if followed.answered || (self.options.wait_for_answer && followed.due.is_none_or(|due| due > now)) {
            let _ = known.send(Ok(()));
            return;
        }
        // Somebody wants to know now: an error from before is not an answer.
        followed.waiting.push(known);
        if followed.due.is_some() {
            followed.due = Some(now);
        }
        self.ask_due(now);
    }

    fn ask_due(&mut self, now: Instant) {
        for (service, followed) in &mut self.followed {
            if followed.due.is_none_or(|due| due > now) {
                continue;
            }
            followed.due = None;
            let (service, pattern, resolver) = (service.clone(), self.pattern.clone(), self.resolver.clone());
            let targets = followed.targets.clone();
            self.asking.spawn(async move {
                let answer = pattern.ask(&resolver, &service, &targets).await;
                (service, answer)
            });
        }
    }

    fn take_in(&mut self, service: &Arc<str>, answer: Result<Answer, NetError>) {
        let Some(followed) = self.followed.get_mut(service) else { return };
        let (now, options) = (Instant::now(), &self.options);
        let told = match answer {
            Ok(answer) => {
                let valid_until = answer.valid_until.unwrap_or(now + options.refresh_min);
                let (soonest, latest) = (now + options.refresh_min, now + options.refresh_max);
                followed.due = Some(valid_until.min(latest).max(soonest));
                followed.answered = true;
                followed.targets = answer.targets;
                replace_service(&self.catalog, service, &answer.endpoints);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%service, %error, "the last known endpoints stay");
                followed.due = Some(now + options.refresh_min);
                let address = options.name.clone();
                Err(RegistryError::Unreachable { kind: "dns", address, reason: error.to_string() })
            }
        };
        let told = if followed.answered || options.wait_for_answer { Ok(()) } else { told };
        for waiting in followed.waiting.drain(..) {
            let _ = waiting.send(told.clone());
        }
    }
}

/// Makes a service exactly these endpoints. What is new comes before what is old goes, so that a service is never
/// empty between two answers that are not.
fn replace_service(catalog: &Catalog, service: &str, endpoints: &[Arc<Endpoint>]) {
    let kept: HashSet<&str> = endpoints.iter().map(|endpoint| &**endpoint.instance()).collect();
    endpoints.iter().for_each(|endpoint| catalog.put_or_warn(endpoint));
    for endpoint in catalog.snapshot(service).iter().filter(|endpoint| !kept.contains(&**endpoint.instance()))
    {
        catalog.remove(service, endpoint.instance());
    }
}
