# nginx's configure reads this while it writes objs/Makefile: `make`, `make modules` and
# `make install` then treat ngx_ingress_module.so like one of nginx's own dynamic modules.

ngx_ingress_objs=`cd "$NGX_OBJS" && pwd`
ngx_ingress_repository=`cd "$ngx_ingress_dir/.." && pwd`

# auto/install does this too, but only after this file was read.
case ".$NGX_MODULES_PATH" in
    ./*) ngx_ingress_destination=$NGX_MODULES_PATH ;;
    .)   ngx_ingress_destination=$NGX_PREFIX/modules ;;
    *)   ngx_ingress_destination=$NGX_PREFIX/$NGX_MODULES_PATH ;;
esac

cat << END                                                    >> $NGX_MAKEFILE

# ngx_ingress_module, built by cargo. From the environment:
CARGO ?=	cargo
CARGO_TARGET_DIR ?=	$ngx_ingress_repository/target
OXIGRESS_MODULE_PROFILE ?=	module
OXIGRESS_MODULE_FEATURES ?=
# What cargo compiles in the same run: "-p PACKAGE".
OXIGRESS_BESIDE ?=

modules:	$NGX_OBJS/ngx_ingress_module.so

install:	ngx_ingress_install

# Always run: only cargo knows whether a source file changed.
.PHONY:	$NGX_OBJS/ngx_ingress_module.so ngx_ingress_install

$NGX_OBJS/ngx_ingress_module.so:
	+NGINX_SOURCE_DIR="$PWD" NGINX_BUILD_DIR="$ngx_ingress_objs" \\
	\$(CARGO) build -p ngx-ingress-module \$(OXIGRESS_BESIDE) \\
		--manifest-path "$ngx_ingress_repository/Cargo.toml" \\
		--target-dir "\$(CARGO_TARGET_DIR)" \\
		--profile "\$(OXIGRESS_MODULE_PROFILE)" \\
		--features "\$(OXIGRESS_MODULE_FEATURES)"
	cp "\$(CARGO_TARGET_DIR)/\$(OXIGRESS_MODULE_PROFILE)/libngx_ingress_module.so" \$@

# Renamed over the old file: a running nginx keeps its own, where a copy in place would crash it.
ngx_ingress_install:	$NGX_OBJS/ngx_ingress_module.so
	mkdir -p '\$(DESTDIR)$ngx_ingress_destination'
	cp $NGX_OBJS/ngx_ingress_module.so \\
		'\$(DESTDIR)$ngx_ingress_destination/ngx_ingress_module.so.new'
	mv -f '\$(DESTDIR)$ngx_ingress_destination/ngx_ingress_module.so.new' \\
		'\$(DESTDIR)$ngx_ingress_destination/ngx_ingress_module.so'

END
