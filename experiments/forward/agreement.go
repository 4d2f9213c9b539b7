package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/cpu"
)

// summary is what the commands print, as far as it is compared.
type summary struct {
	Hashes    any     `json:"weights_hash"` // one, or one per processor
	Sent      float64 `json:"bytes_sent_per_step"`
	Received  float64 `json:"bytes_received_per_step"`
	LogBytes  int64   `json:"log_bytes"`
	Transport struct {
		Sent     float64 `json:"bytes_sent_per_step"`
		Received float64 `json:"bytes_received_per_step"`
	} `json:"transport"`
}

// differing counts the hashes that are not the one wanted.
func (s *summary) differing(want string) int {
	all, n := []any{s.Hashes}, 0
	if list, ok := s.Hashes.([]any); ok {
		all = list
	}
	for _, h := range all {
		if h != want {
			n++
		}
	}
	return n
}

// agreement runs the program itself, built for old and for new processors, in both modes, and replays its logs: how many
// get other weights, and the bytes on the wire and in the log.
func (w *world) agreement(b *strings.Builder) error {
	dir, err := os.MkdirTemp("", "evenkeel-agreement-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	levels := []string{"v1", "v3"}
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		levels = levels[:1]
	}
	for _, level := range levels {
		build := exec.CommandContext(w.ctx, "go", "build", "-o", filepath.Join(dir, level), "./cmd/evenkeel")
		build.Env, build.Stderr = append(os.Environ(), "GOAMD64="+level, "CGO_ENABLED=0"), os.Stderr
		if err := build.Run(); err != nil {
			return err
		}
	}
	newest := levels[len(levels)-1]
	forward := func(level string, args ...string) (*summary, error) {
		cmd := exec.CommandContext(w.ctx, filepath.Join(dir, level), append([]string{"forward"}, args...)...)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("evenkeel %s: %w", strings.Join(args, " "), err)
		}
		var s summary
		return &s, json.Unmarshal(text, &s)
	}
	fmt.Fprintf(b, "\n## Agreement and bytes\n\nDigits, MLP 64-64-10, %d steps (a fifth at N = 32), 8 examples an input, everything else by default. `evenkeel forward train` (goroutines) built for the oldest amd64 processors (GOAMD64=v1) and for new ones (%s), `launch` (processes over NATS on this machine, %s), and `replay` of each log by the other build: results with other weights than the first, of all processors' results.\n\n| processors | with other weights | payload sent, received | with all that NATS adds | log |\n|---|---|---|---|---|\n", w.steps, newest, newest)
	for _, n := range []int{2, 8, 32} {
		log, steps := filepath.Join(dir, fmt.Sprint(n)), w.steps
		if n == 32 {
			steps /= 5
		}
		flags := []string{"-n", fmt.Sprint(n), "--steps", fmt.Sprint(steps), "--examples", "8", "--json"}
		var all []*summary
		for _, run := range [][]string{
			append([]string{"v1", "train", "--log", log + ".train"}, flags...),
			append([]string{newest, "train"}, flags...),
			append([]string{newest, "launch", "--log", log + ".launch", "--store", log + ".store", "--patience", "1m"}, flags...),
			{newest, "replay", log + ".train", "--json"},
			{"v1", "replay", log + ".launch", "--json"},
		} {
			s, err := forward(run[0], run[1:]...)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		want, of, differ := "", 3*n+2, 0
		if list, ok := all[0].Hashes.([]any); ok && len(list) == n {
			want, _ = list[0].(string)
		}
		for _, s := range all {
			differ += s.differing(want)
		}
		launched := all[2]
		fmt.Fprintf(b, "| %d | %d of %d | %.0f, %.0f bytes | %.0f, %.0f bytes | %d bytes |\n",
			n, differ, of, launched.Sent, launched.Received, launched.Transport.Sent, launched.Transport.Received, all[0].LogBytes)
	}
	b.WriteString("\nBytes are those of a processor in a step. Payload is frames of 16 bytes, target 16 and 16(N-1); each processor sends in a message of its own and gets the others' and its own back. What is on top: NATS gives each frame a subject, a reply address and a sequence, and acknowledges what is published. Target of the log at N = 8: 170 KB.\n")
	return nil
}
