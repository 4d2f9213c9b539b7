package run

import (
	"math"
	"strconv"
	"strings"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// chosenWeights are those of --weights, or without it the cluster file's.
func chosenWeights(text string, file cluster.Objectives, c *cluster.Cluster) (cluster.Objectives, error) {
	if text == "" {
		if file == (cluster.Objectives{}) {
			file.Speed = 1
		}
		return file, nil
	}
	o, err := objectives(text)
	if err != nil {
		return o, err
	}
	if err := o.Check(c); err != nil {
		return o, badinput.Errorf("--weights: %w", err)
	}
	return o, nil
}

// objectives reads weights written as speed=1,waiting=0.5; those left out are 0.
func objectives(text string) (cluster.Objectives, error) {
	var o cluster.Objectives
	fields := map[string]*float64{"speed": &o.Speed, "waiting": &o.Waiting, "freshness": &o.Freshness, "energy": &o.Energy}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		field, known := fields[name]
		if !ok || !known {
			return o, badinput.Errorf("--weights: %q; write speed=1,waiting=0.5,freshness=0,energy=0, each at most once", part)
		}
		delete(fields, name)
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) {
			return o, badinput.Errorf("--weights: %s is %q; write a number", name, value)
		}
		*field = v
	}
	if err := o.Validate(); err != nil {
		return o, badinput.Errorf("--weights: %w", err)
	}
	if o == (cluster.Objectives{}) {
		return o, badinput.Errorf("--weights: all are zero; give at least one above 0")
	}
	return o, nil
}
