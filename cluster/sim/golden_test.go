package sim

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/trace"
)

var update = flag.Bool("update", false, "write the golden traces anew")

// TestTraces runs the scripts of testdata; see its README.
func TestTraces(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(err, "no scripts")
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(source))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(source), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// script is a simulator without anything random, and what has been said of it.
type script struct {
	t       testing.TB
	cluster *cluster.Cluster
	sim     *Simulator
	replay  trace.Replay
	out     strings.Builder
}

// runScript returns the script with the answers of the simulator.
func runScript(t testing.TB, source string) string {
	s := &script{t: t}
	for i, block := range strings.Split(strings.TrimSpace(source), "\n\n") {
		if i > 0 {
			s.out.WriteString("\n")
		}
		commands, _, _ := strings.Cut(block, "\n----")
		s.out.WriteString(commands + "\n")
		answer := len(s.out.String())
		for _, line := range strings.Split(commands, "\n") {
			if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(line, "#") {
				s.command(fields, answer)
			}
		}
	}
	return s.out.String()
}

func (s *script) command(fields []string, answer int) {
	name, args := fields[0], fields[1:]
	switch name {
	case "collect":
		s.cluster = &cluster.Cluster{Workload: "w"}
		s.collect(args)
		s.sim, s.replay = nil, trace.Replay{}
	case "node":
		s.node(args)
	case "slow", "away", "spike":
		s.start()
		i, value, _ := strings.Cut(args[0], "=")
		switch n := &s.sim.nodes[s.index(i)]; name {
		case "slow":
			n.constant = s.number(value)
			n.slowdown = n.constant
		case "spike":
			n.spike = s.number(value)
			n.factor += n.spike
		default:
			n.away = int(s.number(value))
			s.sim.look(0)
		}
	case "replay": // before anything runs: pace, scale, and rows of worker,round,seconds
		rows := "worker,round,seconds\n" + strings.Join(args[2:], "\n")
		tr, err := trace.Read(strings.NewReader(rows), "script", trace.Columns{})
		if err != nil {
			s.t.Fatal(err)
		}
		s.replay = trace.Replay{Trace: tr, Pace: s.number(args[0]), Scale: s.number(args[1])}
		s.sim = nil
	case "fail": // fail a at=0.5 absence=3 silent: in the middle of its next round's work
		s.start()
		n := &s.sim.nodes[s.index(args[0])]
		for _, a := range args[1:] {
			switch key, value, _ := strings.Cut(a, "="); key {
			case "at":
				n.fails = s.number(value)
			case "absence":
				n.absence = int(s.number(value))
			case "silent":
				n.silent = true
			}
		}
	case "round":
		s.start()
		if s.out.Len() == answer {
			s.out.WriteString("----\n")
		}
		s.round(args)
	default:
		s.t.Fatalf("unknown command %q", name)
	}
}

func (s *script) collect(args []string) {
	for _, a := range args {
		c := &s.cluster.Collect
		switch key, value, _ := strings.Cut(a, "="); key {
		case "quorum":
			if share, ok := strings.CutSuffix(value, "%"); ok {
				c.Quorum.Share = s.number(share) / 100
			} else {
				c.Quorum.Count = int(s.number(value))
			}
		case "grace":
			c.Grace = s.duration(value)
		case "grace_share":
			c.GraceShare = s.number(value)
		case "staleness":
			c.MaxStaleness = s.duration(value)
		case "deadline":
			c.Deadline = s.duration(value)
		case "reserve":
			c.Reserve = s.number(value)
		case "overtime":
			c.Overtime = s.number(value)
		case "whole":
			c.Whole = true
		case "timeout":
			c.Timeout = s.duration(value)
		default:
			s.t.Fatalf("unknown %q", key)
		}
	}
}

// node adds a node: its name, the time of one sample, and options.
func (s *script) node(args []string) {
	name := args[0]
	points := []profile.Point{{MicroBatch: 1, Seconds: s.duration(args[1]).Seconds()}}
	if len(args) > 2 && strings.HasPrefix(args[2], "constant=") {
		constant := s.duration(args[2][len("constant="):]).Seconds()
		points = append(points, profile.Point{MicroBatch: 2, Seconds: constant + 2*points[0].Seconds})
		points[0].Seconds += constant
		args = args[1:]
	}
	p, err := profile.New("d", "w", points, "script")
	if err != nil {
		s.t.Fatal(err)
	}
	n := cluster.Node{Name: name, Device: "d", Profile: p, Limit: profile.NoLimit}
	for _, a := range args[2:] {
		switch key, value, _ := strings.Cut(a, "="); key {
		case "limit":
			n.Limit = int(s.number(value))
		case "memory":
			n.Hidden.Limit = int(s.number(value))
		case "least":
			n.Least = int(s.number(value))
		case "shapes":
			for _, b := range strings.Split(value, ",") {
				n.Shapes = append(n.Shapes, int(s.number(b)))
			}
		case "link":
			n.Network = s.duration(value).Seconds()
		case "power":
			idle, busy, _ := strings.Cut(value, "-")
			n.Power = cluster.Power{Idle: s.number(idle), Busy: s.number(busy)}
		default:
			s.t.Fatalf("unknown %q", key)
		}
	}
	s.cluster.Nodes = append(s.cluster.Nodes, n)
}

func (s *script) start() {
	if s.sim != nil {
		return
	}
	s.sim = New(s.cluster, cluster.Conditions{Replay: s.replay}, 1)
	s.sim.trace = func(node int, event string) {
		fmt.Fprintf(&s.out, "  %-6v %s %s\n", s.sim.now, s.cluster.Nodes[node].Name, event)
	}
}

func (s *script) round(args []string) {
	sizes := make([]int, len(s.cluster.Nodes))
	for i, a := range args {
		if a != "-" {
			sizes[i] = int(s.number(a))
		}
	}
	fmt.Fprintf(&s.out, "round %d at %v\n", s.sim.round, s.sim.now)
	r, err := s.sim.Round(context.Background(), cluster.Plan{Sizes: sizes, Collect: s.cluster.Collect})
	if err != nil {
		fmt.Fprintf(&s.out, "  %v\n", err)
		return
	}
	fmt.Fprintf(&s.out, "  %-6v end: waited %v, accepted %d\n", s.sim.now, r.Wait, r.Accepted)
	for i, n := range r.Nodes {
		fmt.Fprintf(&s.out, "  %s %-7v", s.cluster.Nodes[i].Name, n.Status)
		if n.OOM {
			fmt.Fprint(&s.out, " out of memory")
		}
		if n.Size > 0 {
			fmt.Fprintf(&s.out, " %d in %vs", n.Size, short(n.Seconds))
			if n.Steps > 0 {
				fmt.Fprintf(&s.out, " (%d micro-steps)", n.Steps)
			}
		}
		if n.Status == cluster.In || n.Status == cluster.Refused {
			fmt.Fprintf(&s.out, ", age %v, accepted %d (aged %d), idle %v", short(n.Age), n.Samples, n.Aged, short(n.Idle))
		}
		if n.Joules > 0 {
			fmt.Fprintf(&s.out, ", %v J", short(n.Joules))
		}
		fmt.Fprintln(&s.out)
	}
}

func short(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func (s *script) index(name string) int {
	for i := range s.cluster.Nodes {
		if s.cluster.Nodes[i].Name == name {
			return i
		}
	}
	s.t.Fatalf("no node %q", name)
	return 0
}

func (s *script) number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}
