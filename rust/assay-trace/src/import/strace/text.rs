//! strace's lines taken apart: times, calls and their arguments, quoted strings, descriptors, flags.
use super::super::seconds;
use crate::model::MOST_BYTES;

pub type Parsed<T> = std::result::Result<T, String>;

/// A call taken apart.
pub struct Call<'a> {
    pub name: &'a str,
    pub arguments: Vec<&'a str>,
    pub result: i64,
    pub result_text: &'a str,
    pub duration: u64,
    pub has_duration: bool,
}

impl<'a> Call<'a> {
    /// Bytes moved.
    pub fn bytes(&self) -> Parsed<i64> {
        match self.result.max(0) {
            bytes if bytes as u64 > MOST_BYTES => Err(format!("{bytes} bytes are too many")),
            bytes => Ok(bytes),
        }
    }

    pub fn argument(&self, n: usize) -> Parsed<&'a str> {
        self.arguments
            .get(n)
            .copied()
            .ok_or_else(|| format!("{} has too few arguments", self.name))
    }
}

pub fn time_of(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(s), None, ..) => seconds(s),
        (Some(h), Some(m), Some(s), None) => {
            let minutes = h
                .parse::<u64>()
                .ok()?
                .checked_mul(60)?
                .checked_add(m.parse().ok()?)?;
            minutes
                .checked_mul(60_000_000_000)?
                .checked_add(seconds(s)?)
        }
        _ => None,
    }
}

/// Takes "name(a, b) = r <0.1>" apart; None when a call has no result ("?", exit).
pub fn take_apart(text: &str) -> Parsed<Option<Call<'_>>> {
    let (name, rest) = text.split_once('(').ok_or("no call")?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!("{name:?} is no call's name"));
    }
    let (arguments, end) = arguments(rest)?;
    let after = rest[end..].trim_start();
    let after = after
        .strip_prefix('=')
        .ok_or("the result is missing")?
        .trim();
    let (result_text, duration) = match after.rsplit_once('<') {
        Some((r, d)) if d.ends_with('>') && seconds(&d[..d.len() - 1]).is_some() => {
            (r.trim(), seconds(&d[..d.len() - 1]))
        }
        _ => (after, None),
    };
    let word = result_text.split([' ', '<']).next().unwrap_or("");
    if word == "?" {
        return Ok(None);
    }
    let mut result = number(word).ok_or_else(|| format!("{word:?} is no result"))?;
    if result == -1 {
        let errno = result_text.split(' ').nth(1).unwrap_or("");
        result = -errno_number(errno);
    }
    Ok(Some(Call {
        name,
        arguments,
        result,
        result_text,
        duration: duration.unwrap_or(0),
        has_duration: duration.is_some(),
    }))
}

/// Splits at commas outside quotes, brackets and <paths>; the second value is the position after the closing bracket.
fn arguments(text: &str) -> Parsed<(Vec<&str>, usize)> {
    let bytes = text.as_bytes();
    let (mut depth, mut quoted, mut angle) = (0i32, false, false);
    let (mut from, mut out) = (0, Vec::new());
    let mut i = 0;
    while i < bytes.len() {
        let b = bytes[i];
        if quoted {
            match b {
                b'\\' => i += 1,
                b'"' => quoted = false,
                _ => {}
            }
        } else if angle {
            if b == b'>' && bytes.get(i.wrapping_sub(1)) != Some(&b'-') {
                angle = false;
            }
        } else {
            match b {
                b'"' => quoted = true,
                // "3</path>", but not "a<<b"
                b'<' if i > 0
                    && (bytes[i - 1].is_ascii_digit() || text[..i].ends_with("AT_FDCWD")) =>
                {
                    angle = true
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => {
                    if !text[from..i].trim().is_empty() || !out.is_empty() {
                        out.push(text[from..i].trim());
                    }
                    return Ok((out, i + 1));
                }
                b')' | b']' | b'}' => depth -= 1,
                b',' if depth == 0 => {
                    out.push(text[from..i].trim());
                    from = i + 1;
                }
                _ => {}
            }
        }
        i += 1;
    }
    Err("the call has no end".into())
}

pub fn number(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|n| n as i64);
    }
    if text.len() > 1 && text.starts_with('0') {
        return i64::from_str_radix(text, 8).ok();
    }
    text.parse().ok()
}

fn errno_number(name: &str) -> i64 {
    (1..134)
        .find(|&n| crate::replay::report::errno_name(n) == name)
        .unwrap_or(match name {
            "EAGAIN" => 11,
            "EINTR" => 4,
            "EFAULT" => 14,
            "ENODEV" => 19,
            "ESPIPE" => 29,
            "ENOSYS" => 38,
            "ENODATA" => 61,
            "ENXIO" => 6,
            _ => i64::from(libc::EIO),
        })
}

/// A quoted string without its quotes and escapes. A string that was cut ("abc"...) is no path.
pub fn quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.bytes().peekable();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            out.push(b);
            continue;
        }
        match bytes.next()? {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            d @ b'0'..=b'7' => {
                let mut value = u32::from(d - b'0');
                for _ in 0..2 {
                    if let Some(d @ b'0'..=b'7') = bytes.peek().copied() {
                        value = value * 8 + u32::from(d - b'0');
                        bytes.next();
                    }
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// A descriptor, and its path if strace was run with -y.
pub fn descriptor(text: &str) -> Option<(i32, Option<&str>)> {
    let (number, path) = match text.split_once('<') {
        Some((n, p)) => (n, p.strip_suffix('>')),
        None => (text, None),
    };
    let fd = if number == "AT_FDCWD" {
        -100
    } else {
        number.parse().ok()?
    };
    Some((fd, path.filter(|p| p.starts_with('/'))))
}

pub fn open_flags(text: &str) -> u64 {
    let names: [(&str, libc::c_int); 13] = [
        ("O_WRONLY", libc::O_WRONLY),
        ("O_RDWR", libc::O_RDWR),
        ("O_CREAT", libc::O_CREAT),
        ("O_EXCL", libc::O_EXCL),
        ("O_TRUNC", libc::O_TRUNC),
        ("O_APPEND", libc::O_APPEND),
        ("O_SYNC", libc::O_SYNC),
        ("O_DSYNC", libc::O_DSYNC),
        ("O_DIRECT", libc::O_DIRECT),
        ("O_DIRECTORY", libc::O_DIRECTORY),
        ("O_NOFOLLOW", libc::O_NOFOLLOW),
        ("O_CLOEXEC", libc::O_CLOEXEC),
        ("O_NONBLOCK", libc::O_NONBLOCK),
    ];
    text.split('|')
        .filter_map(|w| names.iter().find(|(n, _)| *n == w))
        .fold(0, |f, (_, v)| f | *v as u64)
}
