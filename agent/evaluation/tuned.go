package evaluation

import (
	"encoding/json"
	"fmt"
)

// Tuned returns the hyperparameters that tuning found, as a file of
// docs/reference/formats/tuned.md.
func Tuned(results []Result) ([]byte, error) {
	type line struct {
		Policy   string `json:"policy"`
		Cluster  string `json:"cluster"`
		Scenario string `json:"scenario"`
		Knobs    string `json:"knobs"`
	}
	file := struct {
		Version int    `json:"version"`
		Tuned   []line `json:"tuned"`
	}{Version: 1, Tuned: []line{}}
	for _, r := range results {
		if r.Knobs != "" {
			file.Tuned = append(file.Tuned, line{r.Policy, r.Cluster, r.Scenario, r.Knobs})
		}
	}
	text, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return append(text, '\n'), nil
}
