package serve

import (
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/runlog"
	"github.com/evenkeel/evenkeel/serve"
)

// jobLog writes the run log of a job.
type jobLog struct {
	to      *runlog.Writer
	weights cluster.Objectives
	err     error // the first; nothing is written after it
}

func newJobLog(path, version, policy string) (*jobLog, error) {
	h := runlog.NewLiveHeader()
	if h.Evenkeel, h.Name, h.Policy = version, path, policy; policy == "" {
		h.Policy = "embedded"
	}
	to, err := runlog.Create(path, h)
	if err != nil {
		return nil, cli.FileError(err)
	}
	return &jobLog{to: to}, nil
}

// add writes what happened; it is called under the job's lock.
func (l *jobLog) add(e serve.Event) {
	switch {
	case l.err != nil:
	case e.Report == nil:
		l.err = l.to.Start(runlog.NewStart(e.Generation, e.Cluster))
	default:
		note := runlog.Note{}
		if e.Weights != l.weights {
			w := e.Weights
			note.Weights, l.weights = &w, w
		}
		for node, most := range e.Limits {
			note.Limits = append(note.Limits, runlog.Limit{Node: node, MicroBatch: most})
		}
		slices.SortFunc(note.Limits, func(a, b runlog.Limit) int { return a.Node - b.Node })
		l.err = l.to.Round(e.Ran, e.Ran.Perf, e.Report, note)
	}
}

// close ends the log and returns its first error.
func (l *jobLog) close() error {
	err := l.to.Close()
	if l.err != nil {
		return l.err
	}
	return err
}
