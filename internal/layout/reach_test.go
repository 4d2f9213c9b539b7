package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// reach is what packages must not depend on, through however many imports. A direct
// import is easy to see in review; the tenth behind it is not.
var reach = []struct {
	from  []string // folders, with what is below them
	exact bool     // from names packages, without what is below them
	not   []string // folders of packages: of this module, or whole import paths
	why   string
}{
	{[]string{"agent", "bucket", "checkpoint", "cluster", "ddqn", "env", "forward", "lab", "planner", "train"}, false,
		[]string{"internal/chart", "internal/figure"},
		"rooms compute, and figures stand above them"},
	{[]string{"agent", "agent/baseline", "agent/export", "cluster", "cluster/live", "cluster/profile", "env", "serve"}, true,
		[]string{"cluster/sim", "internal/runlog"},
		"a live binary must be able to leave the simulator out: only episodes, training and evaluation run on it"},
	{[]string{"agent", "bucket", "checkpoint", "cluster", "ddqn/internal", "env", "forward", "internal", "lab/evaluation", "planner", "serve", "train"}, false,
		[]string{"gorgonia.org", "ddqn/learn"},
		"only ddqn/learn and lab/training may reach gorgonia.org: a program that uses a policy must not link what trains it"},
	{[]string{"ddqn"}, true,
		[]string{"gorgonia.org", "ddqn/learn"},
		"only ddqn/learn and lab/training may reach gorgonia.org: the forward pass needs no automatic differentiation"},
	{[]string{"lab/training"}, false,
		[]string{"agent/baseline", "lab/evaluation"},
		"training must not know how its result is judged, nor against what"},
	{[]string{"agent", "bucket", "checkpoint", "cluster", "ddqn", "env", "lab", "planner", "train"}, false,
		[]string{"github.com/nats-io"},
		"messages and kept state travel through NATS in forward's wire and in services; nothing else needs a broker"},
	{[]string{"agent", "bucket", "checkpoint", "cluster", "ddqn", "env", "forward", "lab", "planner", "train", "internal"}, false,
		[]string{"github.com/alecthomas/kong", "github.com/schollz/progressbar", "github.com/rs/zerolog"},
		"flags, progress and logs are the command's; a library returns errors and calls back"},
	{[]string{"checkpoint", "train"}, true,
		[]string{"net/http", "github.com/minio"},
		"a program that saves to its disk needs no client of a server: copies elsewhere are checkpoint/remote's"},
	{[]string{"agent", "cluster", "ddqn", "env", "lab"}, false,
		[]string{"net/http", "os/exec"},
		"what decides needs neither a network nor other programs"},
	{[]string{"agent", "bucket", "checkpoint", "cluster", "cmd", "ddqn", "env", "experiments", "forward", "lab", "planner", "train"}, false,
		[]string{"internal/fulldisk", "internal/race", "internal/slow"},
		"only tests may ask how they are run: a program that did would behave otherwise under test"},
}

// covers says whether a rule with these folders is about a package.
func covers(from []string, exact bool, pkg string) bool {
	return slices.ContainsFunc(from, func(f string) bool { return pkg == f || !exact && within(pkg, f) })
}

// imports is the graph of every package that the module's packages import, directly or
// not, tests left out.
var imports = sync.OnceValues(func() (map[string][]string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	graph := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return graph, nil
		} else if err != nil {
			return nil, err
		}
		graph[p.ImportPath] = p.Imports
	}
})

// chain is a shortest way of imports from a package to one that fits, nil if there is none.
func chain(graph map[string][]string, from string, fits func(string) bool) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		if p != from && fits(p) {
			var way []string
			for ; p != ""; p = before[p] {
				way = append(way, p)
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range graph[p] {
			if _, seen := before[next]; !seen {
				before[next] = p
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// named is a package as rules name it: one of the module without its path. The standard library has an internal too.
func named(p string) string {
	short, ours := strings.CutPrefix(p, module)
	if !ours && within(p, "internal") {
		return "std/" + p
	}
	return short
}

func TestReach(t *testing.T) {
	graph, err := imports()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reach {
		covered := 0
		for pkg := range graph {
			short, ours := strings.CutPrefix(pkg, module)
			if !ours || !covers(r.from, r.exact, short) {
				continue
			}
			covered++
			for _, not := range r.not {
				way := chain(graph, pkg, func(p string) bool { return within(named(p), not) })
				if way != nil {
					t.Errorf("%s reaches %s: %s\n\t%s", short, not, r.why, strings.Join(way, "\n\t"))
				}
			}
		}
		if covered < len(r.from) {
			t.Errorf("a rule covers %d packages of %q: does each exist?", covered, r.from)
		}
	}
}

func TestChain(t *testing.T) {
	graph := map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"e"}, "d": {"x/y"}, "e": {"d", "a"}}
	to := func(folder string) func(string) bool { return func(p string) bool { return within(p, folder) } }
	for folder, want := range map[string]string{"x": "a b d x/y", "e": "a c e", "x/z": "", "a": ""} {
		if got := strings.Join(chain(graph, "a", to(folder)), " "); got != want {
			t.Errorf("to %s: %q, want %q", folder, got, want)
		}
	}
	for p, want := range map[string]string{module + "internal/race": "internal/race", "internal/race": "std/internal/race", "os/exec": "os/exec", "gonum.org/v1/plot": "gonum.org/v1/plot"} {
		if got := named(p); got != want {
			t.Errorf("%s is named %s, want %s", p, got, want)
		}
	}
	for _, c := range []struct {
		exact bool
		pkg   string
		want  bool
	}{{true, "agent", true}, {true, "agent/export", false}, {false, "agent/export", true}, {false, "agents", false}} {
		if got := covers([]string{"agent"}, c.exact, c.pkg); got != c.want {
			t.Errorf("covers(agent, %v, %s) = %v", c.exact, c.pkg, got)
		}
	}
}
