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
    ($($name:ident = $spec:ident $kind:ident $version:literal $plural:literal $scope:ident;)*) => {$(
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
                gateway::GROUP.into()
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
    Gateway = GatewaySpec Gateway "v1" "gateways" NamespaceResourceScope;
    GatewayClass = GatewayClassSpec GatewayClass "v1" "gatewayclasses" ClusterResourceScope;
    BackendTlsPolicy = BackendTlsPolicySpec BackendTLSPolicy "v1" "backendtlspolicies" NamespaceResourceScope;
    ListenerSet = ListenerSetSpec ListenerSet "v1" "listenersets" NamespaceResourceScope;
    HttpRoute = HttpRouteSpec HTTPRoute "v1" "httproutes" NamespaceResourceScope;
    GrpcRoute = GrpcRouteSpec GRPCRoute "v1" "grpcroutes" NamespaceResourceScope;
    TcpRoute = PortRouteSpec TCPRoute "v1" "tcproutes" NamespaceResourceScope;
    TlsRoute = TlsRouteSpec TLSRoute "v1" "tlsroutes" NamespaceResourceScope;
    UdpRoute = PortRouteSpec UDPRoute "v1" "udproutes" NamespaceResourceScope;
    ReferenceGrant = ReferenceGrantSpec ReferenceGrant "v1beta1" "referencegrants" NamespaceResourceScope;
}
