//! The traces' part of the skin: options and results cross as JSON, columns as bytes.
use assay_trace::model::{Event, File, Op, Summary, Tables, Trace, UNKNOWN_SIZE};
use assay_trace::{anonymise, container, export, import, info, record, replay, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;

fn failed(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn parsed<T: for<'a> serde::Deserialize<'a>>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|e| PyValueError::new_err(format!("the options: {e}")))
}

fn shown<T: serde::Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Records a command or a process; options and outcome as JSON.
#[pyfunction]
pub fn trace_record(py: Python<'_>, options: &str) -> PyResult<String> {
    let options: record::Options = parsed(options)?;
    let outcome = py.detach(|| record::record(&options)).map_err(failed)?;
    shown(&outcome)
}

/// Replays a trace; options and outcome as JSON. Forks: the calling process must have no other threads.
#[pyfunction]
pub fn trace_replay(py: Python<'_>, options: &str) -> PyResult<String> {
    let options: replay::Options = parsed(options)?;
    let outcome = py.detach(|| replay::replay(&options)).map_err(failed)?;
    shown(&outcome)
}

/// What a replay below `only` would need: files, bytes, and the seeded start of each copy, as JSON.
#[pyfunction]
pub fn trace_replay_plan(
    path: PathBuf,
    only: Vec<String>,
    copies: u32,
    seed: u64,
    spread_seconds: f64,
) -> PyResult<String> {
    let trace = container::read(&path).map_err(failed)?;
    let mapping = replay::mapping::Mapping { only };
    let tree = replay::tree::initial_tree(&trace, &mapping);
    let plan = replay::plan::build(&trace, &mapping);
    let sizes = tree.values().filter_map(|i| match i {
        replay::tree::Initial::File(n) => Some(*n),
        replay::tree::Initial::Directory => None,
    });
    let starts: Vec<f64> = (0..copies)
        .map(|n| replay::start_of(n, seed, spread_seconds))
        .collect();
    shown(&serde_json::json!({
        "files": sizes.clone().count(),
        "bytes": sizes.sum::<u64>(),
        "operations": plan.lanes.iter().map(|l| l.steps.len()).sum::<usize>(),
        "processes": plan.processes.len(),
        "threads": plan.lanes.len(),
        "seconds": plan.span as f64 / 1e9,
        "starts_seconds": starts,
        "skipped": plan.skipped,
    }))
}

/// The characterisation of a trace, as JSON.
#[pyfunction]
pub fn trace_info(py: Python<'_>, path: PathBuf, interval_seconds: f64) -> PyResult<String> {
    let (info, meta) = py
        .detach(|| {
            let trace = container::read(&path)?;
            Ok((info::info(&trace, interval_seconds), trace.meta))
        })
        .map_err(failed)?;
    let mut value =
        serde_json::to_value(&info).map_err(|e| PyValueError::new_err(e.to_string()))?;
    value["meta"] =
        serde_json::to_value(&meta).map_err(|e| PyValueError::new_err(e.to_string()))?;
    shown(&value)
}

/// Reads another tool's trace and writes it in Assay's format; the notes as JSON.
#[pyfunction]
pub fn trace_import(
    py: Python<'_>,
    format: &str,
    data: &[u8],
    out: PathBuf,
    strict: bool,
) -> PyResult<String> {
    let notes = py
        .detach(|| {
            let (trace, notes) = import::import(format, data, strict)?;
            container::write(&out, &trace)?;
            Ok(notes)
        })
        .map_err(failed)?;
    shown(&notes)
}

/// The text of a trace for another tool ("iolog" or "csv"), and how many operations it leaves out.
#[pyfunction]
pub fn trace_export(py: Python<'_>, path: PathBuf, format: &str) -> PyResult<(String, u64)> {
    let trace = py.detach(|| container::read(&path)).map_err(failed)?;
    match format {
        "iolog" => Ok(export::iolog(&trace)),
        "csv" => Ok((export::csv(&trace), 0)),
        _ => Err(PyValueError::new_err(format!("unknown format {format:?}"))),
    }
}

/// Writes a copy without names.
#[pyfunction]
pub fn trace_anonymise(path: PathBuf, out: PathBuf, seed: u64) -> PyResult<()> {
    let mut trace = container::read(&path).map_err(failed)?;
    anonymise::anonymise(&mut trace, seed);
    container::write(&out, &trace).map_err(failed)?;
    Ok(())
}

/// A column's name and how its value is read off an event.
type Column = (&'static str, fn(&Trace, &Event) -> i64);

/// Columns of 64-bit little-endian integers by name, and the tables as JSON.
#[pyfunction]
pub fn trace_columns<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Bound<'py, PyDict>, String)> {
    let trace = py.detach(|| container::read(&path)).map_err(failed)?;
    let out = PyDict::new(py);
    let columns: [Column; 13] = [
        ("start_ns", |_, e| e.start as i64),
        ("duration_ns", |_, e| e.duration as i64),
        ("task", |_, e| i64::from(e.task)),
        ("operation", |_, e| i64::from(e.op as u8)),
        ("flags", |_, e| e.flags as i64),
        ("path", |t, e| {
            i64::from(if e.path != 0 {
                e.path
            } else {
                t.files[e.file as usize].path
            })
        }),
        ("path2", |t, e| {
            i64::from(if e.path2 != 0 {
                e.path2
            } else {
                t.files[e.file2 as usize].path
            })
        }),
        ("file", |_, e| i64::from(e.file)),
        ("fd", |_, e| i64::from(e.fd)),
        ("offset", |_, e| e.offset),
        ("offset2", |_, e| e.offset2),
        ("count", |_, e| e.count as i64),
        ("result", |_, e| e.result),
    ];
    for (name, get) in columns {
        let bytes: Vec<u8> = trace
            .events
            .iter()
            .flat_map(|e| get(&trace, e).to_le_bytes())
            .collect();
        out.set_item(name, PyBytes::new(py, &bytes))?;
    }
    let names: Vec<(u8, &str)> = Op::ALL.iter().map(|&o| (o as u8, o.name())).collect();
    let tables = shown(&serde_json::json!({
        "operations": names,
        "tasks": trace.tasks,
        "paths": trace.paths,
        "meta": trace.meta,
        "summary": trace.summary,
        "unreadable_bytes": trace.unreadable_bytes,
    }))?;
    Ok((out, tables))
}

/// Writes a trace from rows (path, tid, operation, start ns, duration ns, offset, bytes): for imports made in Python.
#[pyfunction]
pub fn trace_from_rows(
    out: PathBuf,
    backend: String,
    rows: Vec<(String, u32, String, u64, u64, i64, u64)>,
) -> PyResult<u64> {
    let mut tables = Tables::new();
    let mut files = std::collections::HashMap::new();
    for (path, tid, operation, start, duration, offset, bytes) in rows {
        let Some(op) = Op::from_name(&operation) else {
            return Err(PyValueError::new_err(format!(
                "unknown operation {operation:?}"
            )));
        };
        let number = tables.path(&path);
        let file = *files.entry(number).or_insert_with(|| {
            tables.file(File {
                path: number,
                size: UNKNOWN_SIZE,
                mode: 0o100_644,
                inherited: true,
                ..File::default()
            })
        });
        let task = tables.task(tid, tid, 0);
        tables.trace.events.push(Event {
            start,
            duration,
            file,
            offset,
            count: bytes,
            result: bytes as i64,
            ..Event::new(op, task)
        });
    }
    let mut trace = tables.trace;
    trace.meta.backend = backend;
    trace.sort();
    trace.summary = Some(Summary {
        events: trace.events.len() as u64,
        duration: trace.duration(),
        ..Summary::default()
    });
    container::write(&out, &trace).map_err(failed)
}
