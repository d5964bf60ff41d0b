package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
)

// Host is a host that is, or was, admitted.
type Host struct {
	Name      string    `json:"name"`
	Key       string    `json:"key"`   // public; the host alone has the private one
	Since     time.Time `json:"since"` // it was admitted
	By        string    `json:"by"`    // why: a secret's ID, this machine, or who approved it
	Withdrawn time.Time `json:"withdrawn,omitzero"`
}

// Secret is what admits hosts that have it.
type Secret struct {
	ID      string    `json:"id"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Hosts   int       `json:"hosts"`            // that it admitted
	Hash    string    `json:"hash,omitempty"`
}

// counts reports whether a secret has not ended.
func (s *Secret) counts(now time.Time) bool { return s.Expires.IsZero() || now.Before(s.Expires) }

// Waiting is a host that asked to be admitted.
type Waiting struct {
	Name  string    `json:"name"`
	Key   string    `json:"key"`
	From  string    `json:"from"` // its address
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"` // it asked
}

// Bounds of what is remembered.
const (
	maxHosts       = 20_000
	maxSecrets     = 1000
	maxWaiting     = 1000
	maxWaitingFrom = 32               // from one address
	waitingTime    = 10 * time.Minute // after its last question a host waits no more
)

// registry says which hosts are admitted. It is pure: what it holds is saved by the Hub.
type registry struct {
	Hosts   map[string]Host      `json:"hosts"`
	Secrets []Secret             `json:"secrets"`
	Revoked map[string]time.Time `json:"revoked"` // keys that were withdrawn or replaced, while an identity of theirs may still be valid

	waiting []Waiting // by first question
}

func newRegistry() *registry {
	return &registry{Hosts: map[string]Host{}, Revoked: map[string]time.Time{}}
}

// request is what a host says of itself to be admitted.
type request struct {
	Host   string `json:"host"`
	Key    string `json:"key"`
	Secret string `json:"secret,omitempty"`
}

func (q request) check() error {
	if _, err := token(q.Host); err != nil {
		return err
	}
	if !nkeys.IsValidPublicUserKey(q.Key) {
		return errors.New("the key is no public key of a host")
	}
	return nil
}

// origin is where a request is from.
type origin struct {
	address string // or its network
	machine string // the name of this machine, for a request of its root or of allotd's own user; "": from elsewhere
}

// verdict is the answer to a request.
type verdict struct {
	admitted bool
	changed  bool   // the registry
	by       string // what admits it now: the registry's Host.By
	why      string // it waits
}

// join decides about a request. In this order:
//
//  1. a host that is enrolled with this key is admitted;
//  2. the key of another host, of one that was withdrawn too, is an error;
//  3. a name that is enrolled with another key, or was withdrawn, waits, with a secret too;
//  4. this machine is admitted, by its own name;
//  5. a host with a secret that is known, and not expired, is admitted;
//  6. all others wait.
func (r *registry) join(q request, from origin, now time.Time) (verdict, error) {
	if err := q.check(); err != nil {
		return verdict{}, err
	}
	is, known := r.Hosts[q.Host]
	if known && is.Key == q.Key && is.Withdrawn.IsZero() {
		return verdict{admitted: true}, nil
	}
	for _, other := range r.Hosts {
		if other.Key == q.Key && other.Name != q.Host {
			return verdict{}, fmt.Errorf("this key is that of host %s: remove the copied file with it, and the host makes a new one", other.Name)
		}
	}
	why, by := "no secret", ""
	switch secret := r.secret(q.Secret, now); {
	case known && !is.Withdrawn.IsZero():
		why = "the host was withdrawn"
	case known:
		why = "another key is enrolled for this name"
	case from.machine == q.Host && from.machine != "":
		by = "this machine"
	case secret != nil:
		secret.Hosts++
		by = "secret " + secret.ID
	case q.Secret != "":
		why = "its secret is withdrawn, expired or unknown"
	}
	if by == "" {
		return verdict{why: why}, r.wait(q, from, why, now)
	}
	return verdict{admitted: true, changed: true, by: by}, r.admit(q.Host, q.Key, by, now)
}

// admit enrols a host. The key that it had is revoked.
func (r *registry) admit(name, key, by string, now time.Time) error {
	was, known := r.Hosts[name]
	if !known && len(r.Hosts) >= maxHosts && !r.forgetOldest(now) {
		return fmt.Errorf("%d hosts are enrolled, or were withdrawn in the last two days: no more can be", len(r.Hosts))
	}
	if known && was.Key != key {
		r.Revoked[was.Key] = now
	}
	delete(r.Revoked, key)
	r.Hosts[name] = Host{Name: name, Key: key, Since: now, By: by}
	r.waiting = slices.DeleteFunc(r.waiting, func(w Waiting) bool { return w.Name == name })
	return nil
}

// secret returns the secret that a text is; nil: none that counts.
func (r *registry) secret(text string, now time.Time) *Secret {
	if text == "" {
		return nil
	}
	hash := hashOf(text)
	for i, s := range r.Secrets {
		if s.Hash == hash && s.counts(now) {
			return &r.Secrets[i]
		}
	}
	return nil
}

// hashOf is what is kept of a secret. It has 128 random bits: no salt is needed, nor time.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// addSecret adds a secret that ends after a time; 0: never.
func (r *registry) addSecret(text string, lasts time.Duration, now time.Time) (Secret, error) {
	if len(r.Secrets) >= maxSecrets {
		return Secret{}, fmt.Errorf("there are %d secrets: withdraw some (allotd enrol --list)", len(r.Secrets))
	}
	s := Secret{ID: hashOf(text)[:8], Made: now, Hash: hashOf(text)}
	if lasts > 0 {
		s.Expires = now.Add(lasts)
	}
	r.Secrets = append(r.Secrets, s)
	return s, nil
}

// withdrawSecret removes a secret. Hosts that it admitted stay.
func (r *registry) withdrawSecret(id string) error {
	n := len(r.Secrets)
	r.Secrets = slices.DeleteFunc(r.Secrets, func(s Secret) bool { return s.ID == id })
	if len(r.Secrets) == n {
		return fmt.Errorf("there is no secret %.20q: see allotd enrol --list", id)
	}
	return nil
}

// wait notes a host that waits. The list has a place for each address: where it is full, the
// address with most of them loses its oldest, if it has more than the one that asks.
func (r *registry) wait(q request, from origin, why string, now time.Time) error {
	r.waiting = slices.DeleteFunc(r.waiting, func(w Waiting) bool { return now.Sub(w.Last) > waitingTime })
	of := map[string]int{}
	for i, w := range r.waiting {
		if w.Name == q.Host && w.Key == q.Key {
			r.waiting[i].Last, r.waiting[i].Why = now, why
			return nil
		}
		of[w.From]++
	}
	if of[from.address] >= maxWaitingFrom {
		return fmt.Errorf("%d hosts wait to be approved from this address already: try again later", of[from.address])
	}
	if len(r.waiting) >= maxWaiting {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
		if of[most] <= of[from.address]+1 {
			return fmt.Errorf("%d hosts wait to be approved already: try again later", len(r.waiting))
		}
		i := slices.IndexFunc(r.waiting, func(w Waiting) bool { return w.From == most })
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	r.waiting = append(r.waiting, Waiting{Name: q.Host, Key: q.Key, From: from.address, Why: why, Since: now, Last: now})
	return nil
}

// approve admits a host that waits; with a key, if it waits with that one.
func (r *registry) approve(name, key, by string, now time.Time) (Host, error) {
	var found []Waiting
	for _, w := range r.waiting {
		if w.Name == name && (key == "" || w.Key == key) && now.Sub(w.Last) <= waitingTime {
			found = append(found, w)
		}
	}
	switch {
	case len(found) == 0 && key != "":
		return Host{}, fmt.Errorf("no host %.64q with key %.60q waits: see allotd approve", name, key)
	case len(found) == 0:
		return Host{}, fmt.Errorf("no host %.64q waits: see allotd approve", name)
	case len(found) > 1:
		return Host{}, fmt.Errorf("%d hosts wait by the name of %s: type the key of the right one too (there: ahostd --identity; here: allotd approve)", len(found), name)
	}
	if err := r.admit(name, found[0].Key, by, now); err != nil {
		return Host{}, err
	}
	return r.Hosts[name], nil
}

// withdraw ends a host's enrolment. Its name and its key are remembered until prune forgets them:
// a secret does not bring it back.
func (r *registry) withdraw(name string, now time.Time) (Host, error) {
	h, known := r.Hosts[name]
	switch {
	case !known:
		return Host{}, fmt.Errorf("no host %.64q is enrolled: see allotd approve", name)
	case !h.Withdrawn.IsZero():
		return Host{}, fmt.Errorf("host %s is withdrawn already", name)
	}
	h.Withdrawn = now
	r.Hosts[name] = h
	r.Revoked[h.Key] = now
	return h, nil
}

// ended reports whether all identities have ended that a key had at a time. A day is for clocks
// that differ.
func ended(at, now time.Time) bool { return now.Sub(at) > 2*identityTime }

// prune forgets what no longer matters: keys whose last identity has ended, and withdrawn hosts
// of which that holds, unless they may know a secret that would bring them back: one that was
// made before they were withdrawn, and has not ended.
func (r *registry) prune(now time.Time) {
	maps.DeleteFunc(r.Revoked, func(_ string, at time.Time) bool { return ended(at, now) })
	var first time.Time // of the secrets that count
	for _, s := range r.Secrets {
		if s.counts(now) && (first.IsZero() || s.Made.Before(first)) {
			first = s.Made
		}
	}
	maps.DeleteFunc(r.Hosts, func(_ string, h Host) bool {
		return !h.Withdrawn.IsZero() && ended(h.Withdrawn, now) && (first.IsZero() || first.After(h.Withdrawn))
	})
}

// forgetOldest forgets the host that was withdrawn first, by name where two were at once, if its
// identities have ended. It reports whether there is one.
func (r *registry) forgetOldest(now time.Time) bool {
	var oldest Host
	for _, h := range r.Hosts {
		if h.Withdrawn.IsZero() || !ended(h.Withdrawn, now) {
			continue
		}
		if c := h.Withdrawn.Compare(oldest.Withdrawn); oldest.Name == "" || c < 0 || c == 0 && h.Name < oldest.Name {
			oldest = h
		}
	}
	delete(r.Hosts, oldest.Name)
	return oldest.Name != ""
}

// hosts returns the hosts by name.
func (r *registry) hosts() []Host {
	return slices.SortedFunc(maps.Values(r.Hosts), func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
}
