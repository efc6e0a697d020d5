//! HTTP/2 frames with fields that no library would send (RFC 9113, RFC 7541).

use std::io::{Read, Write};

/// Sends one request with exactly these fields, and reads until its stream or the connection ends. Returns what came.
pub(super) fn exchange(stream: &mut (impl Read + Write), fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal field without indexing, its name a literal too.
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    sent.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    let mut received = Vec::new();
    if stream
        .write_all(&sent)
        .and_then(|()| stream.flush())
        .is_err()
    {
        return received;
    }
    while let Some((kind, flags, number, payload)) = read_frame(stream) {
        received.extend_from_slice(&payload);
        let ends = flags & END_STREAM != 0 && matches!(kind, DATA | HEADERS);
        if kind == GOAWAY || (number == 1 && (kind == RST_STREAM || ends)) {
            break;
        }
    }
    received
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

// RFC 7541 section 5.2, not Huffman-coded.
fn string(block: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 127 => block.push(length),
        _ => {
            let rest = text.len() - 127;
            assert!(rest < 128, "the catalogue has no field this long");
            block.push(127);
            block.push(u8::try_from(rest).unwrap());
        }
    }
    block.extend(text);
}

fn read_frame(stream: &mut impl Read) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], number, payload))
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
