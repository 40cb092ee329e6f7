# `make help` lists the targets. A recipe over three lines is a script in nginx-build/.

SHELL := /bin/bash
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
export CARGO

# One nginx, its module and its dist have one folder: another nginx is built in another one.
OXIGRESS_TARGET ?= target
export OXIGRESS_TARGET

# What the user may say; cargo and the bindings get the copy in target/ under the same name.
source_from := $(filter-out $(CURDIR)/$(OXIGRESS_TARGET)/nginx/source,$(NGINX_SOURCE_DIR))
export NGINX_SOURCE_DIR := $(CURDIR)/$(OXIGRESS_TARGET)/nginx/source
export NGINX_BUILD_DIR := $(CURDIR)/$(OXIGRESS_TARGET)/nginx/objs
export CARGO_TARGET_DIR := $(CURDIR)/$(OXIGRESS_TARGET)

# How cargo optimises the module and the controller. `make run` and `make test` take the profile `quick` of Cargo.toml, and
# compile both together: one selection of packages is one selection of features, so that they share what they depend on.
run test: export OXIGRESS_PROFILE = quick
profile = $(or $(OXIGRESS_PROFILE),release)
ifneq ($(and $(filter run test,$(MAKECMDGOALS)),$(filter bench image release,$(MAKECMDGOALS))),)
$(error run 'make bench', 'make image' and 'make release' by themselves: 'make run' and 'make test' do not optimise)
endif
export OXIGRESS_BESIDE = $(if $(OXIGRESS_PROFILE),-p oxigress)

step := nginx-build/step
began := $(shell date +%s)
source := $(OXIGRESS_TARGET)/nginx/SOURCE
objs := $(OXIGRESS_TARGET)/nginx/objs/Makefile

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'
	@printf '%s\n' '' 'NGINX_SOURCE_DIR=DIR make build   takes an nginx source of your own' \
	  'cargo and rust-analyzer work as they are after `make configure` (.cargo/config.toml)'

.PHONY: build
build: nginx ## nginx, module and controller into target/dist
	@$(MAKE) -j2 module $(if $(OXIGRESS_PROFILE),,controller)
	@nginx-build/dist

.PHONY: run
run: build ## build, then serve the example shop on ports 8080 and 8443
	@conf/examples/run

.PHONY: check
check: configure ## format, lints, licences; links, flags and commands in the documentation
	@nginx-build/tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) deny --log-level error check bans licenses sources
	$(CARGO) test $(tested) --features oxigress-store/failpoints --test it docs::pages::

# The crates whose tests need no nginx.
controller := admission compare dashboard net objects provider publish settings status supervisor telemetry translate validate
pure := -p oxigress-core -p oxigress-store -p oxigress-pki -p oxigress $(addprefix -p oxigress-,$(controller))

.PHONY: unit
unit: ## the tests that need no nginx
	$(CARGO) test $(pure) --features oxigress-store/failpoints

# Unoptimised: that compiles in half the time, and the programs under test are target/dist's. One selection: another has
# other features, and compiles tokio and what depends on it again.
tested := $(pure) -p oxigress-nginx -p oxigress-tests

# Tests wait most of the time: more at once than there are processors.
export RUST_TEST_THREADS ?= 4

.PHONY: test
test: packages kubernetes-begin test-asan test-tsan test-valgrind test-loom test-miri build failpoints kubernetes conformance-suite helm ## all tests: nginx, a Kubernetes API server, memory checkers
	$(CARGO) test $(tested) --features oxigress-store/failpoints
	@seconds=$$(($$(date +%s) - $(began))); \
	  printf 'make test: all passed in %d min %d s, what it built included\n' $$((seconds / 60)) $$((seconds % 60))

.PHONY: test-asan test-tsan test-valgrind test-loom test-miri
test-asan test-tsan test-valgrind test-loom test-miri: test-%: packages # the store under a memory checker
	nginx-build/checks/sanitize $*

.PHONY: test-second test-debian
test-second: build ## the suite on a second nginx: NGINX_SECOND_SOURCE=DIR, else the crate's
	@nginx-build/checks/second $(NGINX_SECOND_SOURCE)
test-debian: packages ## the module alone on Debian's own nginx
	@nginx-build/checks/debian

.PHONY: test-asan-nginx test-planted
test-asan-nginx: build # the blocks with nginx and the module under AddressSanitizer
	nginx-build/checks/asan-blocks

test-planted: build failpoints # each checker finds a planted fault
	nginx-build/checks/planted

.PHONY: parity
parity: build kubernetes ingress-nginx ## the genuine ingress-nginx beside Oxigress: what both answer, docs/parity.md; needs root
	@$(step) "compiling the comparison" parity-build $(CARGO) build $(tested) -p oxigress-parity \
	  --features oxigress-store/failpoints
	@$(CARGO_TARGET_DIR)/debug/oxigress-parity $(PARITY)

.PHONY: ingress-nginx
ingress-nginx:
	@nginx-build/require parity
	@nginx-build/cluster/ingress-nginx

.PHONY: ecosystem ecosystem-programs
ecosystem: build kubernetes helm ecosystem-programs ## oauth2-proxy and other programs do their jobs through Oxigress, docs/ecosystem.md; needs root
	@$(step) "compiling the jobs of the programs" ecosystem-build $(CARGO) build $(tested) -p oxigress-ecosystem \
	  --features oxigress-store/failpoints
	@$(CARGO_TARGET_DIR)/debug/oxigress-ecosystem $(ECOSYSTEM)
ecosystem-programs: packages
	@nginx-build/cluster/ecosystem

.PHONY: conformance conformance-suite
conformance: build kubernetes conformance-suite ## the Gateway API's own suite; report in docs/conformance; needs root
	CONFORMANCE_COMMIT=$$(git rev-parse --short HEAD) \
	  $(CARGO) test $(tested) --features oxigress-store/failpoints --test it kubernetes::conformance -- --nocapture
conformance-suite: packages
	@nginx-build/cluster/conformance

.PHONY: soak
soak: build failpoints kubernetes ## the long proofs, written down in docs/soak.md; SOAK="kills zone" chooses
	@TESTED='$(tested) --features oxigress-store/failpoints' nginx-build/checks/soak $(SOAK)

# What takes minutes to build, for the subjects that are named.
of_peers := $(if $(findstring peers,$(OXIGRESS_BENCH)),kubernetes ingress-nginx)
of_gateways := $(if $(findstring gateways,$(OXIGRESS_BENCH)),kubernetes conformance-suite)
.PHONY: bench
bench: build $(of_peers) $(of_gateways) ## measure against the budgets of the design
	$(CARGO) run -p oxigress-bench --release

.PHONY: dashboard-look
dashboard-look: build ## the dashboard in headless Chromium: screenshots, axe, keys, 10,000 Ingresses; needs Node.js
	@tests/dashboard/look

.PHONY: image
image: build ## as root: a container image of target/dist, tried; BASE=NAME@sha256:... for another base
	@nginx-build/image/build

.PHONY: release
release: build helm ## tarball, chart, bill of materials, krew manifest and checksums in target/packages/files
	@nginx-build/release

.PHONY: clean
clean: ## remove what was built; a fetched nginx source stays
	rm -rf target/{,second/,debian/}{dist,module} target/{,second/}nginx/objs
	rm -rf target/{asan,asan-nginx,tsan,valgrind,loom,miri,poison-planted,log}
	$(CARGO) clean --quiet --release
	$(CARGO) clean --quiet --profile quick

.PHONY: distclean
distclean: ## remove target/, the nginx source included
	rm -rf target

# --- the steps of build ---

# All lists that the goals need at once, so that a user without root gets one line to run.
.PHONY: packages
packages:
	@nginx-build/require build $(if $(filter test% soak,$(MAKECMDGOALS)),test) $(filter bench,$(MAKECMDGOALS))

.PHONY: configure nginx module controller failpoints
configure: $(objs) ## nginx's headers, all that plain cargo needs

# Runs always, changes SOURCE only when the source is another one.
.PHONY: nginx-source
nginx-source: packages
	@nginx-build/source $(source_from)
$(source): nginx-source ;

$(objs): $(source) module/config module/config.make nginx-build/configure nginx-build/configure-flags
	@$(step) "configuring nginx" configure nginx-build/configure

nginx: $(objs)
	@$(step) "compiling nginx" nginx nginx-build/compile binary

module: $(objs)
	@OXIGRESS_MODULE_PROFILE=$(or $(OXIGRESS_PROFILE),module) \
	  $(step) "compiling the module$(if $(OXIGRESS_PROFILE), and the controller)" module nginx-build/compile modules

# The same module with places where a test can stop or kill a worker; freed records are overwritten. Without link-time
# optimisation, beside the controller and the tests: what it depends on is compiled once.
failpoints: $(objs)
	@$(step) "compiling the module with failpoints" failpoints $(CARGO) build -p ngx-ingress-module \
	  $(OXIGRESS_BESIDE) --profile $(profile) --features ngx-ingress-module/failpoints,ngx-ingress-module/poison
	@nginx-build/dist failpoints

# The test cluster's kube-apiserver and etcd, linked at target/kubernetes.
.PHONY: kubernetes kubernetes-begin
kubernetes: packages
	@nginx-build/cluster/kubernetes
kubernetes-begin: packages
	@nginx-build/cluster/kubernetes begin
	@nginx-build/cluster/helm begin

# Linked at target/helm.
.PHONY: helm
helm: packages
	@nginx-build/cluster/helm

.PHONY: deploy
deploy: helm ## conf/deploy from the chart in conf/helm
	@nginx-build/cluster/deploy

controller: packages
	@$(step) "compiling the controller" controller $(CARGO) build -p oxigress --profile $(profile)
