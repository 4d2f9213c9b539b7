package stepcost

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/badinput"
)

// Trial is one training step that was tried.
type Trial struct {
	Length      int     `json:"length"`               // padded length of every sample, >= 1
	Batch       int     `json:"batch"`                // samples, >= 1
	Seconds     float64 `json:"seconds,omitempty"`    // duration; 0: it ran out of memory
	PeakBytes   int64   `json:"peak_bytes,omitempty"` // largest memory in use; 0: not known
	OutOfMemory bool    `json:"out_of_memory,omitempty"`
}

// Table is a set of trials, sorted by length, then batch, none twice.
type Table []Trial

// MaxLength bounds lengths and batch sizes.
const MaxLength = 1 << 24

// maxTableRows bounds what a table's reader takes.
const maxTableRows = 1 << 20

// ReadTable reads the CSV `length,batch,seconds,peak_bytes`; an empty seconds is out of memory. Errors name line and field.
func ReadTable(r io.Reader, name string) (Table, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = -1
	c.ReuseRecord = true
	var t Table
	seen := map[[2]int]int{}
	for first := true; ; first = false {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badinput.Errorf("%s: %v", name, err)
		}
		line, _ := c.FieldPos(0)
		if first {
			if got := strings.Join(row, ","); got != TableHeader {
				return nil, badinput.Errorf("%s:1: header is %q; want %s", name, got, TableHeader)
			}
			continue
		}
		trial, err := parseTrial(row)
		if err != nil {
			return nil, badinput.Errorf("%s:%d: %v", name, line, err)
		}
		key := [2]int{trial.Length, trial.Batch}
		if before := seen[key]; before > 0 {
			return nil, badinput.Errorf("%s:%d: length %d, batch %d is in line %d already", name, line, trial.Length, trial.Batch, before)
		}
		seen[key] = line
		if t = append(t, trial); len(t) > maxTableRows {
			return nil, badinput.Errorf("%s:%d: more than %d rows", name, line, maxTableRows)
		}
	}
	if len(t) == 0 {
		return nil, badinput.Errorf("%s: no trials", name)
	}
	slices.SortFunc(t, func(a, b Trial) int { return cmp.Or(a.Length-b.Length, a.Batch-b.Batch) })
	return t, nil
}

func parseTrial(row []string) (t Trial, err error) {
	if len(row) != 4 {
		return t, fmt.Errorf("%d fields; want 4", len(row))
	}
	for k, to := range []*int{&t.Length, &t.Batch} {
		if *to, err = strconv.Atoi(row[k]); err != nil || *to < 1 || *to > MaxLength {
			return t, fmt.Errorf("%s %q: want a whole number from 1 to %d", []string{"length", "batch"}[k], row[k], MaxLength)
		}
	}
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

// TableHeader is the first line of the CSV.
const TableHeader = "length,batch,seconds,peak_bytes"
