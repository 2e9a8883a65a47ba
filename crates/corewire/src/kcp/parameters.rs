//! What a URI says of KCP after its `?`.

use std::fmt;

use super::key::{KeyError, KeySource};
use super::{Config, CongestionControl};
use crate::datagram::DatagramSettings;

/// The parameters of a `kcp` URI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Parameters {
    pub(crate) key: Option<KeySource>,
    second_key: Option<KeySource>,
    congestion: Option<CongestionControl>,
    windows_max: Option<u16>,
    /// Datagrams of a group with data, and of parity.
    fec: Option<(u8, u8)>,
}

/// A parameter cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its name or its value.
    Invalid,
    /// There is one for the same already.
    Repeated,
}

const CONGESTION: [(&str, CongestionControl); 3] =
    [("off", CongestionControl::Off), ("kcp", CongestionControl::Kcp), ("bbr", CongestionControl::Bbr)];

impl Parameters {
    /// Takes `name=value`.
    pub(crate) fn take(&mut self, parameter: &str) -> Result<(), Refused> {
        let (name, value) = parameter.split_once('=').ok_or(Refused::Invalid)?;
        if value.is_empty() {
            return Err(Refused::Invalid);
        }
        match name {
            "key-file" => set(&mut self.key, KeySource::File(value.into())),
            "key-env" => set(&mut self.key, KeySource::Env(value.into())),
            "second-key-file" => set(&mut self.second_key, KeySource::File(value.into())),
            "second-key-env" => set(&mut self.second_key, KeySource::Env(value.into())),
            "congestion" => {
                let found = CONGESTION.into_iter().find(|(name, _)| *name == value);
                set(&mut self.congestion, found.ok_or(Refused::Invalid)?.1)
            }
            "windows-max" => set(&mut self.windows_max, value.parse().map_err(|_| Refused::Invalid)?),
            "fec" => {
                let (data, parity) = value.split_once(',').ok_or(Refused::Invalid)?;
                let number = |text: &str| text.parse().map_err(|_| Refused::Invalid);
                set(&mut self.fec, (number(data)?, number(parity)?))
            }
            _ => Err(Refused::Invalid),
        }
    }

    /// Changes the settings that it names; keys that a program has set come before its own. Blocks.
    pub(crate) fn apply(&self, settings: &mut DatagramSettings) -> Result<(), KeyError> {
        load(&mut settings.key, self.key.as_ref())?;
        load(&mut settings.second_key, self.second_key.as_ref())?;
        if self.second_key.is_some() && settings.key.is_none() {
            return Err(KeyError::SecondAlone);
        }
        let kcp = &mut settings.kcp;
        change(kcp, self.congestion, Config::congestion);
        change(kcp, self.windows_max, Config::windows_max);
        change(kcp, self.fec, |config, (data, parity)| config.fec(data, parity));
        Ok(())
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Refused> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refused::Repeated),
    }
}

fn load(key: &mut Option<super::Key>, source: Option<&KeySource>) -> Result<(), KeyError> {
    if let (None, Some(source)) = (&key, source) {
        *key = Some(source.load()?);
    }
    Ok(())
}

fn change<T>(config: &mut Config, value: Option<T>, set: impl FnOnce(Config, T) -> Config) {
    if let Some(value) = value {
        *config = set(config.clone(), value);
    }
}

/// As it stands in a URI, with the `?`; nothing if there is none.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let congestion =
            self.congestion.and_then(|control| CONGESTION.into_iter().find(|(_, of)| *of == control));
        let parameters = [
            self.key.as_ref().map(ToString::to_string),
            self.second_key.as_ref().map(|key| format!("second-{key}")),
            congestion.map(|(name, _)| format!("congestion={name}")),
            self.windows_max.map(|segments| format!("windows-max={segments}")),
            self.fec.map(|(data, parity)| format!("fec={data},{parity}")),
        ];
        let mut separator = '?';
        for parameter in parameters.into_iter().flatten() {
            write!(f, "{separator}{parameter}")?;
            separator = '&';
        }
        Ok(())
    }
}
