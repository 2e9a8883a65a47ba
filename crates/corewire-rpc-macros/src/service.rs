//! `#[service]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Error, FnArg, ItemTrait, TraitItem};

use crate::method::Method;
use crate::options::{ServiceOptions, is_rpc};

pub(crate) fn expand(options: &ServiceOptions, item: &ItemTrait) -> syn::Result<TokenStream> {
    if !item.generics.params.is_empty() {
        let why = "a service has no generic parameters: its messages are of one type";
        return Err(Error::new_spanned(&item.generics, why));
    }
    let methods = item.items.iter().map(|item| match item {
        TraitItem::Fn(method) => Method::read(method, options.rename),
        other => Err(Error::new_spanned(other, "a service has methods only")),
    });
    let methods = methods.collect::<syn::Result<Vec<_>>>()?;
    check_names(&methods)?;
    let name = options.name.clone().unwrap_or_else(|| item.ident.unraw().to_string());
    let (item, server, client) =
        (without_options(item), server(item, &name, &methods), client(item, &name, &methods));
    Ok(quote! {
        #[allow(async_fn_in_trait)]
        #item
        #server
        #client
    })
}

/// Two methods of one name would hide each other, unless a condition keeps them apart.
fn check_names(methods: &[Method<'_>]) -> syn::Result<()> {
    for (at, method) in methods.iter().enumerate() {
        let is_same = |other: &&Method<'_>| other.name == method.name && other.conditions().next().is_none();
        if method.conditions().next().is_none()
            && let Some(other) = methods[..at].iter().find(is_same)
        {
            let why =
                format!("`{}` and `{}` are both {:?} on the wire", other.ident, method.ident, method.name);
            return Err(Error::new(method.ident.span(), why));
        }
    }
    Ok(())
}

/// The trait as the compiler is to see it.
fn without_options(item: &ItemTrait) -> ItemTrait {
    let mut item = item.clone();
    for method in &mut item.items {
        let TraitItem::Fn(method) = method else { continue };
        method.attrs.retain(|attribute| !is_rpc(attribute));
        for argument in &mut method.sig.inputs {
            if let FnArg::Typed(parameter) = argument {
                parameter.attrs.retain(|attribute| !is_rpc(attribute));
            }
        }
    }
    item
}

fn server(item: &ItemTrait, name: &str, methods: &[Method<'_>]) -> TokenStream {
    let (vis, service) = (&item.vis, &item.ident);
    let server = format_ident!("{}Server", service.unraw());
    let doc = format!("Serves a [`{service}`]: give it to `RpcServer::service`.");
    let new_doc = format!("Serves this as `{name}`.");
    let handlers = methods.iter().map(|method| handler(method, service));
    quote! {
        #[doc = #doc]
        #vis struct #server<S>(::std::sync::Arc<S>);

        impl<S: #service + ::core::marker::Send + ::core::marker::Sync + 'static> #server<S> {
            #[doc = #new_doc]
            pub fn new(service: S) -> Self {
                Self(::std::sync::Arc::new(service))
            }
        }

        impl<S> ::core::fmt::Debug for #server<S> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(stringify!(#server)).finish_non_exhaustive()
            }
        }

        impl<S: #service + ::core::marker::Send + ::core::marker::Sync + 'static>
            ::core::convert::From<#server<S>> for ::corewire_rpc::Service
        {
            fn from(server: #server<S>) -> Self {
                let service = server.0;
                let methods = ::corewire_rpc::Service::new(#name);
                #(#handlers)*
                methods
            }
        }
    }
}

/// The registration of a method.
fn handler(method: &Method<'_>, service: &syn::Ident) -> TokenStream {
    let (ident, name, conditions) = (method.ident, &method.name, method.conditions());
    let response = &method.response;
    let argument = method.parameter.map(|_| quote!(request,));
    let context = method.takes_context.then(|| quote!(context,));
    let call = quote!(<S as #service>::#ident(&service, #argument #context).await);
    let forward = if method.may_fail_midway { quote!(forward_results) } else { quote!(forward) };
    let parameter = method.parameter.map_or_else(|| quote!(()), |given| quote!(#given));
    let (mode, sink, body) = match (method.streams_requests, method.streams_responses) {
        (false, false) => (quote!(unary), None, call),
        (true, false) => (quote!(client_stream), None, call),
        (streams, true) => (
            if streams { quote!(bidi) } else { quote!(server_stream) },
            Some(quote!(sink: ::corewire_rpc::Sink<#response>,)),
            quote!(::corewire_rpc::__macros::#forward(#call?, sink).await),
        ),
    };
    quote! {
        #(#conditions)*
        let methods = methods.#mode(#name, {
            let service = ::std::sync::Arc::clone(&service);
            move |request: #parameter, #sink context: ::corewire_rpc::Context| {
                let service = ::std::sync::Arc::clone(&service);
                async move {
                    let _ = (&request, &context);
                    #body
                }
            }
        });
    }
}

fn client(item: &ItemTrait, name: &str, methods: &[Method<'_>]) -> TokenStream {
    let (vis, service) = (&item.vis, &item.ident);
    let client = format_ident!("{}Client", service.unraw());
    let doc = format!("Calls a [`{service}`] over a channel, of which it is made by `from` too.");
    let calls = methods.iter().map(|method| call(method, name));
    // A method of the service of that name comes first; there are `From` and `AsRef` beside it.
    let is_free = |name: &str| methods.iter().all(|method| method.ident != name);
    let new = is_free("new").then(|| {
        quote! {
            /// Calls over this channel.
            pub fn new(channel: ::corewire_rpc::Channel) -> Self {
                Self { channel }
            }
        }
    });
    let channel = is_free("channel").then(|| {
        quote! {
            /// The channel.
            pub fn channel(&self) -> &::corewire_rpc::Channel {
                &self.channel
            }
        }
    });
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone)]
        #vis struct #client {
            channel: ::corewire_rpc::Channel,
        }

        impl #client {
            #new
            #channel
            #(#calls)*
        }

        impl ::core::convert::From<::corewire_rpc::Channel> for #client {
            fn from(channel: ::corewire_rpc::Channel) -> Self {
                Self { channel }
            }
        }

        impl ::core::convert::AsRef<::corewire_rpc::Channel> for #client {
            fn as_ref(&self) -> &::corewire_rpc::Channel {
                &self.channel
            }
        }
    }
}

/// The function of the client that calls a method.
fn call(method: &Method<'_>, service: &str) -> TokenStream {
    let (ident, name, attributes) = (method.ident, &method.name, method.shared_attributes());
    let (request, response) = (&method.request, &method.response);
    let path = quote! {
        static PATH: ::std::sync::OnceLock<::corewire_rpc::MethodPath> = ::std::sync::OnceLock::new();
        let path = ::corewire_rpc::__macros::CallPath::of_static(PATH.get_or_init(|| {
            ::corewire_rpc::MethodPath::new(#service, #name).expect("the names of a service are short")
        }));
    };
    let parameter = method.parameter.map(|_| quote!(, request: #request));
    let argument = if method.parameter.is_some() { quote!(request) } else { quote!(()) };
    let (parameters, shape, body) = match (method.streams_requests, method.streams_responses) {
        (false, false) => (parameter, quote!(Unary<#response>), quote!(call(path, #argument))),
        (true, false) => (None, quote!(ClientStreaming<#request, #response>), quote!(client_stream(path))),
        (false, true) => {
            (parameter, quote!(ServerStreaming<#response>), quote!(server_stream(path, #argument)))
        }
        (true, true) => (None, quote!(BidiStreaming<#request, #response>), quote!(bidi(path))),
    };
    let idempotent = method.options.is_idempotent.then(|| quote!(.idempotent()));
    let timeout = method.options.timeout.map(|timeout| {
        // A literal of so many ms is at most what a u64 holds.
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        quote!(.timeout(::core::time::Duration::from_millis(#ms)))
    });
    quote! {
        #(#attributes)*
        pub fn #ident(&self #parameters) -> ::corewire_rpc::CallFuture<::corewire_rpc::client::#shape> {
            #path
            self.channel.#body #idempotent #timeout
        }
    }
}
