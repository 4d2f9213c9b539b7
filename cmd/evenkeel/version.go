package main

import (
	"fmt"

	"evenkeel/cmd/evenkeel/internal/cli"
)

// What the build of a release sets, by -ldflags "-X main.version=v0.1.0 ...".
var version, commit, date string

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is shown under the flags.
func (*versionCmd) Help() string {
	return `Prints version, commit and date of the sources, and the Go release and platform of the build.

Examples:

  evenkeel version
  evenkeel version --json`
}

// Run prints the version.
func (v *versionCmd) Run(a *cli.App) error {
	if v.JSON {
		return a.WriteJSON(a.Build)
	}
	_, err := fmt.Fprintln(a.Out, a.Build)
	return err
}
