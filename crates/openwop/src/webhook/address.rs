//! Which addresses lead into somebody's own network instead of the public one.
//!
//! Tables of special-purpose networks and nothing else: no name is resolved here, and no setting
//! makes an exception. An address in IPv6 is public only when it is in the space that is given out
//! for that; what carries an IPv4 address inside is judged by the address that it leads to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Networks in IPv4 that no webhook leads into, and what they are.
#[rustfmt::skip] // A table is read by its columns.
const SPECIAL_V4: [(Ipv4Net, &str); 17] = [
    (v4([0, 0, 0, 0], 8),         "an unspecified address"),
    (v4([10, 0, 0, 0], 8),        "a private address"),
    (v4([100, 64, 0, 0], 10),     "an address of a carrier's own network"),
    (v4([127, 0, 0, 0], 8),       "a loopback address"),
    // The one metadata service whose address looks public; the others are link-local or private.
    (v4([168, 63, 129, 16], 32),  "an address of a metadata service"),
    (v4([169, 254, 0, 0], 16),    "a link-local address"),
    (v4([172, 16, 0, 0], 12),     "a private address"),
    (v4([192, 0, 0, 0], 24),      "an address of a protocol"),
    (v4([192, 0, 2, 0], 24),      "an address for documentation"),
    (v4([192, 88, 99, 0], 24),    "an address of a tunnel"),
    (v4([192, 168, 0, 0], 16),    "a private address"),
    (v4([198, 18, 0, 0], 15),     "an address for benchmarks"),
    (v4([198, 51, 100, 0], 24),   "an address for documentation"),
    (v4([203, 0, 113, 0], 24),    "an address for documentation"),
    (v4([224, 0, 0, 0], 4),       "a multicast address"),
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    (v4([240, 0, 0, 0], 4),       "a reserved address"),
];

/// Networks in IPv6 that no webhook leads into, and what they are. The first that fits counts.
#[rustfmt::skip] // A table is read by its columns.
const SPECIAL_V6: [(Ipv6Net, &str); 10] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128),      "an unspecified address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128),      "a loopback address"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),   "a private address"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),  "a link-local address"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),   "a multicast address"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "an address for documentation"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),  "an address for documentation"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48),  "an address for benchmarks"),
    // Among them Teredo, which hides an IPv4 address.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),  "an address of a protocol"),
    // 6to4. Nobody has needed it for years, and the address inside may be anything.
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),  "an address of a tunnel"),
];

/// The part of IPv6 that is given out for public use.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
/// Where translators put addresses of IPv4: machines that have only IPv6 see public ones here.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// A network in IPv4.
const fn v4(of: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(of[0], of[1], of[2], of[3]), bits)
}

/// A network in IPv6.
const fn v6(of: [u16; 8], bits: u8) -> Ipv6Net {
    let ip = Ipv6Addr::new(of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7]);
    Ipv6Net::new_assert(ip, bits)
}

/// What is special about an address, or `None` for a public one.
pub(super) fn special(ip: IpAddr) -> Option<&'static str> {
    match led_to(ip) {
        IpAddr::V4(ip) => {
            SPECIAL_V4.iter().find(|(network, _)| network.contains(&ip)).map(|(_, what)| *what)
        }
        IpAddr::V6(ip) => {
            let found = SPECIAL_V6.iter().find(|(network, _)| network.contains(&ip));
            let otherwise = (!PUBLIC_V6.contains(&ip)).then_some("a reserved address");
            found.map(|(_, what)| *what).or(otherwise)
        }
    }
}

/// The address in IPv4 that one in IPv6 stands for, or the same.
pub(super) fn led_to(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if NAT64.contains(&ip) => {
            let [.., a, b, c, d] = ip.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// One line for each address: what it is to the guard.
    fn table(addresses: &str) -> String {
        let mut table = String::new();
        for address in addresses.split_whitespace() {
            let what = special(address.parse().unwrap()).unwrap_or("public");
            writeln!(table, "{address:<28} {what}").unwrap();
        }
        table
    }

    #[test]
    fn an_address_in_ipv4_is_public_outside_the_special_networks() {
        let edges = "0.0.0.0 0.255.255.255 1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 10.0.0.0 \
            10.255.255.255 11.0.0.0 100.63.255.255 100.64.0.0 100.100.100.200 100.127.255.255 \
            100.128.0.0 126.255.255.255 127.0.0.0 127.0.0.1 127.255.255.255 128.0.0.0 \
            168.63.129.15 168.63.129.16 168.63.129.17 169.253.255.255 169.254.0.0 \
            169.254.169.254 169.254.255.255 169.255.0.0 172.15.255.255 172.16.0.0 \
            172.31.255.255 172.32.0.0 191.255.255.255 192.0.0.0 192.0.0.192 192.0.1.0 192.0.2.0 \
            192.0.2.255 192.0.3.0 192.88.98.255 192.88.99.1 192.88.100.0 192.167.255.255 \
            192.168.0.0 192.168.255.255 192.169.0.0 198.17.255.255 198.18.0.0 198.19.255.255 \
            198.20.0.0 198.51.99.255 198.51.100.7 198.51.101.0 203.0.112.255 203.0.113.9 \
            203.0.114.0 223.255.255.255 224.0.0.1 239.255.255.255 240.0.0.0 255.255.255.254 \
            255.255.255.255";
        assert_eq!(table(edges), V4);
    }

    const V4: &str = "\
0.0.0.0                      an unspecified address
0.255.255.255                an unspecified address
1.0.0.0                      public
1.1.1.1                      public
8.8.8.8                      public
9.255.255.255                public
10.0.0.0                     a private address
10.255.255.255               a private address
11.0.0.0                     public
100.63.255.255               public
100.64.0.0                   an address of a carrier's own network
100.100.100.200              an address of a carrier's own network
100.127.255.255              an address of a carrier's own network
100.128.0.0                  public
126.255.255.255              public
127.0.0.0                    a loopback address
127.0.0.1                    a loopback address
127.255.255.255              a loopback address
128.0.0.0                    public
168.63.129.15                public
168.63.129.16                an address of a metadata service
168.63.129.17                public
169.253.255.255              public
169.254.0.0                  a link-local address
169.254.169.254              a link-local address
169.254.255.255              a link-local address
169.255.0.0                  public
172.15.255.255               public
172.16.0.0                   a private address
172.31.255.255               a private address
172.32.0.0                   public
191.255.255.255              public
192.0.0.0                    an address of a protocol
192.0.0.192                  an address of a protocol
192.0.1.0                    public
192.0.2.0                    an address for documentation
192.0.2.255                  an address for documentation
192.0.3.0                    public
192.88.98.255                public
192.88.99.1                  an address of a tunnel
192.88.100.0                 public
192.167.255.255              public
192.168.0.0                  a private address
192.168.255.255              a private address
192.169.0.0                  public
198.17.255.255               public
198.18.0.0                   an address for benchmarks
198.19.255.255               an address for benchmarks
198.20.0.0                   public
198.51.99.255                public
198.51.100.7                 an address for documentation
198.51.101.0                 public
203.0.112.255                public
203.0.113.9                  an address for documentation
203.0.114.0                  public
223.255.255.255              public
224.0.0.1                    a multicast address
239.255.255.255              a multicast address
240.0.0.0                    a reserved address
255.255.255.254              a reserved address
255.255.255.255              the broadcast address
";

    #[test]
    fn an_address_in_ipv6_is_public_only_where_public_ones_are_given_out() {
        let edges = ":: ::1 ::2 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:8.8.8.8 \
            ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b::8.8.8.8 \
            64:ff9b:1::8.8.8.8 100::1 1fff:ffff::1 2000::1 2001::1 2001:0:7f00:1:: 2001:2::1 \
            2001:1ff::1 2001:200::1 2001:db8::1 2001:4860:4860::8888 2002:7f00:1:: 2002:808:808:: \
            2003::1 2606:4700::1111 3ffe:ffff::1 3fff::1 3fff:fff::1 3fff:1000::1 4000::1 5f00::1 \
            fbff::1 fc00::1 fd00:ec2::254 fd20:ce::254 fdff::1 fe00::1 fe80::1 febf::1 fec0::1 \
            ff02::1 ffff::1";
        assert_eq!(table(edges), V6);
    }

    const V6: &str = "\
::                           an unspecified address
::1                          a loopback address
::2                          a reserved address
::127.0.0.1                  a reserved address
::ffff:127.0.0.1             a loopback address
::ffff:10.1.2.3              a private address
::ffff:8.8.8.8               public
::ffff:0:127.0.0.1           a reserved address
64:ff9b::127.0.0.1           a loopback address
64:ff9b::169.254.169.254     a link-local address
64:ff9b::8.8.8.8             public
64:ff9b:1::8.8.8.8           a reserved address
100::1                       a reserved address
1fff:ffff::1                 a reserved address
2000::1                      public
2001::1                      an address of a protocol
2001:0:7f00:1::              an address of a protocol
2001:2::1                    an address for benchmarks
2001:1ff::1                  an address of a protocol
2001:200::1                  public
2001:db8::1                  an address for documentation
2001:4860:4860::8888         public
2002:7f00:1::                an address of a tunnel
2002:808:808::               an address of a tunnel
2003::1                      public
2606:4700::1111              public
3ffe:ffff::1                 public
3fff::1                      an address for documentation
3fff:fff::1                  an address for documentation
3fff:1000::1                 public
4000::1                      a reserved address
5f00::1                      a reserved address
fbff::1                      a reserved address
fc00::1                      a private address
fd00:ec2::254                a private address
fd20:ce::254                 a private address
fdff::1                      a private address
fe00::1                      a reserved address
fe80::1                      a link-local address
febf::1                      a link-local address
fec0::1                      a reserved address
ff02::1                      a multicast address
ffff::1                      a multicast address
";
}
