//! Control messages: what goes to the kernel beside a datagram, and what comes with it.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for the control messages of one datagram, aligned as they must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [MaybeUninit<u8>; Self::LEN]);

impl Control {
    /// All that this crate asks for at once takes 128 bytes at most.
    pub(super) const LEN: usize = 192;
    pub(super) const EMPTY: Self = Self([MaybeUninit::uninit(); Self::LEN]);
}

/// What came with a datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Received {
    /// The size of the datagrams that were joined; 0: not joined.
    pub(super) segment_size: usize,
    pub(super) traffic_class: u8,
    pub(super) destination: Option<IpAddr>,
    pub(super) interface: Option<u32>,
    /// Datagrams dropped so far because the receive buffer was full.
    pub(super) drops: Option<u32>,
}

/// Reads the control messages of one datagram.
///
/// # Safety
/// The kernel has just filled the header in.
pub(super) unsafe fn read(header: &libc::msghdr) -> Received {
    let mut found = Received::default();
    // SAFETY: the caller promises a header that the kernel filled in.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null: it points to a whole control message inside the buffer.
        let (message, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        // SAFETY: each type stands for what the kernel writes under this level and type; the buffer may not align it.
        unsafe {
            match (message.cmsg_level, message.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    found.segment_size = data.cast::<libc::c_int>().read_unaligned().max(0) as usize;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => found.traffic_class = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    found.traffic_class = data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    found.destination = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                    found.interface = u32::try_from(info.ipi_ifindex).ok();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    found.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    found.interface = Some(info.ipi6_ifindex);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    found.drops = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
        }
        // SAFETY: `next` is a control message of this header.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    found
}

/// What a datagram is sent with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// Cut into datagrams of this size; 0: one datagram.
    pub(super) segment_size: u16,
    pub(super) ecn: u8,
    pub(super) source: Option<IpAddr>,
    pub(super) v6: bool,
}

/// Writes control messages; gives how many bytes they take.
pub(super) fn write(control: &mut Control, sent: &Sent) -> usize {
    let mut writer = Writer { control, at: 0 };
    if sent.segment_size > 0 {
        writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, sent.segment_size);
    }
    if sent.ecn > 0 {
        let (level, kind) =
            if sent.v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
        writer.push(level, kind, libc::c_int::from(sent.ecn));
    }
    match sent.source {
        Some(IpAddr::V4(ip)) => {
            let address = libc::in_addr { s_addr: u32::from(ip).to_be() };
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            writer.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 };
            writer.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    writer.at
}

struct Writer<'a> {
    control: &'a mut Control,
    at: usize,
}

impl Writer<'_> {
    fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        // SAFETY: pure arithmetic.
        let (space, len) = unsafe {
            (libc::CMSG_SPACE(size_of::<T>() as u32) as usize, libc::CMSG_LEN(size_of::<T>() as u32) as usize)
        };
        assert!(self.at + space <= Control::LEN, "a datagram has few control messages");
        // SAFETY: there is room for the whole message, and `at` keeps the alignment of the buffer.
        unsafe {
            let header = self.control.0.as_mut_ptr().add(self.at).cast::<libc::cmsghdr>();
            // The padding too: the kernel reads it.
            std::ptr::write_bytes(header.cast::<u8>(), 0, space);
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.at += space;
    }
}
