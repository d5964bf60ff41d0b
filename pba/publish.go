package pba

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Publisher writes what the submit filter reads (R2): the policy snapshot, when
// its content changed, and the generation file, each time.
type Publisher struct {
	Dir      string // the state directory
	Settings esub.Settings
	Groups   *Directory
}

// Publish writes the plan in force and how its pools stand.
func (p *Publisher) Publish(ctx context.Context, policy plan.Policy, s Standing) error {
	snapshot, err := p.encode(ctx, policy, s.Observe)
	if err != nil {
		return fmt.Errorf("write the filter's snapshot: %w", err)
	}
	generation, err := esub.EncodeGeneration(snapshot, FilterStanding(s))
	if err != nil {
		return fmt.Errorf("write the filter's snapshot: %w", err)
	}
	if err := p.put(snapshot, generation); err != nil {
		return fmt.Errorf("write the filter's snapshot: %w", err)
	}
	return nil
}

func (p *Publisher) encode(ctx context.Context, policy plan.Policy, observe bool) ([]byte, error) {
	groups := make([]string, 0, len(policy.Projects))
	for _, project := range policy.Projects {
		groups = append(groups, project.Group)
	}
	gids, err := p.Groups.IDs(ctx, groups)
	if err != nil {
		return nil, err
	}
	settings := p.Settings
	settings.Observe = settings.Observe || observe
	return esub.Encode(FilterPolicy(policy, settings, gids)), nil
}

// FilterStanding is how the pools stand, in the submit filter's words.
func FilterStanding(s Standing) esub.Standing {
	standing := esub.Standing{At: s.At, Observe: s.Observe, LowerUnpreemptable: s.Farm.LowerThem, Below: map[int64]bool{}}
	for _, pool := range s.Pools {
		if pool.Below {
			standing.Below[pool.ID] = true
		}
	}
	return standing
}

// FilterPolicy is the plan in force, in the submit filter's words. Groups without
// a number in gids are not tested there.
func FilterPolicy(policy plan.Policy, settings esub.Settings, gids map[string]int64) esub.Policy {
	snapshot := esub.Policy{Settings: settings}
	place := map[string]int{}
	for i, project := range policy.Projects {
		gid, ok := gids[project.Group]
		if !ok {
			gid = esub.Unknown
		}
		snapshot.Projects = append(snapshot.Projects, esub.Project{Name: project.Name, Group: project.Group, GID: gid, Steps: project.Steps})
		place[project.Name] = i
	}
	for _, a := range policy.Allocations {
		i, ok := place[a.Project]
		if !ok || a.Guarantee == 0 { // taken back in mid-week
			continue
		}
		pools := &snapshot.Projects[i].Pools
		*pools = append(*pools, esub.Pool{ID: a.ID, User: a.User, UID: esub.Unknown, Step: a.Step, Slots: a.Guarantee})
	}
	return snapshot
}

// put brings both files in place, the snapshot first: a filter that sees one
// without the other looks again.
func (p *Publisher) put(snapshot, generation []byte) error {
	const forAll = 0o644
	snapshotFile, generationFile := filepath.Join(p.Dir, esub.SnapshotName), filepath.Join(p.Dir, esub.GenerationName)
	old, err := readOwn(snapshotFile)
	changed := err != nil || !bytes.Equal(old, snapshot)
	newGeneration, err := disk.Prepare(generationFile, forAll, generation)
	if err != nil {
		return err
	}
	defer os.Remove(newGeneration)
	if changed {
		newSnapshot, err := disk.Prepare(snapshotFile, forAll, snapshot)
		if err != nil {
			return err
		}
		defer os.Remove(newSnapshot)
		if err := os.Rename(newSnapshot, snapshotFile); err != nil {
			return err
		}
	}
	if err := os.Rename(newGeneration, generationFile); err != nil || !changed {
		return err
	}
	return disk.OS().SyncDir(p.Dir)
}

// LastStanding is how the last cycle left things for the filter: for an edit,
// which knows of neither the pools' standing nor the engine's life.
func (p *Publisher) LastStanding(policy plan.Policy) Standing {
	var s Standing
	snapshot, err := readOwn(filepath.Join(p.Dir, esub.SnapshotName))
	if err != nil {
		return s
	}
	content, err := readOwn(filepath.Join(p.Dir, esub.GenerationName))
	if err != nil {
		return s
	}
	reader, err := esub.Open(bytes.NewReader(snapshot), int64(len(snapshot)))
	if err != nil {
		return s
	}
	g, err := esub.OpenGeneration(content)
	if err != nil || g.Snapshot != reader.Identity() {
		return s
	}
	s.At, s.Observe, s.Farm.LowerThem = g.At, g.Observe, g.LowerUnpreemptable
	for _, project := range policy.Projects {
		was, first, ok, err := reader.Find(project.Name)
		if err != nil || !ok {
			continue
		}
		for i, pool := range was.Pools {
			s.Pools = append(s.Pools, plan.PoolStatus{Allocation: plan.Allocation{ID: pool.ID}, Below: g.Below(first + i)})
		}
	}
	return s
}

func readOwn(name string) ([]byte, error) {
	f, err := trusted.Open(name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}
