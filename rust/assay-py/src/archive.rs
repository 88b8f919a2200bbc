//! The archive functions of `assay._core`; their meaning is in `src/assay/_core.pyi`.
use std::cell::RefCell;
use std::path::{Path, PathBuf};

use assay_core::archive::content::Content;
use assay_core::archive::fileset::Fileset;
use assay_core::archive::verify::Fault;
use assay_core::archive::{read, remove, scan, verify, write, Failure};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::Integers;

/// OSError with errno, message and path, as Python's own.
fn to_python(failure: &Failure) -> PyErr {
    match failure.error.raw_os_error() {
        Some(number) => {
            let said = failure.error.to_string();
            let said = said.split(" (os error").next().unwrap_or_default();
            PyOSError::new_err((
                number,
                format!("cannot {}: {said}", failure.action),
                failure.path.clone(),
            ))
        }
        None => PyOSError::new_err(failure.to_string()),
    }
}

/// Asks Python between two ticks: signals first, then the callback. An exception stops the work and is raised at the end.
struct Callback {
    function: Option<Py<PyAny>>,
    raised: RefCell<Option<PyErr>>,
}

impl Callback {
    fn new(function: Option<Py<PyAny>>) -> Self {
        Self {
            function,
            raised: RefCell::new(None),
        }
    }

    fn ask(&self, arguments: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<Py<PyAny>>) -> bool {
        if self.raised.borrow().is_some() {
            return false;
        }
        let answer = Python::attach(|py| {
            py.check_signals()?;
            match &self.function {
                None => Ok(true),
                Some(function) => {
                    let answer = arguments(py, function)?;
                    let answer = answer.bind(py);
                    Ok(answer.is_none() || answer.is_truthy()?)
                }
            }
        });
        answer.unwrap_or_else(|error| {
            *self.raised.borrow_mut() = Some(error);
            false
        })
    }

    fn finish<T>(self, result: Result<T, Failure>) -> PyResult<T> {
        if let Some(error) = self.raised.into_inner() {
            return Err(error);
        }
        result.map_err(|failure| to_python(&failure))
    }
}

/// Runs `work` without the interpreter's lock; the callback takes it back four times a second.
fn detached<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&Callback) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let (result, raised) = py.detach(move || {
        let callback = Callback::new(progress);
        let result = work(&callback);
        (result, callback.raised.into_inner())
    });
    let callback = Callback {
        function: None,
        raised: RefCell::new(raised),
    };
    callback.finish(result)
}

fn bytes_of<'py>(
    py: Python<'py>,
    values: impl ExactSizeIterator<Item = u64>,
) -> Bound<'py, PyBytes> {
    let flat: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
    PyBytes::new(py, &flat)
}

fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// Scans a tree.
#[pyfunction]
#[pyo3(signature = (root, *, threads, one_file_system, sample, seed, now, names_per_second, remembered_inodes, progress=None))]
#[allow(clippy::too_many_arguments)] // keyword arguments of the Python side
pub fn scan_tree<'py>(
    py: Python<'py>,
    root: PathBuf,
    threads: usize,
    one_file_system: bool,
    sample: f64,
    seed: u64,
    now: i64,
    names_per_second: u64,
    remembered_inodes: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    if !(sample > 0.0 && sample <= 1.0) {
        return Err(PyValueError::new_err(format!(
            "a sample is a share above 0 and up to 1, not {sample}"
        )));
    }
    let options = scan::Options {
        threads,
        one_file_system,
        sample,
        seed,
        now,
        names_per_second,
        remembered_inodes,
    };
    let t = detached(py, progress, |callback| {
        scan::scan(&path_bytes(&root), &options, |p| {
            callback.ask(|py, f| f.call1(py, (p.names, p.directories)))
        })
    })?;
    let d = PyDict::new(py);
    d.set_item("names", t.names)?;
    d.set_item("stated", t.stated)?;
    d.set_item("directories", t.directories)?;
    d.set_item("symlinks", t.symlinks)?;
    d.set_item("special", t.special)?;
    d.set_item("duplicate_links", t.duplicate_links)?;
    d.set_item("weighted_links", t.weighted_links)?;
    d.set_item("vanished", t.vanished)?;
    d.set_item("errors", t.errors)?;
    d.set_item("examples", t.examples)?;
    d.set_item("counts", t.counts.to_vec())?;
    d.set_item("bytes", t.bytes.to_vec())?;
    d.set_item("squares", t.squares.to_vec())?;
    d.set_item("allocated", t.allocated)?;
    d.set_item("largest", t.largest)?;
    d.set_item("per_directory", t.per_directory.to_vec())?;
    d.set_item("largest_directory", t.largest_directory)?;
    d.set_item("depth", t.depth.to_vec())?;
    d.set_item("age_counts", t.age_counts.to_vec())?;
    d.set_item("age_bytes", t.age_bytes.to_vec())?;
    Ok(d)
}

/// A fileset by its parts; checked once when made.
#[pyclass(frozen, name = "Fileset", module = "assay._core")]
pub struct PyFileset {
    set: Fileset,
}

impl PyFileset {
    fn checked(&self, order: Integers) -> PyResult<Vec<u64>> {
        self.set
            .check_files(&order.0)
            .map_err(PyValueError::new_err)?;
        Ok(order.0)
    }
}

#[pymethods]
impl PyFileset {
    #[new]
    fn new(
        root: PathBuf,
        directories: Vec<String>,
        directory_of: Integers,
        sizes: Integers,
        content: &str,
        zero_share: f64,
        seed: u64,
    ) -> PyResult<Self> {
        let content = match content {
            "random" => Content::Random,
            "tagged" => Content::Tagged,
            "zero" => Content::Zero,
            "compressible" if (0.0..=1.0).contains(&zero_share) => {
                Content::Compressible((zero_share * 4096.0).round() as u16)
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "unknown content {other:?} with a share of {zero_share}"
                )))
            }
        };
        let set = Fileset {
            root: path_bytes(&root),
            directories,
            directory_of: directory_of.0,
            sizes: sizes.0,
            content,
            seed,
        };
        set.check().map_err(PyValueError::new_err)?;
        Ok(Self { set })
    }

    fn name(&self, file: usize) -> PyResult<String> {
        self.checked(Integers(vec![file as u64]))?;
        Ok(self.set.name(file))
    }

    #[pyo3(signature = (order, times, *, threads, direct_from, checksums, fsync, sync, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn write<'py>(
        &self,
        py: Python<'py>,
        order: Integers,
        times: Integers,
        threads: usize,
        direct_from: u64,
        checksums: bool,
        fsync: bool,
        sync: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let order = self.checked(order)?;
        let options = write::Options {
            threads,
            direct_from,
            checksums,
            fsync,
            sync,
        };
        let w = detached(py, progress, |callback| {
            write::write(&self.set, &order, &times.0, &options, |files, bytes| {
                callback.ask(|py, f| f.call1(py, (files, bytes)))
            })
        })?;
        let d = PyDict::new(py);
        d.set_item("directories_seconds", w.directories_seconds)?;
        d.set_item("write_seconds", w.write_seconds)?;
        d.set_item("sync_seconds", w.sync_seconds)?;
        d.set_item("bytes", w.bytes)?;
        d.set_item("files", w.files)?;
        d.set_item("direct_files", w.direct_files)?;
        d.set_item("checksums", bytes_of(py, w.checksums.into_iter()))?;
        d.set_item("stopped", w.stopped)?;
        Ok(d)
    }

    #[pyo3(signature = (order, checksums, *, threads, keep=100, progress=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        order: Integers,
        checksums: Integers,
        threads: usize,
        keep: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let order = self.checked(order)?;
        let v = detached(py, progress, |callback| {
            verify::verify(
                &self.set,
                &order,
                &checksums.0,
                threads,
                keep,
                |files, bytes| callback.ask(|py, f| f.call1(py, (files, bytes))),
            )
        })?;
        let faults: Vec<(u64, String)> = v
            .faults
            .iter()
            .map(|(file, fault)| (*file, describe(fault)))
            .collect();
        let d = PyDict::new(py);
        d.set_item("files", v.files)?;
        d.set_item("bytes", v.bytes)?;
        d.set_item("faulty", v.faulty)?;
        d.set_item("faults", faults)?;
        d.set_item("stopped", v.stopped)?;
        Ok(d)
    }

    #[pyo3(signature = (order, *, threads, progress=None))]
    fn remove<'py>(
        &self,
        py: Python<'py>,
        order: Integers,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let order = self.checked(order)?;
        let r = detached(py, progress, |callback| {
            remove::remove(&self.set, &order, threads, |files, bytes| {
                callback.ask(|py, f| f.call1(py, (files, bytes)))
            })
        })?;
        let d = PyDict::new(py);
        d.set_item("files", r.files)?;
        d.set_item("missing", r.missing)?;
        d.set_item("directories", r.directories)?;
        d.set_item("kept", r.kept)?;
        Ok(d)
    }

    #[pyo3(signature = (order, *, threads, call_bytes, direct, minimum_seconds, maximum_seconds, bin_seconds, seed, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn read<'py>(
        &self,
        py: Python<'py>,
        order: Integers,
        threads: usize,
        call_bytes: usize,
        direct: bool,
        minimum_seconds: f64,
        maximum_seconds: f64,
        bin_seconds: f64,
        seed: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        if bin_seconds.is_nan() || bin_seconds < 0.001 {
            return Err(PyValueError::new_err(format!(
                "bins of {bin_seconds} s; at least 0.001 s"
            )));
        }
        let order = self.checked(order)?;
        let options = read::Options {
            threads,
            call_bytes,
            direct,
            minimum_seconds,
            maximum_seconds,
            bin_seconds,
            seed,
        };
        let r = detached(py, progress, |callback| {
            read::read(&self.set, &order, &options, |files, bytes, seconds| {
                callback.ask(|py, f| f.call1(py, (files, bytes, seconds)))
            })
        })?;
        let d = PyDict::new(py);
        d.set_item("file", bytes_of(py, r.files.iter().map(|f| f.file)))?;
        d.set_item("began_ns", bytes_of(py, r.files.iter().map(|f| f.began_ns)))?;
        d.set_item(
            "first_byte_ns",
            bytes_of(py, r.files.iter().map(|f| f.first_byte_ns)),
        )?;
        d.set_item(
            "service_ns",
            bytes_of(py, r.files.iter().map(|f| f.service_ns)),
        )?;
        d.set_item("bins", bytes_of(py, r.bins.into_iter()))?;
        d.set_item("seconds", r.seconds)?;
        d.set_item("drain_from_seconds", r.drain_from_seconds)?;
        d.set_item("bytes", r.bytes)?;
        d.set_item("passes", r.passes)?;
        d.set_item("stopped", r.stopped)?;
        Ok(d)
    }
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Missing => "missing".to_owned(),
        Fault::Size { found } => format!("{found} bytes long"),
        Fault::Content { offset } => format!("content differs at byte {offset}"),
        Fault::Checksum { found } => format!("checksum {found:016x} is not the manifest's"),
        Fault::Unreadable { message } => format!("cannot be read: {message}"),
    }
}
