// Command all regenerates every table and figure of experiments/RESULTS.md, one
// experiment after the other:
//
//	go run ./experiments/all                 # two or three hours on two cores
//	go run ./experiments/all heldout front   # those whose command contains one of the words
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

// commands in the order of the page; what follows "go run ./experiments/".
var commands = []string{
	"heldout", "heldout -suite deadline -rounds 200 -tune 4", "deadline", "heldout -suite free", "heldout -suite short", "heldout -suite batch", "heldout -suite stages", "batch", "knowing", "threshold", "recurrent", "front", "heldout -suite scale", "heldout -suite unseen", "heldout -suite noise", "cells", "lengths", "slowest", "swap", "curves", "ablation", "bench", "bucket", "forward",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var failed []error
	begun := time.Now()
	for i, c := range commands {
		if !wanted(c, os.Args[1:]) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%v: %d of %d, %s\n", time.Since(begun).Round(time.Second), i+1, len(commands), c)
		args := append([]string{"run"}, strings.Fields("./experiments/"+c)...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(failed...); err != nil {
		fmt.Fprintln(os.Stderr, "all:", err)
		os.Exit(1)
	}
}

// wanted says whether a command contains one of the words, or there are none.
func wanted(command string, words []string) bool {
	for _, w := range words {
		if strings.Contains(command, w) {
			return true
		}
	}
	return len(words) == 0
}
