//! What buckets of the older kinds keep besides their items (upstream `src/crush/builder.c`), and the shadow trees of
//! device classes (upstream `CrushWrapper.cc`: `populate_classes`, `device_class_clone`).
//!
//! Verified: maps compiled by crushtool 16.2.15 decode to the same values (tests/system/test_crushtool.py).

use super::map::{bad, Alg, Bucket, ChooseArg, CrushMap, Error};
use std::collections::{BTreeMap, BTreeSet};

/// The largest tree bucket whose nodes upstream can count in eight bits.
const LARGEST_TREE: usize = 64;

impl Bucket {
    /// A bucket with its weight and whatever its algorithm derives from the weights.
    pub fn new(
        id: i32,
        type_id: u16,
        alg: Alg,
        items: Vec<i32>,
        item_weights: Vec<u32>,
        straw_calc_version: u8,
    ) -> Result<Self, Error> {
        let sum: u64 = item_weights.iter().map(|&w| u64::from(w)).sum();
        let Ok(weight) = u32::try_from(sum) else {
            return bad!("the weights of bucket {id} add up to more than 65535");
        };
        let derived = match alg {
            Alg::Uniform | Alg::Straw2 => Vec::new(),
            Alg::List => running_sums(&item_weights),
            Alg::Tree if items.len() > LARGEST_TREE => {
                return bad!(
                    "bucket {id}: a tree holds at most {LARGEST_TREE} items, not {}",
                    items.len()
                );
            }
            Alg::Tree => tree_nodes(&item_weights),
            Alg::Straw => straws(&item_weights, straw_calc_version),
        };
        Ok(Self {
            id,
            type_id,
            alg,
            weight,
            items,
            item_weights,
            derived,
        })
    }
}

fn running_sums(weights: &[u32]) -> Vec<u32> {
    weights
        .iter()
        .scan(0_u32, |sum, &w| {
            *sum = sum.wrapping_add(w);
            Some(*sum)
        })
        .collect()
}

/// Number of nodes of the tree over `size` items: a power of two, items at the odd places.
pub fn tree_size(size: usize) -> usize {
    if size == 0 {
        1
    } else {
        2 * size.next_power_of_two()
    }
}

fn tree_nodes(weights: &[u32]) -> Vec<u32> {
    let mut nodes = vec![0_u32; tree_size(weights.len())];
    let root = nodes.len() / 2;
    for (i, &weight) in weights.iter().enumerate() {
        let mut node = 2 * i + 1;
        nodes[node] = weight;
        while node != root {
            let height = node.trailing_zeros();
            let right = node >> (height + 1) & 1 == 1;
            node = if right {
                node - (1 << height)
            } else {
                node + (1 << height)
            };
            nodes[node] = nodes[node].wrapping_add(weight);
        }
    }
    nodes
}

/// Straw lengths in 16.16. Version 0 is wrong for items of equal weight, and that is what old clusters have.
fn straws(weights: &[u32], version: u8) -> Vec<u32> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| weights[i]);
    let sorted: Vec<u32> = order.iter().map(|&i| weights[i]).collect();
    let mut out = vec![0_u32; weights.len()];
    let (mut straw, mut below, mut last) = (1.0_f64, 0.0_f64, 0.0_f64);
    let mut left = weights.len() as u32;
    let mut i = 0;
    while i < sorted.len() {
        if sorted[i] == 0 {
            left -= u32::from(version > 0);
            i += 1;
            continue;
        }
        out[order[i]] = (straw * 65_536.0) as i64 as u32; // wraps as the C conversion does
        i += 1;
        if i == sorted.len() || (version == 0 && sorted[i] == sorted[i - 1]) {
            continue;
        }
        below += (f64::from(sorted[i - 1]) - last) * f64::from(left);
        left = if version > 0 {
            left.wrapping_sub(1)
        } else {
            left.wrapping_sub(sorted[i..].iter().take_while(|&&w| w == sorted[i]).count() as u32)
        };
        // Upstream multiplies in 32 bits before it turns to floating point.
        let next = f64::from(left.wrapping_mul(sorted[i] - sorted[i - 1]));
        let share = below / (below + next);
        straw *= (1.0 / share).powf(1.0 / f64::from(left as i32));
        last = f64::from(sorted[i - 1]);
    }
    out
}

/// Makes the shadow trees of every class below every root. `wanted` gives ids that shadow buckets must have.
pub fn populate_classes(
    map: &mut CrushMap,
    wanted: &BTreeMap<i32, BTreeMap<i32, i32>>,
) -> Result<(), Error> {
    let used: BTreeSet<i32> = wanted.values().flat_map(|c| c.values().copied()).collect();
    let children: BTreeSet<i32> = map
        .buckets
        .iter()
        .flatten()
        .flat_map(|b| b.items.iter().copied())
        .filter(|&i| i < 0)
        .collect();
    let roots: BTreeSet<i32> = map
        .buckets
        .iter()
        .flatten()
        .map(|b| b.id)
        .filter(|id| !children.contains(id))
        .collect();
    let classes: Vec<i32> = map.class_names.keys().copied().collect();
    let mut sums = BTreeMap::new();
    for root in roots {
        for &class in &classes {
            clone_for_class(map, root, class, wanted, &used, &mut sums)?;
        }
    }
    Ok(())
}

/// Weights of shadow buckets in weight sets: (pool, bucket) -> weight per position.
type Sums = BTreeMap<(i64, i32), Vec<u32>>;

fn clone_for_class(
    map: &mut CrushMap,
    original: i32,
    class: i32,
    wanted: &BTreeMap<i32, BTreeMap<i32, i32>>,
    used: &BTreeSet<i32>,
    sums: &mut Sums,
) -> Result<i32, Error> {
    if let Some(&done) = map.class_buckets.get(&original).and_then(|c| c.get(&class)) {
        return Ok(done);
    }
    let Some(bucket) = map.bucket(original).cloned() else {
        return bad!("bucket {original} is not in the map");
    };
    let (mut items, mut weights, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (&item, &weight)) in bucket.items.iter().zip(&bucket.item_weights).enumerate() {
        if item >= 0 {
            if map.item_classes.get(&item) != Some(&class) {
                continue;
            }
            items.push(item);
            weights.push(weight);
        } else {
            let copy = clone_for_class(map, item, class, wanted, used, sums)?;
            items.push(copy);
            weights.push(map.bucket(copy).map_or(0, |b| b.weight));
        }
        places.push(place);
    }
    let id = match wanted.get(&original).and_then(|c| c.get(&class)) {
        Some(&id) => id,
        None => (1..)
            .map(|n| -n)
            .find(|id| map.bucket(*id).is_none() && !used.contains(id))
            .unwrap_or(i32::MIN),
    };
    let version = map.tunables.straw_calc_version;
    let copy = Bucket::new(id, bucket.type_id, bucket.alg, items, weights, version)?;
    copy_choose_args(map, original, &copy, &places, sums);
    let name = format!(
        "{}~{}",
        map.name(original),
        map.class_names.get(&class).map_or("", |n| n)
    );
    map.add_bucket(copy)?;
    map.names.insert(id, name);
    map.item_classes.insert(id, class);
    map.class_buckets
        .entry(original)
        .or_default()
        .insert(class, id);
    Ok(id)
}

fn copy_choose_args(
    map: &mut CrushMap,
    original: i32,
    copy: &Bucket,
    places: &[usize],
    sums: &mut Sums,
) {
    for (&pool, args) in &mut map.choose_args {
        let Some(from) = args.get(&original).filter(|a| !a.weight_set.is_empty()) else {
            continue;
        };
        let rows: Vec<Vec<u32>> = from
            .weight_set
            .iter()
            .enumerate()
            .map(|(position, row)| {
                let weight = |(&item, &place): (&i32, &usize)| {
                    if item >= 0 {
                        row.get(place).copied().unwrap_or(0)
                    } else {
                        sums.get(&(pool, item))
                            .and_then(|s| s.get(position))
                            .copied()
                            .unwrap_or(0)
                    }
                };
                copy.items.iter().zip(places).map(weight).collect()
            })
            .collect();
        let totals = rows
            .iter()
            .map(|r| r.iter().fold(0, |s: u32, &w| s.wrapping_add(w)))
            .collect();
        sums.insert((pool, copy.id), totals);
        args.insert(
            copy.id,
            ChooseArg {
                weight_set: rows,
                ids: Vec::new(),
            },
        );
    }
}
