package stepcost

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Trial is one training step that was tried.
type Trial struct {
	Length      int     `json:"length"`               // padded length of every sample, >= 1
	Batch       int     `json:"batch"`                // samples, >= 1
	Seconds     float64 `json:"seconds,omitempty"`    // duration; 0: it ran out of memory
	PeakBytes   int64   `json:"peak_bytes,omitempty"` // largest memory in use; 0: not known
	OutOfMemory bool    `json:"out_of_memory,omitempty"`
}

// Table is a set of trials, sorted by length, then batch, no pair twice.
type Table []Trial

// MaxLength bounds lengths and batch sizes.
const MaxLength = 1 << 24

// maxTableRows bounds what a table's reader takes.
const maxTableRows = 1 << 20

// ReadTable reads the CSV `length,batch,seconds,peak_bytes`; an empty seconds is out of
// memory. Errors name line and field.
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
			return nil, input.Errorf("%s: %v", name, err)
		}
		line, _ := c.FieldPos(0)
		if first {
			if got := strings.Join(row, ","); got != "length,batch,seconds,peak_bytes" {
				return nil, input.Errorf("%s:1: header is %q; want length,batch,seconds,peak_bytes", name, got)
			}
			continue
		}
		trial, err := parseTrial(row)
		if err != nil {
			return nil, input.Errorf("%s:%d: %v", name, line, err)
		}
		key := [2]int{trial.Length, trial.Batch}
		if before := seen[key]; before > 0 {
			return nil, input.Errorf("%s:%d: length %d, batch %d is in line %d already", name, line, key[0], key[1], before)
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

func parseTrial(row []string) (Trial, error) {
	var t Trial
	if len(row) != 4 {
		return t, fmt.Errorf("%d fields; want 4", len(row))
	}
	var err error
	if t.Length, err = strconv.Atoi(row[0]); err != nil || t.Length < 1 || t.Length > MaxLength {
		return t, fmt.Errorf("length %q: want a whole number from 1 to %d", row[0], MaxLength)
	}
	if t.Batch, err = strconv.Atoi(row[1]); err != nil || t.Batch < 1 || t.Batch > MaxLength {
		return t, fmt.Errorf("batch %q: want a whole number from 1 to %d", row[1], MaxLength)
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

// Row is the trial as a line of the CSV.
func (t Trial) Row() string {
	s, p := "", ""
	if !t.OutOfMemory {
		s = strconv.FormatFloat(t.Seconds, 'g', -1, 64)
	}
	if t.PeakBytes > 0 {
		p = strconv.FormatInt(t.PeakBytes, 10)
	}
	return fmt.Sprintf("%d,%d,%s,%s", t.Length, t.Batch, s, p)
}

// TableHeader is the first line of the CSV.
const TableHeader = "length,batch,seconds,peak_bytes"
