//! Objects in the API server, by what YAML says of them.

use super::Cluster;
use crate::wait::block_on;
use anyhow::{Context, Result};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope};
use serde_json::{Value, json};

/// The owner of fields that tests set.
const MANAGER: &str = "tests";

impl Cluster {
    /// Creates or changes every object of these documents, as `kubectl apply --server-side --force-conflicts` does.
    ///
    /// No controller of Kubernetes runs: nobody makes EndpointSlices for a Service, Pods for a Deployment, or
    /// ServiceAccounts for a namespace. Who needs one writes it here.
    pub fn apply(&self, yaml: &str) -> Result<()> {
        self.apply_in("default", yaml)
    }

    /// As [`Self::apply`]; objects that name no namespace are put into this one.
    pub fn apply_in(&self, namespace: &str, yaml: &str) -> Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("manifests")?;
        for object in documents.into_iter().flat_map(items) {
            self.apply_object(namespace, &object)?;
        }
        Ok(())
    }

    fn apply_object(&self, namespace: &str, object: &Value) -> Result<()> {
        let types: TypeMeta = serde_json::from_value(object.clone()).context("apiVersion, kind")?;
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.with_context(|| format!("a {} without metadata.name", types.kind))?;
        let namespace =
            object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(namespace);
        let kind = GroupVersionKind::try_from(&types)?;
        let (resource, scope) = self
            .resource(|all| all.resolve_gvk(&kind).map(|(resource, is)| (resource, is.scope)))
            .with_context(|| {
                format!("the API server has no {} {}", types.api_version, types.kind)
            })?;
        let api = self.api_of(&resource, &scope, namespace)?;
        let parameters = PatchParams::apply(MANAGER).force();
        block_on(api.patch(name, &parameters, &Patch::Apply(object)))
            .with_context(|| format!("apply {} {namespace}/{name}", types.kind))?;
        Ok(())
    }

    /// Deletes an object that is there; cluster-wide kinds have the namespace "".
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        let api = self.kind(kind, namespace)?;
        block_on(api.delete(name, &DeleteParams::default()))
            .with_context(|| format!("delete {kind} {namespace}/{name}"))?;
        Ok(())
    }

    /// An object as the API server has it; `null` when it has none.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let api = self.kind(kind, namespace)?;
        let object = block_on(api.get_opt(name));
        let object = object.with_context(|| format!("get {kind} {namespace}/{name}"))?;
        object.map_or(Ok(Value::Null), |object| Ok(serde_json::to_value(object)?))
    }

    /// All of a kind in a namespace; "" is everywhere.
    pub fn list(&self, kind: &str, namespace: &str) -> Result<Vec<Value>> {
        let (resource, scope) = self.find_kind(kind)?;
        let api = self.api_of(&resource, &scope, namespace)?;
        let list = block_on(api.list(&ListParams::default()));
        let objects = list.with_context(|| format!("list {kind}"))?.items;
        let whole = |mut object: DynamicObject| {
            // A list says it once for all.
            object.types = Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            Ok(serde_json::to_value(object)?)
        };
        objects.into_iter().map(whole).collect()
    }

    /// Sets members of an object, `status` included (`{"status": {…}}`), as a merge patch.
    pub fn patch(&self, kind: &str, namespace: &str, name: &str, change: &Value) -> Result<()> {
        let api = self.kind(kind, namespace)?;
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(change));
        let done = match change.get("status") {
            Some(_) => block_on(api.patch_status(name, &parameters, &patch)),
            None => block_on(api.patch(name, &parameters, &patch)),
        };
        done.with_context(|| format!("patch {kind} {namespace}/{name}"))?;
        Ok(())
    }

    fn kind(&self, kind: &str, namespace: &str) -> Result<Api<DynamicObject>> {
        let (resource, scope) = self.find_kind(kind)?;
        self.api_of(&resource, &scope, namespace)
    }

    fn find_kind(&self, kind: &str) -> Result<(ApiResource, Scope)> {
        let found = self.resource(|all| {
            let mut groups = all.groups_alphabetical().into_iter();
            // A kind may be of another version than the rest of its group.
            let of_any_version = |group: &ApiGroup| {
                let all = group.versions().flat_map(|version| group.versioned_resources(version));
                all.into_iter().find(|(resource, _)| resource.kind == kind)
            };
            let find =
                |group: &ApiGroup| group.recommended_kind(kind).or_else(|| of_any_version(group));
            groups.find_map(find).map(|(resource, is)| (resource, is.scope))
        });
        found.with_context(|| format!("the API server knows no {kind}"))
    }

    fn api_of(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        namespace: &str,
    ) -> Result<Api<DynamicObject>> {
        let client = self.client()?;
        Ok(match scope {
            Scope::Namespaced if !namespace.is_empty() => {
                Api::namespaced_with(client, namespace, resource)
            }
            _ => Api::all_with(client, resource),
        })
    }

    /// Finds a kind; asks the API server again when the answer is not known yet, since kinds come with their definitions.
    fn resource<T>(&self, find: impl Fn(&Discovery) -> Option<T>) -> Option<T> {
        let mut known = self.kinds.lock().ok()?;
        if let Some(found) = known.as_ref().and_then(&find) {
            return Some(found);
        }
        *known = block_on(Discovery::new(self.client().ok()?).run_aggregated()).ok();
        known.as_ref().and_then(&find)
    }
}

/// The items of a List, or the object itself; an empty document is nothing.
fn items(mut object: Value) -> Vec<Value> {
    match object.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if object.get("kind") == Some(&json!("List")) => items,
        _ if object.is_null() => Vec::new(),
        Some(items) => {
            object["items"] = items;
            vec![object]
        }
        None => vec![object],
    }
}
