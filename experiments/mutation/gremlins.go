package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// mutant is one change and what became of it.
type mutant struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Type   string `json:"type"`
	Status string `json:"status"`
}

// The statuses of gremlins.
const (
	killed     = "KILLED"
	lived      = "LIVED"
	notCovered = "NOT COVERED"
	timedOut   = "TIMED OUT"
	notViable  = "NOT VIABLE"
)

// gremlins is the tool, built, and a copy of the working tree for it.
type gremlins struct {
	tool, temp, tree string
	options
}

func newGremlins(ctx context.Context, o options) (*gremlins, error) {
	tool, err := output(ctx, "go", "tool", "-n", "-modfile=tools/mutation/go.mod", "gremlins")
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return nil, err
	}
	g := &gremlins{tool: tool, temp: temp, tree: filepath.Join(temp, "tree"), options: o}
	if err := g.prepare(ctx); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *gremlins) close() { _ = os.RemoveAll(g.temp) }

// prepare copies the working tree without what git ignores, and puts the shim before the
// real go in gremlins' search path.
func (g *gremlins) prepare(ctx context.Context) error {
	list, err := output(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	for path := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted in the working tree, or a link
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(g.tree, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "work"} {
		if err := os.Mkdir(filepath.Join(g.temp, dir), 0o755); err != nil {
			return err
		}
	}
	return os.Symlink(self, filepath.Join(g.temp, "bin", "go"))
}

// judge judges the files of a target, prints what survived and keeps it.
func (g *gremlins) judge(ctx context.Context, t target) error {
	var only []string
	versions := map[string]string{}
	for _, f := range t.Files {
		v, err := version(filepath.ToSlash(filepath.Join(g.tree, t.Package)), f)
		if err != nil {
			return err
		}
		versions[f] = v
		last, err := read(t.Package, f)
		switch {
		case err != nil:
			return err
		case !g.again:
		case last == nil || last.Version != v:
			return fmt.Errorf("%s/%s has changed since it was judged, or never was: run it without -again", t.Package, f)
		default:
			for _, s := range last.Survivors {
				only = append(only, fmt.Sprintf("%s:%d:%d", f, s.Line, s.Column))
			}
		}
	}
	if g.again && only == nil {
		return nil
	}
	mutants, err := g.unleash(ctx, t, only)
	if err != nil || g.dry {
		return err
	}
	for _, f := range t.Files {
		text, err := os.ReadFile(filepath.Join(g.tree, t.Package, f))
		if err != nil {
			return err
		}
		j, err := keep(t.Package, f, versions[f], text, mutants[f])
		if err != nil {
			return err
		}
		fmt.Printf("%s/%s: %d killed, %d lived, %d not covered, %d timed out, %d do not compile\n", t.Package, f, j.Killed, j.Lived, j.NotCovered, j.TimedOut, j.NotViable)
		for _, s := range j.Survivors {
			fmt.Printf("  %d:%d %s, %s: %s\n", s.Line, s.Column, s.Mutation, s.Status, s.Code)
		}
	}
	return nil
}

// unleash runs gremlins on a target and returns the mutants by file. Where only names places
// (file:line:column), a mutant elsewhere counts as killed without a run.
func (g *gremlins) unleash(ctx context.Context, t target, only []string) (map[string][]mutant, error) {
	others, err := g.others(t)
	if err != nil {
		return nil, err
	}
	result := filepath.Join(g.temp, "result.json")
	args := []string{"unleash", "./" + t.Package, "--output", result,
		"--workers", strconv.Itoa(g.workers), "--timeout-coefficient", "5"}
	if others != "" {
		args = append(args, "--exclude-files", others)
	}
	if g.dry {
		args = append(args, "--dry-run")
	}
	fmt.Printf("== %s: %s %s\n", t.What, t.Package, strings.Join(t.Files, " "))
	goTool, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, g.tool, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = g.tree, os.Stdout, os.Stderr
	l, err := g.limit(ctx, goTool, t)
	if err != nil {
		return nil, err
	}
	waited := filepath.Join(g.temp, "waited")
	if err := os.WriteFile(waited, nil, 0o644); err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(g.temp, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"),
		"TMPDIR="+filepath.Join(g.temp, "work"),
		realGo+"="+goTool, runTests+"="+t.Run, seconds+"="+strconv.Itoa(l.seconds), patience+"="+l.wait.String(), waits+"="+waited,
		onlyPlaces+"="+strings.Join(only, " "), original+"="+filepath.Join(g.tree, t.Package),
		switched+"="+l.switched)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gremlins in %s: %w", t.Package, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return nil, err
	}
	var report struct {
		Files []struct {
			Name      string   `json:"file_name"`
			Mutations []mutant `json:"mutations"`
		} `json:"files"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	mutants := map[string][]mutant{}
	for _, f := range report.Files {
		mutants[filepath.Base(f.Name)] = f.Mutations
	}
	list, err := os.ReadFile(waited)
	if err != nil {
		return nil, err
	}
	for id := range strings.FieldsSeq(string(list)) {
		if err := markWaited(filepath.Join(g.tree, t.Package), mutants, id); err != nil {
			return nil, err
		}
	}
	return mutants, nil
}

// markWaited turns a mutant whose tests waited for ever from killed, which gremlins takes it for, into timed out.
func markWaited(folder string, mutants map[string][]mutant, id string) error {
	parts := strings.Split(id, ":")
	if len(parts) != 4 {
		return fmt.Errorf("a mutant that waited: %q", id)
	}
	file, with := parts[0], parts[3]
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i := range mutants[file] {
		m := &mutants[file][i]
		if fmt.Sprintf("%d:%d", m.Line, m.Column) != parts[1]+":"+parts[2] {
			continue
		}
		// < has two mutants: <= of the boundary and >= of the negation.
		kin := lines[m.Line-1][m.Column-1] == with[0]
		if m.Type == "CONDITIONALS_BOUNDARY" && !kin || m.Type == "CONDITIONALS_NEGATION" && kin {
			continue
		}
		m.Status = timedOut
	}
	return nil
}

// limits are those of a mutant: seconds of the processor, and by the clock, for one that waits.
type limits struct {
	seconds  int
	wait     time.Duration
	switched string // the switched binary, "" where its tests fail
}

// limit measures the tests without a mutant: a mutant may take some times as long. It also builds the switched binary.
func (g *gremlins) limit(ctx context.Context, goTool string, t target) (limits, error) {
	if g.dry {
		return limits{seconds: 60, wait: time.Minute}, nil
	}
	plain := filepath.Join(g.temp, "plain.test")
	cmd := build(ctx, goTool, "./"+t.Package, plain)
	cmd.Dir = g.tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return limits{}, fmt.Errorf("%s without mutants: %w\n%s", t.Package, err, out)
	}
	run := func(binary string) (processor, clock time.Duration, err error) {
		cmd := runBinary(ctx, binary, "unlimited", t.Run)
		cmd.Dir = filepath.Join(g.tree, t.Package)
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, 0, fmt.Errorf("the tests of %s without mutants: %w\n%s", t.Package, err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), time.Since(begun), nil
	}
	took, clock, err := run(plain)
	if err != nil {
		return limits{}, err
	}
	all, err := buildSwitched(ctx, goTool, g.tree, g.temp, t)
	if err == nil {
		var slower, longer time.Duration
		slower, longer, err = run(all)
		took, clock = max(took, slower), max(clock, longer)
	}
	if err != nil {
		fmt.Printf("every mutant is built alone: %v\n", err)
		all = ""
	}
	return limits{5 + int(took.Seconds()*float64(g.patience)), 20*time.Second + 2*clock*time.Duration(g.patience), all}, nil
}

// others is a pattern for all files of the package, and of those within its folder, that
// are not judged.
func (g *gremlins) others(t target) (string, error) {
	judged := map[string]bool{}
	for _, f := range t.Files {
		judged[f] = true
	}
	var patterns []string
	root := filepath.Join(g.tree, t.Package)
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !judged[name] {
			patterns = append(patterns, regexp.QuoteMeta(name))
		}
		return err
	})
	if len(patterns) == 0 {
		return "", err
	}
	return "^(" + strings.Join(patterns, "|") + ")$", err
}
