# What of ingress-nginx's template cannot work on Debian's nginx, whose modules are loaded at run time.
# Its image has these compiled in.
/^pid /a\
load_module /etc/nginx/modules/ndk_http_module.so;\
load_module /etc/nginx/modules/ngx_http_lua_module.so;\
load_module /etc/nginx/modules/ngx_http_headers_more_filter_module.so;\
load_module /etc/nginx/modules/ngx_http_set_misc_module.so;\
load_module /etc/nginx/modules/ngx_stream_module.so;
# Debian has no Lua for the stream module: TCP and UDP services are not served, and what the controller says of them is
# taken and forgotten.
/^stream \{/,/^\}/c\
stream {\
    server {\
        listen 127.0.0.1:{{ .StreamPort }};\
        return "";\
    }\
}
