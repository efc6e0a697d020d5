//! How a netlink message is laid out, and the messages that set up loopback.

/// A message under construction.
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message with an empty body.
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // Sequence number and port: the kernel echoes the first and fills in the second.
        bytes.extend([0; 8]);
        Self { bytes }
    }

    /// Appends bytes of the body, padded to four.
    pub(crate) fn bytes(mut self, body: &[u8]) -> Self {
        self.bytes.extend(body);
        pad(&mut self.bytes);
        self
    }

    /// The message, with its length filled in.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("messages are a few hundred bytes");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// An attribute: length, kind, value, padding.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("attributes are a few hundred bytes");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    pad(&mut bytes);
    bytes
}

/// An attribute that holds attributes.
pub(crate) fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    const NLA_F_NESTED: u16 = 0x8000;
    attribute(kind | NLA_F_NESTED, attributes)
}

/// Brings the loopback interface up. It is interface 1 of every network namespace.
pub(crate) fn loopback_up() -> Vec<u8> {
    const RTM_NEWLINK: u16 = 16;
    let mut body = vec![0; 4]; // ifi_family, padding, ifi_type
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(1_u32.to_ne_bytes()); // ifi_flags: IFF_UP
    body.extend(1_u32.to_ne_bytes()); // ifi_change: IFF_UP
    Message::new(RTM_NEWLINK, REQUEST | ACKNOWLEDGE)
        .bytes(&body)
        .finish()
}

/// Makes every address of a family local, so that each connection ends in this namespace.
pub(crate) fn everything_is_local(family: u8) -> Vec<u8> {
    const RTM_NEWROUTE: u16 = 24;
    const CREATE: u16 = 0x400;
    const RTA_OIF: u16 = 4;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    // rtm_family, dst_len, src_len, tos, table, protocol, scope, type, flags
    let body = [
        family,
        0,
        0,
        0,
        TABLE_LOCAL,
        PROTOCOL_STATIC,
        SCOPE_HOST,
        TYPE_LOCAL,
        0,
        0,
        0,
        0,
    ];
    Message::new(RTM_NEWROUTE, REQUEST | ACKNOWLEDGE | CREATE)
        .bytes(&body)
        .bytes(&attribute(RTA_OIF, &LOOPBACK.to_ne_bytes()))
        .finish()
}

/// The error number of an answer, if it is an error; 0 is an acknowledgement.
pub(crate) fn error_number(answer: &[u8]) -> Option<i32> {
    const NLMSG_ERROR: u16 = 2;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let number = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(-number)
}

const LOOPBACK: u32 = 1;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
