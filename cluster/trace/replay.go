package trace

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
)

// Bounds of the fields of Replay.
const (
	LeastPace, MostPace   = 0.001, 1e6
	LeastScale, MostScale = 0.01, 10
)

// Replay says which trace the nodes of a cluster replay, and how.
type Replay struct {
	File    string `yaml:"file" json:"file"`
	Columns `yaml:",inline"`
	Pace    float64 `yaml:"pace,omitempty" json:"pace,omitzero"`   // rounds of the trace for one of the cluster, 0.001..1e6; 0: 1
	Scale   float64 `yaml:"scale,omitempty" json:"scale,omitzero"` // power to which factors are raised, 0.01..10; 0: 1
	Timed   bool    `yaml:"timed,omitempty" json:"timed,omitzero"` // Pace rounds of the trace take a nominal round of time (cluster.Pattern), however long the cluster's rounds are

	Trace *Trace `yaml:"-" json:"-"` // of File; see Open
}

// Rate returns Pace, or its default.
func (r *Replay) Rate() float64 { return cmp.Or(r.Pace, 1) }

// Exponent returns Scale, or its default.
func (r *Replay) Exponent() float64 { return cmp.Or(r.Scale, 1) }

// Path returns the path of File, which is relative to folder; "" without a file.
func (r *Replay) Path(folder string) string {
	if r.File == "" || filepath.IsAbs(r.File) {
		return r.File
	}
	return filepath.Join(folder, r.File)
}

// Open reads the trace of File, which is relative to folder.
func (r *Replay) Open(folder string) error {
	path := r.Path(folder)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: not a regular file", path, errFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	r.Trace, err = Read(f, path, r.Columns)
	return err
}
