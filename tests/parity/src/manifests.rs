//! The manifests of a block, as they are applied in the block's own namespace and class.

use anyhow::{Context, Result};
use oxigress_compare::Routes;
use oxigress_objects::document::{self, Found};
use oxigress_objects::{Changed, World};
use oxigress_tests::cluster::Tenant;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CLASS: &str = "kubernetes.io/ingress.class";

/// The objects that are there, by the file that has them.
#[derive(Default)]
pub struct Manifests {
    files: BTreeMap<String, Vec<Value>>,
    /// Classes that the block makes: a class belongs to the whole cluster.
    classes: BTreeSet<String>,
}

impl Manifests {
    /// Applies a file in place of what it said before. The answer is what the API server refuses.
    pub fn apply(&mut self, tenant: &Tenant<'_>, file: &str, text: &str) -> Result<Vec<String>> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("no YAML")?;
        let mut objects: Vec<Value> = documents.into_iter().flat_map(items).collect();
        let classes = objects.iter().filter(|object| kind(object) == "IngressClass");
        self.classes.extend(classes.map(|class| name(class).to_owned()));
        objects.iter_mut().for_each(|object| self.make_own(tenant, object));
        let new: Vec<_> = objects.iter().map(key).collect();
        let old = self.files.insert(file.to_owned(), Vec::new()).unwrap_or_default();
        for object in old.iter().filter(|object| !new.contains(&key(object))) {
            tenant.delete(kind(object), name(object))?;
        }
        let mut refused = Vec::new();
        for object in objects {
            match tenant.apply(&object.to_string()) {
                Ok(()) => self.files.entry(file.to_owned()).or_default().push(object),
                Err(error) => refused.push(format!("{error:#}")),
            }
        }
        Ok(refused)
    }

    /// Deletes the objects of a file.
    pub fn remove(&mut self, tenant: &Tenant<'_>, file: &str) -> Result<()> {
        for object in self.files.remove(file).unwrap_or_default() {
            tenant.delete(kind(&object), name(&object))?;
        }
        Ok(())
    }

    /// The hosts and paths of all Ingresses of the tenant's class.
    pub fn routes(&self) -> Routes {
        let mut world = World::default();
        let mut changed = Changed::default();
        for object in self.files.values().flatten() {
            for document in document::read(&object.to_string(), true) {
                for found in document.found.unwrap_or_default() {
                    if let Found::Object(id, object) = found {
                        world.apply((id, Some(object)), &mut changed);
                    }
                }
            }
        }
        Routes::of(&world)
    }

    /// Puts an object of the namespace `default` and the class `nginx` into the tenant's.
    fn make_own(&self, tenant: &Tenant<'_>, object: &mut Value) {
        let own_class = |class: &str| match class {
            "nginx" => tenant.class.clone(),
            class if self.classes.contains(class) => format!("{class}-{}", tenant.class),
            class => class.to_owned(),
        };
        if kind(object) == "IngressClass" {
            object["metadata"]["name"] = own_class(name(object)).into();
            let controller = object.pointer_mut("/spec/controller");
            if let Some(controller) = controller.filter(|c| **c == "k8s.io/ingress-nginx") {
                *controller = format!("oxigress.test/{}", tenant.class).into();
            }
            return;
        }
        if object.pointer("/metadata/namespace").is_none_or(|namespace| namespace == "default") {
            object["metadata"]["namespace"] = tenant.namespace.as_str().into();
        }
        let annotation =
            object.pointer("/metadata/annotations").and_then(|all| all[CLASS].as_str());
        if let Some(class) = annotation.map(own_class) {
            object["metadata"]["annotations"][CLASS] = class.into();
        }
        let class = object.pointer("/spec/ingressClassName").and_then(Value::as_str).map(own_class);
        if let Some(class) = class {
            object["spec"]["ingressClassName"] = class.into();
        }
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn key(object: &Value) -> (String, String) {
    (kind(object).to_owned(), name(object).to_owned())
}

/// The items of a List, or the object itself; an empty document is nothing.
fn items(object: Value) -> Vec<Value> {
    match object.get("items") {
        Some(Value::Array(items)) if object["kind"] == json!("List") => items.clone(),
        _ if object.is_null() => Vec::new(),
        _ => vec![object],
    }
}
