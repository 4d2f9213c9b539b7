// Package program is what the programs of experiments have in common.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

// Evenkeel builds the command in a folder and returns its path.
func Evenkeel(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "evenkeel")
	_, err := Output(ctx, "", "go", "build", "-o", path, "./cmd/evenkeel")
	return path, err
}

// Output runs a command in a folder ("": this one) and returns what it printed. If its exit status is not 0, the
// error has what it wrote to standard error.
func Output(ctx context.Context, folder, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = folder
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out, err
}

// Main runs an experiment. Its error goes to standard error and ends the process with status 1. Ctrl-C ends
// run's context; a second one ends the process at once.
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}
