//! The service that tells what a server offers.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use corewire_proto::rpc::{Code, Mode};

use super::context::Context;
use super::service::{Registered, Service};
use crate::listing::{Everything, MethodInfo, One, SERVICE, ServiceInfo, Services};
use crate::message::Json;
use crate::status::Status;

/// Of these methods, and its own.
pub(super) fn service(methods: &[Registered]) -> Service {
    let mut all: BTreeMap<String, Vec<MethodInfo>> = BTreeMap::new();
    let offered = methods.iter().map(|method| (&*method.service, &*method.method, mode(method)));
    for (service, method, mode) in offered.chain([(SERVICE, "list", "unary"), (SERVICE, "describe", "unary")])
    {
        let info = MethodInfo { name: method.to_owned(), mode: mode.to_owned() };
        all.entry(service.to_owned()).or_default().push(info);
    }
    for methods in all.values_mut() {
        methods.sort_unstable();
        methods.dedup();
    }
    let services = all.into_iter().map(|(name, methods)| ServiceInfo { name, methods }).collect();
    let listed = Arc::new(Services { services });
    let described = listed.clone();
    Service::new(SERVICE)
        .unary("list", move |Json(Everything {}): Json<Everything>, _: Context| {
            ready(Ok(Json(Services::clone(&listed))))
        })
        .unary("describe", move |Json(One { service }): Json<One>, _: Context| {
            let found = described.services.iter().find(|info| info.name == service).cloned();
            let unknown = || Status::new(Code::NOT_FOUND, format!("there is no service {service:?}"));
            ready(found.map(Json).ok_or_else(unknown))
        })
}

const fn mode(method: &Registered) -> &'static str {
    match method.mode {
        _ if method.is_stream => "stream",
        Mode::Unary => "unary",
        Mode::ClientStream => "client-stream",
        Mode::ServerStream => "server-stream",
        Mode::Bidi => "bidi",
    }
}
