package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Processes of a launched run are killed and started again; all end with the weights that the log leads to. (They are
// back before the others lose patience; package forward has tests of those that stay away.)
func TestForwardSurvivesKills(t *testing.T) {
	log := filepath.Join(t.TempDir(), "run.log")
	cmd := exec.Command("evenkeel", "forward", "launch", "-n", "4", "--steps", "6000", "--log", log, "--store", filepath.Join(t.TempDir(), "store"), "--json")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	children := func() []string {
		var all []string
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, name := range tasks {
			text, _ := os.ReadFile(name)
			all = append(all, strings.Fields(string(text))...)
		}
		return all
	}
	killed, rng := 0, rand.New(rand.NewPCG(1, 1))
	for deadline := time.Now().Add(20 * time.Second); killed < 3 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all := children()
		if len(all) < 4 {
			continue
		}
		time.Sleep(150 * time.Millisecond)
		pid, _ := strconv.Atoi(all[rng.IntN(len(all))])
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
			time.Sleep(700 * time.Millisecond)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var s struct {
		WeightsHash []string `json:"weights_hash"`
	}
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if killed == 0 || !strings.Contains(errs.String(), "a processor died") {
		t.Errorf("%d processes were killed:\n%s", killed, errs.String())
	}
	text, err := exec.Command("evenkeel", "forward", "replay", "--json", log).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		WeightsHash string `json:"weights_hash"`
		Damage      string `json:"damage"`
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Damage != "" || len(s.WeightsHash) != 4 {
		t.Fatalf("%v, %+v, %+v", err, r, s)
	}
	for rank, h := range s.WeightsHash {
		if h != r.WeightsHash {
			t.Errorf("processor %d has %s, the log leads to %s", rank, h, r.WeightsHash)
		}
	}
}
