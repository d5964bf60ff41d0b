package keeper

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// User is the user that a job runs as, where its keeper is root's.
type User struct {
	UID, GID uint32
	Groups   []uint32
	Limits   Limits // "": the keeper's own
}

// encode writes the numbers; the limits are a field of their own.
func (u *User) encode() string {
	fields := []string{strconv.FormatUint(uint64(u.UID), 10), strconv.FormatUint(uint64(u.GID), 10)}
	for _, g := range u.Groups {
		fields = append(fields, strconv.FormatUint(uint64(g), 10))
	}
	return strings.Join(fields, " ")
}

func parseUser(text string) (*User, error) {
	var numbers []uint32
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil || n == 1<<32-1 { // the kernel's "no change"
			return nil, errOrder
		}
		numbers = append(numbers, uint32(n))
	}
	if len(numbers) < 2 {
		return nil, errOrder
	}
	return &User{UID: numbers[0], GID: numbers[1], Groups: numbers[2:]}, nil
}

// uid is the user of the job: u's, or the keeper's own.
func (u *User) uid() int {
	if u == nil {
		return os.Getuid()
	}
	return int(u.UID)
}

// credential is what the job's process becomes for good before it is executed.
func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

func (u *User) limits() Limits {
	if u == nil {
		return ""
	}
	return u.Limits
}

// as calls do with the rights of the job's user and no others: directories, files and
// sockets that the user names are opened so, as they are at that time.
// The real and saved user IDs of the thread stay root's, so that the user can
// neither trace nor signal it meanwhile, and so do other threads altogether. The
// runtime makes no new thread from one that is locked.
func (u *User) as(do func() error) error {
	if u == nil || int(u.UID) == os.Geteuid() {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	groups := make([]uint32, len(own))
	for i, g := range own {
		groups[i] = uint32(g)
	}
	if err := become(u.Groups, u.GID, u.UID); err != nil {
		return fmt.Errorf("become user ID %d: %w", u.UID, err)
	}
	failed := do()
	// Back: first the user, who may set the rest.
	err = setEffective(syscall.SYS_SETRESUID, uint32(os.Getuid()))
	if err == nil {
		err = become(groups, uint32(os.Getgid()), uint32(os.Getuid()))
	}
	if err != nil {
		panic("keeper: restore root's rights: " + err.Error()) // without them it can do nothing right
	}
	return failed
}

func become(groups []uint32, gid, uid uint32) error {
	if err := setGroups(groups); err != nil {
		return err
	}
	if err := setEffective(syscall.SYS_SETRESGID, gid); err != nil {
		return err
	}
	return setEffective(syscall.SYS_SETRESUID, uid)
}
