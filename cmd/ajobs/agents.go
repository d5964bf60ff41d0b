package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/nearest"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// agent is what is used here of a host in allotd's answer.
type agent struct {
	Host      string    `json:"host"`
	Status    string    `json:"status"`
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`
	Heard     time.Time `json:"heard"`
	Losses    int       `json:"losses"`
	Cores     int       `json:"cores"`
	Load      *float64  `json:"load,omitempty"`
	Memory    uint64    `json:"memory_bytes"`
	Available *uint64   `json:"available_bytes,omitempty"`
	Jobs      int       `json:"jobs"`
	Version   string    `json:"version"`
	Lacks     []string  `json:"not_measured,omitempty"`
	GPUs      []gpu     `json:"gpus,omitempty"`
	MoreGPUs  int       `json:"more_gpus,omitempty"`

	Limits *supervise.Means `json:"limits,omitempty"`
}

// gpu is what is used here of a GPU of a host.
type gpu struct {
	Index   int      `json:"gpu"`
	Busy    *float64 `json:"busy,omitempty"`
	Used    *uint64  `json:"memory_used_bytes,omitempty"`
	Memory  *uint64  `json:"memory_bytes,omitempty"`
	Celsius *uint64  `json:"celsius,omitempty"`
	Watts   *uint64  `json:"watts,omitempty"`
}

// gpusBusy is how many of the host's GPUs are busy, in sum.
func (a *agent) gpusBusy() (sum bsub.Figure) {
	for i := range a.GPUs {
		sum.AddFloat(a.GPUs[i].Busy)
	}
	return sum
}

// used is what is used here of what a job uses on a host.
type used struct {
	Queue   string   `json:"queue"`
	Job     string   `json:"job"`
	OnHost  string   `json:"job_on_host"` // empty: the same
	UID     *int     `json:"uid"`
	Cores   *float64 `json:"cores"`
	Memory  *uint64  `json:"memory_bytes"`
	Peak    *uint64  `json:"memory_peak_bytes"`
	Swap    *uint64  `json:"swap_bytes"`
	Reading *float64 `json:"read_bytes_per_second"`
	Writing *float64 `json:"written_bytes_per_second"`
	Net     *float64 `json:"net_bytes_per_second"`
	Threads *uint64  `json:"threads"`
	GPUs    *float64 `json:"gpus_busy"`
	GPUMem  *uint64  `json:"gpu_memory_bytes"`

	Progress string    `json:"progress"`
	SaidAt   time.Time `json:"said_at"`
}

// askAllotd reads what an allotd on this machine answers at an address of its API into answer.
// On its socket the kernel names the user who asks.
func askAllotd(ctx context.Context, route string, query url.Values, answer any) error {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return err
	}
	return ask.JSON(ctx, c.Web.SocketIn(c.Paths.Runtime), route, query, answer)
}

// agentColumn is a column of the list of agents.
type agentColumn struct {
	name  string
	usual bool
	text  func(a *agent, zone *time.Location) string
}

func agentColumns() []agentColumn {
	size := func(n uint64) string { return unit.Size(min(n, 1<<62)).Short() }
	at := func(t time.Time, zone *time.Location) string { return t.In(zone).Format(time.DateTime) }
	return []agentColumn{
		{"host", true, func(a *agent, _ *time.Location) string { return a.Host }},
		{"status", true, func(a *agent, _ *time.Location) string { return a.Status }},
		{"since", true, func(a *agent, zone *time.Location) string { return at(a.Since, zone) }},
		{"cores", true, func(a *agent, _ *time.Location) string { return strconv.Itoa(a.Cores) }},
		{"load", true, func(a *agent, _ *time.Location) string {
			if a.Load == nil {
				return ""
			}
			return fmt.Sprintf("%.2f", *a.Load)
		}},
		{"memory", true, func(a *agent, _ *time.Location) string { return size(a.Memory) }},
		{"free", false, func(a *agent, _ *time.Location) string {
			if a.Available == nil {
				return ""
			}
			return size(*a.Available)
		}},
		{"jobs", true, func(a *agent, _ *time.Location) string { return strconv.Itoa(a.Jobs) }},
		{"version", true, func(a *agent, _ *time.Location) string { return a.Version }},
		{"heard", false, func(a *agent, zone *time.Location) string { return at(a.Heard, zone) }},
		{"losses", false, func(a *agent, _ *time.Location) string { return strconv.Itoa(a.Losses) }},
		{"gpus", false, func(a *agent, _ *time.Location) string {
			if n := len(a.GPUs) + a.MoreGPUs; n > 0 {
				return strconv.Itoa(n)
			}
			return ""
		}},
		{"gpuuse", false, func(a *agent, _ *time.Location) string {
			return (&bsub.Use{GPUs: a.gpusBusy()}).Text("gpuuse")
		}},
		{"limits", false, func(a *agent, _ *time.Location) string {
			if a.Limits == nil {
				return ""
			}
			return a.Limits.String()
		}},
		{"lacks", false, func(a *agent, _ *time.Location) string { return strings.Join(a.Lacks, " ") }},
		{"reason", false, func(a *agent, _ *time.Location) string { return a.Reason }},
	}
}

// agentsOptions are the options of ahosts --agents.
type agentsOptions struct {
	names     []string // empty: all
	columns   []agentColumn
	json, csv bool
}

// agentFlags are the options of ahosts that go with --agents.
func agentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "agents", Usage: "the hosts whose agents (ahostd) allotd hears, on this machine: whether they are here, since when, and how busy; -w: and why", DisableDefaultText: true},
		&cli.StringFlag{Name: "o", Usage: "with --agents: these `COLUMNS`: " + strings.Join(agentColumnNames(), ", ")},
		&cli.BoolFlag{Name: "csv", Usage: "with --agents: print comma-separated values with a heading", DisableDefaultText: true},
	}
}

func agentColumnNames() (names []string) {
	for _, c := range agentColumns() {
		names = append(names, c.name)
	}
	return names
}

// agentsOptionsOf reads the options; false: --agents is not among them.
func agentsOptionsOf(c *cli.Context) (o agentsOptions, asked bool, err error) {
	if !c.Bool("agents") {
		for _, name := range []string{"o", "csv"} {
			if c.IsSet(name) {
				return o, false, shell.Usagef("option %s goes with --agents", map[bool]string{true: "-", false: "--"}[len(name) == 1]+name)
			}
		}
		return o, false, nil
	}
	o = agentsOptions{names: c.Args().Slice(), json: c.Bool("json"), csv: c.Bool("csv")}
	switch {
	case c.Bool("l"):
		return o, true, shell.Usagef("--agents can't be combined with -l: ahosts -l HOST shows what is measured there")
	case o.json && (o.csv || c.IsSet("o") || c.Bool("w")):
		return o, true, shell.Usagef("--json has all columns: it can't be combined with --csv, -o or -w")
	case c.IsSet("o") && c.Bool("w"):
		return o, true, shell.Usagef("-o and -w exclude each other")
	}
	if c.IsSet("o") {
		o.columns, err = parseAgentColumns(c.String("o"))
		return o, true, err
	}
	for _, column := range agentColumns() {
		if column.usual || c.Bool("w") && column.name == "reason" {
			o.columns = append(o.columns, column)
		}
	}
	return o, true, nil
}

// parseAgentColumns reads names of columns, between blanks or commas.
func parseAgentColumns(text string) (columns []agentColumn, err error) {
	known := agentColumns()
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		n := len(columns)
		for _, c := range known {
			if strings.EqualFold(c.name, name) {
				columns = append(columns, c)
			}
		}
		if len(columns) == n {
			return nil, shell.Usagef("option -o: unknown column %q%s", bsub.Visible(name), cmp.Or(nearest.Hint(name, agentColumnNames()), " (known: "+strings.Join(agentColumnNames(), ", ")+")"))
		}
		if len(columns) > len(known) {
			return nil, shell.Usagef("option -o: more than %d columns", len(known))
		}
	}
	if len(columns) == 0 {
		return nil, shell.Usagef("option -o: no column named (known: %s)", strings.Join(agentColumnNames(), ", "))
	}
	return columns, nil
}

// runAgents is ahosts --agents.
func runAgents(ctx context.Context, p process, o agentsOptions, out io.Writer) error {
	var answer struct {
		Hosts   []agent `json:"hosts"`
		LeftOut int     `json:"left_out"`
	}
	if err := p.allotd(ctx, "/agents", nil, &answer); err != nil {
		return err
	}
	chosen, unknown := selectNamed(answer.Hosts, o.names, func(a agent) string { return a.Host })
	var err error
	switch {
	case o.json:
		if chosen == nil {
			chosen = []agent{}
		}
		err = shell.PrintJSON(out, chosen)
	case o.csv:
		err = writeAgentsCSV(out, chosen, o.columns)
	case len(chosen) > 0:
		err = writeAgents(out, chosen, o.columns, p.now().Location())
	case len(unknown) == 0:
		fmt.Fprintln(p.stderr, "No host found: allotd hears no ahostd (see docs/hosts.md)")
	}
	if answer.LeftOut > 0 {
		fmt.Fprintf(p.stderr, "ahosts: allotd's list is full: %d more hosts are left out\n", answer.LeftOut)
	}
	return cmp.Or(err, reportUnknown(p, "%s: no agent is heard of this host\n", unknown))
}

func writeAgents(out io.Writer, agents []agent, columns []agentColumn, zone *time.Location) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		fmt.Fprint(w, strings.ToUpper(c.name)+end(i, len(columns)))
	}
	for k := range agents {
		for i, c := range columns {
			fmt.Fprint(w, bsub.Visible(cmp.Or(c.text(&agents[k], zone), "-"))+end(i, len(columns)))
		}
	}
	return w.Flush()
}

// end is what follows a cell.
func end(i, columns int) string {
	if i == columns-1 {
		return "\n"
	}
	return "\t"
}

func writeAgentsCSV(out io.Writer, agents []agent, columns []agentColumn) error {
	w := csv.NewWriter(out)
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.name
	}
	err := w.Write(row)
	for k := range agents {
		for i, c := range columns {
			row[i] = bsub.Visible(c.text(&agents[k], time.UTC))
		}
		err = errors.Join(err, w.Write(row))
	}
	w.Flush()
	return errors.Join(err, w.Error())
}

// writeMeasured prints what is measured on the hosts: of ahosts -l. It prints nothing where no
// allotd runs, or none hears such a host.
func writeMeasured(ctx context.Context, p process, hosts []bsub.HostUse, out io.Writer) error {
	var heard struct {
		Hosts []agent `json:"hosts"`
	}
	if err := p.allotd(ctx, "/agents", nil, &heard); err != nil {
		return nil // the queue's list is complete without it
	}
	for i := range hosts {
		name, ok := agentOf(heard.Hosts, hosts[i].Name)
		if !ok {
			continue
		}
		var answer struct {
			agent
			Uses   []used `json:"uses"`
			Others int    `json:"others"`
		}
		if err := p.allotd(ctx, "/agents/"+url.PathEscape(name), nil, &answer); err != nil {
			continue
		}
		a := &answer.agent
		fmt.Fprintf(out, "\nMEASURED ON %s: %s since %s (%s)\n", bsub.Visible(a.Host), bsub.Visible(a.Status), a.Since.In(p.now().Location()).Format(time.DateTime), bsub.Visible(a.Reason))
		if err := writeAgents(out, []agent{*a}, pick("cores", "load", "memory", "free", "jobs", "version", "lacks"), p.now().Location()); err != nil {
			return err
		}
		if err := writeGPUs(out, a); err != nil {
			return err
		}
		if err := writeUsed(out, answer.Uses); err != nil {
			return err
		}
		if answer.Others > 0 {
			fmt.Fprintf(out, "jobs of others, whose figures are theirs: %d\n", answer.Others)
		}
	}
	return nil
}

// agentOf returns the name under which the agent of a queue's host is heard: the same one, or
// the only one that differs by its domain.
func agentOf(heard []agent, host string) (name string, ok bool) {
	short := func(name string) string {
		first, _, _ := strings.Cut(name, ".")
		return first
	}
	var alike []string
	for i := range heard {
		switch is := heard[i].Host; {
		case is == host:
			return is, true
		case short(is) == short(host) && (is == short(is) || host == short(host)):
			alike = append(alike, is)
		}
	}
	if len(alike) != 1 {
		return "", false
	}
	return alike[0], true
}

func pick(names ...string) (columns []agentColumn) {
	for _, name := range names {
		for _, c := range agentColumns() {
			if c.name == name {
				columns = append(columns, c)
			}
		}
	}
	return columns
}

// writeGPUs prints what a host's GPUs do, a line for each.
func writeGPUs(out io.Writer, a *agent) error {
	if len(a.GPUs)+a.MoreGPUs == 0 {
		return nil
	}
	size := func(n *uint64) string {
		if n == nil {
			return "-"
		}
		return unit.Size(min(*n, 1<<62)).Short()
	}
	number := func(n *uint64, of string) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatUint(*n, 10) + of
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tBUSY\tUSED\tMEMORY\tTEMP\tPOWER")
	for i := range a.GPUs {
		g := &a.GPUs[i]
		busy := "-"
		if g.Busy != nil {
			busy = fmt.Sprintf("%.0f%%", 100**g.Busy)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", g.Index, busy, size(g.Used), size(g.Memory), number(g.Celsius, "C"), number(g.Watts, "W"))
	}
	err := w.Flush()
	if a.MoreGPUs > 0 {
		fmt.Fprintf(out, "more GPUs, for which a heartbeat has no room: %d\n", a.MoreGPUs)
	}
	return err
}

func writeUsed(out io.Writer, uses []used) error {
	if len(uses) == 0 {
		return nil
	}
	columns := []string{"cpu", "mem", "max_mem", "swap", "io", "nthreads"}
	if slices.ContainsFunc(uses, func(u used) bool { return u.GPUs != nil || u.GPUMem != nil }) {
		columns = append(columns, "gpuuse", "gpumem")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOBID\t"+strings.ToUpper(strings.Join(columns, "\t")))
	for i := range uses {
		u := useOf(uses[i : i+1])
		texts := []string{bsub.Visible(uses[i].Job)}
		for _, f := range columns {
			texts = append(texts, cmp.Or(u.Text(f), "-"))
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	return w.Flush()
}

// useOf sums what a job uses on its hosts. A figure that no host has is absent. Of what it says of
// its progress the last counts.
func useOf(all []used) *bsub.Use {
	sum := &bsub.Use{}
	var said time.Time
	for i := range all {
		u := &all[i]
		if u.Progress != "" && (sum.Progress == "" || u.SaidAt.After(said)) {
			sum.Progress, said = u.Progress, u.SaidAt
		}
		sum.Cores.AddFloat(u.Cores)
		sum.IO.AddFloat(u.Reading)
		sum.IO.AddFloat(u.Writing)
		sum.Net.AddFloat(u.Net)
		sum.GPUs.AddFloat(u.GPUs)
		for _, x := range []struct {
			to   *bsub.Figure
			from *uint64
		}{{&sum.Memory, u.Memory}, {&sum.Peak, u.Peak}, {&sum.Swap, u.Swap}, {&sum.Threads, u.Threads}, {&sum.GPUMem, u.GPUMem}} {
			if x.from != nil {
				f := float64(*x.from)
				x.to.AddFloat(&f)
			}
		}
	}
	return sum
}

// mostNamed is of how many jobs allotd is asked by their IDs; of more of them it is asked of all.
const mostNamed = 200

// usesOf returns what jobs use, of those that the user may read.
func usesOf(ctx context.Context, jobs []backends.Job) (map[backends.ID]*bsub.Use, error) {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return nil, err
	}
	var ids []string
	running := map[backends.ID]*backends.Job{}
	for i := range jobs {
		if j := &jobs[i]; j.State == backends.Running || j.State == backends.Suspended {
			running[j.OnHosts()] = j
			ids = append(ids, j.OnHosts().String())
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	query := url.Values{}
	if len(ids) <= mostNamed {
		query.Set("job", strings.Join(ids, ","))
	}
	var answer struct {
		Uses []used `json:"uses"`
	}
	if err := ask.JSON(ctx, c.Web.SocketIn(c.Paths.Runtime), "/uses", query, &answer); err != nil {
		return nil, err
	}
	return sumUses(answer.Uses, c.Backend, running, userID), nil
}

// sumUses sums what the processes of each job use. Any user's process may say that it is of a
// job: it counts if it is the job's user's. Jobs are given by the IDs that their hosts have for them.
func sumUses(all []used, queue string, jobs map[backends.ID]*backends.Job, uidOf func(name string) (int, bool)) map[backends.ID]*bsub.Use {
	of := map[backends.ID][]used{}
	uids := map[string]int{}
	for _, u := range all {
		id, err := backends.ParseID(cmp.Or(u.OnHost, u.Job))
		j, ok := jobs[id]
		if err != nil || !ok || u.Queue != queue {
			continue
		}
		if u.UID != nil {
			uid, known := uids[j.User]
			if !known {
				var ok bool
				if uid, ok = uidOf(j.User); !ok {
					uid = -1
				}
				uids[j.User] = uid
			}
			if uid != *u.UID {
				continue
			}
		}
		of[j.ID] = append(of[j.ID], u)
	}
	sums := map[backends.ID]*bsub.Use{}
	for id, uses := range of {
		sums[id] = useOf(uses)
	}
	return sums
}

func userID(name string) (int, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	uid, err := strconv.Atoi(u.Uid)
	return uid, err == nil
}
