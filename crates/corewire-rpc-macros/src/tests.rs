//! What is refused, and with what words; what is taken is tested by `corewire-rpc`.

use quote::quote;
use syn::parse::Parser;
use syn::{ItemTrait, parse2};

use crate::options::{Rename, ServiceOptions};

fn refused(options: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> String {
    let parse = |input: syn::parse::ParseStream<'_>| input.parse::<ServiceOptions>();
    let options = match parse.parse2(options) {
        Ok(options) => options,
        Err(error) => return error.to_string(),
    };
    let item: ItemTrait = parse2(item).unwrap();
    match crate::service::expand(&options, &item) {
        Err(error) => error.to_string(),
        Ok(expanded) => panic!("taken: {expanded}"),
    }
}

/// Of a trait with this method.
fn refused_method(method: proc_macro2::TokenStream) -> String {
    refused(quote!(), quote!(trait Echo { #method }))
}

#[track_caller]
fn says(error: &str, expected: &str) {
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
}

#[test]
fn options_of_a_service_that_are_none_are_refused() {
    let echo = || {
        quote!(
            trait Echo {}
        )
    };
    says(&refused(quote!(names = "E"), echo()), "`name = \"…\"` and `rename_all = \"…\"`");
    says(&refused(quote!(name), echo()), "write `name = \"…\"`");
    says(&refused(quote!(name = ""), echo()), "1 to 65535 bytes and no `/`");
    says(&refused(quote!(name = "a/b"), echo()), "1 to 65535 bytes and no `/`");
    says(&refused(quote!(rename_all = "upper"), echo()), "\"PascalCase\", \"camelCase\"");
}

#[test]
fn a_service_is_a_plain_trait_of_methods() {
    says(
        &refused(
            quote!(),
            quote!(
                trait Echo<T> {}
            ),
        ),
        "a service has no generic parameters",
    );
    says(
        &refused(
            quote!(),
            quote!(
                trait Echo {
                    const SIZE: usize;
                }
            ),
        ),
        "a service has methods only",
    );
    let twice = quote! {
        trait Echo {
            async fn say(&self) -> Result<(), Status>;
            #[rpc(name = "say")]
            async fn tell(&self) -> Result<(), Status>;
        }
    };
    says(&refused(quote!(), twice), "`say` and `tell` are both \"say\" on the wire");
}

#[test]
fn a_method_is_asynchronous_takes_self_and_has_no_generics() {
    says(
        &refused_method(quote!(
            fn say(&self) -> Result<(), Status>;
        )),
        "is an `async fn`",
    );
    says(
        &refused_method(quote!(
            async fn say() -> Result<(), Status>;
        )),
        "takes `&self` first",
    );
    says(
        &refused_method(quote!(
            async fn say(&mut self) -> Result<(), Status>;
        )),
        "takes `&self` first",
    );
    says(
        &refused_method(quote!(
            async fn say(self) -> Result<(), Status>;
        )),
        "takes `&self` first",
    );
    says(
        &refused_method(quote!(
            async fn say<T>(&self, it: T) -> Result<(), Status>;
        )),
        "a method of a service has no generic parameters",
    );
}

#[test]
fn a_method_takes_one_owned_message_and_a_context_last() {
    let one = "one message (or a `Streaming` of them), and a `Context` last";
    says(
        &refused_method(quote!(
            async fn say(&self, a: A, b: B) -> Result<(), Status>;
        )),
        one,
    );
    says(
        &refused_method(quote!(
            async fn say(&self, call: Context, a: A) -> Result<(), Status>;
        )),
        one,
    );
    says(
        &refused_method(quote!(
            async fn say(&self, a: A, b: Call) -> Result<(), Status>;
        )),
        "#[rpc(context)]",
    );
    says(
        &refused_method(quote!(
            async fn say(&self, a: &str) -> Result<(), Status>;
        )),
        "a message is owned",
    );
    says(
        &refused_method(quote!(
            async fn say(&self, #[rpc(ctx)] a: A) -> Result<(), Status>;
        )),
        "a parameter is `message`, `streaming` or `context`",
    );
    says(
        &refused_method(quote!(
            async fn say(&self, #[rpc(streaming = "A")] a: A) -> Result<(), Status>;
        )),
        "`streaming` stands alone",
    );
}

#[test]
fn a_method_gives_a_result() {
    let gives = "gives `Result<Message, Status>` or `Result<impl Stream<Item = Message>, Status>`";
    says(
        &refused_method(quote!(
            async fn say(&self);
        )),
        gives,
    );
    says(
        &refused_method(quote!(
            async fn say(&self) -> Bytes;
        )),
        gives,
    );
    says(
        &refused_method(quote!(
            async fn say(&self) -> Result<impl Iterator<Item = A>, Status>;
        )),
        gives,
    );
    says(
        &refused_method(quote!(
            async fn say(&self) -> Result<impl Stream, Status>;
        )),
        gives,
    );
}

#[test]
fn options_of_a_method_that_are_none_are_refused() {
    let with = |option| {
        refused_method(quote!(
            #[rpc(#option)]
            async fn say(&self) -> Result<(), Status>;
        ))
    };
    says(&with(quote!(retry)), "`name = \"…\"`, `idempotent` and `timeout = \"…\"`");
    says(&with(quote!(idempotent = "yes")), "`idempotent` stands alone");
    says(&with(quote!(name = "")), "1 to 65535 bytes");
    for time in ["2", "2h", "s", "0s", "-1s", "18446744073709551615m"] {
        says(&with(quote!(timeout = #time)), "\"500ms\", \"2s\" or \"1m\"");
    }
}

#[test]
fn the_format_of_a_message_is_one_of_two() {
    let parse = |input: syn::parse::ParseStream<'_>| input.parse::<crate::message::Format>();
    let error = parse.parse2(quote!(xml)).map(|_| ()).unwrap_err().to_string();
    says(&error, "a message is `compact` (the default) or `json`");
}

#[test]
fn names_are_written_by_every_rule() {
    let written = |rule: Rename| rule.apply("say_hello_2");
    assert_eq!(written(Rename::AsWritten), "say_hello_2");
    assert_eq!(written(Rename::Pascal), "SayHello2");
    assert_eq!(written(Rename::Camel), "sayHello2");
    assert_eq!(written(Rename::Snake), "say_hello_2");
    assert_eq!(written(Rename::ScreamingSnake), "SAY_HELLO_2");
    assert_eq!(written(Rename::Kebab), "say-hello-2");
}
