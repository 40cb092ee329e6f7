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

/// What a namespace, or one of its routes, has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    places: usize,
    rules: usize,
    read: usize,
    filters: usize,
    comparisons: usize,
}

impl Taken {
    /// What was taken since. A sum that is wrong must end nobody's updates: so nothing is less than nothing.
    pub fn since(self, before: Taken) -> Taken {
        Taken {
            places: self.places.saturating_sub(before.places),
            rules: self.rules.saturating_sub(before.rules),
            read: self.read.saturating_sub(before.read),
            filters: self.filters.saturating_sub(before.filters),
            comparisons: self.comparisons.saturating_sub(before.comparisons),
        }
    }

    /// The places alone.
    pub fn places(self) -> Taken {
        Taken { places: self.places, ..Taken::default() }
    }

    /// Both together.
    pub fn and(mut self, other: Taken) -> Taken {
        self.add(other);
        self
    }

    fn add(&mut self, other: Taken) {
        self.places += other.places;
        self.rules += other.rules;
        self.read += other.read;
        self.filters += other.filters;
        self.comparisons += other.comparisons;
    }
}

/// What namespaces had taken before and after the routes of a host met.
#[derive(Default)]
pub struct Meeting {
    before: BTreeMap<Name, Taken>,
    after: BTreeMap<Name, Taken>,
    /// The routes for which there was no room.
    left_out: BTreeSet<ObjectRef>,
}

/// What the routes of each namespace have taken.
#[derive(Default)]
pub struct Room {
    taken: BTreeMap<Name, Taken>,
    /// Namespaces that asked for more than they may have.
    full: BTreeSet<Name>,
    /// Routes for which their namespaces had no room.
    left_out: BTreeSet<ObjectRef>,
}

impl Room {
    /// Whether the namespace of a route may ask for so many more places. If not, [`no_places`] is said to its parents.
    pub fn has_places(&mut self, route: &Key, count: usize) -> bool {
        self.take(route, |all| (&mut all.places, count, MAX_PLACES))
    }

    /// How many places were asked for, of all namespaces.
    pub fn places(&self) -> usize {
        self.taken.values().map(|taken| taken.places).sum()
    }

    /// Whether the namespace of a route may have so many more rules.
    pub fn has_rules(&mut self, key: &Key, kind: Kind, count: usize) -> bool {
        self.take(key, |all| (&mut all.rules, count, MAX_RULES)) || self.leave_out(key, kind)
    }

    /// Whether the namespace of a route may have its rules read, whatever comes of them.
    pub fn has_reading(&mut self, id: &ObjectRef, route: &Route) -> bool {
        let count = route.spec.count_rules();
        let has_room = self.take(&id.key, |all| (&mut all.read, count, MAX_RULES));
        has_room || self.leave_out(&id.key, id.kind)
    }

    /// Whether the namespace of a route may have so many more bytes of filters.
    pub fn has_filters(&mut self, key: &Key, kind: Kind, bytes: usize) -> bool {
        let has_room = self.take(key, |all| (&mut all.filters, bytes, MAX_FILTER_BYTES));
        has_room || self.leave_out(key, kind)
    }

    /// Whether a rule of the route may be compared with so many more of other routes.
    pub fn has_comparisons(&mut self, key: &Key, kind: Kind, count: usize) -> bool {
        let has_room = self.take(key, |all| (&mut all.comparisons, count, MAX_COMPARISONS));
        has_room || self.leave_out(key, kind)
    }

    /// What a namespace has taken.
    pub fn of(&self, namespace: &Name) -> Taken {
        self.taken.get(namespace).copied().unwrap_or_default()
    }

    /// Whether a namespace asked for more than it may have. Then it counts in which order its routes are read.
    pub fn is_full(&self, namespace: &Name) -> bool {
        self.full.contains(namespace)
    }

    /// Takes back what a route took that is read again or gone.
    pub fn give_back(&mut self, namespace: &Name, taken: Taken) {
        let Some(all) = self.taken.get_mut(namespace) else { return };
        *all = all.since(taken);
        if *all == Taken::default() {
            self.taken.remove(namespace);
        }
    }

    /// Begins a host where routes of these namespaces meet.
    pub fn begin_meeting<'n>(&self, namespaces: impl Iterator<Item = &'n Name>) -> Meeting {
        let before = namespaces.map(|name| (name.clone(), self.of(name))).collect();
        Meeting { before, ..Meeting::default() }
    }

    /// Ends it; `left_out`: the routes for which there was no room.
    pub fn end_meeting(&self, meeting: &mut Meeting, left_out: BTreeSet<ObjectRef>) {
        meeting.after = meeting.before.keys().map(|name| (name.clone(), self.of(name))).collect();
        meeting.left_out = left_out;
    }

    /// Takes for a host what it took before, if that comes to the same; else nothing.
    pub fn meets_again(&mut self, meeting: &Meeting) -> bool {
        let Meeting { before, left_out, .. } = meeting;
        let met = |taken: Taken| [taken.rules, taken.comparisons];
        let is_same = before.iter().all(|(name, had)| met(self.of(name)) == met(*had));
        let fits = |(name, taken): (&Name, Taken)| {
            let [rules, comparisons] = met(self.of(name));
            rules + taken.rules <= MAX_RULES && comparisons + taken.comparisons <= MAX_COMPARISONS
        };
        if !is_same && (!left_out.is_empty() || !meeting.taken().all(fits)) {
            return false;
        }
        for (name, taken) in meeting.taken() {
            self.taken.entry(name.clone()).or_default().add(taken);
        }
        for route in left_out {
            self.leave_out(&route.key, route.kind);
            self.full.insert(route.key.namespace.clone());
        }
        true
    }

    /// Takes back what a host took where routes met.
    pub fn forget_meeting(&mut self, meeting: &Meeting) {
        meeting.taken().for_each(|(name, taken)| self.give_back(name, taken));
    }

    fn take(
        &mut self,
        route: &Key,
        part: impl FnOnce(&mut Taken) -> (&mut usize, usize, usize),
    ) -> bool {
        let (all, count, most) = part(self.taken.entry(route.namespace.clone()).or_default());
        let has_room = all.saturating_add(count) <= most;
        *all += if has_room { count } else { 0 };
        if !has_room {
            self.full.insert(route.namespace.clone());
        }
        has_room
    }

    fn leave_out(&mut self, key: &Key, kind: Kind) -> bool {
        self.left_out.insert(ObjectRef::new(kind, key.clone()));
        false
    }

    /// What there is to say to the routes that are not served as a whole.
    pub fn notes(&self) -> impl Iterator<Item = (ObjectRef, Note)> {
        let message = format!(
            "the routes of a namespace have at most {MAX_RULES} rules, each counted once for every host, match and backend, \
             and again where it meets conditions of a more specific host name, and filters of {} MiB: this one is not served \
             where it would exceed that: use fewer of them",
            MAX_FILTER_BYTES >> 20
        );
        let all = self.left_out.iter().cloned();
        all.map(move |route| (route, Note::rejected(message.clone())))
    }
}

impl Meeting {
    /// The namespaces of the routes.
    pub fn namespaces(&self) -> impl Iterator<Item = &Name> {
        self.before.keys()
    }

    /// What each namespace took.
    fn taken(&self) -> impl Iterator<Item = (&Name, Taken)> {
        let both = self.before.iter().zip(self.after.values());
        both.map(|((name, before), after)| (name, after.since(*before)))
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
        assert_eq!(room.of(&name).comparisons, 15);
        met(&mut room, MAX_COMPARISONS - 20);
        assert!(!room.meets_again(&meeting), "5 are left");
        assert_eq!(room.of(&name).comparisons, MAX_COMPARISONS - 5);
        // What found no room comes to the same only from the same.
        let short = met(&mut room, 6);
        assert!(!Room::default().meets_again(&short));
        let mut room = Room::default();
        met(&mut room, MAX_COMPARISONS - 5);
        assert!(room.meets_again(&short));
        assert_eq!(room.notes().count(), 1);
    }
}
