//! What `#[service(…)]` and `#[rpc(…)]` say.

use std::time::Duration;

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, LitStr, Token};

/// Of a service.
#[derive(Default)]
pub(crate) struct ServiceOptions {
    /// What clients call it; the trait's name if there is none.
    pub(crate) name: Option<String>,
    pub(crate) rename: Rename,
}

/// How the names of methods are written on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rename {
    #[default]
    AsWritten,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
}

/// Of a method.
#[derive(Default)]
pub(crate) struct MethodOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) is_idempotent: bool,
    pub(crate) timeout: Option<Duration>,
}

/// What a parameter is, where its type does not tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Message,
    Streaming,
    Context,
}

/// One word, or `word = "value"`.
struct Entry {
    key: Ident,
    value: Option<LitStr>,
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any)?;
        let value = if input.parse::<Option<Token![=]>>()?.is_some() { Some(input.parse()?) } else { None };
        Ok(Self { key, value })
    }
}

impl Entry {
    fn value(self) -> syn::Result<LitStr> {
        let Self { key, value } = self;
        value.ok_or_else(|| Error::new(key.span(), format!("write `{key} = \"…\"`")))
    }

    fn no_value(&self) -> syn::Result<()> {
        match &self.value {
            Some(value) => Err(Error::new(value.span(), format!("`{}` stands alone", self.key))),
            None => Ok(()),
        }
    }
}

fn entries(input: ParseStream<'_>) -> syn::Result<Punctuated<Entry, Token![,]>> {
    Punctuated::parse_terminated(input)
}

impl Parse for ServiceOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self::default();
        for entry in entries(input)? {
            match entry.key.to_string().as_str() {
                "name" => options.name = Some(wire_name(&entry.value()?)?),
                "rename_all" => options.rename = rename(&entry.value()?)?,
                _ => {
                    let known = "the options of a service are `name = \"…\"` and `rename_all = \"…\"`";
                    return Err(Error::new(entry.key.span(), known));
                }
            }
        }
        Ok(options)
    }
}

impl MethodOptions {
    pub(crate) fn read(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut options = Self::default();
        for attribute in attributes.iter().filter(|attribute| is_rpc(attribute)) {
            for entry in attribute.parse_args_with(entries)? {
                match entry.key.to_string().as_str() {
                    "name" => {
                        let name = entry.value()?;
                        wire_name(&name)?;
                        options.name = Some(name);
                    }
                    "idempotent" => {
                        entry.no_value()?;
                        options.is_idempotent = true;
                    }
                    "timeout" => options.timeout = Some(duration(&entry.value()?)?),
                    _ => {
                        let known =
                            "the options of a method are `name = \"…\"`, `idempotent` and `timeout = \"…\"`";
                        return Err(Error::new(entry.key.span(), known));
                    }
                }
            }
        }
        Ok(options)
    }
}

impl Role {
    /// What the attributes of a parameter say.
    pub(crate) fn read(attributes: &[Attribute]) -> syn::Result<Option<Self>> {
        let mut role = None;
        for attribute in attributes.iter().filter(|attribute| is_rpc(attribute)) {
            for entry in attribute.parse_args_with(entries)? {
                entry.no_value()?;
                role = Some(match entry.key.to_string().as_str() {
                    "message" => Self::Message,
                    "streaming" => Self::Streaming,
                    "context" => Self::Context,
                    _ => {
                        let known = "a parameter is `message`, `streaming` or `context`";
                        return Err(Error::new(entry.key.span(), known));
                    }
                });
            }
        }
        Ok(role)
    }
}

/// `#[rpc(…)]`, which is read here and taken away.
pub(crate) fn is_rpc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("rpc")
}

/// Longest name on the wire, in bytes.
const NAME_MAX: usize = u16::MAX as usize;

fn wire_name(name: &LitStr) -> syn::Result<String> {
    let text = name.value();
    if text.is_empty() || text.contains('/') || text.len() > NAME_MAX {
        let why = format!("a name on the wire has 1 to {NAME_MAX} bytes and no `/`");
        return Err(Error::new(name.span(), why));
    }
    Ok(text)
}

fn rename(rule: &LitStr) -> syn::Result<Rename> {
    Ok(match rule.value().as_str() {
        "PascalCase" => Rename::Pascal,
        "camelCase" => Rename::Camel,
        "snake_case" => Rename::Snake,
        "SCREAMING_SNAKE_CASE" => Rename::ScreamingSnake,
        "kebab-case" => Rename::Kebab,
        _ => {
            let known = "a rule is \"PascalCase\", \"camelCase\", \"snake_case\", \"SCREAMING_SNAKE_CASE\" or \
                         \"kebab-case\"";
            return Err(Error::new(rule.span(), known));
        }
    })
}

fn duration(text: &LitStr) -> syn::Result<Duration> {
    let wrong = || {
        Error::new(text.span(), "a time is a number above 0 and a unit, such as \"500ms\", \"2s\" or \"1m\"")
    };
    let value = text.value();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().map_err(|_| wrong())?;
    let duration = match &value[digits..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    if duration.is_zero() { Err(wrong()) } else { Ok(duration) }
}

impl Rename {
    /// A name in snake case, as this writes it.
    pub(crate) fn apply(self, name: &str) -> String {
        let words = || name.split('_').filter(|word| !word.is_empty());
        let capital = |word: &str| {
            let mut letters = word.chars();
            let first = letters.next().map(|first| first.to_uppercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        };
        match self {
            Self::AsWritten | Self::Snake => name.to_owned(),
            Self::Pascal => words().map(capital).collect(),
            Self::Camel => {
                let mut words = words();
                words.next().unwrap_or_default().to_owned() + &words.map(capital).collect::<String>()
            }
            Self::ScreamingSnake => name.to_uppercase(),
            Self::Kebab => words().collect::<Vec<_>>().join("-"),
        }
    }
}
