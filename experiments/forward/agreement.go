package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"

	"evenkeel/forward/wire"
)

// summary is the part of the commands' JSON that is compared.
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

// differing counts the hashes that differ from want.
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

// agreement runs the program in one process and in several, built for old and for new CPUs, and replays its logs. It counts
// the runs that end with other weights, and the bytes on the wire and in the log.
func (w *world) agreement() error {
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
	newest := filepath.Join(dir, levels[len(levels)-1])
	server, err := wire.Serve(wire.ServerOptions{})
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Print("| processors | with other weights | payload sent, received | with all that NATS adds | log |\n|---|---|---|---|---|\n")
	for _, n := range []int{2, 8, 32} {
		name, steps := fmt.Sprint("run", n), w.steps
		if n == 32 {
			steps /= 5
		}
		log := filepath.Join(dir, name)
		flags := []string{"-n", fmt.Sprint(n), "--steps", fmt.Sprint(steps), "--examples", "8", "--json"}
		at := []string{"--url", server.URL()}
		var all []*summary
		for _, run := range [][]string{
			append([]string{filepath.Join(dir, "v1"), "train", "--log", log + ".train"}, flags...),
			append([]string{newest, "train"}, flags...),
			append(append([]string{newest, "launch", "--run", name}, at...), flags...),
			{newest, "replay", log + ".train", "--json"},
			{filepath.Join(dir, "v1"), "replay", log + ".launch", "--json"},
		} {
			s, err := w.forward(server, run[0], n, name, run[1:])
			if err != nil {
				return err
			}
			if all = append(all, s); run[1] == "launch" {
				export := exec.CommandContext(w.ctx, newest, append([]string{"forward", "export", name, "--log", log + ".launch"}, at...)...)
				export.Env = append(os.Environ(), "EVENKEEL_NATS_TOKEN="+server.Token())
				if err := export.Run(); err != nil {
					return err
				}
			}
		}
		want, differ := "", 0
		if list, ok := all[0].Hashes.([]any); ok && len(list) == n {
			want, _ = list[0].(string)
		}
		for _, s := range all {
			differ += s.differing(want)
		}
		launched := all[2]
		fmt.Printf("| %d | %d of %d | %.0f, %.0f bytes | %.0f, %.0f bytes | %d bytes |\n",
			n, differ, 3*n+2, launched.Sent, launched.Received, launched.Transport.Sent, launched.Transport.Received, all[0].LogBytes)
	}
	return nil
}

// forward runs a command and returns its summary. For launch it also runs the ranks.
func (w *world) forward(server *wire.Server, program string, ranks int, name string, args []string) (*summary, error) {
	cmd := exec.CommandContext(w.ctx, program, append([]string{"forward"}, args...)...)
	cmd.Env = append(os.Environ(), "EVENKEEL_NATS_TOKEN="+server.Token())
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var joins []*exec.Cmd
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		if rank := len(joins); args[0] == "launch" && rank < ranks && strings.Contains(lines.Text(), "forward join") {
			join := exec.CommandContext(w.ctx, program, "forward", "join", "--url", server.URL(), "--run", name, "--rank", strconv.Itoa(rank), "--patience", "1m")
			join.Env, join.Stderr = append(os.Environ(), "EVENKEEL_NATS_TOKEN="+wire.RankToken(server.Token(), rank)), os.Stderr
			if err := join.Start(); err != nil {
				return nil, err
			}
			joins = append(joins, join)
		}
	}
	err = cmd.Wait()
	for _, join := range joins {
		err = errors.Join(err, join.Wait())
	}
	if err != nil {
		return nil, fmt.Errorf("evenkeel forward %s: %w", strings.Join(args, " "), err)
	}
	var s summary
	return &s, json.Unmarshal([]byte(out.String()), &s)
}
