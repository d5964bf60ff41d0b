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
	attach   *node.Attach
	killed   []node.RunID // whose wishes hold a kill
	messages []message
	wanted   map[node.RunID]*keeper.Wishes
	starts   map[node.RunID]bool // that wait
}

// message is about one run: it is to start, to be forgotten, or something is
// wanted of it.
type message struct {
	run    node.RunID
	start  *manager.StartRun
	forget bool
}

// outgoing is what is to be sent next: commands, or a start whose order has to be made.
type outgoing struct {
	commands []node.Command
	start    *manager.StartRun
}

func (o *outbox) empty() bool {
	return o.attach == nil && len(o.killed) == 0 && len(o.messages) == 0
}

func (o *outbox) addStart(s manager.StartRun) {
	run := node.RunID{ID: s.ID, Run: s.Run}
	if o.starts[run] {
		return
	}
	if o.starts == nil {
		o.starts = make(map[node.RunID]bool)
	}
	o.starts[run] = true
	o.messages = append(o.messages, message{run: run, start: &s})
}

func (o *outbox) addWant(run node.RunID, w keeper.Want) {
	wishes := o.wanted[run]
	if wishes == nil {
		if o.wanted == nil {
			o.wanted = make(map[node.RunID]*keeper.Wishes)
		}
		wishes = new(keeper.Wishes)
		o.wanted[run] = wishes
		o.messages = append(o.messages, message{run: run})
	}
	if w.Verb == keeper.Kill && !wishes.Has(keeper.Kill) && !o.starts[run] {
		o.killed = append(o.killed, run)
	}
	wishes.Add(w)
}

func (o *outbox) addForget(run node.RunID) {
	o.messages = append(o.messages, message{run: run, forget: true})
}

// pop removes and returns what is to be sent next.
func (o *outbox) pop() outgoing {
	if o.attach != nil {
		a := o.attach
		o.attach = nil
		return outgoing{commands: []node.Command{{Attach: a}}}
	}
	for len(o.killed) > 0 {
		run := o.killed[0]
		o.killed = o.killed[1:]
		if wishes := o.wanted[run]; wishes != nil {
			if kill := wishes.PopKill(); kill != nil {
				return outgoing{commands: commands(run, kill...)}
			}
		}
	}
	if len(o.messages) == 0 {
		return outgoing{}
	}
	l := o.messages[0]
	o.messages = o.messages[1:]
	switch {
	case l.start != nil:
		delete(o.starts, l.run)
		return outgoing{start: l.start}
	case l.forget:
		return outgoing{commands: []node.Command{{Forget: &l.run}}}
	}
	wishes := o.wanted[l.run]
	delete(o.wanted, l.run)
	return outgoing{commands: commands(l.run, wishes.PopAll()...)}
}

func commands(run node.RunID, wants ...keeper.Want) []node.Command {
	var all []node.Command
	for _, w := range wants {
		all = append(all, node.Command{Want: &node.Want{Run: run, Verb: w.Verb, Grace: w.Grace, Text: w.Text, Signal: w.Signal, Requeue: w.Requeue}})
	}
	return all
}
