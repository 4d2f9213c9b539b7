package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// errors are those of predictions, in percent.
type errors struct{ all []float64 }

func (e *errors) add(predicted, measured float64) string {
	off := 100 * (predicted/measured - 1)
	e.all = append(e.all, off)
	return fmt.Sprintf("%+.1f", off)
}

func (e *errors) mean() float64 {
	sum := 0.0
	for _, v := range e.all {
		sum += math.Abs(v)
	}
	return sum / float64(len(e.all))
}

// print prints the plans, and their errors.
func (s *set) print(w io.Writer, plans []measured) {
	fmt.Fprintf(w, "### %s\n\n| plan | measured s | calibrated s | off %% | plain s | off %% | measured GB | calibrated GB | off %% | plain GB | off %% |\n|---|---|---|---|---|---|---|---|---|---|---|\n", s.title)
	var seconds, bytes, agreeing, plain, plainBytes errors
	overfull, fits := 0, 0
	least := s.least()
	for _, m := range plans {
		fmt.Fprintf(w, "| %s | %.3f | %.3f | %s | %.3f | %s | %.2f | %.2f | %s | %.2f | %s |\n", m.name,
			m.seconds, m.predicted.seconds, seconds.add(m.predicted.seconds, m.seconds), m.bare.seconds, plain.add(m.bare.seconds, m.seconds),
			m.bytes/1e9, m.predicted.bytes/1e9, bytes.add(m.predicted.bytes, m.bytes), m.bare.bytes/1e9, plainBytes.add(m.bare.bytes, m.bytes))
		if !slices.Contains(s.odd, m.name) {
			agreeing.add(m.predicted.bytes, m.bytes)
		}
		if m.bare.fits {
			fits++
		}
		if m.bare.fits && m.bytes > least {
			overfull++
		}
	}
	fmt.Fprintf(w, "\n| what | |\n|---|---|\n")
	fmt.Fprintf(w, "| calibrated, mean error in time | %.1f%% |\n", seconds.mean())
	fmt.Fprintf(w, "| calibrated, mean error in memory | %.1f%% |\n", bytes.mean())
	if len(s.odd) > 0 {
		fmt.Fprintf(w, "| the same without %v, whose memory contradicts the others | %.1f%% |\n", s.odd, agreeing.mean())
	}
	fmt.Fprintf(w, "| calibrated, memory furthest under | %.1f%% |\n", max(0, -slices.Min(bytes.all)))
	fmt.Fprintf(w, "| uncalibrated, shown as fitting though a device's memory is less than measured | %d of %d |\n", overfull, fits)
	fmt.Fprintf(w, "| uncalibrated, memory furthest under | %.1f%% |\n", max(0, -slices.Min(plainBytes.all)))
	fmt.Fprintf(w, "| uncalibrated, mean error in time | %.1f%% |\n\n", plain.mean())
}

// least is the memory of the smallest device, in bytes: which device had the largest peak is not known.
func (s *set) least() float64 {
	least := math.Inf(1)
	for _, m := range s.memory {
		var gb float64
		if _, err := fmt.Sscanf(m, "%fGB", &gb); err == nil {
			least = min(least, gb*1e9)
		}
	}
	return least
}
