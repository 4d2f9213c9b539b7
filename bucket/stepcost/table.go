package stepcost

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"evenkeel/bucket/internal/input"
)

// Trial is one training step that was tried.
type Trial struct {
	Length      int     `json:"length"`               // padded length of every sample, of its source where there are two, >= 1
	Target      int     `json:"target,omitempty"`     // padded length of every target, >= 1; 0: samples have one length
	Batch       int     `json:"batch"`                // samples, >= 1
	Seconds     float64 `json:"seconds,omitempty"`    // duration; 0: it ran out of memory
	PeakBytes   int64   `json:"peak_bytes,omitempty"` // largest memory in use; 0: not known
	OutOfMemory bool    `json:"out_of_memory,omitempty"`
}

// Table is a set of trials, sorted by length, target, then batch, none twice; all of one length, or all of two.
type Table []Trial

// Pairs says whether its trials have two lengths.
func (t Table) Pairs() bool { return len(t) > 0 && t[0].Target > 0 }

// MaxLength bounds lengths and batch sizes.
const MaxLength = 1 << 24

// maxTableRows bounds what a table's reader takes.
const maxTableRows = 1 << 20

// ReadTable reads the CSV `length,batch,seconds,peak_bytes`, or `source,target,batch,seconds,peak_bytes`; an empty seconds is out of
// memory. Errors name line and field.
func ReadTable(r io.Reader, name string) (Table, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = -1
	c.ReuseRecord = true
	var t Table
	seen := map[[3]int]int{}
	pairs := false
	for first := true; ; first = false {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
		line, _ := c.FieldPos(0)
		if first {
			got := strings.Join(row, ",")
			if pairs = got == pairTableHeader; !pairs && got != TableHeader {
				return nil, input.Errorf("%s:1: header is %q; want %s, or %s", name, got, TableHeader, pairTableHeader)
			}
			continue
		}
		trial, err := parseTrial(row, pairs)
		if err != nil {
			return nil, input.Errorf("%s:%d: %v", name, line, err)
		}
		key := [3]int{trial.Length, trial.Target, trial.Batch}
		if before := seen[key]; before > 0 {
			return nil, input.Errorf("%s:%d: %s, batch %d is in line %d already", name, line, trial.shape(), trial.Batch, before)
		}
		seen[key] = line
		if t = append(t, trial); len(t) > maxTableRows {
			return nil, input.Errorf("%s:%d: more than %d rows", name, line, maxTableRows)
		}
	}
	if len(t) == 0 {
		return nil, input.Errorf("%s: no trials", name)
	}
	sortTable(t)
	return t, nil
}

// shape names the lengths, for messages.
func (t Trial) shape() string {
	if t.Target > 0 {
		return fmt.Sprintf("source %d, target %d", t.Length, t.Target)
	}
	return fmt.Sprintf("length %d", t.Length)
}

func parseTrial(row []string, pairs bool) (t Trial, err error) {
	whole := []struct {
		name string
		to   *int
	}{{"length", &t.Length}, {"batch", &t.Batch}}
	if pairs {
		whole = append(whole, whole[1])
		whole[0].name = "source"
		whole[1].name, whole[1].to = "target", &t.Target
	}
	if len(row) != len(whole)+2 {
		return t, fmt.Errorf("%d fields; want %d", len(row), len(whole)+2)
	}
	for k, w := range whole {
		if *w.to, err = strconv.Atoi(row[k]); err != nil || *w.to < 1 || *w.to > MaxLength {
			return t, fmt.Errorf("%s %q: want a whole number from 1 to %d", w.name, row[k], MaxLength)
		}
	}
	row = row[len(whole)-2:] // seconds and peak_bytes are the third and fourth
	if t.OutOfMemory = row[2] == ""; !t.OutOfMemory {
		if t.Seconds, err = strconv.ParseFloat(row[2], 64); err != nil || !(t.Seconds > 0 && t.Seconds < 1e9) {
			return t, fmt.Errorf("seconds %q: want a number above 0, or nothing for out of memory", row[2])
		}
	}
	if row[3] != "" {
		v, err := strconv.ParseFloat(row[3], 64)
		if err != nil || !(v >= 0 && v < math.MaxInt64/2) {
			return t, fmt.Errorf("peak_bytes %q: want a number from 0", row[3])
		}
		t.PeakBytes = int64(v)
	}
	return t, nil
}

// Row is the trial as a line of the CSV.
func (t Trial) Row() string {
	s, p := "", ""
	if !t.OutOfMemory {
		s = strconv.FormatFloat(t.Seconds, 'g', -1, 64)
	}
	if t.PeakBytes > 0 {
		p = strconv.FormatInt(t.PeakBytes, 10)
	}
	if t.Target > 0 {
		return fmt.Sprintf("%d,%d,%d,%s,%s", t.Length, t.Target, t.Batch, s, p)
	}
	return fmt.Sprintf("%d,%d,%s,%s", t.Length, t.Batch, s, p)
}

// The first line of the CSV, of samples with one length and with two.
const (
	TableHeader     = "length,batch,seconds,peak_bytes"
	pairTableHeader = "source,target,batch,seconds,peak_bytes"
)

// Header is the first line of the table's CSV.
func (t Table) Header() string {
	if t.Pairs() {
		return pairTableHeader
	}
	return TableHeader
}
