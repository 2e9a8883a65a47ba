//! The name in a client's first message, which `rustls` does not tell.

/// Reads the name of the server that a ClientHello at the front of `bytes` asks for. `None`: the message is not there yet;
/// `Some(None)`: it asks for none, or is not whole in its first record. What is malformed is found by the handshake.
pub(super) fn requested_name(bytes: &[u8]) -> Option<Option<String>> {
    let len = usize::from(u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]));
    let record = bytes.get(5..5 + len)?;
    Some(name_in_hello(record))
}

fn name_in_hello(record: &[u8]) -> Option<String> {
    let mut hello = Reader(record);
    // Type and length of the message, version, random.
    hello.take(4 + 2 + 32)?;
    // Session id, cipher suites, compression methods.
    hello.take_counted::<1>()?;
    hello.take_counted::<2>()?;
    hello.take_counted::<1>()?;
    let mut extensions = Reader(hello.take_counted::<2>()?);
    loop {
        let kind = extensions.take(2)?;
        let extension = extensions.take_counted::<2>()?;
        if kind == [0, 0] {
            let mut list = Reader(extension);
            let mut names = Reader(list.take_counted::<2>()?);
            // The only type of name there is.
            return match names.take(1)? {
                [0] => String::from_utf8(names.take_counted::<2>()?.to_vec()).ok(),
                _ => None,
            };
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// As many as the number of `N` bytes before them says.
    fn take_counted<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let len = self.take(N)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        self.take(len)
    }
}
