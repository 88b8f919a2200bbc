//! Mappings of 1,000 inputs to three devices: the plain mapper and the lanes, on the maps of the repository's vectors.
use assay_core::place::crush::lanes::Rows;
use assay_core::place::crush::mapper::Mapper;
use assay_core::place::crush::{map_inputs, map_plainly, parse};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use std::hint::black_box;

fn mappings(c: &mut Criterion) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/placement/ceph_crush_mappings_16.2.15.json"
    );
    let data = std::fs::read(path).unwrap_or_default();
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&data).unwrap_or_default();
    let mut group = c.benchmark_group("crush");
    let xs: Vec<u32> = (0..1000).collect();
    group.throughput(Throughput::Elements(xs.len() as u64));
    for entry in &entries {
        let (Some(name), Some(text)) = (entry["name"].as_str(), entry["crushmap_text"].as_str())
        else {
            continue;
        };
        let Ok(map) = parse(text.as_bytes()) else {
            continue;
        };
        let weights = vec![0x1_0000; map.max_devices as usize];
        let mapper = Mapper::new(&map, 0, &weights);
        group.bench_function(BenchmarkId::new("lanes", name), |b| {
            b.iter(|| map_inputs(&mapper, 0, black_box(&xs), 3, 1));
        });
        let Ok(rule) = mapper.rule(0) else { continue };
        let (mut items, mut lengths) = (vec![0; 3 * xs.len()], vec![0; xs.len()]);
        group.bench_function(BenchmarkId::new("plain", name), |b| {
            b.iter(|| {
                let rows = Rows {
                    items: &mut items,
                    lengths: &mut lengths,
                    size: 3,
                };
                map_plainly(&mapper, rule, black_box(&xs), rows);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, mappings);
criterion_main!(benches);
