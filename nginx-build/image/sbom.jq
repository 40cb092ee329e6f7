# One CycloneDX file of what is in the image: the Rust crates of both programs ($crates, $modules: cargo-cyclonedx),
# nginx ($nginx: target/dist/NGINX) and the Debian packages ($packages: dpkg-query, a line each).

($crates[0]) as $controller
| ($modules[0]) as $nginx_module
| ($nginx | split("\n")) as $lines
| ($lines[0] | capture("^nginx (?<version>[^ ]+) from (?<origin>.*)$")) as $nginx
| ($lines | map(select(startswith("patch ")) | { type: "backport", diff: { url: "debian/patches/\(ltrimstr("patch "))" } })) as $patches
| ($lines | map(select(startswith("hole ")) | ltrimstr("hole "))) as $holes
| ({
    type: "application",
    "bom-ref": "nginx",
    name: "nginx",
    version: $nginx.version,
    cpe: "cpe:2.3:a:f5:nginx:\($nginx.version):*:*:*:*:*:*:*",
    purl: "pkg:generic/nginx@\($nginx.version)",
    licenses: [{ license: { id: "BSD-2-Clause" } }],
    properties: ([{ name: "oxigress:source", value: $nginx.origin }]
      + ($holes | map({ name: "oxigress:known-hole", value: . }))),
  } + (if $patches == [] then {} else { pedigree: { patches: $patches } } end)) as $server
| ($packages | split("\n") | map(
    split("\t") | select(length == 4)
    | . as [$name, $version, $architecture, $source]
    | "pkg:deb/debian/\($name)@\($version | @uri)?arch=\($architecture)&distro=\($distribution)" as $purl
    | {
        type: "library",
        "bom-ref": $purl,
        name: $name,
        version: $version,
        purl: $purl,
        properties: [
          { name: "oxigress:source", value: $source },
          # Its texts are in the image; a guess of their names would be wrong for many.
          { name: "oxigress:licence", value: "/usr/share/doc/\($name)/copyright" }
        ],
      }
  )) as $debian
| ([$controller, $nginx_module] | map([.metadata.component] + .components) | add
    # Paths of the machine that built are nobody's business, nor what links to what within one crate.
    | map(del(.components)
        | if (.purl // "" | contains("path+file")) or (.["bom-ref"] | startswith("path+file")) then
            del(.purl) | .["bom-ref"] = "\(.name)@\(.version)"
          else . end)
    | unique_by(.["bom-ref"])) as $rust
| {
    bomFormat: "CycloneDX",
    specVersion: $controller.specVersion,
    version: 1,
    metadata: {
      component: { type: "container", "bom-ref": "image", name: "oxigress", version: $controller.metadata.component.version },
      tools: $controller.metadata.tools,
    },
    components: ($rust + [$server] + $debian),
  }
