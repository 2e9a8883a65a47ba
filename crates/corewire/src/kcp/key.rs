//! Keys, and where they are kept.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A key that both ends of a KCP conversation know: 32 bytes. It is not shown by `Debug`.
///
/// Whoever has it can talk to all others who have it, as client or as server, and read what they say. There is no forward
/// secrecy. What it gives: nobody without it opens a session, reads, changes, or plays back a datagram.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// Where a key is kept, as the URI of a server or client names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeySource {
    /// A file: 32 bytes, or 64 hexadecimal digits with white space around them. `?key-file=PATH`.
    File(PathBuf),
    /// An environment variable with 64 hexadecimal digits. `?key-env=NAME`.
    Env(String),
}

/// A key could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such environment variable, or it is not text.
    #[error("the environment variable {name:?}, which should hold the key, is not set")]
    NotSet {
        /// Which.
        name: String,
    },
    /// What was found is no key.
    #[error("{place} holds no key: a key is 64 hexadecimal digits, or in a file 32 bytes")]
    Malformed {
        /// Where it was looked for.
        place: String,
    },
    /// A URI names a second key, and there is no first one: nothing would be encrypted.
    #[error("there is a second key and no first one; add key-file or key-env")]
    SecondAlone,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

impl Key {
    /// A key of these bytes. They must come from a cryptographic random source; a pass phrase is no key.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new key from the system's random source.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        random().map(Self)
    }

    /// Reads a key from a file of 32 bytes, or of 64 hexadecimal digits with white space around them, as
    /// `openssl rand -hex 32` writes them.
    ///
    /// # Errors
    /// [`KeyError::File`] or [`KeyError::Malformed`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        use io::Read;
        /// More than any form of a key has.
        const LEN_MAX: u64 = 1024;
        let path = path.as_ref();
        let mut found = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LEN_MAX).read_to_end(&mut found));
        read.map_err(|source| KeyError::File { path: path.to_owned(), source })?;
        if let Ok(bytes) = <[u8; 32]>::try_from(&found[..]) {
            return Ok(Self(bytes));
        }
        let text = std::str::from_utf8(&found).unwrap_or_default();
        text.parse().map_err(|_: KeyError| malformed(path.display()))
    }

    /// Reads a key from an environment variable of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyError::NotSet`] or [`KeyError::Malformed`].
    pub fn from_env(name: &str) -> Result<Self, KeyError> {
        // A name with these would make the standard library panic.
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        let text = if is_name { std::env::var(name).ok() } else { None };
        let text = text.ok_or_else(|| KeyError::NotSet { name: name.to_owned() })?;
        text.parse().map_err(|_: KeyError| malformed(format_args!("the environment variable {name:?}")))
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl KeySource {
    /// Reads the key.
    ///
    /// # Errors
    /// As [`Key::from_file`] and [`Key::from_env`].
    pub fn load(&self) -> Result<Key, KeyError> {
        match self {
            Self::File(path) => Key::from_file(path),
            Self::Env(name) => Key::from_env(name),
        }
    }
}

/// 64 hexadecimal digits, white space around them ignored.
impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim().as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16);
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(malformed("the text"));
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
                return Err(malformed("the text"));
            };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(bytes))
    }
}

fn malformed(place: impl fmt::Display) -> KeyError {
    KeyError::Malformed { place: place.to_string() }
}

/// Bytes from the system's random source.
fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    corewire_driver::entropy::fill(&mut bytes).map_err(|error| KeyError::Random(error.to_string()))?;
    Ok(bytes)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// As it stands in a URI.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "key-file={}", path.display()),
            Self::Env(name) => write!(f, "key-env={name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_64_digits() {
        let digits = "00ff".repeat(16);
        let key: Key = format!(" {digits}\n").parse().unwrap();
        assert_eq!(key.as_bytes()[..4], [0, 255, 0, 255]);
        for bad in ["", "00", &digits[1..], &format!("{digits}0"), &digits.replace('f', "g")] {
            assert!(matches!(bad.parse::<Key>(), Err(KeyError::Malformed { .. })), "{bad:?}");
        }
        let not_ascii = "é".repeat(32);
        assert!(not_ascii.parse::<Key>().is_err());
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn files_hold_either_form() {
        let directory = std::env::temp_dir().join(format!("corewire-key-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("key");
        for content in [vec![0xab; 32], "ab".repeat(32).into_bytes(), format!("{}\n", "AB".repeat(32)).into()]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Key::from_file(&path).unwrap(), Key::new([0xab; 32]));
        }
        for content in [&b""[..], &[0xff; 31], &[b'a'; 5000]] {
            std::fs::write(&path, content).unwrap();
            let error = KeySource::File(path.clone()).load().unwrap_err();
            assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(Key::from_file(&path), Err(KeyError::File { .. })));
    }

    #[test]
    fn a_variable_that_is_not_there_is_told_by_name() {
        for name in ["COREWIRE_NO_SUCH_KEY", "", "A=B"] {
            let error = KeySource::Env(name.to_owned()).load().unwrap_err();
            assert!(matches!(&error, KeyError::NotSet { name: told } if told == name), "{error}");
        }
    }
}
