package plan

import (
	"os"
	"strconv"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/planner/execute"
)

// all runs the first stage here and every other one in a process.
func (r *execution) all() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, clear := r.server(nil, nil)
	if len(r.job.Plan.Stages) > 1 {
		s.Log = nil // these stages need no introduction
	}
	local := &execute.Local{Server: s, Keys: r.command.Keys, Program: self, BadInput: cli.ExitBadInput, Args: func(stage int, server, keys string) []string {
		return append(r.command.flags(), "--stage", strconv.Itoa(stage), "--connect", server, "--keys", keys, "--child")
	}}
	result, err := local.Run(r.Ctx)
	clear()
	return r.finish(result, err)
}
