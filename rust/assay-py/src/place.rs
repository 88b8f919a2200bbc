//! The placement part of `assay._core`.
use crate::Integers;
use assay_core::place::crush::{self, hash, map, mapper::Mapper};
use assay_core::place::gluster;
use assay_core::place::pattern::{self, Accesses, Lists};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

fn bad_value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Copies of a contiguous buffer's numbers.
fn numbers<T: pyo3::buffer::Element>(object: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    PyBuffer::<T>::get(object)?.to_vec(object.py())
}

/// Little-endian bytes of numbers, for `numpy.frombuffer`.
fn packed<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * N, |out| {
        for (chunk, &value) in out.chunks_exact_mut(N).zip(values) {
            chunk.copy_from_slice(&bytes(value));
        }
        Ok(())
    })
}

fn to_u32(values: Integers) -> PyResult<Vec<u32>> {
    values
        .0
        .into_iter()
        .map(|n| u32::try_from(n).map_err(bad_value))
        .collect()
}

/// A crush map, checked.
#[pyclass(frozen, module = "assay._core")]
pub struct CrushMap(map::CrushMap);

type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl CrushMap {
    /// From the text form, the JSON dump or the compiled form.
    #[new]
    fn new(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        py.detach(|| crush::parse(data))
            .map(Self)
            .map_err(bad_value)
    }

    /// Names of the bucket types by id.
    #[getter]
    fn type_names(&self) -> std::collections::BTreeMap<i32, String> {
        self.0.types.clone()
    }

    #[getter]
    fn max_devices(&self) -> i32 {
        self.0.max_devices
    }

    #[getter]
    fn tunables(&self) -> Vec<(&'static str, u32)> {
        let t = &self.0.tunables;
        vec![
            ("choose_local_tries", t.choose_local_tries),
            ("choose_local_fallback_tries", t.choose_local_fallback_tries),
            ("choose_total_tries", t.choose_total_tries),
            ("chooseleaf_descend_once", t.chooseleaf_descend_once),
            ("chooseleaf_vary_r", u32::from(t.chooseleaf_vary_r)),
            ("chooseleaf_stable", u32::from(t.chooseleaf_stable)),
            ("straw_calc_version", u32::from(t.straw_calc_version)),
        ]
    }

    /// (id, name, kind, smallest and largest size, steps as text) of every rule.
    #[getter]
    #[allow(clippy::type_complexity)]
    fn rules(&self) -> Vec<(u32, &str, u8, u8, u8, Vec<String>)> {
        let steps = |r: &map::Rule| r.steps.iter().map(|s| format!("{s:?}")).collect();
        self.0
            .rules
            .iter()
            .flatten()
            .map(|r| {
                (
                    r.id,
                    r.name.as_str(),
                    r.kind,
                    r.min_size,
                    r.max_size,
                    steps(r),
                )
            })
            .collect()
    }

    /// (id, name, type, algorithm, weight, items, their weights) of every bucket, shadow trees included.
    #[getter]
    #[allow(clippy::type_complexity)]
    fn buckets(&self) -> Vec<(i32, String, String, &'static str, u32, Vec<i32>, Vec<u32>)> {
        let kind = |t: u16| {
            self.0
                .types
                .get(&i32::from(t))
                .cloned()
                .unwrap_or_else(|| t.to_string())
        };
        let row = |b: &map::Bucket| {
            (
                b.id,
                self.0.name(b.id),
                kind(b.type_id),
                b.alg.name(),
                b.weight,
                b.items.clone(),
                b.item_weights.clone(),
            )
        };
        self.0.buckets.iter().flatten().map(row).collect()
    }

    /// Device -> class.
    #[getter]
    fn classes(&self) -> Vec<(i32, &str)> {
        let name = |class: &i32| self.0.class_names.get(class).map_or("", String::as_str);
        self.0
            .item_classes
            .iter()
            .filter(|(&d, _)| d >= 0)
            .map(|(&d, class)| (d, name(class)))
            .collect()
    }

    /// Whether each device is in some bucket.
    #[getter]
    fn present(&self) -> Vec<bool> {
        self.0.present()
    }

    /// Items (int32, `size` per input) and how many of them hold (uint8) for every input.
    #[pyo3(signature = (rule, xs, size, reweights, pool, threads))]
    #[allow(clippy::too_many_arguments)]
    fn map<'py>(
        &self,
        py: Python<'py>,
        rule: u32,
        xs: &Bound<'py, PyAny>,
        size: usize,
        reweights: Integers,
        pool: i64,
        threads: usize,
    ) -> PyResult<Pair<'py>> {
        let (xs, reweights) = (numbers::<u32>(xs)?, to_u32(reweights)?);
        let found = py.detach(|| {
            crush::map_inputs(
                &Mapper::new(&self.0, pool, &reweights),
                rule,
                &xs,
                size,
                threads,
            )
        });
        let found = found.map_err(bad_value)?;
        Ok((
            packed(py, &found.items, i32::to_le_bytes)?,
            PyBytes::new(py, &found.lengths),
        ))
    }

    /// The lines of `crushtool --test --show-mappings`; `labels` are the inputs as printed, `xs` as hashed.
    #[pyo3(signature = (rule, labels, xs, size, reweights, pool, threads))]
    #[allow(clippy::too_many_arguments)]
    fn crushtool_lines(
        &self,
        py: Python<'_>,
        rule: u32,
        labels: &Bound<'_, PyAny>,
        xs: &Bound<'_, PyAny>,
        size: usize,
        reweights: Integers,
        pool: i64,
        threads: usize,
    ) -> PyResult<String> {
        let (labels, xs, reweights) = (
            numbers::<u32>(labels)?,
            numbers::<u32>(xs)?,
            to_u32(reweights)?,
        );
        if labels.len() != xs.len() {
            return Err(bad_value("as many labels as inputs are needed"));
        }
        py.detach(|| {
            let found = crush::map_inputs(
                &Mapper::new(&self.0, pool, &reweights),
                rule,
                &xs,
                size,
                threads,
            )?;
            Ok::<_, map::Error>(crush::crushtool_lines(rule, &labels, &found))
        })
        .map_err(bad_value)
    }
}

/// CRUSH's hash of one to five 32-bit words.
#[pyfunction]
pub fn crush_hash(words: Vec<u32>) -> PyResult<u32> {
    match words[..] {
        [a] => Ok(hash::hash1(a)),
        [a, b] => Ok(hash::hash2(a, b)),
        [a, b, c] => Ok(hash::hash3(a, b, c)),
        [a, b, c, d] => Ok(hash::hash4(a, b, c, d)),
        [a, b, c, d, e] => Ok(hash::hash5(a, b, c, d, e)),
        _ => Err(bad_value("between one and five words are hashed")),
    }
}

/// CRUSH's hash of every word with one other (uint32).
#[pyfunction]
pub fn crush_hash_with<'py>(
    py: Python<'py>,
    words: &Bound<'py, PyAny>,
    other: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    packed(py, &numbers::<u32>(words)?, |w: u32| {
        hash::hash2(w, other).to_le_bytes()
    })
}

/// crush_ln of the low 16 bits of a number.
#[pyfunction]
pub fn crush_ln(u: u32) -> u64 {
    crush::ln::crush_ln(u)
}

/// Ceph's hashes of object names (uint32).
#[pyfunction]
pub fn ceph_name_hashes<'py>(
    py: Python<'py>,
    names: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let hashes: Vec<u32> = py.detach(|| names.iter().map(|n| hash::hash_string(n)).collect());
    packed(py, &hashes, u32::to_le_bytes)
}

/// GlusterFS's layout hashes of names (uint32), munged by the default rsync rule if wanted.
#[pyfunction]
pub fn gluster_name_hashes<'py>(
    py: Python<'py>,
    names: Vec<Vec<u8>>,
    munge: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let one = |n: &[u8]| gluster::dm_hash(if munge { gluster::munge(n) } else { n });
    let hashes: Vec<u32> = py.detach(|| names.iter().map(|n| one(n)).collect());
    packed(py, &hashes, u32::to_le_bytes)
}

/// Hsieh's hash, which GlusterFS takes of gfids.
#[pyfunction]
pub fn superfast_hash(data: &[u8]) -> u32 {
    gluster::superfast_hash(data)
}

/// XXH3 with 64 bits, by which EOS ranks file systems.
#[pyfunction]
pub fn xxh3_64(data: &[u8]) -> u64 {
    assay_core::place::xxh3_64(data)
}

/// Counts accesses per second and target.
#[pyclass(frozen, module = "assay._core")]
pub struct PatternCounter(Mutex<pattern::Counter>);

type Counted<'py> = ([Bound<'py, PyBytes>; 2], [Vec<u64>; 2], u64);

#[pymethods]
impl PatternCounter {
    #[new]
    #[pyo3(signature = (targets, units, table_starts, tables, read_lists, write_lists, once, threads))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        targets: usize,
        units: &Bound<'_, PyAny>,
        table_starts: &Bound<'_, PyAny>,
        tables: &Bound<'_, PyAny>,
        read_lists: (Bound<'_, PyAny>, Bound<'_, PyAny>),
        write_lists: (Bound<'_, PyAny>, Bound<'_, PyAny>),
        once: bool,
        threads: usize,
    ) -> PyResult<Self> {
        let lists = |(starts, items): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok::<_, PyErr>(Lists {
                starts: numbers(&starts)?,
                items: numbers(&items)?,
            })
        };
        let placement = pattern::Placement::new(
            targets,
            numbers(units)?,
            numbers(table_starts)?,
            numbers(tables)?,
            [lists(read_lists)?, lists(write_lists)?],
        );
        Ok(Self(Mutex::new(pattern::Counter::new(
            placement.map_err(bad_value)?,
            once,
            threads,
        ))))
    }

    /// Takes in accesses for every stream; columns are uint64 ns, uint8, uint32, uint64, uint64, and starts in uint64 ns.
    #[allow(clippy::too_many_arguments)]
    fn feed(
        &self,
        py: Python<'_>,
        at: &Bound<'_, PyAny>,
        class: &Bound<'_, PyAny>,
        file: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        starts: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (at, class, file) = (
            numbers::<u64>(at)?,
            numbers::<u8>(class)?,
            numbers::<u32>(file)?,
        );
        let (offset, length, starts) = (
            numbers::<u64>(offset)?,
            numbers::<u64>(length)?,
            numbers::<u64>(starts)?,
        );
        let accesses = Accesses {
            at: &at,
            class: &class,
            file: &file,
            offset: &offset,
            length: &length,
        };
        py.detach(|| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .feed(accesses, &starts)
        })
        .map_err(bad_value)
    }

    /// Per class: counters (uint32, a row per second), bytes per target; and the touches in all.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Counted<'py>> {
        let counts = py.detach(|| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .counts()
        });
        let [reads, writes] = counts.rows;
        let rows = [
            packed(py, &reads, u32::to_le_bytes)?,
            packed(py, &writes, u32::to_le_bytes)?,
        ];
        Ok((rows, counts.bytes, counts.touches))
    }
}
