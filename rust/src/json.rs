//! A strict reader of JSON (RFC 8259). It returns values as the bytes that were read, so numbers keep their digits. No
//! name may occur twice in an object.
//!
//! `json_in` and `jsonb_in` (src/common/jsonapi.c) accept everything that this reader accepts, except numbers that are
//! too large for `numeric`.

use std::borrow::Cow;

use thiserror::Error;

/// How deep values may be nested. Deeper values could exceed the stack of a server with a small `max_stack_depth`.
pub const MOST_DEPTH: usize = 1000;

/// Why bytes are not JSON that `PostgreSQL` can store. `at` is the number of a byte of the record, from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JsonFault {
    #[error("invalid JSON: {what} expected at byte {at} of the record")]
    Expected { what: &'static str, at: usize },
    #[error("invalid JSON: a control character in a string at byte {at} of the record")]
    Control { at: usize },
    #[error("invalid JSON: unknown escape at byte {at} of the record")]
    Escape { at: usize },
    #[error("half of a surrogate pair at byte {at} of the record")]
    Surrogate { at: usize },
    #[error("\\u0000, which PostgreSQL cannot store, at byte {at} of the record")]
    Zero { at: usize },
    #[error("objects and arrays are nested more than {MOST_DEPTH} deep")]
    TooDeep,
    #[error("name \"{name}\" appears twice")]
    Repeated { name: String },
    #[error("name \"{name}\" belongs to no column that is loaded")]
    Unknown { name: String },
    #[error("the record is not a JSON object")]
    NotObject,
}

/// The kind of a value, and where its bytes are. For a string these are the bytes between its quotes, for other kinds
/// all bytes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Boolean,
    Number,
    /// A string without escapes.
    Plain,
    /// A string with escapes.
    Escaped,
    Nested,
}

/// Reads the values of one record.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The names in the objects that are open.
    names: Vec<Cow<'a, [u8]>>,
    most_depth: usize,
    /// The most bytes that a number may have, and the largest size of its exponent.
    most_digits: usize,
}

/// Returns a name as it is shown in an error: valid text, and not too long.
#[must_use]
pub fn show_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(100).collect()
}

impl<'a> Scanner<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, names: Vec::new(), most_depth: MOST_DEPTH, most_digits: usize::MAX }
    }

    /// Returns the reader with other limits: how deep values may be nested, and how long numbers may be.
    #[must_use]
    pub fn limited(self, most_depth: usize, most_digits: usize) -> Self {
        Self { most_depth, most_digits, ..self }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expected(&self, what: &'static str) -> JsonFault {
        JsonFault::Expected { what, at: self.at + 1 }
    }

    /// Passes over `byte` if it is the next byte. Returns whether it was the next byte.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    pub(crate) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads one value, and makes sure that nothing follows it.
    ///
    /// # Errors
    /// The bytes are not JSON, or cannot be stored.
    pub fn document(&mut self) -> Result<Value, JsonFault> {
        self.skip_blanks();
        let value = self.value(0)?;
        self.end()?;
        Ok(value)
    }

    /// Makes sure that nothing but blanks is left.
    pub(crate) fn end(&mut self) -> Result<(), JsonFault> {
        self.skip_blanks();
        if self.at < self.bytes.len() {
            return Err(self.expected("the end of the record is"));
        }
        Ok(())
    }

    /// Reads the value that begins at the present position.
    pub(crate) fn value(&mut self, depth: usize) -> Result<Value, JsonFault> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => return self.string("a value is"),
            Some(b't') => self.word(b"true", Kind::Boolean)?,
            Some(b'f') => self.word(b"false", Kind::Boolean)?,
            Some(b'n') => self.word(b"null", Kind::Null)?,
            _ => self.number()?,
        };
        Ok(Value { kind, start, end: self.at })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, JsonFault> {
        let first = self.names.len();
        let mut is_first = true;
        self.open(depth)?;
        while let Some(name) = self.next_name(is_first)? {
            is_first = false;
            let name = self.text(name);
            self.names.push(name);
            self.value(depth + 1)?;
        }
        self.names[first..].sort_unstable();
        if let Some([name, ..]) = self.names[first..].windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(JsonFault::Repeated { name: show_name(name) });
        }
        self.names.truncate(first);
        Ok(Kind::Nested)
    }

    /// Passes over the bracket that begins an object or array, if the value is not nested too deep.
    pub(crate) fn open(&mut self, depth: usize) -> Result<(), JsonFault> {
        self.at += 1;
        if depth < self.most_depth {
            Ok(())
        } else {
            Err(JsonFault::TooDeep)
        }
    }

    /// Reads the next name of the open object, and passes over what is before its value. None at the end of the object.
    pub(crate) fn next_name(&mut self, is_first: bool) -> Result<Option<Value>, JsonFault> {
        self.skip_blanks();
        if self.take(b'}') {
            return Ok(None);
        }
        if !is_first {
            if !self.take(b',') {
                return Err(self.expected("a comma or the end of the object is"));
            }
            self.skip_blanks();
        }
        let name = self.string("a name in double quotes is")?;
        self.skip_blanks();
        if !self.take(b':') {
            return Err(self.expected("a colon is"));
        }
        self.skip_blanks();
        Ok(Some(name))
    }

    fn array(&mut self, depth: usize) -> Result<Kind, JsonFault> {
        self.open(depth)?;
        self.skip_blanks();
        if self.take(b']') {
            return Ok(Kind::Nested);
        }
        loop {
            self.skip_blanks();
            self.value(depth + 1)?;
            self.skip_blanks();
            if self.take(b']') {
                return Ok(Kind::Nested);
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or the end of the array is"));
            }
        }
    }

    fn word(&mut self, word: &'static [u8], kind: Kind) -> Result<Kind, JsonFault> {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if self.bytes[self.at..].starts_with(word) && !self.bytes.get(self.at + word.len()).is_some_and(is_letter) {
            self.at += word.len();
            return Ok(kind);
        }
        Err(self.expected("a value is"))
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.expected("a digit is"));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Kind, JsonFault> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.expected("a value is"));
        }
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            let digits = self.at;
            self.digits()?;
            let size = std::str::from_utf8(&self.bytes[digits..self.at]).ok().and_then(|text| text.parse().ok());
            if size.unwrap_or(usize::MAX) > self.most_digits {
                return Err(self.expected("a smaller exponent is"));
            }
        }
        if self.at - start > self.most_digits {
            return Err(self.expected("a shorter number is"));
        }
        Ok(Kind::Number)
    }

    /// Reads a string. If no string begins at the present position, the error says that `what` is expected.
    fn string(&mut self, what: &'static str) -> Result<Value, JsonFault> {
        if !self.take(b'"') {
            return Err(self.expected(what));
        }
        let start = self.at;
        let mut kind = Kind::Plain;
        loop {
            let rest = &self.bytes[self.at..];
            self.at += rest.iter().position(|&byte| byte < b' ' || byte == b'"' || byte == b'\\').unwrap_or(rest.len());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Value { kind, start, end: self.at - 1 });
                }
                Some(b'\\') => {
                    kind = Kind::Escaped;
                    let start = self.at;
                    let (_, length) = read_escape(&self.bytes[start..]).map_err(|fault| fault.at(start + 1))?;
                    self.at += length;
                }
                Some(_) => return Err(JsonFault::Control { at: self.at + 1 }),
                None => return Err(self.expected("the end of a string is")),
            }
        }
    }

    /// Returns the text of a string, with its escapes decoded.
    pub(crate) fn text(&self, value: Value) -> Cow<'a, [u8]> {
        let raw = &self.bytes[value.start..value.end];
        if value.kind != Kind::Escaped {
            return Cow::Borrowed(raw);
        }
        let mut decoded = Vec::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            decoded.extend_from_slice(&rest[..at]);
            // All escapes of the string are valid, because the string has been read before.
            let Ok((found, length)) = read_escape(&rest[at..]) else { break };
            decoded.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[at + length..];
        }
        decoded.extend_from_slice(rest);
        Cow::Owned(decoded)
    }
}

/// Returns where the object or array at the beginning of `bytes` ends. None if it does not end.
///
/// Only strings and brackets are examined. So an end is also found for a value that is not JSON, or that is nested too
/// deep to be stored.
#[must_use]
pub fn find_end(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

enum EscapeFault {
    Unknown,
    Surrogate,
    Zero,
}

impl EscapeFault {
    fn at(&self, at: usize) -> JsonFault {
        match self {
            Self::Unknown => JsonFault::Escape { at },
            Self::Surrogate => JsonFault::Surrogate { at },
            Self::Zero => JsonFault::Zero { at },
        }
    }
}

/// Returns the character of the escape that begins `bytes`, and the escape's length. A pair of surrogates is one
/// escape.
fn read_escape(bytes: &[u8]) -> Result<(char, usize), EscapeFault> {
    let simple = match bytes.get(1) {
        Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
        Some(b'b') => '\x08',
        Some(b'f') => '\x0c',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return read_unicode(bytes),
        _ => return Err(EscapeFault::Unknown),
    };
    Ok((simple, 2))
}

/// Returns the character of an escape such as \u0041, or of a pair of surrogates.
fn read_unicode(bytes: &[u8]) -> Result<(char, usize), EscapeFault> {
    let high = hexadecimal(bytes.get(2..6)).ok_or(EscapeFault::Unknown)?;
    if !(0xd800..0xdc00).contains(&high) {
        return match char::from_u32(high) {
            Some('\0') => Err(EscapeFault::Zero),
            Some(found) => Ok((found, 6)),
            None => Err(EscapeFault::Surrogate),
        };
    }
    let is_pair = bytes.get(6..8) == Some(b"\\u");
    let low = hexadecimal(bytes.get(8..12)).filter(|low| is_pair && (0xdc00..0xe000).contains(low));
    let code = low.map(|low| 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
    code.and_then(char::from_u32).map(|found| (found, 12)).ok_or(EscapeFault::Surrogate)
}

fn hexadecimal(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |sum, &digit| Some(sum * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Kind, String> {
        Scanner::new(text.as_bytes()).document().map(|value| value.kind).map_err(|fault| fault.to_string())
    }

    #[test]
    fn values_are_told_apart() {
        for (text, kind) in [
            (" null ", Kind::Null),
            ("true", Kind::Boolean),
            ("-0.50e+7", Kind::Number),
            ("\"a\u{7f}é\"", Kind::Plain),
            ("\"\\u00e9\\n\\/\"", Kind::Escaped),
            ("{\"a\": [1, {\"a\": null}], \"b\":{} }\r", Kind::Nested),
            ("[]", Kind::Nested),
        ] {
            assert_eq!(read(text), Ok(kind), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_named() {
        for (text, message) in [
            ("", "invalid JSON: a value is expected at byte 1 of the record"),
            ("{\"a\" 1}", "invalid JSON: a colon is expected at byte 6 of the record"),
            ("{\"a\":1,}", "invalid JSON: a name in double quotes is expected at byte 8 of the record"),
            ("{\"a\":1", "invalid JSON: a comma or the end of the object is expected at byte 7 of the record"),
            ("[1 2]", "invalid JSON: a comma or the end of the array is expected at byte 4 of the record"),
            ("[1,]", "invalid JSON: a value is expected at byte 4 of the record"),
            ("1 1", "invalid JSON: the end of the record is expected at byte 3 of the record"),
            ("01", "invalid JSON: the end of the record is expected at byte 2 of the record"),
            ("+1", "invalid JSON: a value is expected at byte 1 of the record"),
            ("-", "invalid JSON: a digit is expected at byte 2 of the record"),
            ("1.", "invalid JSON: a digit is expected at byte 3 of the record"),
            ("1e", "invalid JSON: a digit is expected at byte 3 of the record"),
            ("NaN", "invalid JSON: a value is expected at byte 1 of the record"),
            ("nullx", "invalid JSON: a value is expected at byte 1 of the record"),
            ("\"a", "invalid JSON: the end of a string is expected at byte 3 of the record"),
            ("\"a\tb\"", "invalid JSON: a control character in a string at byte 3 of the record"),
            ("\"\\x\"", "invalid JSON: unknown escape at byte 2 of the record"),
            ("\"\\u12\"", "invalid JSON: unknown escape at byte 2 of the record"),
            ("\"\\ud800\"", "half of a surrogate pair at byte 2 of the record"),
            ("\"\\udc00\"", "half of a surrogate pair at byte 2 of the record"),
            ("\"\\ud800\\ud800\"", "half of a surrogate pair at byte 2 of the record"),
            ("\"a\\u0000\"", "\\u0000, which PostgreSQL cannot store, at byte 3 of the record"),
            ("[{\"b\":1,\"a\":1,\"\\u0061\":2}]", "name \"a\" appears twice"),
        ] {
            assert_eq!(read(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_end_is_found_at_any_depth_and_not_in_strings() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for (text, end) in [
            ("{\"a\": \"}\\\"}\", \"b\": [1]} x", Some(23)),
            ("[1,10)", None),
            ("{\"a\": {", None),
            ("]", None),
            (deep.as_str(), Some(200_000)),
        ] {
            assert_eq!(find_end(text.as_bytes()), end, "{}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(read(&nested(MOST_DEPTH)), Ok(Kind::Nested));
        assert_eq!(read(&nested(MOST_DEPTH + 1)), Err(JsonFault::TooDeep.to_string()));
    }

    #[test]
    fn strings_are_decoded() {
        let text = b"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00z\"";
        let mut scanner = Scanner::new(text);
        let value = scanner.document().unwrap();
        assert_eq!(scanner.text(value).as_ref(), "a\"\\/\x08\x0c\n\r\té😀z".as_bytes());
    }
}
