fn main() {
    let o: assay_trace::replay::Options = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    match assay_trace::replay::replay(&o) {
        Ok(mut o) => { for c in &mut o.copies { for t in c.classes.values_mut() { t.latency_ns.clear(); t.counts.clear(); t.series.clear(); } } println!("{}", serde_json::to_string_pretty(&o).unwrap()) }
        Err(e) => { eprintln!("{e}"); std::process::exit(1) }
    }
}
