//! Which method a call is for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use corewire_proto::rpc::{Code, Mode, Settings};

use super::context::MethodName;
use super::gauges::Workers;
use super::interceptor::ServerInterceptor;
use super::method::Method;
use super::service::Registered;
use crate::link::Group;

/// What all workers of a server share.
pub(super) struct Plan {
    pub(super) group: Group,
    /// Where its connections live, for the gauges.
    pub(super) workers: Workers,
    pub(super) methods: Vec<Registered>,
    pub(super) interceptors: Arc<[Box<dyn ServerInterceptor>]>,
    pub(super) settings: Settings,
    pub(super) call_timeout: Option<Duration>,
    pub(super) half_close_timeout: Duration,
    pub(super) high_water: usize,
}

/// Methods of one name, by mode; last, the route of the `STREAM_*` family.
#[derive(Default)]
pub(super) struct Named {
    service: Vec<u8>,
    method: Vec<u8>,
    modes: [Option<Rc<dyn Method>>; 5],
}

/// A worker's own methods.
pub(super) struct Routes {
    services: HashMap<Vec<u8>, HashMap<Vec<u8>, Rc<Named>>>,
}

thread_local! {
    static ROUTES: RefCell<HashMap<Group, Weak<Routes>>> = RefCell::default();
}

impl Routes {
    /// Those of this worker; made when the first connection comes, gone with the last.
    pub(super) fn of(plan: &Plan) -> Rc<Self> {
        ROUTES.with_borrow_mut(|all| {
            if let Some(routes) = all.get(&plan.group).and_then(Weak::upgrade) {
                return routes;
            }
            all.retain(|_, routes| routes.strong_count() > 0);
            let routes = Rc::new(Self::new(&plan.methods));
            plan.workers.add_current();
            all.insert(plan.group, Rc::downgrade(&routes));
            routes
        })
    }

    fn new(methods: &[Registered]) -> Self {
        let mut building: HashMap<Vec<u8>, HashMap<Vec<u8>, Named>> = HashMap::new();
        for registered in methods {
            let (service, method) = (registered.service.as_bytes(), registered.method.as_bytes());
            let name = MethodName {
                service: registered.service.clone(),
                method: registered.method.clone(),
                mode: registered.mode,
                is_stream: registered.is_stream,
            };
            let named = building.entry(service.to_vec()).or_default().entry(method.to_vec()).or_default();
            (named.service, named.method) = (service.to_vec(), method.to_vec());
            named.modes[index(registered.mode, registered.is_stream)] =
                Some(registered.maker.make(Rc::new(name)));
        }
        let share = |methods: HashMap<_, _>| methods.into_iter().map(|(name, named)| (name, Rc::new(named)));
        let services = building.into_iter().map(|(name, methods)| (name, share(methods).collect()));
        Self { services: services.collect() }
    }

    /// The methods of a name. A service that has none of that name has an empty one.
    #[cold]
    pub(super) fn find(&self, service: &[u8], method: &[u8]) -> Result<Rc<Named>, Code> {
        let methods = self.services.get(service).ok_or(Code::SERVICE_NOT_FOUND)?;
        methods.get(method).cloned().ok_or(Code::METHOD_NOT_FOUND)
    }
}

impl Named {
    #[inline]
    pub(super) fn is(&self, service: &[u8], method: &[u8]) -> bool {
        self.method == method && self.service == service
    }

    #[inline]
    pub(super) fn mode(&self, mode: Mode, is_stream: bool) -> Result<Rc<dyn Method>, Code> {
        self.modes[index(mode, is_stream)].clone().ok_or(Code::METHOD_NOT_FOUND)
    }
}

#[inline]
const fn index(mode: Mode, is_stream: bool) -> usize {
    if is_stream {
        return 4;
    }
    match mode {
        Mode::Unary => 0,
        Mode::ClientStream => 1,
        Mode::ServerStream => 2,
        Mode::Bidi => 3,
    }
}
