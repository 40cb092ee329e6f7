//! The store as a map: any sequence of writes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, usize),
    Remove(u8),
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 0_usize..200).prop_map(|(key, length)| Step::Put(key, length)),
        3 => any::<u8>().prop_map(Step::Remove),
        1 => Just(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(64, 4)))]

    /// Any sequence of writes, some of them given up, leaves the records of a map, and the bytes in use
    /// depend on these records alone.
    #[test]
    fn a_store_is_a_map_whose_size_depends_on_its_records_only(
        writes in proptest::collection::vec(proptest::collection::vec(step(), 1..12), 1..30),
    ) {
        let heap = Heap::new(1 << 20);
        let reader = heap.attach(0, 1);
        let mut map = BTreeMap::new();
        for steps in writes {
            let mut changed = map.clone();
            let mut transaction = heap.store.try_write(&heap.lock).unwrap();
            let mut is_given_up = false;
            for step in steps {
                match step {
                    Step::Put(key, length) => {
                        transaction.upsert(1, &[key], &vec![key; length], no_cells).unwrap();
                        changed.insert(key, length);
                    }
                    Step::Remove(key) => {
                        let there = transaction.remove(1, &[key]).unwrap();
                        prop_assert_eq!(there, changed.remove(&key).is_some());
                    }
                    Step::Fail => is_given_up = true,
                }
            }
            if is_given_up {
                drop(transaction);
            } else {
                transaction.commit().unwrap();
                map = changed;
            }
            let guard = reader.read();
            let mut found = BTreeMap::new();
            guard.for_each(|record| _ = found.insert(record.key()[0], record.value().len()));
            prop_assert_eq!(&found, &map);
            for key in 0..=u8::MAX {
                prop_assert_eq!(guard.get(1, &[key]).map(|r| r.value().len()), map.get(&key).copied());
            }
        }
        let fresh = Heap::new(1 << 20);
        for (key, length) in &map {
            fresh.write(|t| t.upsert(1, &[*key], &vec![*key; *length], no_cells).map(drop)).unwrap();
        }
        drop(reader.read());
        prop_assert_eq!(heap.free_all(), fresh.free_all());
    }
}
