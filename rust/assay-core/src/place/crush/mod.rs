//! CRUSH, Ceph's distribution function: maps in all three forms, and which devices an input goes to.

pub mod binary;
pub mod builder;
pub mod flat;
pub mod hash;
pub mod json;
pub mod lanes;
pub mod ln;
pub mod map;
pub mod mapper;
mod pick;
pub mod straw2;
pub mod text;
mod text_rules;

use map::{bad, CrushMap, Error};
use mapper::Mapper;

/// A map in whichever of its three forms: compiled, JSON dump or text.
pub fn parse(data: &[u8]) -> Result<CrushMap, Error> {
    if binary::is_binary(data) {
        return binary::parse(data);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return bad!("neither a compiled crush map nor text");
    };
    if text.trim_start().starts_with('{') {
        json::parse(text)
    } else {
        text::parse(text)
    }
}

/// Results of many inputs: `size` slots per input, of which the first `lengths[i]` hold.
pub struct Mappings {
    pub items: Vec<i32>,
    pub lengths: Vec<u8>,
    pub size: usize,
}

impl Mappings {
    /// What the rule gave input number `i`.
    pub fn row(&self, i: usize) -> &[i32] {
        &self.items[i * self.size..][..usize::from(self.lengths[i])]
    }
}

/// Maps `xs` by a rule to at most `size` devices each, on `threads` threads.
pub fn map_inputs(
    mapper: &Mapper<'_>,
    rule: u32,
    xs: &[u32],
    size: usize,
    threads: usize,
) -> Result<Mappings, Error> {
    let rule = mapper.rule(rule)?;
    if !(1..=255).contains(&size) {
        return bad!("{size} replicas are not between 1 and 255");
    }
    let mut out = Mappings {
        items: vec![0; xs.len() * size],
        lengths: vec![0; xs.len()],
        size,
    };
    let share = xs.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let pieces = xs
            .chunks(share)
            .zip(out.items.chunks_mut(share * size))
            .zip(out.lengths.chunks_mut(share));
        for ((xs, items), lengths) in pieces {
            let mut work = move || {
                map_piece(
                    mapper,
                    rule,
                    xs,
                    lanes::Rows {
                        items,
                        lengths,
                        size,
                    },
                )
            };
            if threads > 1 {
                scope.spawn(work);
            } else {
                work();
            }
        }
    });
    Ok(out)
}

fn map_piece(mapper: &Mapper<'_>, rule: &map::Rule, xs: &[u32], rows: lanes::Rows<'_>) {
    if let Some(plan) = lanes::plan(mapper, rule, rows.size) {
        lanes::run(mapper, plan, &mut xs.iter().copied(), rows);
        return;
    }
    map_plainly(mapper, rule, xs, rows);
}

/// [`map_inputs`] without the lanes, for rules they do not know and as what they are tested against.
pub fn map_plainly(mapper: &Mapper<'_>, rule: &map::Rule, xs: &[u32], rows: lanes::Rows<'_>) {
    let mut found = Vec::with_capacity(rows.size);
    for ((&x, slots), length) in xs
        .iter()
        .zip(rows.items.chunks_mut(rows.size))
        .zip(rows.lengths)
    {
        found.clear();
        mapper.map_one(rule, x, rows.size, &mut found);
        slots[..found.len()].copy_from_slice(&found);
        *length = found.len() as u8;
    }
}

/// The lines of `crushtool --test --show-mappings` for one rule and number of replicas.
pub fn crushtool_lines(rule: u32, xs: &[u32], mappings: &Mappings) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(xs.len() * 40);
    for (i, &x) in xs.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(out, "CRUSH rule {rule} x {} [", x as i32);
        for (n, item) in mappings.row(i).iter().enumerate() {
            let _ = write!(out, "{}{item}", if n > 0 { "," } else { "" });
        }
        out.push_str("]\n");
    }
    out
}
