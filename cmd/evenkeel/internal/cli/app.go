// Package cli is what the commands share: the App that each gets, common flags, checks of
// files before any work, tables, progress and exit statuses.
package cli

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

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
}

// NewApp makes the App of one command line.
func NewApp(ctx context.Context, out, errs *os.File) *App {
	w := zerolog.ConsoleWriter{Out: errs, NoColor: !Colours(errs), TimeFormat: "15:04:05"}
	return &App{Ctx: ctx, Out: out, Errs: errs, Log: zerolog.New(w).With().Timestamp().Logger()}
}

// Version is the module's as the build recorded it; (devel) where it recorded none.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// Revision is that of the sources, where the build recorded it.
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	switch {
	case settings["vcs.revision"] == "":
		return ""
	case settings["vcs.modified"] == "true":
		return fmt.Sprintf(" (revision %s, modified)", settings["vcs.revision"])
	}
	return fmt.Sprintf(" (revision %s)", settings["vcs.revision"])
}
