package web

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/pba/desk"
)

// sessions are the browsers that users have signed in with, and the links by which they may.
// They are in memory alone: a restart of allotd ends them, and users type pba login again.
// No file has what would open the page, and nothing outlives a program with a fault in it.
// The maps have hashes of the secrets, never the secrets.
type sessions struct {
	now       func() time.Time
	idle, max time.Duration

	mu    sync.Mutex
	links map[hash]link
	open  map[hash]*session // by each secret that counts
}

type hash [sha256.Size]byte

// secret is what a browser keeps, or a link has.
type secret string

func newSecret() secret {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return secret(base64.RawURLEncoding.EncodeToString(b))
}

func (s secret) hash() hash { return sha256.Sum256([]byte(s)) }

// link is one that pba login printed.
type link struct {
	user desk.Visitor
	ends time.Time
}

// session is a browser of a user.
type session struct {
	user    desk.Visitor
	began   time.Time
	used    time.Time
	rotated time.Time
	secret  hash
	old     hash      // the secret before
	oldEnds time.Time // requests that were under way may have it
}

// Bounds of links and sessions.
const (
	linkTime          = time.Minute
	maxLinks          = 1000
	maxLinksOfUser    = 5
	maxSessions       = 10_000
	maxSessionsOfUser = 20
	rotateEvery       = time.Hour
	oldTime           = time.Minute
)

// newLink returns the secret of a link, unless there are too many links.
func (s *sessions) newLink(user desk.Visitor) (secret, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, own := s.now(), 0
	for h, l := range s.links {
		switch {
		case !now.Before(l.ends):
			delete(s.links, h)
		case l.user.UID == user.UID:
			own++
		}
	}
	if own >= maxLinksOfUser || len(s.links) >= maxLinks {
		return "", false
	}
	if s.links == nil {
		s.links = map[hash]link{}
	}
	k := newSecret()
	s.links[k.hash()] = link{user, now.Add(linkTime)}
	return k, true
}

// begin uses up a link and returns the secret of a new session. A user's oldest session ends
// where there are too many.
func (s *sessions) begin(k secret) (secret, desk.Visitor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l, ok := s.links[k.hash()]
	delete(s.links, k.hash())
	if !ok || !now.Before(l.ends) {
		return "", desk.Visitor{}, false
	}
	s.sweep(now)
	own := s.of(l.user.UID)
	slices.SortFunc(own, func(a, b *session) int { return a.used.Compare(b.used) })
	for len(own) >= maxSessionsOfUser {
		s.remove(own[0])
		own = own[1:]
	}
	if s.count() >= maxSessions {
		return "", desk.Visitor{}, false
	}
	if s.open == nil {
		s.open = map[hash]*session{}
	}
	next := newSecret()
	s.open[next.hash()] = &session{user: l.user, began: now, used: now, rotated: now, secret: next.hash()}
	return next, l.user, true
}

// find returns the session of a secret, and the secret that replaces it; "": it stays.
func (s *sessions) find(k secret) (*session, secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, h := s.now(), k.hash()
	found := s.open[h]
	switch {
	case found == nil:
		return nil, ""
	case s.ended(found, now):
		s.remove(found)
		return nil, ""
	case h == found.old && !now.Before(found.oldEnds):
		delete(s.open, h)
		return nil, ""
	}
	found.used = now
	if h == found.old || now.Sub(found.rotated) < rotateEvery {
		return found, ""
	}
	delete(s.open, found.old)
	next := newSecret()
	found.old, found.oldEnds, found.secret, found.rotated = h, now.Add(oldTime), next.hash(), now
	s.open[next.hash()] = found
	return found, next
}

// alive reports whether a session has not ended.
func (s *sessions) alive(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[one.secret] == one && !s.ended(one, s.now())
}

// end ends a session.
func (s *sessions) end(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(one)
}

// endAll ends a user's sessions and links, and returns the number of sessions.
func (s *sessions) endAll(uid int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, l := range s.links {
		if l.user.UID == uid {
			delete(s.links, h)
		}
	}
	own := s.of(uid)
	for _, one := range own {
		s.remove(one)
	}
	return len(own)
}

func (s *sessions) ended(one *session, now time.Time) bool {
	return now.Sub(one.used) >= s.idle || now.Sub(one.began) >= s.max
}

func (s *sessions) remove(one *session) {
	delete(s.open, one.secret)
	delete(s.open, one.old)
}

// sweep removes what has ended.
func (s *sessions) sweep(now time.Time) {
	for h, one := range s.open {
		switch {
		case s.ended(one, now):
			s.remove(one)
		case h == one.old && !now.Before(one.oldEnds):
			delete(s.open, h)
		}
	}
}

// of returns a user's sessions.
func (s *sessions) of(uid int) (own []*session) {
	for h, one := range s.open {
		if one.user.UID == uid && h == one.secret {
			own = append(own, one)
		}
	}
	return own
}

func (s *sessions) count() (n int) {
	for h, one := range s.open {
		if h == one.secret {
			n++
		}
	}
	return n
}
