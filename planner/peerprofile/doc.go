// Package peerprofile reads the layer profiles of other planners: Sailor, Metis, Piper and Galvatron. See the Example.
package peerprofile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// maxBytes of a file.
const maxBytes = 64 << 20

// load reads a JSON file of a limited size into v.
func load(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("peerprofile: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return fmt.Errorf("peerprofile: %s: %w", path, err)
	}
	return decode(path, text, v)
}

func decode(path string, text []byte, v any) error {
	if len(text) > maxBytes {
		return fmt.Errorf("%s: %w: larger than %d bytes", path, layerprofile.ErrProfile, maxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w: %w", path, layerprofile.ErrProfile, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w: more follows after the profile", path, layerprofile.ErrProfile)
	}
	return nil
}

func bad(path, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", path, layerprofile.ErrProfile, fmt.Sprintf(format, args...))
}
