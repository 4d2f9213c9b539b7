package evaluation

import (
	"encoding/json"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Cell is what hyperparameters are tuned for.
type Cell struct{ Policy, Cluster, Scenario string }

type tunedFile struct {
	Version int         `json:"version"`
	Tuned   []tunedLine `json:"tuned"`
}

type tunedLine struct {
	Policy   string `json:"policy"`
	Cluster  string `json:"cluster"`
	Scenario string `json:"scenario"`
	Knobs    string `json:"knobs"`
}

// Tuned returns the hyperparameters that tuning found, as a file of
// docs/reference/formats/tuned.md.
func Tuned(results []Result) ([]byte, error) {
	file := tunedFile{Version: 1, Tuned: []tunedLine{}}
	for _, r := range results {
		if r.Knobs != "" {
			file.Tuned = append(file.Tuned, tunedLine{r.Policy, r.Cluster, r.Scenario, r.Knobs})
		}
	}
	text, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return append(text, '\n'), nil
}

// ReadTuned is the inverse of Tuned, for Config.Known.
func ReadTuned(text []byte) (map[Cell]string, error) {
	var file tunedFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, badinput.Errorf("evaluation: hyperparameters: %v", err)
	}
	if file.Version != 1 {
		return nil, badinput.Errorf("evaluation: hyperparameters: version %d, this program reads version 1", file.Version)
	}
	known := map[Cell]string{}
	for _, l := range file.Tuned {
		known[Cell{l.Policy, l.Cluster, l.Scenario}] = l.Knobs
	}
	return known, nil
}

// point is the point of the grid that a text describes, the first one where leading hyperparameters are
// taken in hindsight; -1: none.
func (p *Spec) point(text string) int {
	fixed := Spec{Hyperparameters: p.Hyperparameters[p.Hindsight:]}
	if text == "" {
		return -1
	}
	for point := range fixed.Points() {
		if fixed.Text(point) == text {
			return point
		}
	}
	return -1
}
