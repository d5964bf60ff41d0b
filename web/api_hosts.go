package web

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// errNotHeard is returned where no hosts are heard.
var errNotHeard = &statusError{http.StatusNotFound, errNoBus.Error()}

// agentView is a host, as its agent's heartbeats have it.
type agentView struct {
	Host      string    `json:"host"`
	Status    string    `json:"status" enum:"here,lost,returning,flapping,gone"`
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`
	Heard     time.Time `json:"heard" doc:"the last heartbeat"`
	Losses    int       `json:"losses" doc:"of late"`
	Cores     int       `json:"cores"`
	Load      *float64  `json:"load,omitempty" doc:"of the last minute; absent: the kernel does not say"`
	Memory    uint64    `json:"memory_bytes"`
	Available *uint64   `json:"available_bytes,omitempty"`
	Jobs      int       `json:"jobs"`
	Version   string    `json:"version" doc:"of the agent"`
	Lacks     []string  `json:"not_measured,omitempty" doc:"figures that some of its jobs lack"`
	GPUs      []gpuView `json:"gpus,omitempty" doc:"as many as a heartbeat has room for: 16 or more"`
	MoreGPUs  int       `json:"more_gpus,omitempty" doc:"that it has no room for"`

	Limits *supervise.Means `json:"limits,omitempty" doc:"how it limits jobs, so that others have what they were promised; absent: it does not"`
}

// gpuView is a GPU of a host. A figure that it does not answer is absent.
type gpuView struct {
	Index   int      `json:"gpu"`
	Busy    *float64 `json:"busy,omitempty" doc:"part of the time in which something ran on it"`
	Used    *uint64  `json:"memory_used_bytes,omitempty"`
	Memory  *uint64  `json:"memory_bytes,omitempty"`
	Celsius *uint64  `json:"celsius,omitempty"`
	Watts   *uint64  `json:"watts,omitempty"`
}

func gpusOf(b *roster.Beat) (all []gpuView) {
	for i := range b.GPUs {
		g := &b.GPUs[i]
		v := gpuView{Index: g.Index, Used: g.Used, Memory: g.Memory, Celsius: g.Celsius, Watts: g.Watts}
		if g.Busy != nil {
			part := float64(*g.Busy) / 100
			v.Busy = &part
		}
		all = append(all, v)
	}
	return all
}

func agentOf(h *roster.Host) agentView {
	return agentView{
		h.Name, string(h.State), h.Since.UTC(), h.Reason, h.Heard.UTC(), h.Losses,
		h.Cores, h.Load, h.Memory, h.Available, h.Jobs, h.Version, h.Lacks,
		gpusOf(&h.Beat), h.MoreGPUs, h.Limits,
	}
}

// useView is what a job uses on a host. A figure that is not measured there is absent.
type useView struct {
	Host    string    `json:"host"`
	Queue   string    `json:"queue"`
	Job     string    `json:"job"`
	OnHost  string    `json:"job_on_host,omitempty" doc:"the ID by which the host knows the job, where it is another: of an element of one of Slurm's arrays"`
	UID     *int      `json:"uid,omitempty" doc:"of its processes; absent: not known"`
	Source  string    `json:"source"`
	At      time.Time `json:"at"`
	Cores   *float64  `json:"cores,omitempty" doc:"that it keeps busy now"`
	CPU     *float64  `json:"cpu_seconds,omitempty"`
	Memory  *uint64   `json:"memory_bytes,omitempty"`
	Cache   *uint64   `json:"memory_cache_bytes,omitempty"`
	Peak    *uint64   `json:"memory_peak_bytes,omitempty"`
	Swap    *uint64   `json:"swap_bytes,omitempty"`
	Reading *float64  `json:"read_bytes_per_second,omitempty"`
	Writing *float64  `json:"written_bytes_per_second,omitempty"`
	Net     *float64  `json:"net_bytes_per_second,omitempty" doc:"sent and received, but not to the host itself"`
	Read    *uint64   `json:"read_bytes,omitempty"`
	Written *uint64   `json:"written_bytes,omitempty"`
	Reads   *uint64   `json:"reads,omitempty"`
	Writes  *uint64   `json:"writes,omitempty"`

	CPUStalled        *float64 `json:"cpu_stalled_seconds,omitempty" doc:"for how long some of its tasks waited for it"`
	MemoryStalled     *float64 `json:"memory_stalled_seconds,omitempty"`
	MemoryFullStalled *float64 `json:"memory_full_stalled_seconds,omitempty" doc:"for how long all of them did"`
	IOStalled         *float64 `json:"io_stalled_seconds,omitempty"`
	IOFullStalled     *float64 `json:"io_full_stalled_seconds,omitempty"`

	Processes *uint64 `json:"processes,omitempty"`
	Threads   *uint64 `json:"threads,omitempty"`

	GPUs      *uint64  `json:"gpus,omitempty" doc:"that its processes use; absent: the host has none, or they are not measured"`
	GPUBusy   *float64 `json:"gpus_busy,omitempty" doc:"how many of them it keeps busy, in sum"`
	GPUMemory *uint64  `json:"gpu_memory_bytes,omitempty"`

	Progress string    `json:"progress,omitempty" doc:"how far the job is, by its own words: percent, then its text"`
	SaidAt   time.Time `json:"said_at,omitzero" doc:"when the job said so"`
}

// jobUse is what a job uses on a host, with the job's ID as its queue lists it.
type jobUse struct {
	roster.Use
	Listed backends.ID
}

func useOf(u *jobUse) useView {
	var disk measure.Disk
	if len(u.Disks) > 0 {
		disk = u.Disks[0]
	}
	v := useView{
		Host: u.Host, Queue: string(u.Queue), Job: u.Listed.String(), Source: string(u.Source), At: u.At.UTC(),
		Cores: rateOf(u.Cores), CPU: secondsOf(u.CPU), Memory: numberOf(u.Memory), Cache: numberOf(u.Cache), Peak: numberOf(u.Peak), Swap: numberOf(u.Swap),
		Reading: rateOf(u.Read), Writing: rateOf(u.Written), Net: rateOf(u.Net), Read: numberOf(disk.ReadBytes), Written: numberOf(disk.WrittenBytes), Reads: numberOf(disk.Reads), Writes: numberOf(disk.Writes),
		CPUStalled: secondsOf(u.Pressure.CPUSome), MemoryStalled: secondsOf(u.Pressure.MemorySome), MemoryFullStalled: secondsOf(u.Pressure.MemoryFull),
		IOStalled: secondsOf(u.Pressure.IOSome), IOFullStalled: secondsOf(u.Pressure.IOFull),
		Processes: numberOf(u.Processes), Threads: numberOf(u.Threads),
		GPUs: numberOf(u.GPU.Devices), GPUMemory: numberOf(u.GPU.Memory),
		Progress: u.Progress,
	}
	if u.Progress != "" {
		v.SaidAt = u.SaidAt.UTC()
	}
	if u.GPU.SM.Known {
		busy := float64(u.GPU.SM.N) / 100
		v.GPUBusy = &busy
	}
	if u.Listed != u.ID {
		v.OnHost = u.IDText()
	}
	if u.User != measure.NoUser {
		v.UID = &u.User
	}
	return v
}

func numberOf(v measure.Value) *uint64 {
	if !v.Known {
		return nil
	}
	return &v.N
}

func secondsOf(v measure.Value) *float64 {
	if !v.Known {
		return nil
	}
	s := float64(v.N) / 1e9
	return &s
}

func rateOf(r roster.Rate) *float64 {
	if !r.Known {
		return nil
	}
	return &r.PerSecond
}

// agentsOut is the list of hosts.
type agentsOut struct {
	Body struct {
		Hosts   []agentView `json:"hosts"`
		LeftOut int         `json:"left_out,omitempty" doc:"hosts beyond the bound"`
	}
}

// agentOut is a host with its jobs.
type agentOut struct {
	Body struct {
		agentView
		Uses   []useView `json:"uses" doc:"what its jobs use, those that the caller may read"`
		Others int       `json:"others,omitempty" doc:"jobs that the caller may not read"`
	}
}

// usesOut is what jobs use.
type usesOut struct {
	Body struct {
		Uses []useView `json:"uses"`
		More int       `json:"more,omitempty" doc:"that are left out"`
	}
}

// mostUses bounds the uses in an answer.
const mostUses = 10_000

func (a api) addHosts() {
	add(a, http.MethodGet, "/agents", "get-agents", "the hosts whose agents are heard", func(context.Context, *desk.Desk, *struct{}) (*agentsOut, error) {
		if a.server.Hosts == nil {
			return nil, errNotHeard
		}
		out := &agentsOut{}
		hosts, leftOut := a.server.Hosts.Hosts()
		out.Body.Hosts, out.Body.LeftOut = []agentView{}, leftOut
		for i := range hosts {
			out.Body.Hosts = append(out.Body.Hosts, agentOf(&hosts[i]))
		}
		return out, nil
	})
	add(a, http.MethodGet, "/agents/{host}", "get-agent", "a host, and what its jobs use", func(ctx context.Context, d *desk.Desk, in *struct {
		Host string `path:"host" maxLength:"255"`
	},
	) (*agentOut, error) {
		h, uses, others, err := a.server.hostUses(ctx, d, in.Host)
		if err != nil {
			return nil, err
		}
		out := &agentOut{}
		out.Body.agentView, out.Body.Uses, out.Body.Others = agentOf(&h), viewsOf(uses), others
		return out, nil
	})
	add(a, http.MethodGet, "/uses", "get-uses", "what running jobs use on each of their hosts, those that the caller may read", func(ctx context.Context, d *desk.Desk, in *struct {
		Jobs []string `query:"job" maxItems:"200" doc:"IDs, such as 12 or 12[3], between commas; none: all"`
	},
	) (*usesOut, error) {
		wanted := map[backends.ID]bool{}
		for _, text := range in.Jobs {
			id, err := backends.ParseID(text)
			if err != nil {
				return nil, huma.Error400BadRequest(err.Error())
			}
			wanted[id] = true
		}
		uses, err := a.server.usesOf(ctx, d, wanted)
		if err != nil {
			return nil, err
		}
		out := &usesOut{}
		out.Body.More = max(0, len(uses)-mostUses)
		out.Body.Uses = viewsOf(uses[:len(uses)-out.Body.More])
		return out, nil
	})
}

func viewsOf(uses []jobUse) []useView {
	all := []useView{}
	for i := range uses {
		all = append(all, useOf(&uses[i]))
	}
	return all
}

// hostUses returns a host with what its jobs use that the caller may read, and the number of
// the others.
func (s *Server) hostUses(ctx context.Context, d *desk.Desk, host string) (h roster.Host, uses []jobUse, others int, err error) {
	if s.Hosts == nil {
		return h, nil, 0, errNotHeard
	}
	h, ok := s.Hosts.Host(host)
	if !ok {
		return h, nil, 0, &statusError{http.StatusNotFound, "no agent is heard of a host of this name: see ahosts --agents"}
	}
	may, err := d.MayReadUse(ctx)
	if err != nil {
		return h, nil, 0, err
	}
	named, err := d.JobsOnHosts(ctx)
	if err != nil {
		return h, nil, 0, err
	}
	for _, u := range s.Hosts.UsesOn(host, func(*roster.Use) bool { return true }) {
		if may(string(u.Queue), u.ID, u.User) {
			uses = append(uses, jobUse{u, named(string(u.Queue), u.ID)})
		} else {
			others++
		}
	}
	return h, uses, others, nil
}

// usesOf returns what jobs use, those that are wanted and that the caller may read; none:
// all of these.
func (s *Server) usesOf(ctx context.Context, d *desk.Desk, wanted map[backends.ID]bool) ([]jobUse, error) {
	if s.Hosts == nil {
		return nil, errNotHeard
	}
	may, err := d.MayReadUse(ctx)
	if err != nil {
		return nil, err
	}
	named, err := d.JobsOnHosts(ctx)
	if err != nil {
		return nil, err
	}
	var readable []jobUse
	for _, u := range s.Hosts.Uses(func(u *roster.Use) bool {
		return len(wanted) == 0 || wanted[u.ID] || wanted[named(string(u.Queue), u.ID)]
	}) {
		if may(string(u.Queue), u.ID, u.User) {
			readable = append(readable, jobUse{u, named(string(u.Queue), u.ID)})
		}
	}
	return readable, nil
}
