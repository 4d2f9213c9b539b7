// Package measured reads the tables of measurements that experiments start from.
package measured

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// JSON decodes a file.
func JSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Columns returns the named columns of a CSV file with a header, row by row. It is an
// error if one is missing or there is no row.
func Columns(path string, names ...string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("measured: %w", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("%s: no rows", path)
	}
	column := make([]int, len(names))
	for i, n := range names {
		if column[i] = slices.Index(rows[0], n); column[i] < 0 {
			return nil, fmt.Errorf("%s: no column %s in %s", path, n, strings.Join(rows[0], ","))
		}
	}
	out := make([][]string, 0, len(rows)-1)
	for _, r := range rows[1:] {
		picked := make([]string, len(names))
		for i, c := range column {
			picked[i] = r[c]
		}
		out = append(out, picked)
	}
	return out, nil
}
