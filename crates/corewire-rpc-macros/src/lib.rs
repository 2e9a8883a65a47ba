//! The macros of `corewire-rpc`; their documentation is there.
#![forbid(unsafe_code)]

mod message;
mod method;
mod options;
mod service;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{DeriveInput, ItemTrait, parse_macro_input};

/// Makes a trait of asynchronous functions a service: a server from what implements it, and a typed client.
///
/// See `corewire_rpc::service`.
#[proc_macro_attribute]
pub fn service(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::ServiceOptions);
    let item = parse_macro_input!(item as ItemTrait);
    service::expand(&options, &item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a serde type the payload of messages.
///
/// See `corewire_rpc::message`.
#[proc_macro_attribute]
pub fn message(options: TokenStream, item: TokenStream) -> TokenStream {
    let format = parse_macro_input!(options as message::Format);
    let item = parse_macro_input!(item as DeriveInput);
    message::expand(format, &item).into()
}
