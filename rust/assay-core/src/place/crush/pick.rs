//! One choice in one bucket that is not empty (upstream `src/crush/mapper.c`, `crush_bucket_choose`), by the bucket's
//! algorithm. Verified through the mapper against crushtool 16.2.15.

use super::flat::Node;
use super::hash::{hash3, hash4};
use super::map::Alg;
use super::mapper::Mapper;
use super::straw2;

impl Mapper<'_> {
    pub(super) fn pick(&self, node: Node, x: u32, r: u32, position: usize) -> i32 {
        let index = match node.alg {
            Alg::Straw2 => straw2::search(&self.flat, node, position, x, r) as usize,
            Alg::Uniform => return self.permuted(node, x, r),
            Alg::List => self.pick_list(node, x, r),
            Alg::Tree => self.pick_tree(node, x, r),
            Alg::Straw => self.pick_straw(node, x, r),
        };
        self.flat.items[node.start as usize + index]
    }

    fn items(&self, node: Node) -> &[i32] {
        &self.flat.items[node.start as usize..][..node.size as usize]
    }

    /// Upstream keeps what the older algorithms need in the bucket; so do we.
    fn bucket(&self, node: Node) -> (&[u32], &[u32], u32) {
        match self.map.buckets.get(node.index as usize) {
            Some(Some(b)) => (&b.item_weights, &b.derived, b.id as u32),
            _ => (&[], &[], 0),
        }
    }

    /// Item `r` of the permutation that `x` makes of the bucket.
    pub(super) fn permuted(&self, node: Node, x: u32, r: u32) -> i32 {
        let size = node.size;
        let (_, _, id) = self.bucket(node);
        let wanted = r % size;
        let items = self.items(node);
        if wanted == 0 {
            return items[(hash3(x, id, 0) % size) as usize];
        }
        let mut order: Vec<u32> = (0..size).collect();
        for p in 0..=wanted {
            if p < size - 1 {
                order.swap(p as usize, (p + hash3(x, id, p) % (size - p)) as usize);
            }
        }
        items[order[wanted as usize] as usize]
    }

    /// From the newest item to the oldest: stay with the probability of its share in all up to it.
    fn pick_list(&self, node: Node, x: u32, r: u32) -> usize {
        let (weights, sums, id) = self.bucket(node);
        let stays = |&i: &usize| {
            let draw = u64::from(hash4(x, self.items(node)[i] as u32, r, id) & 0xffff);
            (draw * u64::from(sums[i])) >> 16 < u64::from(weights[i])
        };
        (0..node.size as usize).rev().find(stays).unwrap_or(0)
    }

    /// From the root of a binary tree to a leaf, left or right by weight.
    fn pick_tree(&self, node: Node, x: u32, r: u32) -> usize {
        let (_, nodes, id) = self.bucket(node);
        let mut n = nodes.len() >> 1;
        while n & 1 == 0 && n > 0 {
            let draw = (u64::from(hash4(x, n as u32, r, id)) * u64::from(nodes[n])) >> 32;
            let half = 1 << (n.trailing_zeros() - 1);
            n = if draw < u64::from(nodes[n - half]) {
                n - half
            } else {
                n + half
            };
        }
        // Nodes without an item have no weight; only a tree without any weight leads there.
        (n >> 1).min(node.size as usize - 1)
    }

    fn pick_straw(&self, node: Node, x: u32, r: u32) -> usize {
        let (_, straws, _) = self.bucket(node);
        let mut best = (0, 0);
        for (i, (&item, &straw)) in self.items(node).iter().zip(straws).enumerate() {
            let draw = u64::from(hash3(x, item as u32, r) & 0xffff) * u64::from(straw);
            if i == 0 || draw > best.1 {
                best = (i, draw);
            }
        }
        best.0
    }
}
