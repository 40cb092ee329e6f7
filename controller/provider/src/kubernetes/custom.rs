//! The kinds of the Gateway API, as kube's watcher wants them.
//!
//! Rejected: `DynamicObject`, whose kind is a value: the watches have types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use oxigress_objects::convert::Custom;
use oxigress_objects::gateway;
use serde::Deserialize;
use std::borrow::Cow;

macro_rules! kinds {
    ($($name:ident = $spec:ident $kind:ident $group:ident $version:literal $plural:literal $scope:ident;)*) => {$(
        #[derive(Clone, Debug, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Custom<gateway::$spec>);

        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                gateway::$group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.0.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.0.metadata
            }
        }
    )*};
}

kinds! {
    Gateway = GatewaySpec Gateway GROUP "v1" "gateways" NamespaceResourceScope;
    GatewayClass = GatewayClassSpec GatewayClass GROUP "v1" "gatewayclasses" ClusterResourceScope;
    BackendTlsPolicy = BackendTlsPolicySpec BackendTLSPolicy GROUP "v1" "backendtlspolicies" NamespaceResourceScope;
    ClusterTrustBundle = ClusterTrustBundleSpec ClusterTrustBundle TRUST_GROUP "v1beta1" "clustertrustbundles" ClusterResourceScope;
    ListenerSet = ListenerSetSpec ListenerSet GROUP "v1" "listenersets" NamespaceResourceScope;
    HttpRoute = HttpRouteSpec HTTPRoute GROUP "v1" "httproutes" NamespaceResourceScope;
    GrpcRoute = GrpcRouteSpec GRPCRoute GROUP "v1" "grpcroutes" NamespaceResourceScope;
    TcpRoute = PortRouteSpec TCPRoute GROUP "v1" "tcproutes" NamespaceResourceScope;
    TlsRoute = TlsRouteSpec TLSRoute GROUP "v1" "tlsroutes" NamespaceResourceScope;
    UdpRoute = PortRouteSpec UDPRoute GROUP "v1" "udproutes" NamespaceResourceScope;
    Policy = PolicySpec Policy POLICY_GROUP "v1alpha1" "policies" NamespaceResourceScope;
    ReferenceGrant = ReferenceGrantSpec ReferenceGrant GROUP "v1beta1" "referencegrants" NamespaceResourceScope;
}
