//! `#[message]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{DeriveInput, Error, Ident};

/// How the payload is written.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Compact,
    Json,
}

impl Parse for Format {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self::Compact);
        }
        let name: Ident = input.parse()?;
        match name.to_string().as_str() {
            "compact" => Ok(Self::Compact),
            "json" => Ok(Self::Json),
            _ => Err(Error::new(name.span(), "a message is `compact` (the default) or `json`")),
        }
    }
}

pub(crate) fn expand(format: Format, item: &DeriveInput) -> TokenStream {
    let name = &item.ident;
    let (generics, arguments, bounds) = item.generics.split_for_impl();
    let format = match format {
        Format::Compact => quote!(::corewire_rpc::Compact),
        Format::Json => quote!(::corewire_rpc::Json),
    };
    quote! {
        #item

        impl #generics ::corewire_rpc::Message for #name #arguments #bounds {
            fn encode(self) -> ::core::result::Result<::corewire_rpc::Bytes, ::corewire_rpc::Status> {
                ::corewire_rpc::Message::encode(#format(self))
            }

            fn decode(
                payload: ::corewire_rpc::Bytes,
            ) -> ::core::result::Result<Self, ::corewire_rpc::Status> {
                <#format<Self> as ::corewire_rpc::Message>::decode(payload).map(|message| message.0)
            }
        }
    }
}
