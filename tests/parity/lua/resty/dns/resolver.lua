return require("nginx.dns.resolver")
