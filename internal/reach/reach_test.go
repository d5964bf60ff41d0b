package reach

import (
	"net"
	"testing"
)

func TestAny(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	all := []string{dead.Addr().String(), "no.such.host.invalid:1", l.Addr().String()}
	conn, at, err := Any(t.Context(), all)
	if err != nil || at != 2 || conn.RemoteAddr().String() != all[2] {
		t.Fatalf("%d, %v", at, err)
	}
	_ = conn.Close()
	if _, _, err := Any(t.Context(), all[:2]); err == nil {
		t.Error("addresses that lead nowhere answer")
	}
	if _, _, err := Any(t.Context(), nil); err == nil {
		t.Error("no address answers")
	}
}
