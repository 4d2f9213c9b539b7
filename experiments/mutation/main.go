// Command mutation measures how well the tests hold what decides: it changes the files of
// targets.yaml in one place at a time (a < becomes a <=, a + becomes a -) and counts the
// changes that the tests notice. The mutants come from gremlins, pinned in tools/mutation.
//
//	go run ./experiments/mutation                       # all of targets.yaml
//	go run ./experiments/mutation cluster/allocate.go   # one file, or several
//	go run ./experiments/mutation env                   # the files of one package
//	go run ./experiments/mutation -dry env              # only count the mutants
//	go run ./experiments/mutation -report               # no run: write the page from what is kept
//	go run ./experiments/mutation -again env            # only what survived last time
//
// A run judges the working tree as it stands, in a copy, so edit on while it runs; each
// file's result is kept as soon as its package is through. Results go into kept/ beside
// this file, and from there into docs/results/mutation.md (after a merge conflict in the
// page: -report). A survivor that no test can kill, because both versions do the same, is
// explained by a note in kept/, which stays as long as its line and mutation do.
//
// All mutants of a package are compiled into one test binary, of which a variable of the
// environment switches one on (switched.go). That is several times as fast as a build for each.
//
// A mutant is killed by a failing test, or because the tests take several times their
// processor time (a loop without an end); or it lived; or no test covers it; or it timed
// out, waiting; or it does not compile, which gremlins alone would count as killed. The
// score is killed / (killed + lived).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/evenkeel/evenkeel/experiments/internal/program"
)

const folder = "experiments/mutation"

// target is files of one package that decide, and how they are judged.
type target struct {
	What    string   `yaml:"what"`
	Package string   `yaml:"package"` // its folder
	Files   []string `yaml:"files"`
	Run     string   `yaml:"run,omitempty"` // pattern of the tests; "": all
}

func main() {
	if filepath.Base(os.Args[0]) == "go" {
		os.Exit(shim(os.Args[1:]))
	}
	var o options
	flag.BoolVar(&o.dry, "dry", false, "only count the mutants")
	flag.BoolVar(&o.again, "again", false, "judge only what survived last time, in files that have not changed since")
	flag.BoolVar(&o.onlyReport, "report", false, "run nothing: write the page from what is kept")
	flag.IntVar(&o.workers, "workers", 1, "mutants judged at a time; one processor each")
	flag.IntVar(&o.patience, "patience", 5, "a mutant that takes this many times the tests' usual processor time counts as killed")
	flag.Parse()
	program.Main(func(ctx context.Context) error { return run(ctx, flag.Args(), o) })
}

type options struct {
	dry, again, onlyReport bool
	workers, patience      int
}

func run(ctx context.Context, names []string, o options) error {
	if _, err := os.Stat(folder); err != nil {
		return errors.New("run it at the root of the repository")
	}
	targets, err := readTargets()
	if err != nil {
		return err
	}
	if o.onlyReport {
		return report(targets)
	}
	chosen, err := choose(targets, names)
	if err != nil {
		return err
	}
	g, err := newGremlins(ctx, o)
	if err != nil {
		return err
	}
	defer g.close()
	for _, t := range chosen {
		if err := g.judge(ctx, t); err != nil {
			return err
		}
	}
	if o.dry {
		return nil
	}
	return report(targets)
}

func readTargets() ([]target, error) {
	text, err := os.ReadFile(filepath.Join(folder, "targets.yaml"))
	if err != nil {
		return nil, err
	}
	var targets []target
	if err := yaml.UnmarshalWithOptions(text, &targets, yaml.Strict()); err != nil {
		return nil, err
	}
	var missing []error
	for _, t := range targets {
		for _, f := range t.Files {
			if _, err := os.Stat(filepath.Join(t.Package, f)); err != nil {
				missing = append(missing, fmt.Errorf("%s/targets.yaml: %s/%s is not there; where did it go?", folder, t.Package, f))
			}
		}
	}
	return targets, errors.Join(missing...)
}

// choose narrows the targets to the named packages and files; no name: all.
func choose(targets []target, names []string) ([]target, error) {
	if len(names) == 0 {
		return targets, nil
	}
	var chosen []target
	used := make([]bool, len(names))
	for _, t := range targets {
		narrow := t
		narrow.Files = nil
		for _, f := range t.Files {
			for i, name := range names {
				name = filepath.ToSlash(filepath.Clean(name))
				if name == t.Package || name == t.Package+"/"+f {
					used[i] = true
					narrow.Files = append(narrow.Files, f)
					break
				}
			}
		}
		if narrow.Files != nil {
			chosen = append(chosen, narrow)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("%s is not among the targets; add it to %s/targets.yaml", names[i], folder)
	}
	return chosen, nil
}

// output runs a command and returns what it wrote, without white space at the ends.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
