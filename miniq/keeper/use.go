package keeper

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// Use is what the processes of a run have used until now.
type Use struct {
	User, System time.Duration
	Memory       int64 // bytes, of all that are there
}

// Used returns what a run that is alive has used; false: its keeper is not there.
func Used(r *Record) (Use, bool) {
	all := proc.All()
	keeper, there := all[r.Keeper.PID]
	if !there || r.Keeper.PID == 0 || keeper.Start != r.Keeper.Start {
		return Use{}, false
	}
	// An ended process counts for the one that reaped it, in the end the keeper.
	u := Use{User: max(keeper.ReapedUser-r.Before.User, 0), System: max(keeper.ReapedSystem-r.Before.System, 0)}
	for _, p := range proc.Below(all, r.Keeper.PID) {
		s := all[p.PID]
		u.User += s.User + s.ReapedUser
		u.System += s.System + s.ReapedSystem
		u.Memory += proc.Resident(p.PID)
	}
	return u, true
}

// before returns the line of what a keeper's runs before this one have used.
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
