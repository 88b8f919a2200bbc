//! A crush map laid out for mapping: items, ids, weights and their reciprocals in flat arrays, for one pool's choose
//! arguments.

use super::map::{Alg, ChooseArgs, CrushMap};

#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Place of the bucket in the map: `-1 - id`.
    pub index: u32,
    pub start: u32,
    pub size: u32,
    pub alg: Alg,
    pub type_id: i32,
    /// All weights are the same and not zero, at every position.
    pub equal: bool,
}

const ABSENT: Node = Node {
    index: 0,
    start: 0,
    size: 0,
    alg: Alg::Straw2,
    type_id: -1,
    equal: false,
};

#[derive(Debug)]
pub struct Flat {
    /// By `-1 - id`; an empty node of type -1 where there is no bucket.
    pub nodes: Vec<Node>,
    pub items: Vec<i32>,
    /// What straw2 hashes for each item: its id or that of the choose arguments.
    pub ids: Vec<u32>,
    /// One row of `items.len()` weights per position; results beyond the last row use it.
    pub weights: Vec<u32>,
    /// `1 / weight`, infinite for weight 0.
    pub inverse: Vec<f32>,
    pub positions: usize,
}

impl Flat {
    pub fn new(map: &CrushMap, args: Option<&ChooseArgs>) -> Self {
        let positions = args
            .and_then(|a| a.values().map(|arg| arg.weight_set.len()).max())
            .unwrap_or(0)
            .max(1);
        let mut flat = Self {
            nodes: vec![ABSENT; map.buckets.len()],
            items: Vec::new(),
            ids: Vec::new(),
            weights: Vec::new(),
            inverse: Vec::new(),
            positions,
        };
        for (index, (node, bucket)) in flat.nodes.iter_mut().zip(&map.buckets).enumerate() {
            let Some(bucket) = bucket else { continue };
            let (start, size) = (flat.items.len() as u32, bucket.items.len() as u32);
            *node = Node {
                index: index as u32,
                start,
                size,
                alg: bucket.alg,
                type_id: i32::from(bucket.type_id),
                equal: false,
            };
            flat.items.extend(&bucket.items);
            let ids = args
                .and_then(|a| a.get(&bucket.id))
                .map(|a| &a.ids)
                .filter(|ids| !ids.is_empty());
            flat.ids
                .extend(ids.unwrap_or(&bucket.items).iter().map(|&id| id as u32));
        }
        for position in 0..positions {
            for bucket in map.buckets.iter().flatten() {
                let set = args
                    .and_then(|a| a.get(&bucket.id))
                    .map_or(&[][..], |a| &a.weight_set);
                let row = set
                    .get(position)
                    .or(set.last())
                    .unwrap_or(&bucket.item_weights);
                flat.weights.extend(row);
            }
        }
        for node in &mut flat.nodes {
            let rows = flat.weights.chunks(flat.items.len().max(1));
            let row = |r: &[u32]| r[node.start as usize..][..node.size as usize].to_vec();
            node.equal = rows.map(row).all(|w| w.iter().all(|&n| n == w[0] && n > 0));
        }
        flat.inverse = flat.weights.iter().map(|&w| 1.0 / w as f32).collect();
        flat
    }

    /// The node of a bucket's id.
    pub fn node(&self, id: i32) -> Option<Node> {
        let index = usize::try_from(-1 - i64::from(id)).ok()?;
        self.nodes.get(index).copied().filter(|n| n.type_id >= 0)
    }

    /// Where the weights of `node` begin for a position of the result.
    pub fn weight_start(&self, node: Node, position: usize) -> usize {
        position.min(self.positions - 1) * self.items.len() + node.start as usize
    }
}
