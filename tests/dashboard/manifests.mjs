// Prints 10,000 Ingresses of 1,000 Services, each with an endpoint on 127.0.0.1.
//
// node manifests.mjs > FOLDER/many.yaml

const INGRESSES = 10_000, SERVICES = 1_000, PORT = 9001;
const object = (apiVersion, kind, name, rest) => ({ apiVersion, kind, metadata: { name, namespace: "bench", ...rest.metadata }, ...rest.body });

const documents = [{ apiVersion: "networking.k8s.io/v1", kind: "IngressClass", metadata: { name: "nginx" }, spec: { controller: "k8s.io/ingress-nginx" } }];
for (let at = 0; at < SERVICES; at += 1) {
  const name = `service-${at}`, metadata = { labels: { "kubernetes.io/service-name": name } };
  documents.push(object("v1", "Service", name, { body: { spec: { ports: [{ name: "http", port: 80 }] } } }));
  const slice = { addressType: "IPv4", ports: [{ name: "http", port: PORT }], endpoints: [{ addresses: ["127.0.0.1"] }] };
  documents.push(object("discovery.k8s.io/v1", "EndpointSlice", `${name}-1`, { metadata, body: slice }));
}
for (let at = 0; at < INGRESSES; at += 1) {
  const backend = { service: { name: `service-${at % SERVICES}`, port: { number: 80 } } };
  const rules = [{ host: `app-${at}.bench.test`, http: { paths: [{ path: "/", pathType: "Prefix", backend }] } }];
  documents.push(object("networking.k8s.io/v1", "Ingress", `app-${at}`, { body: { spec: { ingressClassName: "nginx", rules } } }));
}
// A document of YAML may be JSON.
for (const document of documents) console.log(`---\n${JSON.stringify(document)}`);
