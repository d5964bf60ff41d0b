package transfer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/allotment-hpc/allotment/internal/identity"
	"github.com/allotment-hpc/allotment/internal/listen"
	"github.com/allotment-hpc/allotment/state"
)

// Keeper keeps the objects that a server gives and takes. Its methods may be called
// concurrently.
type Keeper interface {
	// Knows reports whether anything is given to, or taken from, the peer with this
	// certificate now: no other can even send a request.
	Knows(fingerprint string) bool
	// MayRead and MayPush say so of a job's object.
	MayRead(fingerprint string, job state.Job) bool
	MayPush(fingerprint string, job state.Job) bool
	// Object returns a job's object as it is. fs.ErrNotExist: there is none.
	Object(ctx context.Context, job state.Job) ([]byte, state.Sequence, error)
	// Moved returns where a job's object went, for some minutes.
	Moved(job state.Job) (to Peer, ok bool)
	// Take merges an object into the job's, verified as state.Inspector does, and returns when
	// that is on disk: so a second time changes nothing. ErrConflict: it does not have this
	// sequence. state.ErrCorrupt: it is no object of this job.
	Take(ctx context.Context, job state.Job, object []byte, s state.Sequence) error
}

// Peer is a host that gives and takes objects.
type Peer struct {
	Host        string
	Address     string // HOST:PORT
	Fingerprint string
}

// ErrConflict says that an object is not what its sender says of it.
var ErrConflict = errors.New("it is not what its sender says of it")

// Headers beside those of HTTP: the sequence of an object as RUN.N, and the name of the host that
// it went to. The digest is that of RFC 9530, of SHA-256.
const (
	sequenceHeader = "Allotment-Sequence"
	hostHeader     = "Allotment-Host"
	digestHeader   = "Content-Digest"
)

// Bounds of a server.
const (
	connections   = 64
	ofOneAddress  = 16
	inMemory      = state.MaxObject + 16<<20 // bytes of all objects on their way: the agent has 256 MiB in all
	readAtATime   = 2                        // objects, whose sizes are not known before
	roomTime      = 5 * time.Second          // that a request waits for its bytes
	headerTime    = 5 * time.Second
	bodyTime      = 60 * time.Second // of a request as a whole: a slow sender is cut
	idleTime      = 30 * time.Second
	shutdownTime  = 5 * time.Second
	maxHeaderSize = 8 << 10
)

// Server gives and takes objects.
type Server struct {
	keeper Keeper
	log    *slog.Logger
	room   *semaphore.Weighted // bytes of objects that are in memory
	reads  *semaphore.Weighted
	wait   time.Duration // for room
	http   *http.Server
}

// NewServer returns a server that does not serve yet.
func NewServer(i *Identity, k Keeper, log *slog.Logger) *Server {
	s := &Server{keeper: k, log: log, room: semaphore.NewWeighted(inMemory), reads: semaphore.NewWeighted(readAtATime), wait: roomTime}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jobs/{queue}/{id}", s.give)
	mux.HandleFunc("PUT /jobs/{queue}/{id}", s.take)
	s.http = &http.Server{
		Handler: mux, TLSConfig: i.tls(k.Knows), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: 2 * bodyTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderSize,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve serves until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	l = listen.Bound(l, connections, ofOneAddress, func(c net.Conn) string {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		return host
	})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if s.http.Shutdown(stopping) != nil {
			_ = s.http.Close()
		}
	})
	err := s.http.ServeTLS(l, "", "")
	if stop() {
		return fmt.Errorf("serve state objects: %w", err)
	}
	<-stopped
	return nil
}

// jobOf reads the job that a request is about, and checks that its sender may ask.
func jobOf(w http.ResponseWriter, r *http.Request, may func(string, state.Job) bool) (state.Job, bool) {
	job, err := state.ParseJob(r.PathValue("queue") + "/" + r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return job, false
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || !may(identity.Fingerprint(r.TLS.PeerCertificates[0].Raw), job) {
		http.Error(w, "allotd has not named this host for the job, or longer ago than it counts", http.StatusForbidden)
		return job, false
	}
	return job, true
}

func (s *Server) give(w http.ResponseWriter, r *http.Request) {
	job, ok := jobOf(w, r, s.keeper.MayRead)
	if !ok {
		return
	}
	w.Header().Set("Cache-Control", "no-store") // it may come back
	object, at, leave, err := s.read(r.Context(), job)
	defer leave()
	switch to, moved := s.keeper.Moved(job); {
	case err == nil:
		w.Header().Set(sequenceHeader, sequenceText(at))
		w.Header().Set(digestHeader, digest(object))
		w.Header().Set("Content-Type", "application/vnd.sqlite3")
		w.Header().Set("Content-Length", strconv.Itoa(len(object)))
		_, _ = w.Write(object) // the client may be gone
	case errors.Is(err, fs.ErrNotExist) && moved:
		w.Header().Set(hostHeader, to.Host)
		w.Header().Set("Location", "https://"+to.Address+"/jobs/"+job.String())
		w.WriteHeader(http.StatusMovedPermanently)
	case errors.Is(err, errBusy):
		busy(w)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "no state object of job "+job.String()+" is here", http.StatusNotFound)
	default:
		s.log.Error("give a state object", "job", job.String(), "error", err)
		http.Error(w, "the state object of job "+job.String()+" can't be read", http.StatusInternalServerError)
	}
}

// read reads an object of the keeper's. leave must be called when it is no longer in memory.
func (s *Server) read(ctx context.Context, job state.Job) (object []byte, at state.Sequence, leave func(), err error) {
	done, err := s.enter(ctx, s.reads, 1)
	if err != nil {
		return nil, at, done, err
	}
	defer done()
	if object, at, err = s.keeper.Object(ctx, job); err != nil {
		return nil, at, func() {}, err
	}
	leave, err = s.enter(ctx, s.room, int64(len(object)))
	return object, at, leave, err
}

// enter waits for so much of a bound, for a while. leave returns it.
func (s *Server) enter(ctx context.Context, of *semaphore.Weighted, n int64) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if of.Acquire(ctx, n) != nil {
		return func() {}, errBusy
	}
	return func() { of.Release(n) }, nil
}

var errBusy = errors.New("as many objects as this host can hold are on their way")

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
}

func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	job, ok := jobOf(w, r, s.keeper.MayPush)
	if !ok {
		return
	}
	at, err := parseSequence(r.Header.Get(sequenceHeader))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := checkSize(r.ContentLength); {
	case errors.Is(err, errNoSize):
		http.Error(w, err.Error(), http.StatusLengthRequired)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	leave, err := s.enter(r.Context(), s.room, r.ContentLength)
	if err != nil {
		busy(w)
		return
	}
	defer leave()
	object, err := readObject(r.Body, r.ContentLength, r.Header.Get(digestHeader))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := s.keeper.Take(r.Context(), job, object, at); {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, ErrConflict):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, state.ErrCorrupt):
		s.log.Warn("a state object from another host is refused", "job", job.String(), "error", err)
		http.Error(w, "it is no sound state object of job "+job.String(), http.StatusUnprocessableEntity)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		s.log.Error("take a state object", "job", job.String(), "error", err)
		http.Error(w, "the disk is full", http.StatusInsufficientStorage)
	default:
		s.log.Error("take a state object", "job", job.String(), "error", err)
		http.Error(w, "the state object can't be written", http.StatusInternalServerError)
	}
}

var (
	errNoSize = errors.New("a state object comes with its size, in Content-Length")
	errDigest = errors.New("the object and its digest differ: it is damaged, or cut")
)

// checkSize refuses an object that is too large, or whose sender does not say its size (-1).
func checkSize(size int64) error {
	switch {
	case size < 0:
		return errNoSize
	case size > state.MaxObject:
		return fmt.Errorf("%d bytes: a state object has at most %d", size, state.MaxObject)
	}
	return nil
}

// readObject reads an object of so many bytes, which must have the digest.
func readObject(from io.Reader, size int64, want string) ([]byte, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	object := make([]byte, size)
	if _, err := io.ReadFull(from, object); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	if digest(object) != want {
		return nil, errDigest
	}
	return object, nil
}

func digest(object []byte) string {
	sum := sha256.Sum256(object)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func sequenceText(s state.Sequence) string {
	return strconv.Itoa(s.Run) + "." + strconv.FormatUint(s.N, 10)
}

// parseSequence reads RUN.N.
func parseSequence(text string) (s state.Sequence, err error) {
	run, n, _ := strings.Cut(text, ".")
	var wrong [2]error
	s.Run, wrong[0] = strconv.Atoi(run)
	s.N, wrong[1] = strconv.ParseUint(n, 10, 64)
	if errors.Join(wrong[:]...) != nil || s.Check() != nil || sequenceText(s) != text {
		return state.Sequence{}, fmt.Errorf("the header %s is %.40q: want a sequence such as 2.17", sequenceHeader, text)
	}
	return s, nil
}
