package qualify

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/internal/command"
)

// GPU holds what a driver states of a GPU.
type GPU struct {
	Name   string  `json:"name"`
	ID     string  `json:"id"`         // of the device, as its driver names it
	Memory float64 `json:"memory_gib"` // 0: not stated
	Clock  float64 `json:"clock_ghz"`  // the highest of its processors; 0: not stated
}

// value returns the GPU's part of G. A figure that is not stated counts as 1.
func (g GPU) value() float64 {
	orOne := func(v float64) float64 {
		if v == 0 {
			return 1
		}
		return v
	}
	return mean(orOne(g.Memory), orOne(g.Clock))
}

// findGPUs lists the GPUs that this process may use: NVIDIA's by their own program,
// AMD's by their driver's files.
func findGPUs(ctx context.Context) ([]GPU, error) {
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return amdGPUs("/"), nil
	}
	out, err := command.Run(ctx, command.Command{
		Argv:    []string{"nvidia-smi", "--query-gpu=uuid,name,memory.total,clocks.max.sm", "--format=csv,noheader,nounits"},
		Timeout: gpuTime,
	})
	if err != nil {
		return amdGPUs("/"), err
	}
	all, err := parseGPUs(string(out))
	if err != nil {
		return nil, err
	}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		all = visibleGPUs(all, visible)
	}
	return append(all, amdGPUs("/")...), nil
}

// parseGPUs reads what nvidia-smi prints: a line of UUID, name, MiB, MHz for each
// GPU, or a sentence where there is none.
func parseGPUs(text string) ([]GPU, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "No devices were found") {
		return nil, nil
	}
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord, r.TrimLeadingSpace, r.LazyQuotes = 4, true, true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("parse nvidia-smi's output: %w", err)
	}
	all := make([]GPU, 0, len(rows))
	for _, row := range rows {
		memory, err1 := parseFigure(row[2])
		clock, err2 := parseFigure(row[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("parse nvidia-smi's output for %q: %w", row[0], err)
		}
		all = append(all, GPU{ID: row[0], Name: row[1], Memory: rounded(memory / 1024), Clock: rounded(clock / 1000)})
	}
	return all, nil
}

// parseFigure reads a number; 0 if the driver does not know it: [N/A], [Not Supported].
func parseFigure(text string) (float64, error) {
	if strings.HasPrefix(text, "[") || text == "N/A" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || v > 1e12 || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return v, nil
}

// visibleGPUs returns the GPUs that CUDA would use: those of a list of numbers, or of UUIDs or
// their beginnings, up to the first that does not exist.
func visibleGPUs(all []GPU, visible string) []GPU {
	var chosen []GPU
	for name := range strings.SplitSeq(visible, ",") {
		name = strings.TrimSpace(name)
		found := -1
		if i, err := strconv.Atoi(name); err == nil && i < len(all) {
			found = i
		}
		for i, g := range all {
			if strings.HasPrefix(name, "GPU-") && strings.HasPrefix(g.ID, name) {
				found = i
			}
		}
		if found < 0 {
			break
		}
		chosen = append(chosen, all[found])
	}
	return chosen
}

// amdGPUs lists AMD's GPUs with memory of their own.
func amdGPUs(root string) []GPU {
	devices, _ := filepath.Glob(filepath.Join(root, "sys/class/drm/card*/device/mem_info_vram_total")) // only a bad pattern is an error
	var all []GPU
	for _, path := range devices {
		dir := filepath.Dir(path)
		bytes, err := strconv.ParseUint(readText(dir, "mem_info_vram_total"), 10, 63)
		if err != nil || bytes == 0 {
			continue
		}
		all = append(all, GPU{
			ID: filepath.Base(filepath.Dir(dir)), Name: strings.TrimSpace("AMD " + readText(dir, "product_name")),
			Memory: rounded(float64(bytes) / (1 << 30)), Clock: rounded(parseClocks(readText(dir, "pp_dpm_sclk")) / 1000),
		})
	}
	return all
}

// parseClocks returns the highest of amdgpu's clocks in MHz, from lines like
// "1: 2100Mhz *"; 0 if there is none.
func parseClocks(text string) float64 {
	highest := 0.0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		number, ok := strings.CutSuffix(strings.ToLower(fields[1]), "mhz")
		if v, err := strconv.ParseFloat(number, 64); ok && err == nil && v < 1e6 {
			highest = max(highest, v)
		}
	}
	return highest
}
