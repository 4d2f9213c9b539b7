package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"evenkeel/cluster"
	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/badinput"
)

func TestPolicyRoundTrip(t *testing.T) {
	trained := untrained(t, 8, 4)
	trained.Record.Advantage, trained.Record.Return, trained.Record.Updates = 0.25, -0.5, 12
	trained.Record.Workloads, trained.Record.Devices = []string{"w"}, []string{"d", "e"}
	trained.Record.Config = TrainConfig{Seed: 7, Steps: 1200, Envs: 16, Updates: 2, Hidden: []int{16}}
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if err := trained.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(trained.Record, loaded.Record); diff != "" {
		t.Errorf("record: %s", diff)
	}
	if !bytes.Equal(agenttest.PolicyBytes(t, trained.Save), agenttest.PolicyBytes(t, loaded.Save)) {
		t.Error("saving what was loaded gives another file")
	}
	c := agenttest.HeldOut16(t)
	if n := compareRuns(t, c, trained.NewAgent(c, agenttest.Speed), loaded.NewAgent(c, agenttest.Speed), 40); n != 0 {
		t.Errorf("the loaded policy decides otherwise in %d rounds", n)
	}
}

func TestEmbeddedPolicy(t *testing.T) {
	trained := embeddedPolicy(t)
	r := trained.Record
	if r.Version != recordVersion || r.Updates < 1 || len(r.Workloads) == 0 || len(r.Devices) == 0 {
		t.Errorf("record %+v", r)
	}
	for i := range r.Low {
		if !(r.Low[i] <= r.High[i]) {
			t.Errorf("feature %d: range %v to %v", i, r.Low[i], r.High[i])
		}
	}
}

// recordText is a policy's record with a field changed; a nil value removes it.
func recordText(t *testing.T, trained *Trained, field string, value any) string {
	t.Helper()
	text, err := json.Marshal(trained.Record)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if fields[field] = value; value == nil {
		delete(fields, field)
	}
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLoadRefuses(t *testing.T) {
	trained := untrained(t, 2)
	file := func(nets map[string]*ddqn.Network, meta map[string]string) []byte {
		var b bytes.Buffer
		if err := ddqn.Write(&b, nets, meta); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	nets := map[string]*ddqn.Network{nodesNetwork: trained.Network}
	with := func(field string, value any) []byte {
		return file(nets, map[string]string{recordKey: recordText(t, trained, field, value)})
	}
	other, err := ddqn.NewNetwork(ddqn.Spec{Features: env.Features, Actions: len(env.Actions) + 1, Objectives: env.Objectives}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	sound := map[string]string{recordKey: recordText(t, trained, "updates", 1)}
	good := file(nets, sound)
	// The writer refuses NaN, so it is put in afterwards, with the checksum it needs.
	data := 8 + int(binary.LittleEndian.Uint64(good))
	nan := bytes.Clone(good)
	binary.LittleEndian.PutUint32(nan[len(nan)-4:], math.Float32bits(float32(math.NaN())))
	sum := func(b []byte) []byte { return fmt.Appendf(nil, "%016x", xxh3.Hash(b[data:])) }
	nan = bytes.Replace(nan, sum(good), sum(nan), 1)
	crossed := make([]float32, env.Features)
	crossed[5] = 101
	path := filepath.Join(t.TempDir(), "some-policy.safetensors")
	for name, c := range map[string]struct {
		content []byte
		text    string // in the error
	}{
		"empty":                    {nil, "0 of 8 bytes"},
		"no policy":                {[]byte("workload: llama\n"), "is this a policy file"},
		"header only":              {good[:100], "of the header"},
		"truncated":                {good[:len(good)-1], "of the tensors"},
		"longer":                   {append(bytes.Clone(good), 0), "after the last tensor"},
		"flipped":                  {append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), "checksum"},
		"NaN weight":               {nan, "NaN"},
		"no record":                {file(nets, nil), "is not a policy of evenkeel"},
		"record no JSON":           {file(nets, map[string]string{recordKey: "{"}), recordKey},
		"later version":            {with("version", recordVersion+1), "version 6, this program reads version 5"},
		"with a network of rounds": {with("version", 4), "version 4, this program reads version 5; train a new one (evenkeel train)"},
		"no version":               {with("version", nil), "version 0"},
		"another network":          {file(map[string]*ddqn.Network{nodesNetwork: other}, sound), `the network has 45 features, hidden [], 29 actions`},
		"another name":             {file(map[string]*ddqn.Network{"round": trained.Network}, sound), `networks ["round"]; "nodes" alone is needed`},
		"a network more":           {file(map[string]*ddqn.Network{nodesNetwork: trained.Network, "round": other}, sound), `networks ["nodes" "round"]`},
		"no ranges":                {with("low", nil), "ranges of 0 and 45"},
		"ranges too short":         {with("high", []float32{1}), "ranges of 45 and 1"},
		"crossed range":            {with("low", crossed), "feature 5"},
		"huge range":               {with("high", []float64{1e99}), recordKey},
	} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if !errors.Is(err, ErrPolicy) || !badinput.Is(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want ErrPolicy, the path and %q", name, err, c.text)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrPolicy) {
		t.Errorf("a missing file: %v", err)
	}
}

// Save leaves an older file alone when the policy cannot be written.
func TestSaveRefuses(t *testing.T) {
	trained := untrained(t, 2)
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if err := trained.Save(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	trained.Record.Return = math.NaN()
	if err := trained.Save(path); err == nil {
		t.Error("a record with NaN was saved")
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the older file changed: %v", err)
	}
}

// FuzzPolicy reads any bytes, and any record beside a sound network. What is accepted
// must decide.
func FuzzPolicy(f *testing.F) {
	trained := untrained(f, 1)
	nets := map[string]*ddqn.Network{nodesNetwork: trained.Network}
	record, err := json.Marshal(trained.Record)
	if err != nil {
		f.Fatal(err)
	}
	var whole bytes.Buffer
	if err := ddqn.Write(&whole, nets, map[string]string{recordKey: string(record)}); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes(), "{}")
	f.Add(whole.Bytes()[:50], string(record))
	f.Add([]byte("{"), `{"version":1,"low":[0],"high":[1e38]}`)
	f.Fuzz(func(t *testing.T, content []byte, text string) {
		read, meta, err := ddqn.Read(bytes.NewReader(content))
		for name, open := range map[string]func() (*Trained, error){
			"file": func() (*Trained, error) {
				if err != nil {
					return nil, ErrPolicy
				}
				return parse("fuzz", read, meta)
			},
			"record": func() (*Trained, error) {
				return parse("fuzz", nets, map[string]string{recordKey: text})
			},
		} {
			got, err := open()
			if err != nil {
				if !errors.Is(err, ErrPolicy) {
					t.Fatalf("%s: %v is no ErrPolicy", name, err)
				}
				continue
			}
			c, sizes := agenttest.Lines(t, 20, 0.1, 0.2), make([]int, 2)
			a := got.NewAgent(c, agenttest.Speed)
			for _, report := range []bool{false, true} {
				r := agenttest.Measured([]int{10, 10}, 1, 2)
				if !report {
					r = nil
				}
				if err := a.Decide(r, nil, &cluster.Plan{Sizes: sizes}); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				agenttest.CheckSizes(t, c, nil, sizes)
			}
		}
	})
}
