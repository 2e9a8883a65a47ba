use super::*;
use crate::kcp::KeySource;
use proptest::prelude::*;

fn name(text: &str) -> Host {
    Host::Name(text.into())
}

fn ip(text: &str) -> Host {
    Host::Ip(text.parse().unwrap())
}

#[test]
fn valid_uris() {
    let path = |text: &str| Host::UnixPath(text.into());
    let abstract_name = |text: &str| Host::UnixAbstract(text.into());
    let cases = [
        ("tcp://127.0.0.1:7777", Scheme::Tcp, ip("127.0.0.1"), Some(7777)),
        ("127.0.0.1:7777", Scheme::Tcp, ip("127.0.0.1"), Some(7777)),
        ("127.0.0.1", Scheme::Tcp, ip("127.0.0.1"), None),
        ("UDP://*:0", Scheme::Udp, Host::Any, Some(0)),
        ("*:65535", Scheme::Tcp, Host::Any, Some(65_535)),
        ("*", Scheme::Tcp, Host::Any, None),
        ("http://example.org", Scheme::Http, name("example.org"), Some(80)),
        ("https://example.org/a:b?c#d", Scheme::Https, name("example.org"), Some(443)),
        ("Ws://Example.ORG:8080/chat", Scheme::Ws, name("example.org"), Some(8080)),
        ("wss://example.org?x=ws://other:1", Scheme::Wss, name("example.org"), Some(443)),
        ("example.org/?next=http://other", Scheme::Tcp, name("example.org"), None),
        ("kcp://node_1.local.:9000", Scheme::Kcp, name("node_1.local."), Some(9000)),
        ("localhost:0080", Scheme::Tcp, name("localhost"), Some(80)),
        ("  tcp://a:1\n", Scheme::Tcp, name("a"), Some(1)),
        ("1a.2b:3", Scheme::Tcp, name("1a.2b"), Some(3)),
        ("2001:db8::1", Scheme::Tcp, ip("2001:db8::1"), None),
        ("tcp://2001:DB8:0:0:0:0:0:1", Scheme::Tcp, ip("2001:db8::1"), None),
        ("[2001:db8::1]:1", Scheme::Tcp, ip("2001:db8::1"), Some(1)),
        ("http://[::1]", Scheme::Http, ip("::1"), Some(80)),
        ("udp://::", Scheme::Udp, ip("::"), None),
        ("[::ffff:10.0.0.1]:5", Scheme::Tcp, ip("::ffff:10.0.0.1"), Some(5)),
        ("unix:///run/App.sock", Scheme::Unix, path("/run/App.sock"), None),
        ("UNIX:///a?b#c:1", Scheme::Unix, path("/a?b#c:1"), None),
        ("unix://@Name", Scheme::Unix, abstract_name("Name"), None),
    ];
    for (text, scheme, host, port) in cases {
        let uri = NetUri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((uri.scheme(), uri.host(), uri.port()), (scheme, &host, port), "{text}");
        assert_eq!(uri.to_string().parse::<NetUri>().unwrap(), uri, "{text}");
    }
}

#[test]
fn display_is_one_form() {
    for (text, expected) in [
        ("LocalHost", "tcp://localhost"),
        ("http://a/b", "http://a:80"),
        ("::1", "tcp://[::1]"),
        ("[0:0::1]:07", "tcp://[::1]:7"),
        ("udp://*:9", "udp://*:9"),
        ("Unix://@a b", "unix://@a b"),
    ] {
        assert_eq!(NetUri::parse(text).unwrap().to_string(), expected);
    }
    assert_eq!(NetUri::parse("http://a").unwrap(), NetUri::parse("HTTP://A:80/").unwrap());
}

#[test]
fn invalid_uris_name_what_is_wrong() {
    let long_name = format!("{}.org", "a.".repeat(130));
    let long_label = format!("{}.org", "a".repeat(64));
    let long_path = format!("unix:///{}", "p".repeat(107));
    let cases = [
        ("", "no host in \"\""),
        ("   ", "no host"),
        ("tcp://", "no host in \"tcp://\""),
        (":7777", "write a name, an address, or *"),
        ("tcp:///path", "no host"),
        ("ftp://host:21", "unknown scheme \"ftp\""),
        ("://host", "unknown scheme \"\""),
        ("tcp ://host", "unknown scheme \"tcp \""),
        ("host:65536", "port 65536 in \"host:65536\" is over 65535"),
        ("host:99999999999999999999999", "is over 65535"),
        ("host:", "invalid port \"\""),
        ("host:+80", "invalid port \"+80\""),
        ("host:-1", "invalid port \"-1\""),
        ("host:http", "invalid port \"http\""),
        ("host:8 0", "invalid port \"8 0\""),
        ("[::1]:", "invalid port \"\""),
        ("2001:db8:0:1", "invalid IPv6 address \"2001:db8:0:1\""),
        ("2001:db8::1:99999", "in brackets"),
        ("host:1:2", "invalid IPv6 address"),
        ("tcp:127.0.0.1:80", "invalid IPv6 address"),
        ("[::1", "invalid IPv6 address \"[::1\""),
        ("[::1]7777", "invalid IPv6 address"),
        ("[]", "invalid IPv6 address"),
        ("[*]:1", "invalid IPv6 address"),
        ("[127.0.0.1]:1", "invalid IPv6 address"),
        ("a[::1]", "invalid IPv6 address"),
        ("::1]", "invalid IPv6 address"),
        ("[fe80::1%eth0]:1", "zones of IPv6 addresses"),
        ("256.0.0.1:1", "not an IPv4 address"),
        ("1.2.3", "not an IPv4 address"),
        ("7777", "write *:port"),
        ("0x7f000001:1", "not an IPv4 address"),
        ("user@host:1", "user before @"),
        ("ho st:1", "letters, digits"),
        ("**:1", "letters, digits"),
        ("a\0b", "letters, digits"),
        ("bücher.example", "xn-- form"),
        ("a..b", "between its dots"),
        (".", "between its dots"),
        (&long_label, "1 to 63 bytes"),
        (&long_name, "at most 253 bytes"),
        ("unix://", "it is empty"),
        ("unix://@", "it is empty"),
        ("unix://run/app.sock", "must begin with /"),
        ("unix:///a\0b", "zero byte"),
        (&long_path, "longer than 107 bytes"),
    ];
    for (text, expected) in cases {
        let error = NetUri::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?} gives: {error}");
    }
}

#[test]
fn over_long_text_is_refused_without_repeating_it() {
    let at_limit = format!("host/{}", "x".repeat(NetUri::LEN_MAX - 5));
    NetUri::parse(&at_limit).unwrap();
    let error = NetUri::parse(&(at_limit + "x")).unwrap_err();
    assert!(matches!(error, UriError::TooLong { len: 4_097 }), "{error:?}");
    assert!(error.to_string().len() < 100);
}

#[test]
fn only_the_star_is_any() {
    assert!(NetUri::parse("udp://*:1").unwrap().is_any());
    for text in ["0.0.0.0:1", "[::]:1", "host:1", "unix:///*"] {
        assert!(!NetUri::parse(text).unwrap().is_any(), "{text}");
    }
}

#[test]
fn with_port_changes_the_port_and_nothing_else() {
    let uri = NetUri::parse("http://a").unwrap();
    assert_eq!(uri.with_port(8080).to_string(), "http://a:8080");
    let unix = NetUri::parse("unix:///a").unwrap();
    assert_eq!(unix.with_port(1), unix);
}

#[test]
fn resolve_gives_socket_addresses() {
    let resolve = |text: &str| NetUri::parse(text).unwrap().resolve();
    assert_eq!(resolve("10.1.2.3:4").unwrap(), ["10.1.2.3:4".parse().unwrap()]);
    assert_eq!(resolve("https://[::1]").unwrap(), ["[::1]:443".parse().unwrap()]);
    assert_eq!(resolve("*:9").unwrap(), ["0.0.0.0:9".parse().unwrap(), "[::]:9".parse().unwrap()]);
    let localhost = resolve("localhost:7").unwrap();
    assert!(!localhost.is_empty());
    assert!(
        localhost.iter().all(|address| address.ip().is_loopback() && address.port() == 7),
        "{localhost:?}"
    );
}

#[test]
fn resolve_says_why_it_cannot() {
    let resolve = |text: &str| NetUri::parse(text).unwrap().resolve().unwrap_err();
    assert!(matches!(resolve("udp://a"), UriError::MissingPort { uri } if uri == "udp://a"));
    assert!(matches!(resolve("unix:///a"), UriError::NotAnIpAddress { uri } if uri == "unix:///a"));
}

#[test]
fn name_without_an_address_is_an_error_that_names_it() {
    let uri = NetUri::parse("Nobody.example:1").unwrap();
    let failed = uri.resolve_with(|_, _| Err(io::Error::other("resolver is down"))).unwrap_err();
    assert!(matches!(&failed, UriError::Unresolvable { host, .. } if host == "nobody.example"), "{failed:?}");
    assert!(failed.to_string().contains("\"nobody.example\": resolver is down"), "{failed}");
    let empty = uri.resolve_with(|_, _| Ok(Vec::new())).unwrap_err();
    assert!(matches!(empty, UriError::Unresolvable { .. }), "{empty:?}");
}

proptest! {
    #[test]
    fn any_text_gives_a_uri_that_reads_back_or_an_error(text in prop_oneof![
        any::<String>(),
        "((tcp|UDP|http|wss|unix|kcp|x)?(://|:|))?[\\[\\]:.*/@%?# a-f0-9é\\x00]{0,40}",
    ]) {
        if let Ok(uri) = NetUri::parse(&text) {
            prop_assert_eq!(NetUri::parse(&uri.to_string()).unwrap(), uri);
        }
    }

    #[test]
    fn valid_parts_read_back(
        scheme in prop::sample::select(vec!["tcp", "udp", "http", "https", "ws", "wss"]),
        host in prop_oneof![
            "[a-zA-Z][a-zA-Z0-9_-]{0,20}(\\.[a-zA-Z][a-zA-Z0-9-]{0,10}){0,3}",
            any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
            any::<std::net::Ipv6Addr>().prop_map(|ip| format!("[{ip}]")),
            Just("*".to_string()),
        ],
        port in any::<u16>(),
        rest in "([/?#][ -~]{0,20})?",
    ) {
        let uri = NetUri::parse(&format!("{scheme}://{host}:{port}{rest}")).unwrap();
        prop_assert_eq!(uri.to_string(), format!("{scheme}://{}:{port}", host.to_ascii_lowercase()));
    }
}

#[test]
fn a_kcp_uri_names_the_place_of_a_key_and_nothing_else() {
    let uri = NetUri::parse("kcp://h:1?key-file=/a/b").unwrap();
    assert_eq!(uri.key_source(), Some(&KeySource::File("/a/b".into())));
    assert_eq!(uri.to_string(), "kcp://h:1?key-file=/a/b");
    assert_eq!(NetUri::parse(&uri.to_string()).unwrap(), uri);
    let uri = NetUri::parse("KCP://h:1/path?key-env=A_KEY#x?key-file=y").unwrap();
    assert_eq!(uri.key_source(), Some(&KeySource::Env("A_KEY".into())));
    for plain in ["kcp://h:1", "kcp://h:1?", "kcp://h:1/?#key-file=a", "tcp://h:1?key-file=a"] {
        assert_eq!(NetUri::parse(plain).unwrap().key_source(), None, "{plain}");
    }
    for bad in ["key=00ff", "keyfile=a", "key-file", "key-file=", "key-env=", "Key-File=a", "x&key-file=a"] {
        let error = NetUri::parse(&format!("kcp://h:1?{bad}")).unwrap_err();
        assert!(matches!(error, UriError::InvalidParameter { .. }), "{bad}: {error}");
        assert!(!error.to_string().contains("00ff"), "the secret is not told again: {error}");
    }
    let error = NetUri::parse("kcp://h:1?key-file=a&key-env=B").unwrap_err();
    assert!(matches!(error, UriError::RepeatedParameter { .. }), "{error}");
}

#[test]
fn a_kcp_uri_has_settings_beside_the_key() {
    let all = "kcp://h:1?key-env=A&second-key-file=/b&congestion=bbr&windows-max=8192&fec=10,3";
    let uri = NetUri::parse(all).unwrap();
    assert_eq!(uri.to_string(), all);
    assert_eq!(uri.key_source(), Some(&KeySource::Env("A".into())));
    let other = "kcp://h:1?fec=1,1&congestion=off&second-key-env=B";
    assert_eq!(
        NetUri::parse(other).unwrap().to_string(),
        "kcp://h:1?second-key-env=B&congestion=off&fec=1,1"
    );
    let bad = "congestion=cubic congestion= windows-max=-1 windows-max=70000 fec=10 fec=10,3,1 fec=a,1 second-key=0";
    for bad in bad.split(' ') {
        let error = NetUri::parse(&format!("kcp://h:1?{bad}")).unwrap_err();
        assert!(matches!(error, UriError::InvalidParameter { .. }), "{bad}: {error}");
    }
    let error = NetUri::parse("kcp://h:1?fec=1,1&fec=10,3").unwrap_err();
    assert!(matches!(error, UriError::RepeatedParameter { .. }), "{error}");
}
