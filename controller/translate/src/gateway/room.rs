//! How much the routes of one namespace may take of what all namespaces have in common.

use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// Most rules of the routes of one namespace. A rule stands once for each host, match and backend.
const MAX_RULES: usize = 20_000;
/// Most comparisons of rules of one namespace with those of more specific host names: some 20 ms. Long texts count for more.
const MAX_COMPARISONS: usize = 500_000;

/// Most bytes that the filters of the routes of one namespace come to, where they are read and again where redirects differ from
/// listener to listener: some 300 ms, and as much memory. Tests make less of it.
const MAX_FILTER_BYTES: usize = if cfg!(test) { 2 << 20 } else { 32 << 20 };

/// Most places that the routes of one namespace ask for, wherever they are served then: some 20 ms.
const MAX_PLACES: usize = 100_000;
/// So many labels of a host name count as one place more: a less specific listener is looked for at each.
const LABELS_OF_PLACE: usize = 8;

/// Rules and comparisons of a namespace.
type Met = [usize; 2];

/// What namespaces had taken before and after the routes of a host met.
#[derive(Default)]
pub struct Meeting {
    before: BTreeMap<Name, Met>,
    after: BTreeMap<Name, Met>,
    /// The routes for which there was no room.
    left_out: BTreeSet<ObjectRef>,
}

/// What the routes of each namespace have taken.
#[derive(Default)]
pub struct Room {
    places: BTreeMap<Name, usize>,
    rules: BTreeMap<Name, usize>,
    read: BTreeMap<Name, usize>,
    filters: BTreeMap<Name, usize>,
    comparisons: BTreeMap<Name, usize>,
    /// Routes for which their namespaces had no room.
    left_out: BTreeSet<ObjectRef>,
}

impl Room {
    /// Whether the namespace of a route may ask for so many more places. If not, [`no_places`] is said to its parents.
    pub fn has_places(&mut self, route: &Key, count: usize) -> bool {
        let all = self.places.entry(route.namespace.clone()).or_default();
        take(all, count, MAX_PLACES)
    }

    /// How many places were asked for, of all namespaces.
    pub fn places(&self) -> usize {
        self.places.values().sum()
    }

    /// Whether the namespace of a route may have so many more rules.
    pub fn has_rules(&mut self, key: &Key, kind: Kind, count: usize) -> bool {
        let all = self.rules.entry(key.namespace.clone()).or_default();
        take(all, count, MAX_RULES) || self.leave_out(key, kind)
    }

    /// Whether the namespace of a route may have its rules read, whatever comes of them.
    pub fn has_reading(&mut self, id: &ObjectRef, route: &Route) -> bool {
        let all = self.read.entry(id.key.namespace.clone()).or_default();
        take(all, route.spec.count_rules(), MAX_RULES) || self.leave_out(&id.key, id.kind)
    }

    /// Whether the namespace of a route may have so many more bytes of filters.
    pub fn has_filters(&mut self, key: &Key, kind: Kind, bytes: usize) -> bool {
        let all = self.filters.entry(key.namespace.clone()).or_default();
        take(all, bytes, MAX_FILTER_BYTES) || self.leave_out(key, kind)
    }

    /// Whether a rule of the route may be compared with so many more of other routes.
    pub fn has_comparisons(&mut self, key: &Key, kind: Kind, count: usize) -> bool {
        let all = self.comparisons.entry(key.namespace.clone()).or_default();
        take(all, count, MAX_COMPARISONS) || self.leave_out(key, kind)
    }

    /// Begins a host where routes of these namespaces meet.
    pub fn begin_meeting<'n>(&self, namespaces: impl Iterator<Item = &'n Name>) -> Meeting {
        let before = namespaces.map(|name| (name.clone(), self.met(name))).collect();
        Meeting { before, ..Meeting::default() }
    }

    /// Ends it; `left_out`: the routes for which there was no room.
    pub fn end_meeting(&self, meeting: &mut Meeting, left_out: BTreeSet<ObjectRef>) {
        meeting.after = meeting.before.keys().map(|name| (name.clone(), self.met(name))).collect();
        meeting.left_out = left_out;
    }

    /// Takes for a host what it took before, if that comes to the same; else nothing.
    pub fn meets_again(&mut self, meeting: &Meeting) -> bool {
        let Meeting { before, after, left_out } = meeting;
        let now: BTreeMap<Name, Met> =
            before.keys().map(|name| (name.clone(), self.met(name))).collect();
        let taken = |name: &Name| {
            let (before, after) = (before.get(name)?, after.get(name)?);
            Some([after[0] - before[0], after[1] - before[1]])
        };
        let fits = |(name, met): (&Name, &Met)| {
            let taken = taken(name).unwrap_or_default();
            met[0] + taken[0] <= MAX_RULES && met[1] + taken[1] <= MAX_COMPARISONS
        };
        if now != *before && (!left_out.is_empty() || !now.iter().all(fits)) {
            return false;
        }
        for name in before.keys() {
            let [rules, comparisons] = taken(name).unwrap_or_default();
            *self.rules.entry(name.clone()).or_default() += rules;
            *self.comparisons.entry(name.clone()).or_default() += comparisons;
        }
        self.left_out.extend(left_out.iter().cloned());
        true
    }

    fn met(&self, namespace: &Name) -> Met {
        [&self.rules, &self.comparisons].map(|all| all.get(namespace).copied().unwrap_or_default())
    }

    fn leave_out(&mut self, key: &Key, kind: Kind) -> bool {
        self.left_out.insert(ObjectRef::new(kind, key.clone()));
        false
    }

    /// What there is to say to the routes that are not served as a whole.
    pub fn notes(self) -> impl Iterator<Item = (ObjectRef, Note)> {
        let message = format!(
            "the routes of a namespace have at most {MAX_RULES} rules, each counted once for every host, match and backend, \
             and again where it meets conditions of a more specific host name, and filters of {} MiB: this one is not served \
             where it would exceed that: use fewer of them",
            MAX_FILTER_BYTES >> 20
        );
        self.left_out.into_iter().map(move |route| (route, Note::rejected(message.clone())))
    }
}

/// How many places the parents of a route count for, whatever they name: each is looked for, and told of in the status.
pub fn of_parents(count: usize) -> usize {
    const OF_ONE: usize = 4;
    count.saturating_mul(OF_ONE)
}

/// How many places a host name counts for at each listener.
pub fn places_of(hostname: &str) -> usize {
    1 + hostname.matches('.').count() / LABELS_OF_PLACE
}

/// Why a route attaches nowhere.
pub fn no_places() -> String {
    format!(
        "the routes of a namespace ask for at most {MAX_PLACES} places, one for each listener of each parent and each of the \
         route's hostnames, more for names of many labels, and four for each parent: name one listener in sectionName, or use \
         fewer parents or hostnames"
    )
}

fn take(all: &mut usize, count: usize, most: usize) -> bool {
    let has_room = all.saturating_add(count) <= most;
    *all += if has_room { count } else { 0 };
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares so often for a host, beside what is taken already.
    fn met(room: &mut Room, count: usize) -> Meeting {
        let route = Key::new("a", "r");
        let mut meeting = room.begin_meeting([&route.namespace].into_iter());
        let had =
            (0..count).take_while(|_| room.has_comparisons(&route, Kind::HTTPRoute, 1)).count();
        let left_out = (had < count).then(|| ObjectRef::new(Kind::HTTPRoute, route));
        room.end_meeting(&mut meeting, left_out.into_iter().collect());
        meeting
    }

    #[test]
    fn what_a_host_took_is_taken_again_where_there_is_room_for_it() {
        let name = Name::from("a");
        let meeting = met(&mut Room::default(), 10);
        let mut room = Room::default();
        met(&mut room, 5);
        assert!(room.meets_again(&meeting));
        assert_eq!(room.met(&name), [0, 15]);
        met(&mut room, MAX_COMPARISONS - 20);
        assert!(!room.meets_again(&meeting), "5 are left");
        assert_eq!(room.met(&name), [0, MAX_COMPARISONS - 5]);
        // What found no room comes to the same only from the same.
        let short = met(&mut room, 6);
        assert!(!Room::default().meets_again(&short));
        let mut room = Room::default();
        met(&mut room, MAX_COMPARISONS - 5);
        assert!(room.meets_again(&short));
        assert_eq!(room.notes().count(), 1);
    }
}
