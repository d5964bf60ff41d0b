package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/test/await"
)

// Node is node1 … of a cluster with Options.Namespaces: a host of its own as far as its network
// and its processes go. Its files are those of all hosts.
type Node struct {
	cluster *Cluster
	number  int
}

// Node returns a node, by its number from 1 on.
func (c *Cluster) Node(number int) *Node { return &Node{c, number} }

// Name returns the node's name in Slurm.
func (n *Node) Name() string { return "node" + strconv.Itoa(n.number) }

// namespace is the name of its namespace, and of its link.
func (n *Node) namespace() string { return fmt.Sprintf("al%d.%d", n.cluster.options.Port, n.number) }

func (n *Node) run(ctx context.Context, argv ...string) (string, error) {
	out, err := command.Run(ctx, command.Command{Argv: argv, Env: n.cluster.Env(), Timeout: patience})
	return string(out), err
}

// Enter has a command that has not begun run in the node's namespace: Kill kills it.
func (n *Node) Enter(cmd *exec.Cmd) error {
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{"nsenter", "--net=" + filepath.Join("/run/netns", n.namespace()), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = path
	return nil
}

// Processes returns the numbers of the processes in the node's namespace.
func (n *Node) Processes(ctx context.Context) ([]string, error) {
	out, err := n.run(ctx, "ip", "netns", "pids", n.namespace())
	return strings.Fields(out), err
}

// Link cuts the node's link, or mends it.
func (n *Node) Link(ctx context.Context, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	_, err := n.run(ctx, "ip", "link", "set", n.namespace(), state)
	return err
}

// Kill kills all processes of the node at once, slurmd and jobs, as a power cut does. Nothing of
// them sends a word: the link is cut before, and mended after.
func (n *Node) Kill(ctx context.Context) error {
	if err := n.Link(ctx, false); err != nil {
		return err
	}
	for {
		pids, err := n.Processes(ctx)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return n.Link(ctx, true)
		}
		var all []int
		for _, text := range pids {
			pid, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			all = append(all, pid)
		}
		for _, pid := range all {
			if !await.End(ctx, pid) {
				return fmt.Errorf("kill %s: process %d is still there", n.Name(), pid)
			}
		}
	}
}

// Boot starts slurmd again after Kill.
func (n *Node) Boot(ctx context.Context) error {
	_, err := n.run(ctx, "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF="+n.cluster.Conf(),
		"nsenter", "--net="+filepath.Join("/run/netns", n.namespace()), "slurmd", "-N", n.Name())
	return err
}
