//! CRUSH against the vectors of the real code, and its two mappers and kernels against one another.
#![allow(clippy::unwrap_used)]

use assay_core::place::crush::flat::Flat;
use assay_core::place::crush::lanes::Rows;
use assay_core::place::crush::map::CrushMap;
use assay_core::place::crush::mapper::Mapper;
use assay_core::place::crush::{hash, ln, map_inputs, map_plainly, parse, straw2};
use serde_json::Value;

fn vectors(name: &str) -> Value {
    let path = format!(
        "{}/../../tests/data/placement/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn words(row: &Value) -> Vec<u32> {
    row.as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap() as u32)
        .collect()
}

/// A small deterministic generator.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn hashes_are_those_of_the_c_code() {
    let document = vectors("ceph_crush_hash_ln.json");
    let mut checked = 0;
    for n in 1..=5 {
        for row in document[format!("hash32_{n}")].as_array().unwrap() {
            let got = match words(row)[..] {
                [a, e] => (e, hash::hash1(a)),
                [a, b, e] => (e, hash::hash2(a, b)),
                [a, b, c, e] => (e, hash::hash3(a, b, c)),
                [a, b, c, d, e] => (e, hash::hash4(a, b, c, d)),
                [a, b, c, d, f, e] => (e, hash::hash5(a, b, c, d, f)),
                _ => unreachable!(),
            };
            assert_eq!(got.0, got.1);
            checked += 1;
        }
    }
    assert_eq!(checked, 600);
}

#[test]
fn the_logarithm_falls_once_and_only_at_its_end() {
    let falls: Vec<u32> = (1..65_536)
        .filter(|&u| ln::crush_ln(u) < ln::crush_ln(u - 1))
        .collect();
    assert_eq!(falls, [65_535]);
    assert_eq!(ln::crush_ln(0xffff), 0xffff_f000_0000);
}

fn reweights(map: &CrushMap, entry: &Value) -> Vec<u32> {
    let mut weights = vec![0x1_0000; map.max_devices as usize];
    for (device, weight) in entry["osd_reweight_16_16"].as_object().unwrap() {
        weights[device.parse::<usize>().unwrap()] = weight.as_u64().unwrap() as u32;
    }
    weights
}

#[test]
fn both_mappers_give_what_crushtool_gave() {
    for entry in vectors("ceph_crush_mappings_16.2.15.json")
        .as_array()
        .unwrap()
    {
        let map = parse(entry["crushmap_text"].as_str().unwrap().as_bytes()).unwrap();
        let weights = reweights(&map, entry);
        let mapper = Mapper::new(&map, 0, &weights);
        for (key, rows) in entry["mappings"].as_object().unwrap() {
            let mut parts = key
                .split('_')
                .map(|p| p.trim_start_matches(['r', 'u', 'l', 'e', 'n', 'x']));
            let rule = parts.next().unwrap().parse().unwrap();
            let size = parts.next().unwrap().parse().unwrap();
            let xs: Vec<u32> = (0..rows.as_array().unwrap().len() as u32).collect();
            let lanes = map_inputs(&mapper, rule, &xs, size, 1).unwrap();
            let (mut items, mut lengths) = (vec![0; xs.len() * size], vec![0; xs.len()]);
            let plain = Rows {
                items: &mut items,
                lengths: &mut lengths,
                size,
            };
            map_plainly(&mapper, mapper.rule(rule).unwrap(), &xs, plain);
            for (i, row) in rows.as_array().unwrap().iter().enumerate() {
                let expected: Vec<i32> = words(row).iter().map(|&n| n as i32).collect();
                assert_eq!(lanes.row(i), expected, "{key} input {i}");
                assert_eq!(
                    items[i * size..][..usize::from(lengths[i])],
                    expected,
                    "{key} input {i}"
                );
            }
        }
    }
}

/// A root over devices with the given weights in 16.16.
fn bucket(weights: &[u32]) -> CrushMap {
    let items: Vec<Value> = weights
        .iter()
        .enumerate()
        .map(|(id, w)| serde_json::json!({"id": id, "weight": w, "pos": id}))
        .collect();
    let dump = serde_json::json!({
        "devices": [], "types": [{"type_id": 11, "name": "root"}], "rules": [], "tunables": {},
        "buckets": [{"id": -1, "name": "r", "type_id": 11, "alg": "straw2", "items": items}],
    });
    parse(dump.to_string().as_bytes()).unwrap()
}

#[test]
fn the_kernels_choose_what_integers_choose() {
    let mut state = 20_261_122;
    for case in 0..28 {
        let size = [1, 2, 5, 17, 33, 70, 300][case % 7];
        let weights: Vec<u32> = (0..size)
            .map(|_| match case % 4 {
                0 => 0x1_0000,
                1 => (random(&mut state) % 0x80_0000) as u32,
                2 => [0, 1, 0x1_0000, 0xffff_ffff / 400][random(&mut state) as usize % 4],
                // So heavy that draws of different hashes are equal after the division.
                _ => 0xffff_ffff / 400,
            })
            .collect();
        let map = bucket(&weights);
        let flat = Flat::new(&map, None);
        let node = flat.nodes[0];
        for _ in 0..300 {
            let (x, r) = (random(&mut state) as u32, random(&mut state) as u32 % 60);
            let expected = straw2::exact(&flat, node, 0, x, r);
            assert_eq!(
                straw2::search(&flat, node, 0, x, r),
                expected,
                "case {case}, x {x}, r {r}"
            );
            let mut choices = straw2::Choices::new();
            choices.x.fill(x);
            choices.r.fill(r);
            choices.size.fill(node.size);
            let mut chosen = [0; straw2::LANES];
            straw2::choose(&flat, &choices, node.equal, &mut chosen);
            assert!(
                chosen.iter().all(|&c| c == u32::MAX || c == expected),
                "case {case}, x {x}, r {r}"
            );
        }
    }
}

#[test]
fn damaged_binaries_are_refused_with_the_byte() {
    let error = parse(&[0, 0, 1, 0, 1, 0]).unwrap_err();
    assert!(error.to_string().starts_with("byte 4:"), "{error}");
    let huge = [&[0, 0, 1, 0][..], &[0xff; 8]].concat();
    assert!(parse(&huge).unwrap_err().to_string().contains("do not fit"));
}
