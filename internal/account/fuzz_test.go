package account

import "testing"

// A line of passwd(5), which a directory service may have made up.
func FuzzEntry(f *testing.F) {
	f.Add("ann:x:1000:1000:Ann,,,:/home/ann:/bin/sh")
	f.Add(":::::::")
	f.Add("ann:x:-1:4294967296::/:")
	f.Fuzz(func(t *testing.T, line string) {
		a, err := parse(line)
		if err == nil && a.Name == "" || err != nil && (a.Name != "" || a.UID != 0) {
			t.Errorf("%q: %+v, %v", line, a, err)
		}
		_ = a.MayRun()
	})
}
