//! Bytes as lower-case hexadecimal text.

/// Appends a hash as hexadecimal digits.
pub(crate) fn push(out: &mut Vec<u8>, hash: &[u8; 32]) {
    let mut digits = [0; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair.copy_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
    out.extend_from_slice(&digits);
}

/// Bytes as hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// The 32 bytes that 64 lower-case digits stand for; none for any other text.
pub(crate) fn decode(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_as_themselves() {
        let bytes: [u8; 32] = std::array::from_fn(|index| (index * 9) as u8);
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
    }

    #[test]
    fn upper_case_digits_are_not_a_second_spelling() {
        assert_eq!(decode(&"A".repeat(64)), None);
        assert!(decode(&"a".repeat(64)).is_some());
    }
}
