//! Limits of the protocol with which no call could ever be made.

use corewire::SettingError;
use corewire_proto::rpc::Settings;

/// Refuses such limits. No streams, no pings and no cancels are limits that work.
pub(crate) fn check(settings: &Settings) -> Result<(), SettingError> {
    const MAX: u32 = i32::MAX as u32;
    let in_range = |what, value: u32, max: u32| {
        if (1..=max).contains(&value) {
            return Ok(());
        }
        Err(SettingError::new(what, value, format!("1 to {max}")))
    };
    in_range("the window", settings.window, MAX)?;
    in_range("the longest body", settings.max_body, MAX)?;
    in_range("the most calls in flight", settings.max_calls, MAX)?;
    if settings.max_streams > MAX {
        return Err(SettingError::new("the most streams", settings.max_streams, format!("at most {MAX}")));
    }
    if settings.max_extension > u32::from(u16::MAX) {
        let allowed = format!("at most {}", u16::MAX);
        return Err(SettingError::new("the longest extension block", settings.max_extension, allowed));
    }
    if settings.versions.is_empty() {
        return Err(SettingError::new("the set of versions", "empty", "one version or both"));
    }
    Ok(())
}
