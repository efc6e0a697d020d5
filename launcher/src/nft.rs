//! The packet filter rules of a sandbox's network, as the netlink messages that `nft` would send.
//!
//! Two tables, in the network namespace of the sandbox only:
//!
//! ```text
//! table inet valetkey {
//!   chain capture {
//!     type filter hook prerouting priority mangle;
//!     meta nfproto ipv4 meta l4proto tcp ip daddr != 127.0.0.0/8 tproxy ip to 127.0.0.1:3128
//!     meta nfproto ipv6 meta l4proto tcp ip6 daddr != ::1 tproxy ip6 to [::1]:3129
//!   }
//! }
//! table ip names {
//!   chain names {
//!     type nat hook output priority dstnat;
//!     meta l4proto udp ip daddr != 127.0.0.0/8 udp dport 53 redirect to :53
//!   }
//! }
//! ```
//!
//! The second table needs connection tracking, and so comes in a batch of its own: without it, name questions to
//! another address than 127.0.0.1 are refused, which is no way out either.

use crate::netlink::{Message, attribute, nested};

/// Where explicit proxy requests and captured IPv4 connections arrive.
pub(crate) const PROXY_V4: u16 = 3128;
/// Where captured IPv6 connections arrive.
pub(crate) const PROXY_V6: u16 = 3129;
/// Where name questions arrive.
pub(crate) const NAMES: u16 = 53;

/// The batch that captures TCP.
pub(crate) fn capture(with_v6: bool) -> Vec<u8> {
    let (table, chain) = ("valetkey", "capture");
    let mut batch = begin();
    batch.extend(new_table(INET, table));
    // type filter, hook prerouting (0), priority mangle (-150).
    batch.extend(new_chain(INET, table, chain, "filter", 0, -150));
    batch.extend(new_rule(
        INET,
        table,
        chain,
        &[
            meta(META_NFPROTO),
            compare(EQUAL, &[IPV4]),
            meta(META_L4PROTO),
            compare(EQUAL, &[TCP]),
            // The first byte of the destination address, at byte 16 of the IPv4 header.
            payload(NETWORK_HEADER, 16, 1),
            compare(NOT_EQUAL, &[127]),
            immediate(REGISTER_1, &[127, 0, 0, 1]),
            immediate(REGISTER_2, &PROXY_V4.to_be_bytes()),
            tproxy(IPV4),
        ],
    ));
    if with_v6 {
        let mut loopback = [0; 16];
        loopback[15] = 1;
        batch.extend(new_rule(
            INET,
            table,
            chain,
            &[
                meta(META_NFPROTO),
                compare(EQUAL, &[IPV6]),
                meta(META_L4PROTO),
                compare(EQUAL, &[TCP]),
                // The destination address, at byte 24 of the IPv6 header.
                payload(NETWORK_HEADER, 24, 16),
                compare(NOT_EQUAL, &loopback),
                immediate(REGISTER_1, &loopback),
                // A 16-byte value fills register 1, which overlaps the 4-byte registers 8 to 11 and not register 2.
                immediate(REGISTER_2, &PROXY_V6.to_be_bytes()),
                tproxy(IPV6),
            ],
        ));
    }
    batch.extend(end());
    batch
}

/// The batch that brings name questions for any IPv4 address to our resolver.
pub(crate) fn names() -> Vec<u8> {
    let (table, chain) = ("names", "names");
    let mut batch = begin();
    batch.extend(new_table(IPV4, table));
    // type nat, hook output (3), priority dstnat (-100).
    batch.extend(new_chain(IPV4, table, chain, "nat", 3, -100));
    batch.extend(new_rule(
        IPV4,
        table,
        chain,
        &[
            meta(META_L4PROTO),
            compare(EQUAL, &[UDP]),
            payload(NETWORK_HEADER, 16, 1),
            compare(NOT_EQUAL, &[127]),
            // The destination port, at byte 2 of the UDP header.
            payload(TRANSPORT_HEADER, 2, 2),
            compare(EQUAL, &NAMES.to_be_bytes()),
            immediate(REGISTER_1, &NAMES.to_be_bytes()),
            expression("redir", &number(NFTA_REDIR_REG_PROTO_MIN, REGISTER_1)),
        ],
    ));
    batch.extend(end());
    batch
}

// linux/netfilter.h, linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const SUBSYSTEM_NFTABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM_NFTABLES;
const NEW_CHAIN: u16 = SUBSYSTEM_NFTABLES | 3;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES | 6;

const FLAG_REQUEST: u16 = 0x1;
const FLAG_CREATE: u16 = 0x400;
const FLAG_APPEND: u16 = 0x800;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEMENT: u16 = 1;
const NFTA_EXPRESSION_NAME: u16 = 1;
const NFTA_EXPRESSION_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LENGTH: u16 = 4;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_TPROXY_FAMILY: u16 = 1;
const NFTA_TPROXY_REG_ADDRESS: u16 = 2;
const NFTA_TPROXY_REG_PORT: u16 = 3;
const NFTA_REDIR_REG_PROTO_MIN: u16 = 1;

const REGISTER_1: u32 = 1;
const REGISTER_2: u32 = 2;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const POLICY_ACCEPT: u32 = 1;

fn begin() -> Vec<u8> {
    marker(BATCH_BEGIN)
}

fn end() -> Vec<u8> {
    marker(BATCH_END)
}

fn marker(kind: u16) -> Vec<u8> {
    // The resource id of a batch marker names the subsystem, in network byte order.
    let [high, low] = (SUBSYSTEM_NFTABLES >> 8).to_be_bytes();
    Message::new(kind, FLAG_REQUEST)
        .bytes(&[0, 0, high, low])
        .finish()
}

fn message(kind: u16, flags: u16, family: u8) -> Message {
    Message::new(kind, FLAG_REQUEST | flags).bytes(&[family, 0, 0, 0])
}

fn new_table(family: u8, name: &str) -> Vec<u8> {
    message(NEW_TABLE, FLAG_CREATE, family)
        .bytes(&text(NFTA_TABLE_NAME, name))
        .bytes(&number(NFTA_TABLE_FLAGS, 0))
        .finish()
}

fn new_chain(family: u8, table: &str, name: &str, kind: &str, hook: u32, priority: i32) -> Vec<u8> {
    let hook = [
        number(NFTA_HOOK_HOOKNUM, hook),
        attribute(NFTA_HOOK_PRIORITY, &priority.to_be_bytes()),
    ];
    message(NEW_CHAIN, FLAG_CREATE, family)
        .bytes(&text(NFTA_CHAIN_TABLE, table))
        .bytes(&text(NFTA_CHAIN_NAME, name))
        .bytes(&text(NFTA_CHAIN_TYPE, kind))
        .bytes(&number(NFTA_CHAIN_POLICY, POLICY_ACCEPT))
        .bytes(&nested(NFTA_CHAIN_HOOK, &hook.concat()))
        .finish()
}

fn new_rule(family: u8, table: &str, chain: &str, expressions: &[Vec<u8>]) -> Vec<u8> {
    message(NEW_RULE, FLAG_CREATE | FLAG_APPEND, family)
        .bytes(&text(NFTA_RULE_TABLE, table))
        .bytes(&text(NFTA_RULE_CHAIN, chain))
        .bytes(&nested(NFTA_RULE_EXPRESSIONS, &expressions.concat()))
        .finish()
}

fn meta(key: u32) -> Vec<u8> {
    let data = [
        number(NFTA_META_KEY, key),
        number(NFTA_META_DREG, REGISTER_1),
    ];
    expression("meta", &data.concat())
}

fn compare(operation: u32, value: &[u8]) -> Vec<u8> {
    let data = [
        number(NFTA_CMP_SREG, REGISTER_1),
        number(NFTA_CMP_OP, operation),
        nested(NFTA_CMP_DATA, &attribute(NFTA_DATA_VALUE, value)),
    ];
    expression("cmp", &data.concat())
}

fn payload(base: u32, offset: u32, length: u32) -> Vec<u8> {
    let data = [
        number(NFTA_PAYLOAD_DREG, REGISTER_1),
        number(NFTA_PAYLOAD_BASE, base),
        number(NFTA_PAYLOAD_OFFSET, offset),
        number(NFTA_PAYLOAD_LENGTH, length),
    ];
    expression("payload", &data.concat())
}

fn immediate(register: u32, value: &[u8]) -> Vec<u8> {
    let data = [
        number(NFTA_IMMEDIATE_DREG, register),
        nested(NFTA_IMMEDIATE_DATA, &attribute(NFTA_DATA_VALUE, value)),
    ];
    expression("immediate", &data.concat())
}

fn tproxy(family: u8) -> Vec<u8> {
    let data = [
        number(NFTA_TPROXY_FAMILY, family.into()),
        number(NFTA_TPROXY_REG_ADDRESS, REGISTER_1),
        number(NFTA_TPROXY_REG_PORT, REGISTER_2),
    ];
    expression("tproxy", &data.concat())
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let body = [
        text(NFTA_EXPRESSION_NAME, name),
        nested(NFTA_EXPRESSION_DATA, data),
    ];
    nested(NFTA_LIST_ELEMENT, &body.concat())
}

/// Numbers are in network byte order in this family of messages.
fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    attribute(kind, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the messages of a batch, going by their lengths.
    fn kinds(mut batch: &[u8]) -> Vec<u16> {
        let mut kinds = Vec::new();
        while !batch.is_empty() {
            let length = u32::from_ne_bytes(batch[..4].try_into().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            kinds.push(u16::from_ne_bytes(batch[4..6].try_into().unwrap()));
            batch = &batch[length..];
        }
        kinds
    }

    #[test]
    fn a_batch_is_a_table_a_chain_and_rules_between_markers() {
        let rules = |count| [vec![NEW_RULE; count], vec![BATCH_END]].concat();
        let before = [BATCH_BEGIN, NEW_TABLE, NEW_CHAIN];
        assert_eq!(kinds(&capture(true)), [&before[..], &rules(2)].concat());
        assert_eq!(kinds(&capture(false)), [&before[..], &rules(1)].concat());
        assert_eq!(kinds(&names()), [&before[..], &rules(1)].concat());
    }

    #[test]
    fn a_rule_compares_the_destination_before_it_captures() {
        let rule = payload(NETWORK_HEADER, 16, 1);
        // An expression element: nested, named, with its data nested; numbers in network byte order.
        let expected = [
            &[0x34, 0, 1, 0x80, 12, 0, 1, 0][..],
            b"payload\0",
            &[
                36, 0, 2, 0x80, 8, 0, 1, 0, 0, 0, 0, 1, 8, 0, 2, 0, 0, 0, 0, 1,
            ],
            &[8, 0, 3, 0, 0, 0, 0, 16, 8, 0, 4, 0, 0, 0, 0, 1],
        ]
        .concat();
        assert_eq!(rule, expected);
    }
}
