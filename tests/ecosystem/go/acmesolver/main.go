// cert-manager's acmesolver: the server that answers a challenge of HTTP-01. cmd/acmesolver is a module of its own, which the
// module proxy does not have.
package main

import (
	"flag"
	"log"

	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
)

func main() {
	var server solver.HTTP01Solver
	flag.IntVar(&server.ListenPort, "listen-port", 8089, "the port to listen on")
	flag.StringVar(&server.Domain, "domain", "", "the name that is challenged")
	flag.StringVar(&server.Token, "token", "", "the challenge's token")
	flag.StringVar(&server.Key, "key", "", "the answer")
	flag.Parse()
	log.Fatal(server.Listen(logf.Log))
}
