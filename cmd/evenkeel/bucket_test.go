package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The Python reader, with Debian's PyTorch, on a schedule that the commands wrote.
func TestScheduleInPyTorch(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		t.Skip("no PyTorch in /usr/bin/python3; apt-get install python3-torch: ", err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	var lengths, table strings.Builder
	const samples = 2000
	for i := range samples {
		fmt.Fprintln(&lengths, 1+i*i%97)
	}
	table.WriteString("length,batch,seconds,peak_bytes\n")
	for _, l := range []int{16, 64, 97} {
		for _, b := range []int{1, 4, 16} {
			fmt.Fprintf(&table, "%d,%d,%v,%d\n", l, b, .1+float64(l*b)/1e4, l*b)
		}
	}
	for name, text := range map[string]string{"l.txt": lengths.String(), "t.csv": table.String()} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, args := range [][]string{
		{"bucket", "plan", "--lengths", path("l.txt"), "--table", path("t.csv"), "--speeds", "1,2,2", "--out", path("p.json")},
		{"bucket", "schedule", "--lengths", path("l.txt"), "--plan", path("p.json"), "--out", path("s.jsonl")},
	} {
		if status := execute(args, null, os.Stderr); status != 0 {
			t.Fatalf("%v: status %d", args, status)
		}
	}
	cmd := exec.Command(python, "../../python/tests/test_schedule.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../python", "PYTHONDONTWRITEBYTECODE=1", "SCHEDULE="+path("s.jsonl"), fmt.Sprint("SAMPLES=", samples), "RANKS=3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
