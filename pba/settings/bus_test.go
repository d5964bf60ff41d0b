package settings

import (
	"strings"
	"testing"
)

func TestBusRefusesClearTextAndHalfABus(t *testing.T) {
	for want, b := range map[string]Bus{
		"":    DefaultBus(),
		" ":   {},
		"  ":  {Listen: "0.0.0.0:8473", Enrol: "0.0.0.0:8472", Address: "farm.example.org:8472"},
		"   ": {Servers: []string{"tls://n1:4222", "nats://127.0.0.1:4222"}, CA: "/ca.pem", Enrol: "[::]:8472"},
		`servers: "nats://n1:4222": connections would go in clear`: {Servers: []string{"nats://n1:4222"}},
		`servers: "tls://n1": want tls://HOST:PORT`:                {Servers: []string{"tls://n1"}},
		`servers: "tls://u:p@n1:1": want tls://HOST:PORT`:          {Servers: []string{"tls://u:p@n1:1"}},
		"servers: 33 of them":                                      {Servers: make([]string, 33)},
		`ca: "ca.pem" is no absolute path`:                         {CA: "ca.pem"},
		`listen: "8473": want ADDRESS:PORT`:                        {Listen: "8473"},
		`enrol: "8472": want ADDRESS:PORT`:                         {Listen: "0.0.0.0:8473", Enrol: "8472"},
		"enrol: there is no bus to join":                           {Enrol: "0.0.0.0:8472"},
		"enrol: hosts of other machines can't reach listen (127":   {Listen: "127.0.0.1:0", Enrol: "0.0.0.0:8472"},
		"    ":                                {Listen: "0.0.0.0:8473", Enrol: "0.0.0.0:8472", Announce: []string{"eth0"}},
		"announce: there is nothing to find":  {Listen: "0.0.0.0:8473", Announce: []string{"eth0"}},
		"announce: 17 interfaces: at most 16": {Listen: "0.0.0.0:8473", Enrol: "0.0.0.0:8472", Announce: make([]string, 17)},
		`announce: "a b" is no name`:          {Listen: "0.0.0.0:8473", Enrol: "0.0.0.0:8472", Announce: []string{"a b"}},
		`address: "farm": want HOST:PORT`:     {Address: "farm"},
	} {
		err := b.Validate()
		if want := strings.TrimSpace(want); want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
}

// Hosts of other machines join where enrol is an address that they reach.
func TestBusOfOthers(t *testing.T) {
	for _, test := range []struct {
		bus    Bus
		host   string
		others bool
	}{
		{DefaultBus(), "", false},
		{Bus{Listen: "127.0.0.1:0", Enrol: "127.0.0.1:0"}, "", false},
		{Bus{Listen: "0.0.0.0:8473", Enrol: "0.0.0.0:8472"}, "", true},
		{Bus{Listen: "0.0.0.0:8473", Enrol: "10.0.0.1:8472", Address: "n1:8472"}, "n1", true},
	} {
		if host, others := test.bus.Others(); host != test.host || others != test.others {
			t.Errorf("%+v: %q, %v; want %q, %v", test.bus, host, others, test.host, test.others)
		}
	}
}
