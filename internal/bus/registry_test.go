package bus

import (
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
