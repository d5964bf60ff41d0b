package joined

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/miniq"
)

// record says how a machine is reached.
type record struct {
	Host        string   `json:"host"`
	Number      int64    `json:"number"` // of the machine: its jobs' numbers begin with it
	Addresses   []string `json:"addresses"`
	Certificate string   `json:"certificate"` // its fingerprint
	Secret      string   `json:"secret"`
	Leaving     bool     `json:"leaving,omitempty"` // it takes no more jobs
}

// Bounds of records.
const (
	recordEnd    = ".machine"
	maxRecord    = 16 << 10 // bytes
	maxMachines  = 4096
	maxAddresses = 32
	secretDigits = 64
	maxNumber    = 1<<31 - 1
	maxAddress   = 300 // bytes
)

// path returns the file of a machine's record.
func path(dir, host string) string { return filepath.Join(dir, host+recordEnd) }

// parseRecord reads a record.
func parseRecord(text []byte) (r record, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return record{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("text after its JSON object")
	}
	if err := miniq.CheckNodeName(r.Host); err != nil {
		return record{}, err
	}
	switch {
	case r.Number < 1 || r.Number > maxNumber:
		return record{}, fmt.Errorf("the machine's number is %d", r.Number)
	case !digits(r.Certificate) || !digits(r.Secret):
		return record{}, errors.New("the certificate or the secret is none")
	case len(r.Addresses) == 0 || len(r.Addresses) > maxAddresses:
		return record{}, fmt.Errorf("%d addresses", len(r.Addresses))
	}
	for _, a := range r.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil || len(a) > maxAddress {
			return record{}, errors.New("an address is none: want HOST:PORT")
		}
	}
	return r, nil
}

func digits(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == secretDigits
}

// readRecord reads the record of a machine: its owner's file alone counts.
func readRecord(dir, host string) (record, error) {
	text, err := trusted.ReadPrivate(path(dir, host), maxRecord, trusted.Others)
	if err != nil {
		return record{}, err
	}
	r, err := parseRecord(text)
	if err == nil && r.Host != host {
		err = fmt.Errorf("it is of %s", r.Host)
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of a machine, %s: %w", path(dir, host), err)
	}
	return r, nil
}

// listRecords returns the names of the machines that have a record.
func listRecords(dir string) (hosts []string, err error) {
	if err := trusted.Dir(dir); err != nil {
		return nil, fmt.Errorf("use the directory of machines that joined, %s: %w", dir, err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(2 * maxMachines)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, name := range names {
		if host, ok := strings.CutSuffix(name, recordEnd); ok && miniq.CheckNodeName(host) == nil && len(hosts) < maxMachines {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts, nil
}
