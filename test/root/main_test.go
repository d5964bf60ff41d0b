package root

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/allotment-hpc/allotment/miniq"
)

// TestMain makes the test binary a user's own client, too, which sends any request to the
// socket.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "flood" {
		if err := flood(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "ended" {
		if err := endedFlood(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "send" {
		if err := sendRequests(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sendRequests sends each of the texts as a request and prints the parts of its answer.
func sendRequests(socket string, texts []string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, text := range texts {
		if err := miniq.WriteFrame(conn, json.RawMessage(text)); err != nil {
			return err
		}
		for {
			var part json.RawMessage
			if err := miniq.ReadFrame(conn, &part); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			fmt.Println(string(part))
			var head struct{ More bool }
			if err := json.Unmarshal(part, &head); err != nil {
				return err
			}
			if !head.More {
				break
			}
		}
	}
	return nil
}
