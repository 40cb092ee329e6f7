//! The harness itself: what the API server keeps, refuses and forgets.

use super::*;
use crate::pass;
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use std::pin::pin;

const SLICE: &str = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: shop-1}, \
                     endpoints: [{addresses: [10.244.0.9]}], ports: [{port: 80}]}";

fn note(text: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: note}}, data: {{text: {text}}}}}")
}

#[test]
fn objects_are_kept_and_users_may_what_their_roles_say() {
    pass("cluster-objects", |_| {
        let cluster = Cluster::shared()?;
        let (first, second) = (cluster.tenant("shop")?, cluster.tenant("shop")?);
        assert_ne!(first.namespace, second.namespace);
        first.apply(&format!("{}\n---\n{SLICE}\n", note("one")))?;
        first.apply(&note("two"))?;
        let get = |namespace: &str| cluster.get("ConfigMap", namespace, "note");
        assert_eq!(get(&first.namespace)?["data"]["text"], "two");
        assert_eq!(get(&second.namespace)?, Value::Null);
        assert_eq!(cluster.list("EndpointSlice", &first.namespace)?.len(), 1);
        let class = cluster.get("IngressClass", "", &first.class)?;
        assert_eq!(class["spec"]["controller"], format!("oxigress.test/{}", first.class).as_str());
        let refused = first.apply("{apiVersion: v1, kind: Service, metadata: {name: Shop}}");
        assert!(format!("{:#}", refused.unwrap_err()).contains("metadata.name"));

        let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, \
                    rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]}\n---\n\
                    {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader}, \
                    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, \
                    subjects: [{kind: ServiceAccount, name: reader, namespace: $NAMESPACE}]}";
        first.apply(role)?;
        let user = format!("system:serviceaccount:{}:reader", first.namespace);
        let client = cluster.client_of(&cluster.kubeconfig_of(&user, &[])?)?;
        let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
        wait::until("the role", || Ok(block_on(maps(&first.namespace).get("note"))?))?;
        let refused = block_on(maps(&second.namespace).get("note")).unwrap_err();
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused:?}");
        first.delete("ConfigMap", "note")?;
        assert_eq!(get(&first.namespace)?, Value::Null);
        Ok(())
    });
}

#[test]
fn a_cluster_of_its_own_is_killed_paused_and_forgets() {
    pass("cluster-own", |directory| {
        // A watch cache forgets by itself, when it starts.
        let cluster = Cluster::start_with(directory, &["--watch-cache=false".into()])?;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client()?, "default");
        cluster.apply(&note("one"))?;
        let seen = block_on(maps.get("note"))?.metadata.resource_version.context("a version")?;
        let next = || {
            block_on(async {
                let mut watch = pin!(maps.watch(&WatchParams::default().timeout(20), &seen).await?);
                watch.try_next().await
            })
        };
        cluster.apply(&note("two"))?;
        assert!(matches!(next()?, Some(WatchEvent::Modified(_))), "the past is there");

        cluster.kill_api()?;
        assert!(block_on(maps.get("note")).is_err(), "a killed API server answers");
        cluster.start_api()?;
        assert_eq!(cluster.get("ConfigMap", "default", "note")?["data"]["text"], "two");
        assert!(matches!(next()?, Some(WatchEvent::Modified(_))), "the past is there still");
        cluster.compact()?;
        let gone = match next() {
            Ok(Some(WatchEvent::Error(status))) => status.code,
            Err(kube::Error::Api(status)) => status.code,
            other => panic!("{other:?} instead of 410"),
        };
        assert_eq!(gone, 410);

        cluster.pause_api()?;
        let within = Duration::from_millis(300);
        let silent = block_on(async { tokio::time::timeout(within, maps.get("note")).await });
        assert!(silent.is_err(), "a paused API server answers");
        cluster.resume_api()?;
        block_on(maps.get("note"))?;
        cluster.stop_api()
    });
}
