//! `#[service]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, ItemTrait, LitStr, Token, TraitItem};

use crate::method::Method;

/// `name = "…"`: what clients call the service; the trait's name if there is none.
#[derive(Default)]
pub(crate) struct Options {
    name: Option<String>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self::default());
        }
        let key: Ident = input.parse()?;
        if key != "name" {
            return Err(Error::new(key.span(), "the only option of a service is `name = \"…\"`"));
        }
        input.parse::<Token![=]>()?;
        let name: LitStr = input.parse()?;
        Ok(Self { name: Some(name.value()) })
    }
}

pub(crate) fn expand(options: &Options, item: &ItemTrait) -> syn::Result<TokenStream> {
    let methods = item.items.iter().map(|item| match item {
        TraitItem::Fn(method) => Method::read(method),
        other => Err(Error::new_spanned(other, "a service has methods only")),
    });
    let methods = methods.collect::<syn::Result<Vec<_>>>()?;
    let name = options.name.clone().unwrap_or_else(|| item.ident.to_string());
    let (server, client) = (server(item, &name, &methods), client(item, &name, &methods));
    Ok(quote! {
        #[allow(async_fn_in_trait)]
        #item
        #server
        #client
    })
}

fn server(item: &ItemTrait, name: &str, methods: &[Method<'_>]) -> TokenStream {
    let (vis, service) = (&item.vis, &item.ident);
    let server = format_ident!("{service}Server");
    let doc = format!("Serves a [`{service}`]: give it to `RpcServer::service`.");
    let new_doc = format!("Serves this as `{name}`.");
    let handlers = methods.iter().map(handler);
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
                ::corewire_rpc::Service::new(#name) #(#handlers)*
            }
        }
    }
}

/// The registration of a method.
fn handler(method: &Method<'_>) -> TokenStream {
    let name = &method.item.sig.ident;
    let (request, response, text) = (&method.request, &method.response, name.to_string());
    let argument = method.has_request.then(|| quote!(request,));
    let context = method.takes_context.then(|| quote!(context,));
    let call = quote!(service.#name(#argument #context).await);
    let forward = if method.may_fail_midway { quote!(forward_results) } else { quote!(forward) };
    let (mode, parameters, body) = match (method.streams_requests, method.streams_responses) {
        (false, false) => (quote!(unary), quote!(request: #request), call),
        (true, false) => (quote!(client_stream), quote!(request: ::corewire_rpc::Streaming<#request>), call),
        (streams, true) => {
            let (mode, taken) = if streams {
                (quote!(bidi), quote!(::corewire_rpc::Streaming<#request>))
            } else {
                (quote!(server_stream), quote!(#request))
            };
            let sink = quote!(sink: ::corewire_rpc::Sink<#response>);
            (
                mode,
                quote!(request: #taken, #sink),
                quote!(::corewire_rpc::__macros::#forward(#call?, sink).await),
            )
        }
    };
    quote! {
        .#mode(#text, {
            let service = ::std::sync::Arc::clone(&service);
            move |#parameters, context: ::corewire_rpc::Context| {
                let service = ::std::sync::Arc::clone(&service);
                async move {
                    let _ = (&request, &context);
                    #body
                }
            }
        })
    }
}

fn client(item: &ItemTrait, name: &str, methods: &[Method<'_>]) -> TokenStream {
    let (vis, service) = (&item.vis, &item.ident);
    let client = format_ident!("{service}Client");
    let doc = format!("Calls a [`{service}`] over a channel.");
    let calls = methods.iter().map(|method| call(method, name));
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone)]
        #vis struct #client {
            channel: ::corewire_rpc::Channel,
        }

        impl #client {
            /// Calls over this channel.
            pub fn new(channel: ::corewire_rpc::Channel) -> Self {
                Self { channel }
            }

            /// The channel.
            pub fn channel(&self) -> &::corewire_rpc::Channel {
                &self.channel
            }

            #(#calls)*
        }
    }
}

/// The function of the client that calls a method.
fn call(method: &Method<'_>, service: &str) -> TokenStream {
    let name = &method.item.sig.ident;
    let attributes = method.item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let (request, response, text) = (&method.request, &method.response, name.to_string());
    let path = quote! {
        static PATH: ::std::sync::OnceLock<::corewire_rpc::MethodPath> = ::std::sync::OnceLock::new();
        let path = ::corewire_rpc::__macros::CallPath::of_static(PATH.get_or_init(|| {
            ::corewire_rpc::MethodPath::new(#service, #text).expect("the names of a service are short")
        }));
    };
    let parameter = method.has_request.then(|| quote!(, request: #request));
    let argument = if method.has_request { quote!(request) } else { quote!(()) };
    let (parameters, output, body) = match (method.streams_requests, method.streams_responses) {
        (false, false) => (
            quote!(#parameter),
            quote!(::corewire_rpc::UnaryCall<#response>),
            quote!(self.channel.call(path, #argument)),
        ),
        (true, false) => (
            quote!(),
            quote!(::corewire_rpc::StreamingCall<::corewire_rpc::client::ClientStreaming<#request, #response>>),
            quote!(self.channel.client_stream(path)),
        ),
        (false, true) => (
            quote!(#parameter),
            quote!(::corewire_rpc::StreamingCall<::corewire_rpc::client::ServerStreaming<#response>>),
            quote!(self.channel.server_stream(path, #argument)),
        ),
        (true, true) => (
            quote!(),
            quote!(::corewire_rpc::StreamingCall<::corewire_rpc::client::BidiStreaming<#request, #response>>),
            quote!(self.channel.bidi(path)),
        ),
    };
    quote! {
        #(#attributes)*
        pub fn #name(&self #parameters) -> #output {
            #path
            #body
        }
    }
}
