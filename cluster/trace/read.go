package trace

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"evenkeel/internal/badinput"
)

// Limits of a file: a run log holds its text in one line.
const (
	maxBytes = 16 << 20
	maxRows  = 500_000

	maxRound    = 1_000_000_000
	maxTime     = 1e12
	maxName     = 64 // bytes of a job's or worker's name
	maxProblems = 20
)

// errFile marks every error about the content of a trace.
var errFile = badinput.New("trace: invalid file")

// Columns are the names of the columns.
type Columns struct {
	Job    string `yaml:"job,omitempty" json:"job,omitempty"`       // "": job, which may be missing
	Worker string `yaml:"worker,omitempty" json:"worker,omitempty"` // "": worker, which may be missing: a job has one
	Round  string `yaml:"round,omitempty" json:"round,omitempty"`   // "": round
	Time   string `yaml:"time,omitempty" json:"time,omitempty"`     // "": seconds
}

// parser reads one file.
type parser struct {
	name   string
	index  [4]int // of job and worker (below 0: none), round and time
	fields [4]string
	width  int
	faults []error
	keys   map[[2]string]int // into series
	series []series
}

// series is the rows of one worker.
type series struct {
	key  [2]string // job and worker
	rows []row
}

type row struct {
	round, line int
	time        float64
}

// add notes a fault; it reports whether there is room for another.
func (p *parser) add(line int, field, format string, args ...any) bool {
	where := p.name
	if line > 0 {
		where += ":" + strconv.Itoa(line)
	}
	if len(p.faults) > maxProblems {
		return false
	}
	if len(p.faults) == maxProblems {
		p.faults = append(p.faults, fmt.Errorf("%s: %w: and more faults", p.name, errFile))
		return false
	}
	if field != "" {
		field += ": "
	}
	p.faults = append(p.faults, fmt.Errorf("%s: %w: %s%s", where, errFile, field, fmt.Sprintf(format, args...)))
	return true
}

// Read reads a trace. name appears in errors. Those about the content wrap errFile and
// list up to 20 faults with line and column.
func Read(r io.Reader, name string, columns Columns) (*Trace, error) {
	p := parser{name: name, keys: map[[2]string]int{}}
	source, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("trace: %s: %w", name, err)
	}
	if len(source) > maxBytes {
		p.add(0, "", "larger than %d MiB; keep fewer rounds, or every tenth", maxBytes>>20)
		return nil, errors.Join(p.faults...)
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // some programs write a byte order mark
	if !utf8.Valid(source) {
		p.add(0, "", "not UTF-8; save it as UTF-8")
		return nil, errors.Join(p.faults...)
	}
	p.rows(source, columns)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	t := p.trace()
	t.Source = string(source)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return t, nil
}

func (p *parser) rows(source []byte, columns Columns) {
	in := csv.NewReader(bytes.NewReader(source))
	in.FieldsPerRecord, in.ReuseRecord = -1, true
	for n := 0; ; n++ {
		fields, err := in.Read()
		switch {
		case errors.Is(err, io.EOF):
			if n < 2 {
				p.add(0, "", "no rows; it needs a header and a row for each worker and round")
			}
			return
		case err != nil:
			line, text := 0, err.Error()
			if e := (*csv.ParseError)(nil); errors.As(err, &e) {
				line, text = e.Line, e.Err.Error()
			}
			p.add(line, "", "not CSV: %s", text)
			return // where the next row begins is unknown
		}
		line, _ := in.FieldPos(0)
		switch {
		case n == 0:
			if !p.header(fields, columns) {
				return
			}
		case n > maxRows:
			p.add(line, "", "more than %d rows; keep fewer rounds, or every tenth", maxRows)
			return
		case !p.row(line, fields):
			return
		}
	}
}

// header finds the columns.
func (p *parser) header(fields []string, columns Columns) bool {
	p.width = len(fields)
	wanted := [4]string{columns.Job, columns.Worker, columns.Round, columns.Time}
	for k, name := range [4]string{"job", "worker", "round", "seconds"} {
		optional := wanted[k] == "" && k < 2
		p.fields[k] = cmp.Or(wanted[k], name)
		p.index[k] = slices.Index(fields, p.fields[k])
		switch {
		case p.index[k] < 0 && !optional:
			p.add(1, "", "no column %q; there are %s; name yours by replay.%s", clip(p.fields[k]), clip(strings.Join(fields, ", ")), [4]string{"job", "worker", "round", "time"}[k])
		case p.index[k] >= 0 && slices.Contains(fields[p.index[k]+1:], p.fields[k]):
			p.add(1, p.fields[k], "is the name of two columns")
		case p.index[k] >= 0 && slices.Contains(p.index[:k], p.index[k]):
			p.add(1, p.fields[k], "is named for two purposes")
		}
	}
	return len(p.faults) == 0
}

// row reads one row and reports whether to go on.
func (p *parser) row(line int, fields []string) bool {
	if len(fields) != p.width {
		return p.add(line, "", "%d fields, the header has %d", len(fields), p.width)
	}
	good, more := true, true
	bad := func(k int, format string, args ...any) {
		good, more = false, more && p.add(line, p.fields[k], format, args...)
	}
	var key [2]string
	for k := range key {
		if p.index[k] < 0 {
			continue
		}
		key[k] = fields[p.index[k]]
		if n := len(key[k]); n == 0 || n > maxName {
			bad(k, "is %q; a name has 1 to %d bytes", clip(key[k]), maxName)
		}
	}
	text := fields[p.index[2]]
	round, err := strconv.Atoi(text)
	if err != nil || round < 0 || round > maxRound {
		bad(2, "is %q; it must be a whole number in 0..%d", clip(text), maxRound)
	}
	text = fields[p.index[3]]
	time, err := strconv.ParseFloat(text, 64)
	if err != nil || !(time > 0 && time <= maxTime) {
		bad(3, "is %q; it must be a number above 0 and up to %g; leave out rounds without a time", clip(text), maxTime)
	}
	if !good {
		return more
	}
	at, known := p.keys[key]
	if !known {
		at = len(p.series)
		key = [2]string{strings.Clone(key[0]), strings.Clone(key[1])} // the record is used again
		p.keys[key] = at
		p.series = append(p.series, series{key: key})
	}
	s := &p.series[at]
	s.rows = append(s.rows, row{round, line, time})
	return true
}

// trace puts the series together.
func (p *parser) trace() *Trace {
	t := &Trace{}
	jobs := map[string]int{}
	var times [][]float64 // of each job
	var of []int          // the job of each series
	for i := range p.series {
		s := &p.series[i]
		p.sort(s)
		at, known := jobs[s.key[0]]
		if !known {
			at = len(t.Jobs)
			jobs[s.key[0]] = at
			t.Jobs, times = append(t.Jobs, Job{Name: s.key[0], Last: math.MaxInt}), append(times, nil)
		}
		of = append(of, at)
		j := &t.Jobs[at]
		j.First, j.Last = max(j.First, s.rows[0].round), min(j.Last, s.rows[len(s.rows)-1].round)
		for _, r := range s.rows {
			times[at] = append(times[at], r.time)
		}
	}
	middle := make([]float64, len(times))
	for at := range times {
		middle[at] = median(times[at])
	}
	for i := range p.series {
		s, j := &p.series[i], &t.Jobs[of[i]]
		w := Worker{Name: s.key[1]}
		w.set(s.rows, middle[of[i]])
		j.Workers = append(j.Workers, w)
	}
	for _, j := range t.Jobs {
		if j.First > j.Last {
			p.add(0, "", "the workers of job %q have no round in common: one begins at %d, one ends at %d; give them different jobs", clip(j.Name), j.First, j.Last)
		}
	}
	return t
}

// sort orders the rows of a worker. A repeated row counts once, because published traces have
// some; a round with two times is a fault.
func (p *parser) sort(s *series) {
	slices.SortStableFunc(s.rows, func(a, b row) int { return cmp.Compare(a.round, b.round) })
	s.rows = slices.CompactFunc(s.rows, func(a, b row) bool { return a.round == b.round && a.time == b.time })
	for k := 1; k < len(s.rows); k++ {
		if a, b := s.rows[k-1], s.rows[k]; a.round == b.round && !p.add(b.line, p.fields[2], "worker %q has another time for round %d in line %d; keep one row, or name the columns of job and worker by replay.job and replay.worker", clip(s.key[1]), b.round, a.line) {
			return
		}
	}
}

const maxShown = 60

func clip(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}
