//! Policies that rules of routes name: what annotations of Ingresses say, read by the same reader.
//!
//! Cost:    a Policy is read when a route names it, and again when it or an object that it names has changed; the routes that
//!          name it are read again then. A namespace has no more of them read than its routes have rules, which are bounded
//!          ([`super::room`]). Which of them name an object is looked up, since every event asks.
//! Closed:  what protects and cannot be honoured closes the rules that name the Policy.
//! Tenancy: a Policy is of its route's namespace, which is charged with its bytes for each rule that names it.

use super::room::Room;
use crate::Options;
use crate::annotation::balancing::Balancing;
use crate::annotation::{self, IngressContext, route, table};
use crate::claim::backend_ref::BackendRef;
use crate::gateway::Built;
use crate::gateway::work::{self, Step};
use crate::patterns::Compiler;
use crate::relation::Relation;
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{BackendId, Bundle, BundleId};
use oxigress_objects::gateway::{Objects, Policy, Route};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::secret;
use oxigress_objects::service::Service;
use oxigress_objects::verdict::{Note, Severity};
use oxigress_objects::{ConfigMap, Key, Kind, Name, ObjectRef, World};
use oxigress_settings::Settings;
use oxigress_validate::record;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The condition of a route whose rules name Policies.
pub const APPLIED: &str = "PoliciesApplied";
/// The prefix under which the fields are read.
const PREFIX: &str = "oxigress.io";
/// So many things of a Policy are told in the status of a route.
const MAX_TOLD: usize = 10;

/// What a Policy says.
#[derive(Debug, Default)]
pub struct PolicyContent {
    /// What is done with requests.
    pub policies: Policies,
    /// How endpoints are chosen, if it says anything about it.
    pub balancing: Option<Arc<Balancing>>,
    /// The Service that answers errors.
    pub default_backend: Option<BackendRef>,
    /// Something that protects cannot be honoured.
    pub is_closed: bool,
    /// What is not honoured, for the status of routes.
    pub trouble: Option<Condition>,
    /// How many bytes a rule takes over.
    pub bytes: usize,
    notes: Vec<Note>,
    bundles: BTreeMap<BundleId, Bundle>,
}

/// The Policies that a route names; `None`: there is none of the name.
pub type Named = BTreeMap<Key, Option<Arc<PolicyContent>>>;

/// What a route asks for before it is read.
pub struct Ask {
    /// The bytes of its filters at a listener.
    filter_bytes: usize,
    /// The names of its Policies, each with how often it is copied.
    policies: BTreeMap<String, usize>,
}

impl Ask {
    /// What a route asks for.
    pub fn of(route: &Route) -> Self {
        let mut policies: BTreeMap<String, usize> = BTreeMap::new();
        for rule in &route.spec.rules {
            if let Some(name) = rule.policy() {
                *policies.entry(name.to_owned()).or_default() += rule.count_copies();
            }
        }
        Ask { filter_bytes: route.spec.count_filter_bytes(), policies }
    }

    /// The names of its Policies.
    fn policies(&self) -> impl Iterator<Item = &String> {
        self.policies.keys()
    }

    /// The bytes of its filters and Policies at a listener.
    pub fn bytes(&self, named: &Named) -> usize {
        let of = |key: &Key| self.policies.get(key.name.as_str()).copied().unwrap_or_default();
        let policies = named
            .iter()
            .filter_map(|(key, content)| Some(content.as_ref()?.bytes.saturating_mul(of(key))));
        policies.fold(self.filter_bytes, usize::saturating_add)
    }
}

/// Whether both are of the same contents.
pub fn is_same(one: &Named, other: &Named) -> bool {
    let is_same =
        |one: &Option<Arc<PolicyContent>>, other: &Option<Arc<PolicyContent>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.0 == b.0 && is_same(a.1, b.1))
}

/// An object that a Policy names, as it was when the Policy was read. A changed object is another one.
#[derive(Clone, Debug)]
enum Referred {
    None,
    Secret(Arc<secret::Fields>),
    ConfigMap(Arc<ConfigMap>),
    Service(Arc<Service>),
}

impl Referred {
    fn of(world: &World, object: &ObjectRef) -> Self {
        let key = &object.key;
        let found = match object.kind {
            Kind::Secret => {
                world.secrets.get(key).map(|it| Referred::Secret(it.secret.fields.clone()))
            }
            Kind::ConfigMap => world.config_maps.get(key).cloned().map(Referred::ConfigMap),
            Kind::Service => world.services.get(key).cloned().map(Referred::Service),
            _ => None,
        };
        found.unwrap_or(Referred::None)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Referred::None, Referred::None) => true,
            (Referred::Secret(one), Referred::Secret(other)) => Arc::ptr_eq(one, other),
            (Referred::ConfigMap(one), Referred::ConfigMap(other)) => Arc::ptr_eq(one, other),
            (Referred::Service(one), Referred::Service(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// A Policy that was read.
#[derive(Clone, Debug)]
pub struct KnownPolicy {
    of: Arc<Policy>,
    referred: BTreeMap<ObjectRef, Referred>,
    content: Arc<PolicyContent>,
}

impl KnownPolicy {
    /// The bytes that a rule takes over.
    pub fn bytes(&self) -> u64 {
        self.content.bytes as u64
    }
}

/// The Policies that routes ask for.
#[derive(Default)]
pub struct Known {
    /// Those that were read.
    read: BTreeMap<Key, KnownPolicy>,
    /// These and the objects that they name.
    objects: Relation<Key, ObjectRef>,
    /// All names, also of those that are not there.
    asked: BTreeSet<Key>,
}

impl Known {
    /// A Policy that was read.
    pub fn get(&self, key: &Key) -> Option<&KnownPolicy> {
        self.read.get(key)
    }

    /// Whether a route asks for a Policy, which it may have no room for.
    pub fn is_asked(&self, key: &Key) -> bool {
        self.asked.contains(key)
    }

    /// The Policies that name an object.
    pub fn naming(&self, object: &ObjectRef) -> impl Iterator<Item = &Key> {
        work::count(Step::Naming);
        self.objects.by(object).inspect(|_| work::count(Step::Naming))
    }

    /// The Policies that a route asks for, if each was read before, or is not there as it was not then.
    pub fn named(&self, namespace: &Name, ask: &Ask, policies: &Objects<Policy>) -> Option<Named> {
        let named = ask.policies().map(|name| {
            let key = Key::new(namespace, name);
            let content = self.read.get(&key).map(|known| known.content.clone());
            let is_same = self.is_asked(&key) && content.is_some() == policies.contains_key(&key);
            is_same.then_some((key, content))
        });
        named.collect()
    }

    /// Whether one of the Policies names one of the objects.
    pub fn name_one_of(&self, kind: Kind, objects: &BTreeSet<Key>) -> bool {
        objects.iter().any(|key| self.naming(&ObjectRef::new(kind, key.clone())).next().is_some())
    }
}

/// The objects that a Policy names.
pub fn references(
    world: &World,
    options: &Options,
    settings: &Settings,
    key: &Key,
    policy: &Policy,
) -> BTreeSet<ObjectRef> {
    read(world, options, settings, key, policy).1
}

/// The Policies of a world, which are read when they are asked for.
pub struct RoutePolicies<'w> {
    world: &'w World,
    options: &'w Options,
    settings: &'w Settings,
    old: BTreeMap<Key, KnownPolicy>,
    now: Known,
}

impl<'w> RoutePolicies<'w> {
    /// Those of a world; `old` are those that were read before.
    pub fn of(
        world: &'w World,
        options: &'w Options,
        settings: &'w Settings,
        old: &mut Known,
    ) -> RoutePolicies<'w> {
        let Known { read: old, objects, .. } = std::mem::take(old);
        RoutePolicies { world, options, settings, old, now: Known { objects, ..Known::default() } }
    }

    /// The Policies that a route asks for and the bytes of all that it asks for, and whether its namespace has room for reading it.
    /// Without room for its rules none of them is read.
    pub fn named(
        &mut self,
        (id, route): (&ObjectRef, &Route),
        ask: &Ask,
        room: &mut Room,
    ) -> (Named, usize, bool) {
        if !room.has_reading(id, route) {
            return (Named::new(), 0, false);
        }
        let keys = ask.policies().map(|name| Key::new(&id.key.namespace, name));
        let named = keys.map(|key| (key.clone(), self.get(&key))).collect();
        let bytes = ask.bytes(&named);
        self.now.asked.extend(named.keys().cloned());
        (named, bytes, room.has_filters(&id.key, id.kind, bytes))
    }

    fn get(&mut self, key: &Key) -> Option<Arc<PolicyContent>> {
        if let Some(known) = self.now.read.get(key) {
            return Some(known.content.clone());
        }
        let all: &Objects<Policy> = &self.world.gateway_api.policies;
        let policy = all.get(key)?;
        let old = self.old.remove(key).filter(|old| {
            let mut referred = old.referred.iter();
            Arc::ptr_eq(&old.of, policy)
                && referred.all(|(id, then)| then.is_same(&Referred::of(self.world, id)))
        });
        let objects = &mut self.now.objects;
        let known = old.unwrap_or_else(|| {
            let (content, named) = read(self.world, self.options, self.settings, key, policy);
            let referred = named.iter();
            let referred = referred.map(|id| (id.clone(), Referred::of(self.world, id))).collect();
            objects.set(key, named);
            KnownPolicy { of: policy.clone(), referred, content: Arc::new(content) }
        });
        let content = known.content.clone();
        self.now.read.insert(key.clone(), known);
        Some(content)
    }

    /// Says what became of those that routes name; answers them.
    pub fn finish(mut self, built: &mut Built) -> Known {
        for key in self.old.keys() {
            self.now.objects.set(key, BTreeSet::new());
        }
        for (key, known) in &self.now.read {
            let object = ObjectRef::new(Kind::Policy, key.clone());
            let notes = known.content.notes.iter();
            built.notes.extend(notes.map(|note| (object.clone(), note.clone())));
            let bundles = known.content.bundles.iter();
            built.bundles.extend(bundles.map(|(id, text)| (id.clone(), text.clone())));
        }
        self.now
    }
}

/// Reads a Policy; answers the objects that it names too.
fn read(
    world: &World,
    options: &Options,
    settings: &Settings,
    key: &Key,
    policy: &Policy,
) -> (PolicyContent, BTreeSet<ObjectRef>) {
    let Fields { all, mut notes, mut is_closed } = fields(policy);
    let (defaults, https_port) = (&settings.defaults, options.https_port);
    let context = IngressContext { world, ingress: key, defaults, https_port };
    let read = annotation::parse(context, &all, PREFIX, settings, &mut Compiler::over_budget());
    let annotation::Read { annotations, notes: said, referred, bundles, .. } = read;
    notes.extend(said.into_iter().map(of_field));
    is_closed |= annotations.closing.is_some();
    let mut policies = Policies::clone(&annotations.policies);
    if let Some(limits) = &mut policies.limits
        && !limits.owner.is_empty()
    {
        // An Ingress of the name counts for itself.
        limits.owner = format!("Policy {key}");
    }
    let default_backend = annotations.default_backend.as_ref().and_then(of_routes);
    let id = default_backend.as_ref().map(|backend_ref| backend_ref.backend.clone());
    policies.fallback.clone_from(&id);
    if let Some(errors) = &mut policies.errors {
        errors.backend = id;
    }
    if let Err(fault) = record::policies(&policies) {
        is_closed = true;
        let message = format!("spec: {}, so rules that name the Policy answer 503", fault.error);
        notes.push(Note::rejected(message));
    }
    let trouble = trouble(key, &notes);
    let content = PolicyContent {
        bytes: serde_json::to_vec(&policies).map_or(0, |json| json.len()),
        policies,
        balancing: annotations.balancing,
        default_backend,
        is_closed,
        trouble,
        notes,
        bundles,
    };
    (content, referred)
}

/// What routes say of a Policy. An object that is missing is its cause if nothing else is wrong.
fn trouble(key: &Key, notes: &[Note]) -> Option<Condition> {
    let told: Vec<_> = notes.iter().filter(|note| note.severity != Severity::Note).collect();
    let first = told.first()?;
    let cause = first.cause.clone().filter(|_| told.iter().all(|note| note.cause.is_some()));
    let messages: Vec<_> = told.iter().take(MAX_TOLD).map(|note| note.message.as_str()).collect();
    let message = format!("Policy {key}: {}", messages.join("; "));
    Some(Condition::no(APPLIED, "InvalidFields", message).because_of(cause))
}

/// What is read of the fields, and what is said of the others.
#[derive(Default)]
struct Fields {
    all: BTreeMap<String, String>,
    notes: Vec<Note>,
    is_closed: bool,
}

fn fields(policy: &Policy) -> Fields {
    let mut fields = Fields::default();
    for (name, text) in &policy.spec.fields {
        match route::refusal(name) {
            None => drop(fields.all.insert(format!("{PREFIX}/{name}"), text.clone())),
            // Switched off, as it is anyway.
            Some(_) if text == "false" => {}
            Some(why) if table::protects(name) => {
                fields.is_closed = true;
                fields.notes.push(Note::rejected(format!(
                    "spec.{name} cannot hold for a route, so rules that name the Policy answer 503: {why}"
                )));
            }
            Some(why) => {
                let message = format!("spec.{name} cannot hold for a route: {why}");
                fields.notes.push(Note::warning(message));
            }
        }
    }
    fields
}

/// The same backend as routes have it.
fn of_routes(backend_ref: &BackendRef) -> Option<BackendRef> {
    let BackendRef { service, port, .. } = backend_ref;
    let backend = BackendId::parse(format!("{service}/{port}//route")).ok()?;
    Some(BackendRef { backend, ..backend_ref.clone() })
}

/// What is said of an annotation, as it is said of a field.
fn of_field(note: Note) -> Note {
    let message = match note.message.strip_prefix("annotation ") {
        Some(rest) => format!("spec.{rest}"),
        None => note.message.replace("unknown annotations are", "spec: unknown fields are"),
    };
    let message = message.replace("its locations answer", "rules that name the Policy answer");
    Note { message, ..note }
}
