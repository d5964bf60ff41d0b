package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

func key(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	return public(pair)
}

// TestWaitingIsShared: the list of hosts that wait has a bound, and one address that floods it
// leaves room for others.
func TestWaitingIsShared(t *testing.T) {
	r, now, k := newRegistry(), time.Unix(1_000_000, 0), key(t)
	ask := func(i int, address string) error {
		_, err := r.join(request{Host: fmt.Sprintf("n%d", i), Key: k}, origin{address: address}, now)
		return err
	}
	for i := range 1000 {
		err := ask(i, "192.0.2.1")
		if full := i >= maxWaitingFrom; full != (err != nil) {
			t.Fatalf("host %d: %v", i, err)
		}
	}
	for i := range maxWaiting - maxWaitingFrom {
		if err := ask(2000+i, fmt.Sprintf("198.51.%d.%d", i/20/256, i/20%256)); err != nil {
			t.Fatalf("host %d: %v", i, err)
		}
	}
	if err := ask(5000, "203.0.113.1"); err != nil {
		t.Errorf("one that asks late: %v", err)
	}
	if len(r.waiting) > maxWaiting || r.waiting[len(r.waiting)-1].Name != "n5000" {
		t.Errorf("%d hosts wait", len(r.waiting))
	}
	now = now.Add(waitingTime + time.Second)
	if err := ask(0, "192.0.2.1"); err != nil || len(r.waiting) != 1 {
		t.Errorf("after a while %d wait, %v", len(r.waiting), err)
	}
}

// TestApproveByKey: where two wait by one name, the key says which is meant.
func TestApproveByKey(t *testing.T) {
	r, now := newRegistry(), time.Unix(1_000_000, 0)
	right, wrong := key(t), key(t)
	for _, k := range []string{wrong, right} {
		if _, err := r.join(request{Host: "n1", Key: k}, origin{address: "192.0.2.1"}, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.approve("n1", "", "root", now); err == nil || !strings.Contains(err.Error(), "2 hosts wait by the name of n1") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := r.approve("n1", key(t), "root", now); err == nil || !strings.Contains(err.Error(), "no host") {
		t.Errorf("with a third key: %v", err)
	}
	if h, err := r.approve("n1", right, "root", now); err != nil || h.Key != right || len(r.waiting) > 0 {
		t.Errorf("with its key: %+v, %v", h, err)
	}
	if _, err := r.withdraw("n2", now); err == nil {
		t.Error("an unknown host was withdrawn")
	}
	if _, err := r.withdraw("n1", now); err != nil || r.Revoked[right].IsZero() {
		t.Errorf("withdraw: %v, %v", r.Revoked, err)
	}
	if r.prune(now.Add(3 * identityTime)); len(r.Revoked) > 0 {
		t.Error("a key is remembered for longer than its identities")
	}
}

// TestSecretsAreBounded: there are only so many secrets, and one that ended counts no more.
func TestSecretsAreBounded(t *testing.T) {
	r, now := newRegistry(), time.Unix(1_000_000, 0)
	for i := range maxSecrets {
		if _, err := r.addSecret(fmt.Sprint(i), time.Hour, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.addSecret("more", 0, now); err == nil {
		t.Error("there is no bound")
	}
	q := request{Host: "n1", Key: key(t), Secret: "7"}
	if v, err := r.join(q, origin{address: "192.0.2.1"}, now.Add(time.Hour)); err != nil || v.admitted {
		t.Errorf("an hour later: %+v, %v", v, err)
	}
	if v, err := r.join(q, origin{address: "192.0.2.1"}, now.Add(time.Hour-1)); err != nil || !v.admitted || r.Secrets[7].Hosts != 1 {
		t.Errorf("in time: %+v, %v", v, err)
	}
}

// TestWithdrawnAreForgotten: a withdrawn host is forgotten when none of its identities can be
// valid, and no secret that it may know; a restart in between changes nothing.
func TestWithdrawnAreForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0).UTC()
	r, k := newRegistry(), key(t)
	from := origin{address: "192.0.2.1"}
	if _, err := r.addSecret("old", 5*identityTime, now); err != nil {
		t.Fatal(err)
	}
	ask := func(secret string) verdict {
		t.Helper()
		v, err := r.join(request{Host: "n1", Key: k, Secret: secret}, from, now)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if !ask("old").admitted {
		t.Fatal("a host with a secret waits")
	}
	now = now.Add(time.Hour)
	withdrawn := now
	if _, err := r.withdraw("n1", now); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if _, err := r.addSecret("new", 0, now); err != nil { // which the host did not know
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Hour, identityTime, 2 * identityTime, 2*identityTime + 1, 4 * identityTime} {
		now = withdrawn.Add(after)
		text, err := json.Marshal(r)
		r = newRegistry()
		if err = errors.Join(err, json.Unmarshal(text, r)); err != nil {
			t.Fatal(err)
		}
		r.prune(now)
		if revoked := !r.Revoked[k].IsZero(); revoked != (after <= 2*identityTime) {
			t.Errorf("after %v its key is revoked: %v", after, revoked)
		}
		for _, secret := range []string{"old", "new"} {
			if v := ask(secret); v.admitted || v.why != "the host was withdrawn" {
				t.Errorf("after %v, with the secret %s: %+v", after, secret, v)
			}
		}
	}
	now = now.Add(identityTime) // the old secret has ended
	if r.prune(now); len(r.Hosts) != 0 {
		t.Errorf("it is not forgotten: %v", r.Hosts)
	}
}

// TestWithdrawnAreBounded: where the bound is reached the host that was withdrawn first is
// forgotten, but none whose identity may be valid.
func TestWithdrawnAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := newRegistry()
	if _, err := r.addSecret("x", 0, now.Add(-time.Hour)); err != nil { // which keeps prune from it
		t.Fatal(err)
	}
	for i := range maxHosts {
		h := Host{Name: fmt.Sprintf("n%d", i), Key: fmt.Sprint(i), Since: now}
		if i < 3 {
			h.Withdrawn = now.Add(time.Duration(2-i) * time.Hour)
		}
		r.Hosts[h.Name] = h
	}
	join := func(name string, at time.Time) error {
		r.prune(at)
		_, err := r.join(request{Host: name, Key: key(t), Secret: "x"}, origin{address: "192.0.2.1"}, at)
		return err
	}
	if err := join("early", now.Add(2*identityTime)); err == nil || len(r.Hosts) != maxHosts {
		t.Errorf("within two days: %v, %d hosts", err, len(r.Hosts))
	}
	late := now.Add(2*identityTime + time.Hour + 1)
	for i, gone := range []string{"n2", "n1", ""} {
		err := join(fmt.Sprintf("late%d", i), late)
		if _, known := r.Hosts[gone]; known || (gone == "") != (err != nil) || len(r.Hosts) != maxHosts {
			t.Errorf("%s: %v, %d hosts", gone, err, len(r.Hosts))
		}
	}
}
