//! What the signature of a method says about its mode and its messages.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, PatType, PathArguments, ReturnType, Signature,
    TraitItemFn, Type, TypeParamBound,
};

use crate::options::{MethodOptions, Rename, Role};

/// A method of a service.
pub(crate) struct Method<'a> {
    pub(crate) ident: &'a Ident,
    /// What clients call it.
    pub(crate) name: String,
    pub(crate) options: MethodOptions,
    attributes: &'a [Attribute],
    /// The parameter beside the context, if there is one.
    pub(crate) parameter: Option<&'a Type>,
    /// The message of requests.
    pub(crate) request: TokenStream,
    pub(crate) streams_requests: bool,
    pub(crate) takes_context: bool,
    pub(crate) response: Type,
    pub(crate) streams_responses: bool,
    /// The items of the stream are results.
    pub(crate) may_fail_midway: bool,
}

impl<'a> Method<'a> {
    pub(crate) fn read(item: &'a TraitItemFn, rename: Rename) -> syn::Result<Self> {
        let sig = &item.sig;
        check(sig)?;
        let options = MethodOptions::read(&item.attrs)?;
        let mut parameters = Vec::new();
        for argument in &sig.inputs {
            if let FnArg::Typed(parameter) = argument {
                parameters.push((&*parameter.ty, role(parameter)?));
            }
        }
        let takes_context = parameters.last().is_some_and(|(_, role)| *role == Role::Context);
        if takes_context {
            parameters.pop();
        }
        let misplaced = parameters.iter().find(|(_, role)| *role == Role::Context);
        if let Some((more, _)) = misplaced.or_else(|| parameters.get(1)) {
            return Err(Error::new_spanned(
                more,
                "a method of a service takes one message (or a `Streaming` of them), and a `Context` last; what is \
                 recognised by its name only is told by `#[rpc(message)]`, `#[rpc(streaming)]` or `#[rpc(context)]`",
            ));
        }
        let parameter = parameters.first().copied();
        let streams_requests = parameter.is_some_and(|(_, role)| role == Role::Streaming);
        let request = match parameter {
            None => quote!(()),
            Some((given, Role::Streaming)) => {
                quote!(<#given as ::corewire_rpc::__macros::Messages>::Message)
            }
            Some((given, _)) => given.to_token_stream(),
        };
        let (response, streams_responses, may_fail_midway) = response(sig)?;
        let name = options
            .name
            .as_ref()
            .map_or_else(|| rename.apply(&sig.ident.unraw().to_string()), |name| name.value());
        Ok(Self {
            ident: &sig.ident,
            name,
            options,
            attributes: &item.attrs,
            parameter: parameter.map(|(given, _)| given),
            request,
            streams_requests,
            takes_context,
            response,
            streams_responses,
            may_fail_midway,
        })
    }

    /// Those that say under which conditions the method exists.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"))
    }

    /// Those that the client's method has too.
    pub(crate) fn shared_attributes(&self) -> impl Iterator<Item = &Attribute> {
        let shared = ["cfg", "doc", "deprecated"];
        self.attributes
            .iter()
            .filter(move |attribute| shared.iter().any(|name| attribute.path().is_ident(name)))
    }
}

fn check(sig: &Signature) -> syn::Result<()> {
    if sig.asyncness.is_none() {
        return Err(Error::new_spanned(sig, "a method of a service is an `async fn`"));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &sig.generics,
            "a method of a service has no generic parameters: its messages are of one type",
        ));
    }
    match sig.inputs.first() {
        Some(FnArg::Receiver(this)) if this.reference.is_some() && this.mutability.is_none() => Ok(()),
        _ => Err(Error::new_spanned(sig, "a method of a service takes `&self` first")),
    }
}

/// As it is told, or else by the name of its type.
fn role(parameter: &PatType) -> syn::Result<Role> {
    if let Type::Reference(borrowed) = &*parameter.ty {
        return Err(Error::new_spanned(
            borrowed,
            "a message is owned, since it comes over the wire: take `String` or `Bytes` instead of a reference",
        ));
    }
    Ok(match Role::read(&parameter.attrs)? {
        Some(told) => told,
        None if is_named(&parameter.ty, "Context") => Role::Context,
        None if is_named(&parameter.ty, "Streaming") => Role::Streaming,
        None => Role::Message,
    })
}

/// The message of a response, whether there is a stream of them, and whether its items are results.
fn response(sig: &Signature) -> syn::Result<(Type, bool, bool)> {
    let wrong = || {
        Error::new_spanned(
            sig,
            "a method of a service gives `Result<Message, Status>` or `Result<impl Stream<Item = Message>, Status>`",
        )
    };
    let ReturnType::Type(_, result) = &sig.output else { return Err(wrong()) };
    let success = argument_of(result, "Result").ok_or_else(wrong)?;
    let Type::ImplTrait(stream) = success else { return Ok((success.clone(), false, false)) };
    let item = stream.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|last| last.ident == "Stream")?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(item) if item.ident == "Item" => Some(&item.ty),
            _ => None,
        })
    });
    let item = item.ok_or_else(wrong)?;
    Ok(match argument_of(item, "Result") {
        Some(message) => (message.clone(), true, true),
        None => (item.clone(), true, false),
    })
}

fn is_named(given: &Type, name: &str) -> bool {
    matches!(given, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

/// The first type argument of a type of this name.
fn argument_of<'a>(given: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = given else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(found) => Some(found),
        _ => None,
    })
}
