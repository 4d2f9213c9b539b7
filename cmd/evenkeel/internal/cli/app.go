// Package cli is what the commands share: the App that each gets, common flags, checks of
// files before work begins, tables, progress and exit statuses.
package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/rs/zerolog"
)

// Exit statuses.
const (
	ExitFailed   = 1
	ExitBadInput = 2
)

// App is what every command gets.
type App struct {
	Ctx   context.Context // done on Ctrl-C, SIGTERM and SIGHUP
	Out   *os.File        // results
	Errs  *os.File        // progress and logs
	Log   zerolog.Logger  // to errs
	Given []string        // flags on the command line
	Build Build           // of the program
}

// NewApp makes the App of one command line.
func NewApp(ctx context.Context, out, errs *os.File) *App {
	w := zerolog.ConsoleWriter{Out: errs, NoColor: !Colours(errs), TimeFormat: "15:04:05"}
	return &App{Ctx: ctx, Out: out, Errs: errs, Log: zerolog.New(w).With().Timestamp().Logger(), Build: ReadBuild("", "", "")}
}

// Exit is the error of a command that ends with the exit status of a program it ran, which has said why itself.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
