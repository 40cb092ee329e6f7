//! Consistent hashing: equal keys lead to one node, and a node that leaves moves only its own keys.
//!
//! Shape:   160 points a node on a ring of 2³², and fewer where there are more than 409 nodes: [`MOST_POINTS`] in all. A record
//!          holds them sorted, 8 bytes a point, little-endian: `point u32`, `node u32`.
//! Source:  ingress-nginx's Lua balancer, chash and chashsubset: same points, so that a client that comes from
//!          ingress-nginx stays where it was.
//! Errors:  a ring of damaged bytes has some node or none instead of panicking.

/// The number of points of one node.
pub const POINTS: usize = 160;
/// The number of points of all nodes. Each change of an endpoint makes the ring anew, and others wait meanwhile: 160 points of
/// 10,000 nodes took 300 ms.
const MOST_POINTS: usize = 1 << 16;
const ENTRY: usize = 8;
/// The most points a retry passes before it tries node by node: if most nodes are closed, walking a ring of ten
/// thousand nodes would keep the event loop busy for milliseconds.
const MAX_WALK: usize = 4_096;

/// Where a key lies on the ring.
#[inline]
pub fn hash(key: &[u8]) -> u32 {
    crc32fast::hash(key)
}

/// [`hash`] of a key in several parts.
pub fn hash_parts(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part.as_ref()));
    hasher.finalize()
}

/// How many points so many nodes have together.
pub fn count_points(nodes: usize) -> usize {
    nodes.saturating_mul(points_of_one(nodes))
}

/// How many bytes the ring of so many nodes has in a record.
pub fn encoded_bytes(nodes: usize) -> usize {
    count_points(nodes).saturating_mul(ENTRY)
}

fn points_of_one(nodes: usize) -> usize {
    (MOST_POINTS / nodes.max(1)).clamp(1, POINTS)
}

/// The points of nodes, sorted, each with its node's index.
pub fn points<'a>(nodes: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<(u32, u32)> {
    let of_node = points_of_one(nodes.len());
    let mut all = Vec::with_capacity(nodes.len() * of_node);
    for (index, node) in (0..).zip(nodes) {
        let mut name = crc32fast::Hasher::new();
        name.update(node);
        let mut point = 0u32;
        for _ in 0..of_node {
            let mut next = name.clone();
            next.update(&point.to_le_bytes());
            point = next.finalize();
            all.push((point, index));
        }
    }
    // Equal points: the first node's counts.
    all.sort_unstable();
    all
}

/// The ring as a record holds it.
pub fn encode(points: &[(u32, u32)]) -> Vec<u8> {
    let bytes = |(point, node): &(u32, u32)| [point.to_le_bytes(), node.to_le_bytes()].concat();
    points.iter().flat_map(bytes).collect()
}

/// The node of a hash.
pub fn find(ring: &[u8], hash: u32) -> Option<u32> {
    let entries = entries(ring);
    entries.get(position(entries, hash)).map(node)
}

/// The first node at or after a hash that is open: a retry goes on along the ring, as if the tried nodes
/// had left it. `nodes` is how many there are.
pub fn find_open(
    ring: &[u8],
    hash: u32,
    nodes: u32,
    mut is_open: impl FnMut(u32) -> bool,
) -> Option<u32> {
    let entries = entries(ring);
    let start = position(entries, hash);
    let (before, after) = entries.split_at_checked(start)?;
    let walk = after.iter().chain(before).map(node);
    let mut last = None;
    for node in walk.take(MAX_WALK) {
        // Neighbours are often of one node.
        if last != Some(node) && is_open(node) {
            return Some(node);
        }
        last = Some(node);
    }
    if entries.len() <= MAX_WALK {
        return None;
    }
    let first = hash.checked_rem(nodes)?;
    (first..nodes).chain(0..first).find(|node| is_open(*node))
}

fn entries(ring: &[u8]) -> &[[u8; ENTRY]] {
    ring.as_chunks().0
}

/// The first point at or after `hash`; the first of all after the last.
fn position(entries: &[[u8; ENTRY]], hash: u32) -> usize {
    let [mut low, mut high] = [0, entries.len()];
    while low < high {
        let middle = low.midpoint(high);
        match entries.get(middle) {
            Some(&[a, b, c, d, ..]) if u32::from_le_bytes([a, b, c, d]) < hash => low = middle + 1,
            _ => high = middle,
        }
    }
    if low == entries.len() { 0 } else { low }
}

fn node(&[_, _, _, _, a, b, c, d]: &[u8; ENTRY]) -> u32 {
    u32::from_le_bytes([a, b, c, d])
}

/// How many subsets of `size` endpoints there are.
pub fn subset_count(endpoints: usize, size: usize) -> usize {
    endpoints.div_ceil(size.max(1))
}

/// The name of a subset, which counts from 0 here and from 1 in its name: a node of the ring.
pub fn subset_name(set: usize) -> String {
    format!("set{}", set + 1)
}

/// The endpoint in a slot of a subset. The last subset is filled up by beginning again.
pub fn subset_member(set: usize, slot: usize, endpoints: usize, size: usize) -> usize {
    let place = set.wrapping_mul(size.max(1)).wrapping_add(slot);
    place.checked_rem(endpoints).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ring(nodes: &[impl AsRef<[u8]>]) -> Vec<u8> {
        encode(&points(nodes.iter().map(AsRef::as_ref)))
    }

    fn three() -> Vec<u8> {
        ring(&["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"])
    }

    #[test]
    fn points_are_those_of_the_reference() {
        let mut point = 0u32;
        let first: Vec<_> = (0..3)
            .map(|_| {
                point = hash(&[&b"10.0.0.1:8080"[..], &point.to_le_bytes()].concat());
                point
            })
            .collect();
        assert_eq!(first, [0x4af5_10c3, 0xcde9_4f2d, 0x0902_5b75]);
        let all: BTreeSet<_> = points([&b"10.0.0.1:8080"[..]].into_iter()).into_iter().collect();
        assert_eq!(all.len(), POINTS);
        assert!(first.iter().all(|point| all.contains(&(*point, 0))));
    }

    #[test]
    fn keys_lead_where_the_reference_leads_them() {
        let ring = three();
        for (key, expected, node) in [
            ("/", 0x79d3_d2d4, 0),
            ("/foo", 0xaa27_dc47, 2),
            ("192.0.2.7", 0x3202_a502, 2),
            ("abc", 0x3524_41c2, 2),
            ("user-42", 0x7d06_b873, 2),
            ("/index.html", 0xea22_4b42, 0),
        ] {
            assert_eq!(hash(key.as_bytes()), expected, "{key}");
            assert_eq!(find(&ring, hash(key.as_bytes())), Some(node), "{key}");
        }
        let sets = super::tests::ring(&[subset_name(0), subset_name(1)]);
        for (key, set) in [("/", 1), ("/foo", 0), ("192.0.2.7", 1)] {
            assert_eq!(find(&sets, hash(key.as_bytes())), Some(set), "{key}");
        }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("10.1.{}.{}:8080", n / 250, n % 250)).collect()
    }

    /// The part of the ring that each node has.
    fn arcs(points: &[(u32, u32)], count: usize) -> Vec<f64> {
        let mut arcs = vec![0.0; count];
        let mut before = points[points.len() - 1].0;
        for &(point, node) in points {
            arcs[node as usize] += f64::from(point.wrapping_sub(before)) / 2f64.powi(32);
            before = point;
        }
        arcs
    }

    #[test]
    fn keys_are_spread_as_the_nodes_points_are() {
        for count in [2, 10, 50] {
            let points = points(names(count).iter().map(String::as_bytes));
            let (ring, arcs) = (encode(&points), arcs(&points, count));
            let keys = 100_000;
            let mut shares = vec![0u32; count];
            for key in (0..keys).map(|n| format!("/products/{n}?user={}", n * 7_919)) {
                shares[find(&ring, hash(key.as_bytes())).unwrap() as usize] += 1;
            }
            let squares = shares.iter().zip(&arcs).map(|(&share, arc)| {
                let expected = arc * f64::from(keys);
                (f64::from(share) - expected).powi(2) / expected
            });
            let (chi, freedom) = (squares.sum::<f64>(), count as f64 - 1.0);
            // Mean + 10 standard deviations and some: chance exceeds it once in far more than 10⁹ runs.
            let bound = freedom + 10.0 * (2.0 * freedom).sqrt() + 30.0;
            assert!(chi <= bound, "chi-square {chi:.1} over {bound:.1} with {count} nodes");
            // 160 points a node: the shares' deviation is about 8 % of the mean.
            for arc in arcs {
                assert!((0.6..1.4).contains(&(arc * count as f64)), "{arc} of {count}");
            }
        }
    }

    #[test]
    fn a_node_that_leaves_takes_only_its_own_keys_along() {
        for count in [2, 3, 10, 50] {
            let all = names(count);
            let whole = ring(&all);
            for gone in [0, count / 2, count - 1] {
                let mut left = all.clone();
                left.remove(gone);
                let rest = ring(&left);
                let mut moved = 0;
                for n in 0..20_000 {
                    let hash = hash(format!("user-{n}").as_bytes());
                    let before = &all[find(&whole, hash).unwrap() as usize];
                    let after = &left[find(&rest, hash).unwrap() as usize];
                    moved += u32::from(before != after);
                    assert!(before == after || *before == all[gone]);
                }
                let share = f64::from(moved) / 20_000.0;
                assert!(share <= 1.0 / count as f64 + 0.05, "{share} moved of {count}");
            }
        }
    }

    #[test]
    fn a_ring_of_many_nodes_has_fewer_points_of_each() {
        let count = |nodes: usize| points(names(nodes).iter().map(String::as_bytes)).len();
        assert_eq!((count(1), count(409)), (160, 409 * 160));
        assert_eq!((count(410), count(10_000), count(40_000)), (410 * 159, 60_000, 40_000));
        assert_eq!(count(70_000), 70_000, "each has one");
        // All are found where most are closed.
        let ring = ring(&names(10_000));
        let mut tried = BTreeSet::new();
        while let Some(node) = find_open(&ring, 12_345, 10_000, |node| !tried.contains(&node)) {
            assert!(tried.insert(node));
        }
        assert_eq!(tried.len(), 10_000);
    }

    #[test]
    fn a_hash_after_the_last_point_wraps_to_the_first() {
        let ring = encode(&[(10, 7), (20, 8)]);
        for (hash, node) in [(0, 7), (10, 7), (11, 8), (20, 8), (21, 7), (u32::MAX, 7)] {
            assert_eq!(find(&ring, hash), Some(node), "{hash}");
        }
    }

    #[test]
    fn a_retry_leads_where_the_key_would_lead_without_the_tried_nodes() {
        let names: Vec<_> = (0..10).map(|n| format!("10.0.0.{n}:80")).collect();
        let whole = ring(&names);
        for key in (0..200u32).map(|n| n.to_string()) {
            let hash = hash(key.as_bytes());
            let first = find(&whole, hash).unwrap();
            let second = find_open(&whole, hash, 10, |node| node != first).unwrap();
            let mut left = names.clone();
            left.remove(first as usize);
            let expected = &left[find(&ring(&left[..]), hash).unwrap() as usize];
            assert_eq!(&names[second as usize], expected, "{key}");
        }
    }

    #[test]
    fn retries_visit_every_node_once_and_end() {
        for count in [1, 2, 30, 100] {
            let names: Vec<_> = (0..count).map(|n| format!("10.0.1.{n}:80")).collect();
            let ring = ring(&names);
            let mut tried = BTreeSet::new();
            while let Some(node) =
                find_open(&ring, 12_345, names.len() as u32, |node| !tried.contains(&node))
            {
                assert!(tried.insert(node));
            }
            assert_eq!(tried.len(), count);
        }
    }

    #[test]
    fn a_walk_past_closed_nodes_is_bounded() {
        let names: Vec<_> = (0..500).map(|n| format!("10.0.1.{n}:80")).collect();
        let ring = ring(&names);
        let mut calls = 0;
        let none = find_open(&ring, 1, 500, |_| {
            calls += 1;
            false
        });
        assert_eq!(none, None);
        assert!(calls <= MAX_WALK + names.len(), "{calls}");
    }

    #[test]
    fn the_last_subset_is_filled_up_from_the_first_endpoints() {
        assert_eq!(subset_count(7, 3), 3);
        let set = |set| (0..3).map(|slot| subset_member(set, slot, 7, 3)).collect::<Vec<_>>();
        assert_eq!([set(0), set(1), set(2)], [[0, 1, 2], [3, 4, 5], [6, 0, 1]]);
        // Fewer endpoints than slots: they repeat.
        let only = |slot| subset_member(0, slot, 2, 5);
        assert_eq!((0..5).map(only).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
        assert_eq!((subset_count(0, 3), subset_member(0, 0, 0, 3)), (0, 0));
    }

    proptest! {
        #[test]
        fn damaged_rings_do_not_panic(bytes: Vec<u8>, hash: u32) {
            find(&bytes, hash);
            find_open(&bytes, hash, 10, |node| node % 2 == 0);
        }
    }
}
