package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/runlog"
	"evenkeel/serve"
)

// unwritten is how many events may wait for a slow disk.
const unwritten = 4096

// jobLog writes the run log of a job, in a goroutine of its own: the job does not wait for a disk.
type jobLog struct {
	to      *runlog.Writer
	weights cluster.Objectives
	events  chan serve.Event
	ended   chan struct{}
	behind  bool  // an event found no room: the log ends before it
	err     error // the first; nothing is written after it. Read it when the goroutine has ended
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
	l := &jobLog{to: to, events: make(chan serve.Event, unwritten), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for e := range l.events {
			if l.err == nil {
				l.err = l.write(e)
			}
		}
	}()
	return l, nil
}

// add notes what happened. It is called under the job's lock, and does not wait.
func (l *jobLog) add(e serve.Event) {
	if l.behind {
		return
	}
	if e.Limits = maps.Clone(e.Limits); e.Report != nil {
		report := *e.Report
		report.Nodes = slices.Clone(report.Nodes)
		e.Report, e.Cluster, e.Ran = &report, nil, e.Ran.Own()
	}
	select {
	case l.events <- e:
	default:
		l.behind = true
	}
}

func (l *jobLog) write(e serve.Event) error {
	if e.Report == nil {
		return l.to.Start(runlog.NewStart(e.Generation, e.Cluster))
	}
	note := runlog.Note{}
	if e.Weights != l.weights {
		w := e.Weights
		note.Weights, l.weights = &w, w
	}
	for node, most := range e.Limits {
		note.Limits = append(note.Limits, runlog.Limit{Node: node, MicroBatch: most})
	}
	slices.SortFunc(note.Limits, func(a, b runlog.Limit) int { return a.Node - b.Node })
	return l.to.Round(e.Ran, e.Ran.Perf, e.Report, note)
}

// close writes what waits, ends the log and returns its first error. No event comes after it.
func (l *jobLog) close() error {
	close(l.events)
	<-l.ended
	err := l.to.Close()
	switch {
	case l.err != nil:
		return l.err
	case l.behind:
		return errors.Join(err, fmt.Errorf("--log: the disk was %d rounds behind, so the log ends early; write it to a faster disk", unwritten))
	}
	return err
}
