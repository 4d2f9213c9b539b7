package train

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/renameio/v2"

	"evenkeel/internal/badinput"
	"evenkeel/internal/chart"
	"evenkeel/lab/training"
)

// returnColumns are the columns of returns.csv, which has a line per report of the trainer.
var returnColumns = []string{"steps", "total", "updates", "loss", "mean_q", "return", "team", "epsilon"}

// writeReturns replaces the file atomically; numbers are written without loss.
func writeReturns(path string, rows []training.Progress) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	_ = w.Write(returnColumns) // to memory
	for _, p := range rows {
		_ = w.Write([]string{
			strconv.Itoa(p.Steps), strconv.Itoa(p.Total), strconv.Itoa(p.Updates),
			number(p.Loss), number(p.MeanQ), number(p.Return), number(p.Team), number(p.Epsilon),
		})
	}
	w.Flush()
	return renameio.WriteFile(path, b.Bytes(), 0o644)
}

// readReturns reads the file of an interrupted run; a missing file has no rows.
func readReturns(path string) ([]training.Progress, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := parseReturns(f)
	if err != nil {
		return nil, badinput.Errorf("%s: %w; move it away to resume without it", path, err)
	}
	return rows, nil
}

func parseReturns(r io.Reader) ([]training.Progress, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = len(returnColumns)
	lines, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	var rows []training.Progress
	for i, line := range lines {
		if i == 0 {
			continue // the header
		}
		var p training.Progress
		var errs []error
		integer := func(field int) int {
			v, err := strconv.Atoi(line[field])
			errs = append(errs, err)
			return v
		}
		number := func(field int) float64 {
			v, err := strconv.ParseFloat(line[field], 64)
			if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
				err = fmt.Errorf("%q is not a number", line[field])
			}
			errs = append(errs, err)
			return v
		}
		p.Steps, p.Total, p.Updates = integer(0), integer(1), integer(2)
		p.Loss, p.MeanQ, p.Return, p.Team, p.Epsilon = number(3), number(4), number(5), number(6), number(7)
		if err := errors.Join(errs...); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		rows = append(rows, p)
	}
	return rows, nil
}

// figurePoints is the largest number of points of a curve.
const figurePoints = 500

// saveReturnsFigure draws the returns.
func saveReturnsFigure(dir string, rows []training.Progress) error {
	var steps, own, team []float64
	every := max(1, len(rows)/figurePoints)
	for i := (len(rows) - 1) % every; i < len(rows); i += every { // including the last row
		steps = append(steps, float64(rows[i].Steps))
		own = append(own, rows[i].Return)
		team = append(team, rows[i].Team)
	}
	figure := chart.Figure{Title: "Training", Panels: []chart.Panel{
		{XLabel: "steps", YLabel: "return per round", Series: []chart.Series{{Name: "a node's own return (0 is the best possible)", X: steps, Y: own}}},
		{XLabel: "steps", YLabel: "return per round", Series: []chart.Series{{Name: "the team's: progress against the state oracle - 1", X: steps, Y: team}}},
	}}
	return figure.Save(filepath.Join(dir, "returns.svg"))
}
