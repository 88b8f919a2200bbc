//! Merging the histograms of many threads: 128 threads with fio's usual number of occupied bins.
use assay_core::histogram::{merge, View};
use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use std::hint::black_box;

/// fio's bins above 64 ns: 64 per power of two; each thread fills `bins` of them from a shifted start.
fn thread_histogram(thread: usize, bins: usize) -> (Vec<u64>, Vec<u64>) {
    (0..bins)
        .map(|i| {
            let index = 640 + thread + i;
            let (power, step) = (index / 64, index % 64);
            (
                (64 + step as u64) << (power - 1),
                1 + (i as u64 * 7919) % 1000,
            )
        })
        .unzip()
}

fn merging(c: &mut Criterion) {
    let mut group = c.benchmark_group("merge");
    for threads in [1, 16, 128] {
        let histograms: Vec<_> = (0..threads).map(|t| thread_histogram(t, 600)).collect();
        let views: Vec<_> = histograms
            .iter()
            .filter_map(|(values, counts)| View::new(values, counts).ok())
            .collect();
        group.throughput(Throughput::Elements(600 * threads as u64));
        group.bench_with_input(BenchmarkId::from_parameter(threads), &views, |b, views| {
            b.iter(|| merge(black_box(views)));
        });
    }
    group.finish();
}

fn percentiles(c: &mut Criterion) {
    let (values, counts) = thread_histogram(0, 1200);
    let qs = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];
    c.bench_function("percentiles/1200", |b| {
        b.iter(|| View::new(&values, &counts).and_then(|h| h.percentiles(black_box(&qs))));
    });
}

criterion_group!(benches, merging, percentiles);
criterion_main!(benches);
