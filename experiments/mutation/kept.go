package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// judged is what a run found of one file, kept in kept/.
type judged struct {
	Version    string     `yaml:"version"` // git's hash of the text that was judged, cut
	Killed     int        `yaml:"killed"`
	Lived      int        `yaml:"lived"`
	NotCovered int        `yaml:"not_covered"`
	TimedOut   int        `yaml:"timed_out"`
	NotViable  int        `yaml:"not_viable"`
	Survivors  []survivor `yaml:"survivors,omitempty"`
}

// survivor is a mutant that no test killed.
type survivor struct {
	Line     int    `yaml:"line"`
	Column   int    `yaml:"column"`
	Mutation string `yaml:"mutation"`
	Status   string `yaml:"status"`
	Code     string `yaml:"code"`           // the line
	Note     string `yaml:"note,omitempty"` // a person's: why no test can kill it
}

func keptPath(pkg, file string) string {
	return filepath.Join(folder, "kept", filepath.FromSlash(pkg), strings.TrimSuffix(file, ".go")+".yaml")
}

// read returns what is kept of a file, nil if nothing is.
func read(pkg, file string) (*judged, error) {
	path := keptPath(pkg, file)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &judged{}
	if err := yaml.UnmarshalWithOptions(text, j, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

// version is git's hash of a file as it stands, cut.
func version(pkg, file string) (string, error) {
	hash, err := output(context.Background(), "git", "hash-object", pkg+"/"+file)
	if err != nil {
		return "", err
	}
	return hash[:8], nil
}

// keep writes what a run found of a file. Notes stay with the same mutation of the same
// line of code.
func keep(pkg, file, version string, text []byte, mutants []mutant) (*judged, error) {
	before, err := read(pkg, file)
	if err != nil {
		return nil, err
	}
	type key struct{ mutation, code string }
	notes := map[key]string{}
	if before != nil {
		for _, s := range before.Survivors {
			notes[key{s.Mutation, s.Code}] = s.Note
		}
	}
	lines := strings.Split(string(text), "\n")
	j := &judged{Version: version}
	for _, m := range mutants {
		switch m.Status {
		case killed:
			j.Killed++
			continue
		case notViable:
			j.NotViable++
			continue
		case timedOut:
			j.TimedOut++
		case lived:
			j.Lived++
		case notCovered:
			j.NotCovered++
		default:
			return nil, fmt.Errorf("%s/%s:%d: unknown status %q", pkg, file, m.Line, m.Status)
		}
		s := survivor{Line: m.Line, Column: m.Column, Mutation: words(m.Type), Status: words(m.Status)}
		if m.Line <= len(lines) {
			s.Code = strings.TrimSpace(lines[m.Line-1])
		}
		s.Note = notes[key{s.Mutation, s.Code}]
		j.Survivors = append(j.Survivors, s)
	}
	out, err := yaml.Marshal(j)
	if err != nil {
		return nil, err
	}
	path := keptPath(pkg, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return j, os.WriteFile(path, out, 0o644)
}

// words turns gremlins' CONDITIONALS_BOUNDARY into "conditionals boundary".
func words(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", " ")) }
