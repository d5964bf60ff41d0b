package qualify

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoGPUs = "GPU-8f1b-a, NVIDIA A100-SXM4-40GB, 40960, 1410\nGPU-77aa-b, NVIDIA H100 80GB HBM3, 81559, 1980\n"

func TestParseGPUs(t *testing.T) {
	two := []GPU{{ID: "GPU-8f1b-a", Name: "NVIDIA A100-SXM4-40GB", Memory: 40, Clock: 1.41}, {ID: "GPU-77aa-b", Name: "NVIDIA H100 80GB HBM3", Memory: 79.65, Clock: 1.98}}
	for _, c := range []struct {
		text string
		want []GPU
		bad  bool
	}{
		{text: ""},
		{text: "No devices were found\n"},
		{text: twoGPUs, want: two},
		{text: "GPU-1, Thor, [N/A], [Not Supported]\n", want: []GPU{{ID: "GPU-1", Name: "Thor"}}},
		{text: "GPU-1, A100, 40960\n", bad: true},
		{text: "GPU-1, A100, 40 GiB, 1410\n", bad: true},
		{text: "GPU-1, A100, -1, 1410\n", bad: true},
		{text: "GPU-1, A100, NaN, 1410\n", bad: true},
		{text: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", bad: true},
	} {
		got, err := parseGPUs(c.text)
		if (err != nil) != c.bad || err == nil && len(got)+len(c.want) > 0 && !cmp.Equal(got, c.want) {
			t.Errorf("%q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	if v := rounded((GPU{Memory: 40, Clock: 1.6}).value()); v != 8 {
		t.Errorf("40 GiB at 1.6 GHz are worth %v, want 8", v)
	}
	if v := rounded((GPU{Clock: 4}).value()); v != 2 {
		t.Errorf("no memory stated, 4 GHz: %v, want 2", v)
	}
}

func TestChooseAsCUDA(t *testing.T) {
	all := []GPU{{ID: "GPU-8f1b-a"}, {ID: "GPU-77aa-b"}}
	for visible, want := range map[string]int{
		"": 0, "-1": 0, "0": 1, "1,0": 2, "0,7,1": 1, "GPU-77": 1, "GPU-8f1b-a, GPU-77aa-b": 2, "NoDevFiles": 0, "GPU-none,0": 0,
	} {
		if got := visibleGPUs(all, visible); len(got) != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: %v, want %d of them", visible, got, want)
		}
	}
}

func TestAMD(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"card0/device/mem_info_vram_total": "17163091968\n",
		"card0/device/product_name":        "Instinct MI50\n",
		"card0/device/pp_dpm_sclk":         "0: 925Mhz\n2: 1725Mhz *\n1: 1400Mhz\n3: nonsense\n",
		"card1/device/vendor":              "0x1234\n", // a virtual machine's screen
	} {
		path = filepath.Join(root, "sys/class/drm", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []GPU{{ID: "card0", Name: "AMD Instinct MI50", Memory: 15.98, Clock: 1.725}}
	if got := amdGPUs(root); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// nvidia-smi is found on PATH, and its failure is an error.
func TestNvidiaSMI(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	write := func(script string) {
		if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("printf '%s' '" + twoGPUs + "'\n")
	got, err := findGPUs(context.Background())
	if err != nil || len(got) != 1 || got[0].ID != "GPU-77aa-b" {
		t.Errorf("%v, %v; want the second one", got, err)
	}
	write("echo no driver >&2; exit 9\n")
	if got, err := findGPUs(context.Background()); err == nil || len(got) != 0 {
		t.Errorf("a program that fails: %v, %v", got, err)
	}
}

// Any input gives an error or figures in range.
func FuzzGPUs(f *testing.F) {
	f.Add(twoGPUs)
	f.Add("1: 2100Mhz *")
	f.Add("max")
	f.Add("10000 100000")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseGPUs(text)
		if err == nil {
			for _, g := range all {
				if !(g.value() > 0 && g.value() < largest) {
					t.Errorf("%q: %+v is worth %v", text, g, g.value())
				}
			}
		}
		if mhz := parseClocks(text); !(mhz >= 0 && mhz < 1e6) {
			t.Errorf("%q: %v MHz", text, mhz)
		}
		if cores, err := parseQuota(text); err == nil && !(cores > 0) {
			t.Errorf("%q: %v cores", text, cores)
		}
		_, _ = parseBytes(text)
	})
}
