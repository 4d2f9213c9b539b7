// Package program is what the programs of experiments have in common.
package program

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

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
