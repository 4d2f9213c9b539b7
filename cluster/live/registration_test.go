package live

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// Every fault is named with its field, all at once.
func TestValidate(t *testing.T) {
	r := Registration{Ranks: []Rank{
		{Name: "a", MemoryBytes: -1}, {Name: "a", Host: "h\n"}, {}, {Name: strings.Repeat("x", 254)},
		{Name: "b", MicroBatch: MicroBatch{Least: -1}}, {Name: "c", MicroBatch: MicroBatch{Least: 8, Most: 4}},
		{Name: "d", MicroBatch: MicroBatch{Sizes: []int{4, 4}}}, {Name: "e", MicroBatch: MicroBatch{Sizes: []int{4, 8}, Most: 6}},
		{Name: "f", Device: "\x00"},
	}}
	want := []string{"global_batch", "ranks[0].memory_bytes", "ranks[1].host", "ranks[1].name", "ranks[2].name", "ranks[3].name", "ranks[4].micro_batch.least",
		"ranks[5].micro_batch.most", "ranks[6].micro_batch.sizes[1]", "ranks[7].micro_batch", "ranks[8].device"}
	var f Faults
	if err := r.Validate(); !errors.As(err, &f) || !badinput.Is(err) {
		t.Fatal(err)
	}
	for i, x := range f {
		if i >= len(want) || x.Path != want[i] {
			t.Errorf("fault %d: %v", i, x)
		}
	}
	if len(f) != len(want) {
		t.Errorf("%d faults, want %d", len(f), len(want))
	}
	for _, ranks := range [][]Rank{nil, make([]Rank, MaxRanks+1)} {
		if (&Registration{GlobalBatch: 1, Ranks: ranks}).Validate() == nil {
			t.Errorf("%d ranks", len(ranks))
		}
	}
}

// torch's names lead to the catalogue's devices, and only with a workload that it holds.
func TestDevices(t *testing.T) {
	measured := map[string]string{"l40s": "llama-7b-512-fp32", "": "llama-3b-512-fp16"} // on most devices
	for name, want := range map[string]string{
		"NVIDIA A10G": "a10g", "Tesla T4": "t4", "NVIDIA A100-SXM4-40GB": "a100-40g", "A100-PCIE-40GB": "a100-40g", "Tesla P40": "p40",
		"NVIDIA L40S": "l40s", "NVIDIA RTX A6000": "a6000", "t4": "t4",
		"NVIDIA A100-SXM4-80GB": "", "NVIDIA A10": "", "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "", "NVIDIA RTX 6000 Ada Generation": "", "NVIDIA H100 80GB HBM3": "", "cpu": "", "": "",
	} {
		workload := cmp.Or(measured[want], measured[""])
		device, p := known(name, workload, profile.Embedded())
		if device.Name != want || (p != nil) != (want != "") {
			t.Errorf("%q is %q, want %q", name, device.Name, want)
		}
		if _, p := known(name, "mine", profile.Embedded()); p != nil {
			t.Errorf("%q has a profile of an unknown workload", name)
		}
	}
}

// A job becomes a cluster: limits by batch, memory and what the ranks say.
func TestCluster(t *testing.T) {
	const workload = "llama-3b-512-fp32"
	r := Registration{GlobalBatch: 48, Ranks: []Rank{
		{Name: "a", Device: "NVIDIA A10G", MemoryBytes: 24 << 30}, {Name: "b", Device: "NVIDIA A10G", MemoryBytes: 1}, {Name: "c", MicroBatch: MicroBatch{Least: 2, Most: 8}},
		{Name: "d", Device: "cpu", MicroBatch: MicroBatch{Sizes: []int{4, 16}}},
	}}
	c, err := r.Cluster(workload, profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	device, p := known("a10g", workload, profile.Embedded())
	fits := p.MemoryLimit(24<<30 - 16*mustWorkload(t, workload).Parameters/4)
	for i, want := range []struct {
		device       string
		limit, least int
		profiled     bool
	}{{device.Name, min(fits, 48), 1, true}, {device.Name, 48, 1, true}, {"unknown", 8, 2, false}, {"cpu", 48, 4, false}} {
		n := &c.Nodes[i]
		if n.Device != want.device || n.Limit != want.limit || n.LeastShare() != want.least || (n.Profile != nil) != want.profiled {
			t.Errorf("%s: %s, limit %d, least %d, profile %v; want %+v", n.Name, n.Device, n.Limit, n.LeastShare(), n.Profile != nil, want)
		}
	}
	if fits < 1 || fits >= 48 {
		t.Errorf("memory holds %d: the test shows nothing", fits)
	}
	exact := Registration{GlobalBatch: 48, Ranks: []Rank{r.Ranks[0], r.Ranks[2], r.Ranks[2], r.Ranks[3]}}
	exact.Ranks[0].MicroBatch.Least = fits // memory is for that, and no more
	if c, err = exact.Cluster(workload, profile.Embedded()); err != nil {
		t.Fatal(err)
	} else if c.Nodes[0].Limit != fits {
		t.Errorf("limit %d, want %d", c.Nodes[0].Limit, fits)
	}
	r.Ranks = r.Ranks[2:3]
	r.Ranks[0].MicroBatch = MicroBatch{Least: 64}
	if _, err := r.Cluster("", profile.Embedded()); !badinput.Is(err) {
		t.Errorf("a batch of 48 from micro-batches of 64: %v", err)
	}
}

func mustWorkload(t *testing.T, name string) profile.Workload {
	t.Helper()
	w, ok := profile.Embedded().Workload(name)
	if !ok {
		t.Fatal(name)
	}
	return w
}
