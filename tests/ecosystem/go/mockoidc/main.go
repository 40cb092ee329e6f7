// An OpenID Connect provider for tests, which lets everybody in: the library mockoidc as a program.
//
// Usage: mockoidc ADDRESS CLIENT-ID CLIENT-SECRET
package main

import (
	"log"
	"net"
	"os"

	"github.com/oauth2-proxy/mockoidc"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: mockoidc ADDRESS CLIENT-ID CLIENT-SECRET")
	}
	provider, err := mockoidc.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	provider.ClientID, provider.ClientSecret = os.Args[2], os.Args[3]
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := provider.Start(listener, nil); err != nil {
		log.Fatal(err)
	}
	log.Print("issuer ", provider.Issuer())
	select {}
}
