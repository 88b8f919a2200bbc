//! `assay._core`: a thin skin over `assay-core`. Types and errors are documented in `src/assay/_core.pyi`.
mod archive;
mod metadata;
mod trace;

use assay_core::histogram::{self, Error, View};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

mod place;

/// Whole numbers from a list or, without a Python object per item, from a contiguous buffer of 64-bit integers.
struct Integers(Vec<u64>);

impl<'a, 'py> FromPyObject<'a, 'py> for Integers {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(buffer) = PyBuffer::<u64>::get(&object) {
            return buffer.to_vec(object.py()).map(Self);
        }
        if let Ok(buffer) = PyBuffer::<i64>::get(&object) {
            return buffer
                .to_vec(object.py())?
                .into_iter()
                .map(|n| {
                    u64::try_from(n)
                        .map_err(|_| PyOverflowError::new_err(format!("{n} is negative")))
                })
                .collect::<PyResult<_>>()
                .map(Self);
        }
        object.extract().map(Self)
    }
}

fn to_python(error: Error) -> PyErr {
    match error {
        Error::Overflow => PyOverflowError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::place::{
        ceph_name_hashes, crush_hash, crush_hash_with, crush_ln, gluster_name_hashes,
        superfast_hash, xxh3_64, CrushMap, PatternCounter,
    };

    #[pymodule_export]
    use crate::archive::{scan_tree, PyFileset};

    #[pymodule_export]
    use super::metadata::{metadata_run, metadata_stage};

    #[pymodule_export]
    use super::trace::{
        trace_anonymise, trace_columns, trace_export, trace_from_rows, trace_import, trace_info,
        trace_record, trace_replay, trace_replay_plan,
    };

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// All (values, counts) histograms as one: ascending values, equal values added up, empty bins dropped.
    #[pyfunction]
    fn merge(
        py: Python<'_>,
        histograms: Vec<(Integers, Integers)>,
    ) -> PyResult<(Vec<u64>, Vec<u64>)> {
        py.detach(|| {
            let views = histograms
                .iter()
                .map(|(values, counts)| View::new(&values.0, &counts.0))
                .collect::<Result<Vec<_>, _>>()?;
            histogram::merge(&views)
        })
        .map_err(to_python)
    }

    /// Values at the percentiles `qs`, each in (0, 100], by fio's rule.
    #[pyfunction]
    fn percentiles(
        py: Python<'_>,
        values: Integers,
        counts: Integers,
        qs: Vec<f64>,
    ) -> PyResult<Vec<u64>> {
        py.detach(|| View::new(&values.0, &counts.0)?.percentiles(&qs))
            .map_err(to_python)
    }

    /// Mean of the values weighted by their counts.
    #[pyfunction]
    fn mean(py: Python<'_>, values: Integers, counts: Integers) -> PyResult<f64> {
        py.detach(|| View::new(&values.0, &counts.0)?.mean())
            .map_err(to_python)
    }

    /// Sum of the counts.
    #[pyfunction]
    fn total(py: Python<'_>, counts: Integers) -> PyResult<u64> {
        py.detach(|| histogram::total(&counts.0)).map_err(to_python)
    }
}
