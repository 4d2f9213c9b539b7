package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/internal/chart"
)

// named is a path with the flag that names it.
type named struct{ flag, path string }

// checkFiles says, before any work, that an input is no file, or that an output cannot
// be written or would destroy an input or another output.
func checkFiles(inputs, outputs []named) error {
	unset := func(n named) bool { return n.path == "" }
	inputs, outputs = slices.DeleteFunc(inputs, unset), slices.DeleteFunc(outputs, unset)
	for _, in := range inputs {
		if info, err := os.Stat(in.path); err == nil && info.IsDir() && in.flag != profilesFlag {
			return badInputf("%s: %s is a folder; name a file", in.flag, in.path)
		}
	}
	if err := checkDistinct(inputs, outputs); err != nil {
		return err
	}
	for _, out := range outputs {
		if err := checkWritable(out); err != nil {
			return err
		}
	}
	return nil
}

// checkDistinct says that an output is an input, or another output.
func checkDistinct(inputs, outputs []named) error {
	var read []named
	for _, in := range inputs {
		read = append(read, in)
		if in.flag != profilesFlag {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(in.path, "*")) // of a folder; its reader meets the error
		for _, f := range files {
			read = append(read, named{in.flag, f})
		}
	}
	for i, out := range outputs {
		for _, in := range read {
			if sameFile(out.path, in.path) {
				return badInputf("%s: %s is read by %s and would be overwritten; choose another file", out.flag, out.path, in.flag)
			}
		}
		for _, other := range outputs[:i] {
			if sameFile(out.path, other.path) {
				return badInputf("%s: %s is written by %s too; choose another file", out.flag, out.path, other.flag)
			}
		}
	}
	return nil
}

// checkWritable tries whether a file could be made beside the output, as writing it in
// one piece does.
func checkWritable(out named) error {
	folder := filepath.Dir(out.path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return badInputf("%s: %s: there is no folder %s", out.flag, out.path, folder)
	}
	switch info, err := os.Stat(out.path); {
	case err == nil && info.IsDir():
		return badInputf("%s: %s is a folder; name a file", out.flag, out.path)
	case err == nil && !info.Mode().IsRegular() && out.flag != logFlag:
		return badInputf("%s: %s is no regular file", out.flag, out.path)
	case err == nil && out.flag == logFlag:
		return nil // written in place, so that opening it tells
	}
	f, err := os.CreateTemp(folder, ".evenkeel-*")
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		return badInputf("%s: %s: no file can be written in folder %s: %w", out.flag, out.path, folder, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// sameFile also knows files that are not there yet by their names.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, other := os.Stat(b)
	if err == nil && other == nil {
		return os.SameFile(first, second)
	}
	return whole(a) == whole(b)
}

// whole is the absolute path, the links of its folder followed.
func whole(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(folder, filepath.Base(path))
	}
	return path
}

// The flags whose files are treated in a way of their own.
const (
	profilesFlag = "--profiles" // folders too
	logFlag      = "--log"      // written line by line
)

// inputs are the files that --profiles names.
func (f *profileFlags) inputs() []named {
	var out []named
	for _, p := range f.Profiles {
		out = append(out, named{profilesFlag, p})
	}
	return out
}

// clusterInput is the file of a cluster; none for an embedded one.
func clusterInput(name string) named {
	if slices.Contains(clusters.Names(), name) {
		name = ""
	}
	return named{"--cluster", name}
}

// inputs are the files that a run reads.
func (f *runFlags) inputs() []named {
	return append(f.profileFlags.inputs(), clusterInput(f.Cluster), named{"--policy", f.Policy})
}

// checkPlot says whether a figure can be saved under that name.
func checkPlot(path string) error {
	if path == "" || slices.Contains([]string{".svg", ".png"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	_, text, _ := strings.Cut(chart.ErrExtension.Error(), ": ")
	return badInputf("--plot: %s: %q", text, path)
}
