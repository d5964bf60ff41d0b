package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/bus"
)

// agentUser is the user of ahostd's service. It is a dynamic one, whose name the system knows
// only where libnss-systemd is installed: so the owner of the service's directory, which
// systemd makes, counts, too.
const (
	agentUser      = "allotment-ahostd"
	agentDirectory = "/run/" + agentUser
)

// busPath is where allotd's commands ask, on the socket.
const busPath = "/bus/"

// BusQuestion is what a command asks of the bus.
type BusQuestion struct {
	Host   string        `json:"host,omitempty"`
	Key    string        `json:"key,omitempty"`
	ID     string        `json:"id,omitempty"`     // of a secret
	Secret bool          `json:"secret,omitempty"` // make one
	Lasts  time.Duration `json:"lasts,omitempty"`  // 0: for ever
}

// BusHosts are the hosts that the bus knows.
type BusHosts struct {
	Hosts   []bus.Host    `json:"hosts"`
	Waiting []bus.Waiting `json:"waiting"`
}

// BusSecrets are the secrets of enrolments, without what they are.
type BusSecrets struct {
	Secrets []bus.Secret `json:"secrets"`
}

// BusText is a text for people.
type BusText struct {
	Text string `json:"text"`
}

// addBus adds the routes of hosts and of the commands about them.
func (s *Server) addBus(mux *http.ServeMux) {
	mux.HandleFunc("POST "+bus.JoinPath, s.joinHere)
	for name, do := range map[string]func(BusQuestion, caller) (any, error){
		"hosts": func(BusQuestion, caller) (any, error) {
			hosts, waiting := s.Bus.Hosts()
			return BusHosts{hosts, waiting}, nil
		},
		"approve":  func(q BusQuestion, who caller) (any, error) { return s.Bus.Approve(q.Host, q.Key, who.Name) },
		"withdraw": func(q BusQuestion, _ caller) (any, error) { return s.Bus.Withdraw(q.Host) },
		"secrets":  func(BusQuestion, caller) (any, error) { return BusSecrets{s.Bus.Secrets()}, nil },
		"enrol": func(q BusQuestion, _ caller) (any, error) {
			e, err := s.Bus.Enrol(q.Secret, q.Lasts)
			return BusText{e.String()}, err
		},
		"withdraw-secret": func(q BusQuestion, _ caller) (any, error) { return BusText{}, s.Bus.WithdrawSecret(q.ID) },
		"site": func(BusQuestion, caller) (any, error) {
			text, err := s.Bus.SiteConfig()
			return BusText{text}, err
		},
	} {
		mux.HandleFunc("POST "+busPath+name, s.busHandler(name, do))
	}
}

// noBus is an error where there is no bus.
func (s *Server) noBus() error {
	switch {
	case s.Bus != nil:
		return nil
	case s.NoBus != nil:
		return fmt.Errorf("allotd has no bus: %w", s.NoBus)
	}
	return errNoBus
}

// errNoBus is returned where the config has no bus.
var errNoBus = errors.New("allotd has no bus: set bus.listen in the config, and restart it")

// joinHere admits the agent of this machine: one that runs as root, as the user who runs
// allotd, or as the user of ahostd's service.
func (s *Server) joinHere(w http.ResponseWriter, r *http.Request) {
	switch who := callerOf(r); {
	case s.Bus == nil:
		http.Error(w, s.noBus().Error(), http.StatusNotFound)
	case who.by != bySocket || who.UID != os.Getuid() && !isAgent(who.UID, who.Name, agentDirectory):
		http.Error(w, "only an ahostd of root, of "+agentUser+", or of the user who runs allotd, joins here", http.StatusForbidden)
	default:
		s.Bus.AnswerLocal(w, r)
	}
}

// isAgent reports whether a user is root, or that of ahostd's service.
func isAgent(uid int, name, directory string) bool {
	if uid == 0 || name == agentUser {
		return true
	}
	info, err := os.Lstat(directory)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

// busHandler answers a command of an admin, on the socket.
func (s *Server) busHandler(name string, do func(BusQuestion, caller) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r)
		if who.by != bySocket {
			http.Error(w, "only allotd's commands ask here, on the socket", http.StatusForbidden)
			return
		}
		var q BusQuestion
		err := json.NewDecoder(r.Body).Decode(&q)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d, err := s.Desks.Open(r.Context(), who.Visitor)
		if err == nil {
			err = d.MayAdmitHosts()
			d.Close()
		}
		if err == nil {
			err = s.noBus()
		}
		var answer any
		if err == nil {
			answer, err = do(q, who)
		}
		if err != nil {
			status := statusOf(r.Method, err)
			if status >= http.StatusInternalServerError {
				s.Log.Error("a request failed", "user", who.Name, "operation", "bus "+name, "error", err)
			}
			http.Error(w, err.Error(), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	}
}
