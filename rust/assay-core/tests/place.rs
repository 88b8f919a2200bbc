//! GlusterFS's hashes, and the counter of accesses per second and target.
#![allow(clippy::unwrap_used)]

use assay_core::place::gluster::{dm_hash, munge, superfast_hash};
use assay_core::place::pattern::{Accesses, Counter, Lists, Placement};

#[test]
fn names_are_munged_as_the_default_regex_does() {
    let cases: [(&[u8], &[u8]); 8] = [
        (b".file1.aXb3Zq", b"file1"),
        (b".a.b.c", b"a.b"),
        (b"x.y.z", b"x.y.z"),
        (b".x", b".x"),
        (b"..x", b"..x"),
        (b".a.", b".a."),
        (b"", b""),
        (b".", b"."),
    ];
    for (name, expected) in cases {
        assert_eq!(munge(name), expected);
    }
}

#[test]
fn hashes_of_a_few_names_are_those_of_the_c_code() {
    assert_eq!(dm_hash(b"a"), 0x3a17_e4e6);
    assert_eq!(dm_hash(b"0123456789abcdef"), 0x6ecb_5ada);
    assert_eq!(dm_hash("naïve.txt".as_bytes()), 0xc83b_3744);
    assert_eq!(superfast_hash(b"file-0001.dat"), 0x23a3_d56a);
    assert_eq!(superfast_hash(b"x"), 1);
}

fn lists(rows: &[&[u32]]) -> Lists {
    let mut starts = vec![0];
    let mut items = Vec::new();
    for row in rows {
        items.extend_from_slice(row);
        starts.push(items.len() as u32);
    }
    Lists { starts, items }
}

#[test]
fn pieces_touch_the_targets_of_their_group() {
    let reads = lists(&[&[0], &[1]]);
    let writes = lists(&[&[0, 2], &[1, 2]]);
    let placement = Placement::new(3, vec![100], vec![0, 2], vec![0, 1], [reads, writes]).unwrap();
    for (once, last) in [(false, 3), (true, 1)] {
        let mut counter = Counter::new(placement.clone(), once, 1);
        let accesses = Accesses {
            at: &[0, 1_500_000_000],
            class: &[1, 0],
            file: &[0, 0],
            offset: &[50, 199],
            length: &[200, 2],
        };
        counter.feed(accesses, &[0]).unwrap();
        let counts = counter.counts();
        assert_eq!(counts.rows[1], [if once { 1 } else { 2 }, 1, last, 0, 0, 0]);
        assert_eq!(counts.rows[0], [0, 0, 0, 1, 1, 0]);
        assert_eq!(counts.bytes[1], [100, 100, 200]);
        assert_eq!(counts.bytes[0], [1, 1, 0]);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let one = || lists(&[&[0]]);
    assert!(Placement::new(1, vec![0], vec![0, 1], vec![0], [one(), one()]).is_err());
    assert!(Placement::new(1, vec![1], vec![0, 1], vec![1], [one(), one()]).is_err());
    assert!(Placement::new(0, vec![1], vec![0, 1], vec![0], [one(), one()]).is_err());
    assert!(Placement::new(1, vec![1], vec![0, 0], vec![], [one(), one()]).is_err());
    let placement = Placement::new(1, vec![1], vec![0, 1], vec![0], [one(), one()]).unwrap();
    let mut counter = Counter::new(placement, false, 1);
    let access = |at, offset| Accesses {
        at,
        class: &[0],
        file: &[0],
        offset,
        length: &[2],
    };
    assert!(counter.feed(access(&[0], &[u64::MAX]), &[0]).is_err());
    assert!(counter.feed(access(&[u64::MAX], &[0]), &[0]).is_err());
    assert!(counter.feed(access(&[0], &[0]), &[0, 0]).is_err());
}
