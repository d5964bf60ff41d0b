package split

import (
	"errors"
	"fmt"
	"io"

	"github.com/allotment-hpc/allotment/split/task"
)

// maxAdded bounds the items that a split's items add, in bytes.
const maxAdded = 1 << 30

// growing is a source to which items add others (R56). Those come after all of the input's, in the order in
// which the tasks that added them ended.
type growing struct {
	source
	added *spool
}

// openGrowing opens a source with the added items that an earlier run stored: so many bytes count. What
// follows is of tasks whose end was not stored; they end again.
func openGrowing(s source, dir *Dir, bytes int64) (*growing, error) {
	sp, err := openSpool(dir.file(fileAdded), s.separator())
	if err != nil {
		return nil, err
	}
	g := &growing{source: s, added: sp}
	info, err := sp.file.Stat()
	if err == nil && info.Size() < bytes {
		err = errSpool
	}
	if err == nil {
		err = sp.file.Truncate(bytes)
	}
	if err == nil {
		_, err = sp.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the added items: %w", err), sp.close())
	}
	return g, nil
}

// items returns the number of added items; 0 if g is nil.
func (g *growing) items() int64 {
	if g == nil {
		return 0
	}
	g.added.mu.Lock()
	defer g.added.mu.Unlock()
	return g.added.items
}

// add adds the items that a task's executions added. They count once the core is stored.
func (g *growing) add(c *Core, result *task.Result) error {
	before := g.added.size
	err := result.Each(func(r task.Record) error {
		if r.Added == 0 {
			return nil
		}
		if g.added.size+r.Added > maxAdded {
			return fmt.Errorf("more than %d bytes were added: does each of them add others?", maxAdded)
		}
		text, err := io.ReadAll(result.Added(r))
		if err == nil {
			_, err = g.added.append(text)
		}
		return err
	})
	if err == nil && g.added.size > before {
		err = g.added.sync()
	}
	if err == nil { // else it ends again
		c.Added = g.added.size
	}
	return err
}

func (g *growing) count() (int64, bool, error) {
	items, ended, err := g.source.count()
	if ended {
		items += g.items()
	}
	return items, ended, err
}

// divide returns how many of some items, from first on, are the input's, and where the others begin among
// the added ones.
func (g *growing) divide(first, count int64) (own, added int64, err error) {
	items, ended, err := g.source.count()
	if !ended {
		return count, 0, err
	}
	return min(max(items-first, 0), count), max(first-items, 0), err
}

func (g *growing) copy(to io.Writer, first, count int64) error {
	own, added, err := g.divide(first, count)
	if err == nil && own > 0 {
		err = g.source.copy(to, first, own)
	}
	if err == nil && own < count {
		err = g.added.copy(to, added, count-own)
	}
	return err
}

func (g *growing) text(item int64) string {
	own, added, err := g.divide(item, 1)
	if own > 0 || err != nil {
		return g.source.text(item)
	}
	return g.added.text(added, maxText)
}

func (g *growing) close() error { return errors.Join(g.source.close(), g.added.close()) }
