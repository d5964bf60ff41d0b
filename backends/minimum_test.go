package backends

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/unit"
)

func TestParseMinimum(t *testing.T) {
	for text, want := range map[string]struct {
		is    Minimum
		again string
	}{
		"":                          {Minimum{}, ""},
		"cpu=2":                     {Minimum{CPU: 2000}, "cpu=2"},
		"cpu=0.5":                   {Minimum{CPU: 500}, "cpu=0.5"},
		"cpu=1.0006":                {Minimum{CPU: 1001}, "cpu=1.001"},
		"disk=300M":                 {Minimum{Disk: 300 << 20}, "disk=300M"},
		"net=1.5g":                  {Minimum{Network: 3 << 29}, "net=1536M"},
		"net=100MiB,disk=1000B":     {Minimum{Disk: 1000, Network: 100 << 20}, "disk=1000B,net=100M"},
		"disk=2048kb,cpu=3,net=1KI": {Minimum{CPU: 3000, Disk: 2 << 20, Network: 1 << 10}, "cpu=3,disk=2M,net=1K"},
		"cpu=100000,net=1024T":      {Minimum{CPU: 100_000_000, Network: 1 << 50}, "cpu=100000,net=1024T"},
	} {
		got, err := ParseMinimum(text)
		if err != nil || got != want.is || got.String() != want.again {
			t.Errorf("%q is %+v, %q, %v; want %+v, %q", text, got, got.String(), err, want.is, want.again)
		}
		if again, err := ParseMinimum(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %+v, %v", text, got, again, err)
		}
	}
}

func TestParseMinimumRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"mem=16G":                                "memory has no minimum: a job has the memory that it asks for with -M",
		"cpu=1,memory=1":                         "memory has no minimum",
		"gpu=1":                                  "a part is not of cpu, disk or net",
		"disk":                                   "disk needs bytes",
		"cpu":                                    "cpu needs a number of cores",
		"cpu=0":                                  "more than 0",
		"cpu=0.0004":                             "more than 0",
		"cpu=-1":                                 "more than 0",
		"cpu=.5":                                 "more than 0",
		"cpu=1e3":                                "more than 0",
		"cpu=0x10":                               "more than 0",
		"cpu=NaN":                                "more than 0",
		"cpu=1.2.3":                              "more than 0",
		"cpu=100001":                             "at most 100000",
		"disk=300":                               "with a unit",
		"disk=0":                                 "with a unit",
		"disk=0.0001K":                           "more than 0",
		"disk=1.5B":                              "with a unit",
		"disk=M":                                 "with a unit",
		"disk= 1M":                               "with a unit",
		"disk=1Kı":                               "with a unit",
		"disk=1KX":                               "with a unit",
		"disk=1025T":                             "at most 1024T",
		"disk=" + strings.Repeat("9", 400) + "K": "at most 1024T",
		"cpu=1,":                                 "a part is empty",
		",":                                      "a part is empty",
		"cpu=1,cpu=1":                            "cpu stands there twice",
		strings.Repeat("x", 5000):                "a part is not of",
		"net=1M,disk=1M\x1b[2J":                  "disk needs bytes",
		"net=1M;disk=1M,\x1b=1,a\nb":             "net needs bytes",
	} {
		_, err := ParseMinimum(text)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.80q: %v; want an error with %q", text, err, part)
			continue
		}
		if len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\x1b\n") { // it never repeats the text
			t.Errorf("%.80q: the error is not one short printable line: %q", text, err)
		}
	}
}

// What is read is written so that it is read again, is within its bounds, and its sizes are those of the
// config; an error is one short printable line.
func FuzzMinimum(f *testing.F) {
	for _, text := range []string{"", "cpu=2", "cpu=0.25,disk=300M,net=1.5GiB", "disk=1000B", "mem=1G", "net=1K,net=1K", ","} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMinimum(text)
		if err != nil {
			if m != (Minimum{}) || len(err.Error()) > 200 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %+v, and the error is not one short printable line: %q", text, m, err)
			}
			return
		}
		if again, err := ParseMinimum(m.String()); err != nil || again != m {
			t.Errorf("%q is %+v, which is written as %q, which is %+v, %v", text, m, m, again, err)
		}
		if m.CPU < 0 || m.CPU > 1000*maxMinimumCores || m.Disk < 0 || m.Disk > maxMinimumRate || m.Network < 0 || m.Network > maxMinimumRate || len(m.String()) > 80 {
			t.Errorf("%q is %+v", text, m)
		}
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			size, err := unit.ParseSize(value)
			if is := map[string]int64{"disk": m.Disk, "net": m.Network}[key]; is != 0 && (err != nil || int64(size) != is) {
				t.Errorf("%q is %d bytes, and in the config %d, %v", part, is, size, err)
			}
		}
	})
}
