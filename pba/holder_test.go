package pba

import (
	"context"
	"os"
	"testing"
)

func TestHolder(t *testing.T) {
	dir := t.TempDir()
	if pid := Holder(dir, RunLock); pid != 0 {
		t.Errorf("a lock that was never acquired: process %d", pid)
	}
	unlock, err := Lock(context.Background(), dir, RunLock, 0)
	if err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir, RunLock); pid != os.Getpid() {
		t.Errorf("a lock that this process holds: process %d, want %d", pid, os.Getpid())
	}
	unlock()
	if pid := Holder(dir, RunLock); pid != 0 {
		t.Errorf("a lock that was released: process %d", pid)
	}
}

func TestHolderOf(t *testing.T) {
	const locks = "1: POSIX  ADVISORY  WRITE 11 08:01:99 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 12 08:01:100 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 13 08:01:99 0 EOF\n" +
		"3: -> FLOCK  ADVISORY  WRITE 14 08:01:99 0 EOF\n" +
		"4: FLOCK\n"
	for inode, want := range map[uint64]int{99: 13, 100: 12, 101: 0} {
		if pid := holderOf([]byte(locks), 0x801, inode); pid != want {
			t.Errorf("inode %d: process %d, want %d", inode, pid, want)
		}
	}
}
