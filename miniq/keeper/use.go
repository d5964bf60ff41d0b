package keeper

import (
	"errors"
	"os"
	"strconv"
	"time"
)

// Use is what the processes of a run have used until now.
type Use struct {
	User, System time.Duration
	Memory       int64 // bytes, of all that are there
}

// Used looks what a run that is alive has used; false: its keeper is not there.
func Used(r *Record) (Use, bool) {
	all := processes()
	keeper, there := all[r.Keeper.PID]
	if !there || r.Keeper.PID == 0 || keeper.start != r.Keeper.Start {
		return Use{}, false
	}
	// What has ended counts for whom it was reaped by, the keeper at last.
	u := Use{User: max(keeper.reapedUser-r.Before.User, 0), System: max(keeper.reapedSystem-r.Before.System, 0)}
	for _, pid := range descendants(all, r.Keeper.PID) {
		s := all[pid]
		u.User += s.user + s.reapedUser
		u.System += s.system + s.reapedSystem
		u.Memory += residentMemory(pid)
	}
	return u, true
}

// before is the line that tells what a keeper's runs before this one have used.
func (u Use) before() string {
	return "b " + strconv.FormatInt(u.User.Microseconds(), 10) + " " + strconv.FormatInt(u.System.Microseconds(), 10) + "\n"
}

func parseBefore(fields []string) Use {
	user, err := strconv.ParseUint(fields[0], 10, 40)
	system, err2 := strconv.ParseUint(fields[1], 10, 40)
	if err != nil || err2 != nil {
		return Use{}
	}
	return Use{User: time.Duration(user) * time.Microsecond, System: time.Duration(system) * time.Microsecond}
}

// ReadRecord reads the record of a run.
func ReadRecord(path string) (*Record, error) {
	file, err := OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	var f Follower
	err = f.Read(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return &f.Record, nil
}

// ticks reads a time in clock ticks, of which there are 100 in a second on every
// Linux that Go runs on (sysconf(3), _SC_CLK_TCK).
func ticks(field string) (time.Duration, error) {
	const tick = time.Second / 100
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < 0 || n > int64(1<<62/tick) {
		return 0, strconv.ErrRange
	}
	return time.Duration(n) * tick, nil
}
