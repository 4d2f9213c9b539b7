package main

import (
	"context"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment of the shim: the real go command, the tests to run, the places (file:line:column)
// whose mutants are judged ("": all), the package's folder without mutants, the switched
// binary ("": none), for that the number of the mutant that acts, how long a mutant may wait, and
// the file that lists those that waited longer.
const (
	realGo     = "EVENKEEL_MUTATION_GO"
	runTests   = "EVENKEEL_MUTATION_RUN"
	onlyPlaces = "EVENKEEL_MUTATION_PLACES"
	seconds    = "EVENKEEL_MUTATION_SECONDS"
	original   = "EVENKEEL_MUTATION_ORIGINAL"
	switched   = "EVENKEEL_MUTATION_SWITCHED"
	acts       = "EVENKEEL_MUTATION_ACTS"
	patience   = "EVENKEEL_MUTATION_PATIENCE"
	waits      = "EVENKEEL_MUTATION_WAITS"
)

// memory bounds a mutant's address space, in KiB: a loop without an end may also be one
// that appends.
const memory = 12 << 20

// shim stands for the go command under gremlins. It tells mutants that do not compile
// (status 2) from those that tests kill (1), which gremlins cannot; builds with -trimpath,
// so that the copies share one build cache; runs short tests only; and ends a mutant that
// takes too long itself, by the time of the processor: gremlins goes by the clock, which on
// a busy machine is wrong, and would leave the test running.
func shim(args []string) int {
	goTool := os.Getenv(realGo)
	switch {
	case slices.Equal(args, []string{"mod", "download"}):
		return 0 // the tests of the working tree fetch what they need
	case len(args) == 0 || args[0] != "test":
		return exit(pass(exec.Command(goTool, args...)))
	}
	if i := slices.Index(args, "-coverprofile"); i >= 0 {
		more := []string{"-count=1", "-short", "-run", os.Getenv(runTests)}
		err := pass(exec.Command(goTool, slices.Concat(testFlags, more, args[1:])...))
		if err == nil && i+1 < len(args) {
			err = coverBetween(args[i+1])
		}
		return exit(err)
	}
	return judge(goTool, args)
}

// judge builds and runs one mutant: test -timeout D -failfast PACKAGE.
func judge(goTool string, args []string) int {
	i := slices.Index(args, "-timeout")
	if i < 0 || i+1 >= len(args) {
		fmt.Fprintln(os.Stderr, "mutation: gremlins gave no time limit:", args)
		return 3
	}
	limit, err := time.ParseDuration(args[i+1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		return 3
	}
	where, with, found := mutantHere()
	if only := strings.Fields(os.Getenv(onlyPlaces)); found && len(only) > 0 && !slices.Contains(only, where.String()) {
		return 1
	}
	// gremlins adds 2 s to its own limit.
	ctx, cancel := context.WithTimeout(context.Background(), limit-2500*time.Millisecond)
	defer cancel()
	binary, n := os.Getenv(switched), 0
	if found && binary != "" {
		n = number(binary, mutantID(where, with))
	}
	if n == 0 {
		dir, err := os.MkdirTemp("", "judge-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutation:", err)
			return 3
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "mutant.test")
		if err := build(ctx, goTool, args[len(args)-1], binary).Run(); err != nil {
			if ctx.Err() != nil {
				return await()
			}
			return 2
		}
	}
	wait, err := time.ParseDuration(os.Getenv(patience))
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		return 3
	}
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cmd := runBinary(short, binary, os.Getenv(seconds), os.Getenv(runTests))
	cmd.Env = append(os.Environ(), acts+"="+strconv.Itoa(n))
	err = cmd.Run()
	switch {
	case ctx.Err() != nil || err != nil && short.Err() != nil && !found:
		return await()
	case err != nil && short.Err() != nil:
		return list(mutantID(where, with))
	case err != nil:
		return 1
	}
	return 0
}

// list adds a mutant to those that waited longer than they may. gremlins, whose own limit comes much later, counts
// it as killed; it is marked afterwards.
func list(id string) int {
	file, err := os.OpenFile(os.Getenv(waits), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintln(file, id)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		return 3
	}
	return 1
}

var testFlags = []string{"test", "-trimpath", "-vet=off", "-ldflags=-s -w"}

func build(ctx context.Context, goTool, pkg, binary string, flags ...string) *exec.Cmd {
	return exec.CommandContext(ctx, goTool, slices.Concat(testFlags, flags, []string{"-c", "-o", binary, pkg})...)
}

// runBinary runs tests within so many seconds of the processor, and bounded memory.
func runBinary(ctx context.Context, binary, limit, run string) *exec.Cmd {
	return exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(`ulimit -v %d; ulimit -t %s; exec "$0" "$@"`, memory, limit),
		binary, "-test.short", "-test.failfast", "-test.run", run)
}

// mutantHere finds the mutant in this folder.
func mutantHere() (where place, with token.Token, found bool) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		return place{}, 0, false
	}
	for _, f := range files {
		mutated, err := os.ReadFile(f)
		if err != nil {
			return place{}, 0, false
		}
		text, err := os.ReadFile(filepath.Join(os.Getenv(original), f))
		if err != nil {
			return place{}, 0, false
		}
		if line, column, with, found := firstDifference(text, mutated); found {
			return place{f, line, column}, with, true
		}
	}
	return place{}, 0, false
}

// firstDifference returns where in text the first token stands that mutated has not, and what
// mutated has there. gremlins formats what it mutates, so lines cannot be compared.
func firstDifference(text, mutated []byte) (line, column int, with token.Token, found bool) {
	var a, b scanner.Scanner
	files := token.NewFileSet()
	fa, fb := files.AddFile("", -1, len(text)), files.AddFile("", -1, len(mutated))
	a.Init(fa, text, nil, 0)
	b.Init(fb, mutated, nil, 0)
	for {
		pos, ta, la := a.Scan()
		_, tb, lb := b.Scan()
		if ta != tb || ta.IsLiteral() && la != lb {
			p := files.Position(pos)
			return p.Line, p.Column, tb, true
		}
		if ta == token.EOF {
			return 0, 0, 0, false
		}
	}
}

// await lets gremlins reach its own time limit.
func await() int {
	time.Sleep(10 * time.Second)
	return 1
}

func pass(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func exit(err error) int {
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		return failed.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutation:", err)
		return 3
	}
	return 0
}
