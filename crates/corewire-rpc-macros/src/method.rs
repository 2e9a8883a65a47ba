//! What the signature of a method says about its mode and its messages.

use syn::{
    Error, FnArg, GenericArgument, PathArguments, ReturnType, TraitItemFn, Type, TypeParamBound, parse_quote,
};

/// A method of a service.
pub(crate) struct Method<'a> {
    pub(crate) item: &'a TraitItemFn,
    /// The type of requests; `()` if there is none.
    pub(crate) request: Type,
    pub(crate) has_request: bool,
    pub(crate) streams_requests: bool,
    pub(crate) takes_context: bool,
    pub(crate) response: Type,
    pub(crate) streams_responses: bool,
    /// The items of the stream are results.
    pub(crate) may_fail_midway: bool,
}

impl<'a> Method<'a> {
    pub(crate) fn read(item: &'a TraitItemFn) -> syn::Result<Self> {
        let sig = &item.sig;
        if sig.asyncness.is_none() {
            return Err(Error::new_spanned(sig, "a method of a service is an `async fn`"));
        }
        let mut arguments = sig.inputs.iter();
        if !matches!(arguments.next(), Some(FnArg::Receiver(this)) if this.reference.is_some() && this.mutability.is_none())
        {
            return Err(Error::new_spanned(sig, "a method of a service takes `&self` first"));
        }
        let mut types: Vec<&Type> = arguments
            .filter_map(|argument| match argument {
                FnArg::Typed(typed) => Some(&*typed.ty),
                FnArg::Receiver(_) => None,
            })
            .collect();
        let takes_context = types.last().is_some_and(|last| is_named(last, "Context"));
        if takes_context {
            types.pop();
        }
        if let Some(more) = types.get(1) {
            return Err(Error::new_spanned(
                more,
                "a method of a service takes one message (or a `Streaming` of them), and a `Context` last",
            ));
        }
        let request = types.first().copied();
        let (request, streams_requests) = match request {
            None => (parse_quote!(()), false),
            Some(request) => match argument_of(request, "Streaming") {
                Some(message) => (message.clone(), true),
                None if is_named(request, "Streaming") => (parse_quote!(::corewire_rpc::Bytes), true),
                None => (request.clone(), false),
            },
        };
        let (response, streams_responses, may_fail_midway) = response(sig)?;
        Ok(Self {
            item,
            request,
            has_request: !types.is_empty(),
            streams_requests,
            takes_context,
            response,
            streams_responses,
            may_fail_midway,
        })
    }
}

/// The message of a response, whether there is a stream of them, and whether its items are results.
fn response(sig: &syn::Signature) -> syn::Result<(Type, bool, bool)> {
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
