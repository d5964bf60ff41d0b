package daemon

import (
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// outbox is what is to be sent to a node that takes no more for now. It is bounded
// by the host's runs: of each it holds its start, what is wanted of it
// (keeper.Wishes), and that it can be forgotten. It holds no order, which may be
// large: that is made when it is sent.
//
// Kills go before everything else but the start of their own run.
type outbox struct {
	attach  *node.Attach
	killed  []node.RunID // whose wishes hold a kill
	letters []letter
	wanted  map[node.RunID]*keeper.Wishes
	starts  map[node.RunID]bool // that wait
}

// letter is about one run: it is to start, to be forgotten, or something is
// wanted of it.
type letter struct {
	run    node.RunID
	start  *manager.StartRun
	forget bool
}

// send is what is to be sent next: commands, or a start whose order has to be made.
type send struct {
	commands []node.Command
	start    *manager.StartRun
}

func (o *outbox) empty() bool {
	return o.attach == nil && len(o.killed) == 0 && len(o.letters) == 0
}

func (o *outbox) begin(s manager.StartRun) {
	run := node.RunID{ID: s.ID, Run: s.Run}
	if o.starts[run] {
		return
	}
	if o.starts == nil {
		o.starts = make(map[node.RunID]bool)
	}
	o.starts[run] = true
	o.letters = append(o.letters, letter{run: run, start: &s})
}

func (o *outbox) want(run node.RunID, w keeper.Want) {
	wishes := o.wanted[run]
	if wishes == nil {
		if o.wanted == nil {
			o.wanted = make(map[node.RunID]*keeper.Wishes)
		}
		wishes = new(keeper.Wishes)
		o.wanted[run] = wishes
		o.letters = append(o.letters, letter{run: run})
	}
	if w.Verb == keeper.Kill && !wishes.Has(keeper.Kill) && !o.starts[run] {
		o.killed = append(o.killed, run)
	}
	wishes.Add(w)
}

func (o *outbox) forget(run node.RunID) {
	o.letters = append(o.letters, letter{run: run, forget: true})
}

// next takes out what is to be sent next.
func (o *outbox) next() send {
	if o.attach != nil {
		a := o.attach
		o.attach = nil
		return send{commands: []node.Command{{Attach: a}}}
	}
	for len(o.killed) > 0 {
		run := o.killed[0]
		o.killed = o.killed[1:]
		if wishes := o.wanted[run]; wishes != nil {
			if kill := wishes.TakeKill(); kill != nil {
				return send{commands: commands(run, kill...)}
			}
		}
	}
	if len(o.letters) == 0 {
		return send{}
	}
	l := o.letters[0]
	o.letters = o.letters[1:]
	switch {
	case l.start != nil:
		delete(o.starts, l.run)
		return send{start: l.start}
	case l.forget:
		return send{commands: []node.Command{{Forget: &l.run}}}
	}
	wishes := o.wanted[l.run]
	delete(o.wanted, l.run)
	return send{commands: commands(l.run, wishes.Take()...)}
}

func commands(run node.RunID, wants ...keeper.Want) []node.Command {
	var all []node.Command
	for _, w := range wants {
		all = append(all, node.Command{Want: &node.Want{Run: run, Verb: w.Verb, Grace: w.Grace, Text: w.Text, Signal: w.Signal}})
	}
	return all
}
