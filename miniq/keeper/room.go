package keeper

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// recordRoom is what a run's own lines take in its record, in bytes: Keeper, user,
// processes and end.
const recordRoom = 3 << 10

// Reserve makes sure that a run's own lines can be appended to its record, whatever
// becomes of the disk meanwhile: a job must not be executed if its end could not be
// recorded. Lines of wishes take of that room, too; then the end waits for more.
func Reserve(record *os.File) error {
	size, err := record.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if reserved(record, size) {
		return nil
	}
	err = untilUninterrupted(func() error {
		return unix.Fallocate(int(record.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, recordRoom)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return tryRoom(record, size)
	}
	return os.NewSyscallError("fallocate", err)
}

// reserved reports whether a file has the blocks already, like one that was a record before.
func reserved(f *os.File, size int64) bool {
	const unit = 512 // of st_blocks (stat(2))
	var info unix.Stat_t
	return unix.Fstat(int(f.Fd()), &info) == nil && info.Blocks*unit >= size+recordRoom
}

// tryRoom writes as much and takes it back, where blocks can't be reserved (NFS before
// version 4.2). The block that the file ends in stays its own.
func tryRoom(f *os.File, size int64) error {
	_, err := f.WriteString(strings.Repeat("\n", recordRoom))
	return errors.Join(err, f.Truncate(size))
}
