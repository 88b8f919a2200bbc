fn main() {
    let mut args = std::env::args().skip(1);
    let out = args.next().unwrap();
    let command: Vec<String> = args.collect();
    let opts: assay_trace::record::Options = serde_json::from_value(serde_json::json!({"out": out, "command": command, "mmap": std::env::var("MM").is_ok(), "raw": std::env::var("RAW").is_ok()})).unwrap();
    match assay_trace::record::record(&opts) {
        Ok(o) => println!("{}", serde_json::to_string(&o).unwrap()),
        Err(e) => eprintln!("{e}"),
    }
    let t = assay_trace::container::read(std::path::Path::new(&out)).unwrap();
    if std::env::var("DUMP").is_ok() {
        for e in &t.events { println!("{} +{} t{} {} fd{} f{} {} {} off={} n={} = {} fl={:x}", e.start, e.duration, t.tasks[e.task as usize].tid, e.op.name(), e.fd, e.file, t.path_of(e), t.path(e.path2), e.offset, e.count, e.result, e.flags); }
        for k in &t.tasks { println!("{k:?}"); }
    }
}
