//! Skin of `assay_core::metadata`.
use std::path::PathBuf;
use std::time::Duration;

use assay_core::metadata::{self, Operation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn operation(name: &str) -> PyResult<Operation> {
    Operation::named(name).ok_or_else(|| PyValueError::new_err(format!("no operation {name:?}")))
}

#[pyfunction]
#[pyo3(signature = (directory, name, threads, files, /))]
pub fn metadata_stage(
    py: Python<'_>,
    directory: PathBuf,
    name: &str,
    threads: usize,
    files: usize,
) -> PyResult<()> {
    let operation = operation(name)?;
    py.detach(|| metadata::stage(&directory, operation, threads, files))
        .map_err(PyErr::from)
}

type Outcome = (f64, f64, Py<PyBytes>, Option<i32>);

#[pyfunction]
#[pyo3(signature = (directory, name, threads, files, limit_seconds, /))]
pub fn metadata_run(
    py: Python<'_>,
    directory: PathBuf,
    name: &str,
    threads: usize,
    files: usize,
    limit_seconds: f64,
) -> PyResult<Vec<Outcome>> {
    let operation = operation(name)?;
    let limit = Duration::try_from_secs_f64(limit_seconds)
        .map_err(|e| PyValueError::new_err(e.to_string()))?;
    let done = py.detach(|| metadata::run(&directory, operation, threads, files, limit));
    Ok(done
        .into_iter()
        .map(|o| {
            let latencies: Vec<u8> = o
                .latencies_ns
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect();
            (
                o.seconds,
                o.cpu_seconds,
                PyBytes::new(py, &latencies).unbind(),
                o.error,
            )
        })
        .collect())
}
