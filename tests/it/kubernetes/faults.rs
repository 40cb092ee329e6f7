//! What an API server refuses, and that it hangs; that it goes and comes is in outage.rs.

use anyhow::ensure;
use oxigress_tests::cluster::{Cluster, ingress};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use std::fs;
use std::time::{Duration, Instant};

/// Within this time a watch that is dead is noticed.
const NOTICED: Duration = Duration::from_secs(60);

#[test]
fn without_the_right_to_see_ingress_classes_the_name_decides() {
    pass("kubernetes-without-classes", |directory| {
        let cluster = Cluster::shared()?;
        let tenant = cluster.tenant("classless")?;
        let class = &tenant.class;
        tenant.apply(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: $CLASS}, rules: [\
             {apiGroups: ['', discovery.k8s.io], resources: [services, secrets, configmaps, endpointslices], \
              verbs: [get, list, watch]}, \
             {apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [get, list, watch]}]}\n---\n\
             {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: $CLASS}, \
              roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $CLASS}, \
              subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $CLASS}]}\n",
        )?;
        let pod = tenant.pod("a")?;
        tenant.service("shop", &[&pod])?;
        tenant.apply(&ingress("ours", "ours.test", "shop"))?;
        tenant.apply(&ingress("theirs", "theirs.test", "shop").replace("$CLASS", "others"))?;
        let kubeconfig = cluster.kubeconfig_of(class, &[])?;
        let flags =
            [format!("--ingress-class={class}"), format!("--kubeconfig={}", kubeconfig.display())];
        let controller = Controller::start_on(cluster, directory, 1, &flags)?;
        let shop = Shop::new(controller, &[], &[])?;
        until("the Ingress to be served", || shop.serves("ours.test", "/", "a"))?;
        shop.answers("theirs.test", "/", 404)?;
        let log = fs::read_to_string(directory.join("output"))?;
        let rules = log.matches("resources: [\"ingressclasses\"]").count();
        ensure!(rules == 1, "the missing rule is told {rules} times: {log}");
        Ok(())
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_silence() {
    pass("kubernetes-silence", |directory| {
        let cluster = Cluster::start(directory)?;
        let tenant = cluster.tenant("silence")?;
        let (a, b) = (tenant.pod("a")?, tenant.pod("b")?);
        tenant.service("shop", &[&a])?;
        tenant.apply(&ingress("shop", "shop.test", "shop"))?;
        let controller = Controller::start_on(&cluster, directory, 1, &tenant.flags())?;
        let shop = Shop::new(controller, &[], &[])?;
        until("the shop to be served", || shop.serves("shop.test", "/", "a"))?;
        cluster.pause_api()?;
        let paused = Instant::now();
        // Connections stay open: only silence tells. Giving up a watch, and then the question for the next one.
        while !fs::read_to_string(directory.join("output"))?.contains("does not answer") {
            ensure!(paused.elapsed() < 2 * NOTICED, "silence was not noticed");
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("a server that hangs was told after {:.1} s", paused.elapsed().as_secs_f64());
        shop.serves("shop.test", "/", "a")?;
        cluster.resume_api()?;
        let back = Instant::now();
        tenant.service("shop", &[&b])?;
        while shop.serves("shop.test", "/", "b").is_err() {
            ensure!(back.elapsed() < NOTICED, "not up to date after {NOTICED:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("synchronised {:.1} s after it went on", back.elapsed().as_secs_f64());
        Ok(())
    });
}
